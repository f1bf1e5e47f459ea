// Package number writes numbers as a person reads them: three significant digits and a unit.
package number

import (
	"fmt"
	"strconv"
	"strings"
)

// Duration writes nanoseconds in the unit that leaves three significant digits: "850 ns", "12.3 µs", "1.20 s",
// "3m24s".
func Duration(ns int64) string {
	if ns < 0 {
		return "-" + Duration(-max(ns, -1<<62))
	}
	f := float64(ns)
	switch {
	case ns == 0:
		return "0 s"
	case ns < 1000:
		return strconv.FormatInt(ns, 10) + " ns"
	case f < 999.5e3:
		return Three(f/1e3) + " µs"
	case f < 999.5e6:
		return Three(f/1e6) + " ms"
	case f < 99.95e9:
		return Three(f/1e9) + " s"
	}
	s := (ns + 5e8) / 1e9
	if s < 3600 {
		return fmt.Sprintf("%dm%02ds", s/60, s%60)
	}
	if s < 1000*3600 {
		return fmt.Sprintf("%dh%02dm", s/3600, s/60%60)
	}
	return Count(uint64(s/3600)) + " h"
}

// Bytes writes a size in binary units: "512 B", "1.50 KiB", "12.3 MiB".
func Bytes(n uint64) string {
	if n < 1024 {
		return strconv.FormatUint(n, 10) + " B"
	}
	f := float64(n)
	for _, unit := range []string{"KiB", "MiB", "GiB", "TiB", "PiB"} {
		f /= 1024
		if f < 999.5 {
			return Three(f) + " " + unit
		}
	}
	return Three(f/1024) + " EiB"
}

// Three writes 0 <= f < 1000 in three significant digits.
func Three(f float64) string {
	switch {
	case f < 9.995:
		return strconv.FormatFloat(f, 'f', 2, 64)
	case f < 99.95:
		return strconv.FormatFloat(f, 'f', 1, 64)
	}
	return strconv.FormatFloat(f, 'f', 0, 64)
}

// Count writes a number with its thousands apart: 1,234,567.
func Count[T int | int64 | uint32 | uint64](n T) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Percent writes part of whole; "" where there is no whole. It never rounds something to nothing, nor all but
// something to everything.
func Percent[T int64 | uint64 | float64](part, whole T) string {
	if whole <= 0 {
		return ""
	}
	p := 100 * float64(part) / float64(whole)
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

// Plural writes "1 thread", "2 threads", "2 processes".
func Plural(n uint64, one string) string {
	if n == 1 {
		return "1 " + one
	}
	if strings.HasSuffix(one, "s") {
		return Count(n) + " " + one + "es"
	}
	return Count(n) + " " + one + "s"
}
