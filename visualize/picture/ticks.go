// The times that a scale is marked with.

package picture

import (
	"math"
	"strconv"
)

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
