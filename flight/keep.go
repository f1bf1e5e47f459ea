// How much is kept.

package flight

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Keep bounds a window. A zero field is no bound.
type Keep struct {
	Time  time.Duration
	Bytes int64
}

// Limits of a window's size.
const (
	DefaultBytes = 64 << 20 // where only a time is given
	leastBytes   = 1 << 20
	mostBytes    = 64 << 30
	leastTime    = time.Second
)

// ParseKeep reads a time, a size, or both: "60s", "64M", "60s,64M".
func ParseKeep(text string) (Keep, error) {
	var k Keep
	for _, part := range strings.Split(text, ",") {
		part = strings.TrimSpace(part)
		if d, err := time.ParseDuration(part); err == nil && part != "0" {
			if k.Time != 0 {
				return k, fmt.Errorf("%q has two times: use one, such as 60s,64M", text)
			}
			if d < leastTime {
				return k, fmt.Errorf("a window of %s: use %s or more", part, leastTime)
			}
			k.Time = d
			continue
		}
		n, err := parseSize(part)
		if err != nil {
			return k, fmt.Errorf("%q is no time and no size: use 60s, 64M, or both: 60s,64M", part)
		}
		if k.Bytes != 0 {
			return k, fmt.Errorf("%q has two sizes: use one, such as 60s,64M", text)
		}
		if n < leastBytes || n > mostBytes {
			return k, fmt.Errorf("a window of %s: use 1M to 64G", part)
		}
		k.Bytes = n
	}
	return k, nil
}

func parseSize(s string) (int64, error) {
	number := strings.TrimSuffix(strings.TrimSuffix(strings.ToUpper(s), "B"), "I")
	shift := 0
	if number != "" {
		if i := strings.IndexByte("KMG", number[len(number)-1]); i >= 0 {
			number, shift = number[:len(number)-1], (i+1)*10
		}
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || shift == 0 || n < 0 || n > math.MaxInt64>>shift {
		return 0, strconv.ErrSyntax
	}
	return n << shift, nil
}

// Size is the size of the window's file.
func (k Keep) Size() int64 {
	if k.Bytes == 0 {
		return DefaultBytes
	}
	return k.Bytes
}

// String is what ParseKeep reads.
func (k Keep) String() string {
	var parts []string
	if k.Time != 0 {
		parts = append(parts, shortTime(k.Time))
	}
	if k.Bytes != 0 {
		parts = append(parts, SizeString(k.Bytes))
	}
	return strings.Join(parts, ",")
}

// shortTime is a duration without its zero parts: 1m0s is 1m.
func shortTime(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// SizeString is a number of bytes in the largest unit that divides it.
func SizeString(n int64) string {
	for _, u := range []struct {
		shift uint
		name  string
	}{{30, "G"}, {20, "M"}, {10, "K"}} {
		if n > 0 && n%(1<<u.shift) == 0 {
			return strconv.FormatInt(n>>u.shift, 10) + u.name
		}
	}
	return strconv.FormatInt(n, 10)
}
