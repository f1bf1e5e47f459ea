// Numbers as labels and tooltips show them.

package picture

import (
	"math"
	"strconv"
	"strings"
)

// duration writes nanoseconds with three significant digits: "850 ns", "12.3 ms", "1.20 s".
func duration(ns int64) string {
	if ns < 0 {
		return "-" + duration(-max(ns, -1<<62))
	}
	f := float64(ns)
	switch {
	case ns < 1000:
		return strconv.FormatInt(ns, 10) + " ns"
	case f < 999.5e3:
		return three(f/1e3) + " µs"
	case f < 999.5e6:
		return three(f/1e6) + " ms"
	}
	return three(f/1e9) + " s"
}

// size writes bytes in binary units.
func size(n int64) string {
	f := float64(n)
	if n < 1024 {
		return strconv.FormatInt(n, 10) + " B"
	}
	for _, unit := range []string{"KiB", "MiB", "GiB", "TiB"} {
		f /= 1024
		if f < 999.5 {
			return three(f) + " " + unit
		}
	}
	return three(f/1024) + " PiB"
}

func three(f float64) string {
	switch {
	case f < 9.995:
		return strconv.FormatFloat(f, 'f', 2, 64)
	case f < 99.95:
		return strconv.FormatFloat(f, 'f', 1, 64)
	}
	return strconv.FormatFloat(f, 'f', 0, 64)
}

// count writes a number with its thousands apart.
func count(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func percent(part, whole int64) string {
	if whole <= 0 {
		return ""
	}
	p := 100 * float64(part) / float64(whole)
	if part > 0 && p < 0.05 {
		return "<0.1 %"
	}
	if part < whole && p > 99.95 {
		return "99.9 %"
	}
	return strings.TrimSuffix(strconv.FormatFloat(p, 'f', 1, 64), ".0") + " %"
}

// ticks are round times, at most n of them, that divide a span; and the label of each, all in one unit.
func ticks(span int64, n int) (step int64, label func(int64) string) {
	step = 1
	for span/step > int64(n) {
		switch lead := step / int64(math.Pow10(digits(step)-1)); lead {
		case 1:
			step *= 2
		case 2:
			step = step / 2 * 5
		default:
			step *= 2
		}
	}
	unit, name := int64(1), " ns"
	switch {
	case step >= 1e9:
		unit, name = 1e9, " s"
	case step >= 1e6:
		unit, name = 1e6, " ms"
	case step >= 1e3:
		unit, name = 1e3, " µs"
	}
	if unit < 1e9 && span >= 2000*unit { // 14,200 ms reads worse than 14.2 s
		unit *= 1e3
		name = map[int64]string{1e3: " µs", 1e6: " ms", 1e9: " s"}[unit]
	}
	return step, func(ns int64) string {
		decimals := 0
		for u := unit; u > step; u /= 10 {
			decimals++
		}
		return strconv.FormatFloat(float64(ns)/float64(unit), 'f', decimals, 64) + name
	}
}

func digits(n int64) int { return len(strconv.FormatInt(n, 10)) }
