package main

import (
	"math"
	"testing"
)

func TestPaired(t *testing.T) {
	near := func(a, b float64) bool { return math.Abs(a-b) < 5e-4 }
	// By hand: logarithms 0.1, 0.2, 0.3; mean 0.2, deviation 0.1, t(2) = 4.303: 0.2 ± 4.303 × 0.1/√3.
	p := pairedOf([]float64{math.Exp(0.1), math.Exp(0.2), math.Exp(0.3)})
	if half := 4.303 * 0.1 / math.Sqrt(3); !near(p.mean, math.Exp(0.2)) || !near(p.low, math.Exp(0.2-half)) || !near(p.high, math.Exp(0.2+half)) {
		t.Errorf("%+v", p)
	}
	if p.differs() {
		t.Error("three pairs so far apart say nothing")
	}
	for _, tt := range []struct {
		ratios []float64
		want   bool
	}{
		{nil, false}, {[]float64{2}, false}, {[]float64{1, 1, 1}, false}, {[]float64{1.05, 1.06, 1.05, 1.06}, true},
		{[]float64{0.95, 0.94, 0.95, 0.94}, true}, {[]float64{0.9, 1.1, 0.9, 1.1}, false},
	} {
		if got := pairedOf(tt.ratios).differs(); got != tt.want {
			t.Errorf("%v: %v, want %v", tt.ratios, got, tt.want)
		}
	}
	if s := pairedOf([]float64{1.05, 1.06, 1.05, 1.06}).String(); s != "1.055 [1.046, 1.064] *" {
		t.Errorf("%q", s)
	}
}
