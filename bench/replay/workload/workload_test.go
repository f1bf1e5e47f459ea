package workload

import (
	"math"
	"slices"
	"testing"
)

func TestEveryWorkload(t *testing.T) {
	all := All()
	if len(all) != 20 {
		t.Fatalf("%d workloads, the paper has 20", len(all))
	}
	for _, w := range all {
		if w.Threads < 1 || w.Total < w.Threads {
			t.Errorf("%s: %d threads a second, %d in all", w.Name, w.Threads, w.Total)
		}
		for c, r := range w.Rates {
			if !(r > 0) || math.IsInf(r, 0) {
				t.Errorf("%s: core %d has rate %v", w.Name, c, r)
			}
		}
		if slices.Max(w.Rates[:4]) < slices.Max(w.Rates[10:]) {
			t.Errorf("%s: big cores are busier than little ones: %v", w.Name, w.Rates)
		}
		if !w.Known {
			var col paper
			for _, c := range columns {
				if c.name == w.Name {
					col = c
				}
			}
			if want := totalOf(col, known("")); math.Abs(w.Sum()/want-1) > 0.02 {
				t.Errorf("%s: rates add up to %.0f, derived total %.0f", w.Name, w.Sum(), want)
			}
		}
		t.Logf("%-9s known=%-5v Σ %6.0f/s skew %4.1f threads %3d/%3d %.0f", w.Name, w.Known, w.Sum(), w.Skew(), w.Threads, w.Total, w.Rates)
	}
}

// TestDeriveKnown derives each known workload from the other five: the error says how far the derived fourteen
// can be trusted.
func TestDeriveKnown(t *testing.T) {
	for _, c := range known("") {
		got := Workload{Rates: derive(c, known(c.name))}
		var want Workload
		for i, r := range c.rates {
			want.Rates[i] = r * 1000
		}
		dSum, dSkew := got.Sum()/want.Sum(), got.Skew()/want.Skew()
		t.Logf("%-8s total ×%.2f, skew ×%.2f", c.name, dSum, dSkew)
		if dSum < 0.4 || dSum > 2 || dSkew < 0.7 || dSkew > 1.35 {
			t.Errorf("%s: derived %v (Σ %.0f), figure 4 has %v (Σ %.0f)", c.name, got.Rates, got.Sum(), want.Rates, want.Sum())
		}
	}
}

func TestSizes(t *testing.T) {
	for i, n := range SizeTable() {
		if n < MinEntry || n > MaxEntry || n%8 != 0 {
			t.Errorf("size %d of %d bytes", i, n)
		}
	}
	if m := MeanEntry(); m < 44 || m > 60 {
		t.Errorf("mean entry %.1f bytes, derived at least 54 less a header", m)
	}
	sum, n := 0, 100000
	for st := range uint64(n) {
		sum += Size(st)
	}
	if m := float64(sum) / float64(n); math.Abs(m-MeanEntry()) > 0.5 {
		t.Errorf("mean over stamps %.1f, over the table %.1f", m, MeanEntry())
	}
}
