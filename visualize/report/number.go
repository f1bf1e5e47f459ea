// Numbers as a person reads them: three significant digits, a unit, one column of them aligned.

package report

import (
	"fmt"
	"strconv"
	"strings"
)

// duration writes nanoseconds in the unit that leaves three significant digits: "850 ns", "12.3 µs", "1.20 s",
// "3m24s". The unit is padded to two columns so that right-aligned columns line up their digits.
func duration(ns int64) string {
	if ns < 0 {
		return "-" + duration(-max(ns, -1<<62))
	}
	f := float64(ns)
	switch {
	case ns == 0:
		return "0 s "
	case ns < 1000:
		return strconv.FormatInt(ns, 10) + " ns"
	case f < 999.5e3:
		return three(f/1e3) + " µs"
	case f < 999.5e6:
		return three(f/1e6) + " ms"
	case f < 99.95e9:
		return three(f/1e9) + " s "
	}
	s := (ns + 5e8) / 1e9
	if s < 3600 {
		return fmt.Sprintf("%dm%02ds", s/60, s%60)
	}
	if s < 1000*3600 {
		return fmt.Sprintf("%dh%02dm", s/3600, s/60%60)
	}
	return group(uint64(s/3600)) + " h "
}

// inline is a number for the middle of a sentence, without the padding of columns.
func inline(s string) string { return strings.TrimRight(s, " ") }

// byteSize writes a size: "512 B", "1.50 KiB", "12.3 MiB".
func byteSize(n uint64) string {
	if n < 1024 {
		return strconv.FormatUint(n, 10) + " B  "
	}
	f := float64(n)
	for _, unit := range []string{"KiB", "MiB", "GiB", "TiB", "PiB"} {
		f /= 1024
		if f < 999.5 {
			return three(f) + " " + unit
		}
	}
	return three(f/1024) + " EiB"
}

// three writes 0 <= f < 1000 in three significant digits.
func three(f float64) string {
	switch {
	case f < 9.995:
		return strconv.FormatFloat(f, 'f', 2, 64)
	case f < 99.95:
		return strconv.FormatFloat(f, 'f', 1, 64)
	}
	return strconv.FormatFloat(f, 'f', 0, 64)
}

// group writes a count with its thousands apart: 1,234,567.
func group(n uint64) string {
	s := strconv.FormatUint(n, 10)
	var b strings.Builder
	for i := range len(s) {
		if i > 0 && (len(s)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// percent writes part of whole; "" where there is no whole. It never rounds something to nothing, nor all but
// something to everything.
func percent(part, whole float64) string {
	if whole <= 0 {
		return ""
	}
	p := 100 * part / whole
	switch {
	case part > 0 && p < 0.05:
		return "<0.1 %"
	case part < whole && p > 99.95:
		return "99.9 %"
	case p >= 99.95:
		return strconv.FormatFloat(p, 'f', 0, 64) + " %"
	}
	return strconv.FormatFloat(p, 'f', 1, 64) + " %"
}

// plural writes "1 thread", "2 threads", "2 processes".
func plural(n uint64, one string) string {
	if n == 1 {
		return "1 " + one
	}
	if strings.HasSuffix(one, "s") {
		return group(n) + " " + one + "es"
	}
	return group(n) + " " + one + "s"
}
