// Numbers in columns and in sentences.
package report

import (
	"testing"

	"github.com/hbtrace/hbtrace/visualize/number"
)

func TestNumbers(t *testing.T) {
	for ns, want := range map[int64]string{
		0: "0 s ", 999: "999 ns", 1000: "1.00 µs", 12_345: "12.3 µs", 999_499: "999 µs", 999_500: "1.00 ms", 1_500_000_000: "1.50 s ",
		99_949_000_000: "99.9 s ", 100_000_000_000: "1m40s", 3_599_600_000_000: "1h00m", 90_000_000_000_000: "25h00m", -5: "-5 ns",
	} {
		if got := duration(ns); got != want {
			t.Errorf("duration(%d) = %q, want %q", ns, got, want)
		}
	}
	for n, want := range map[uint64]string{0: "0 B  ", 1023: "1023 B  ", 1536: "1.50 KiB", 1 << 20: "1.00 MiB", 1<<64 - 1: "16.0 EiB"} {
		if got := byteSize(n); got != want {
			t.Errorf("byteSize(%d) = %q, want %q", n, got, want)
		}
	}
	for _, tt := range []struct {
		part, whole float64
		want        string
	}{{1, 1e6, "<0.1 %"}, {999_999, 1e6, "99.9 %"}, {1, 1, "100 %"}, {0, 5, "0.0 %"}, {1, 0, ""}, {1, 3, "33.3 %"}} {
		if got := number.Percent(tt.part, tt.whole); got != tt.want {
			t.Errorf("Percent(%v, %v) = %q, want %q", tt.part, tt.whole, got, tt.want)
		}
	}
	for n, want := range map[uint64]string{0: "0", 999: "999", 1000: "1,000", 1<<64 - 1: "18,446,744,073,709,551,615"} {
		if got := number.Count(n); got != want {
			t.Errorf("Count(%d) = %q, want %q", n, got, want)
		}
	}
}
