package main

// ttest.go: what pairs of runs say of a ratio, and whether it can be told from 1.

import (
	"fmt"
	"math"
)

// quantiles of Student's t distribution, 97.5 %, by degrees of freedom from 1.
var quantiles = [...]float64{12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
	2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042}

// paired is the geometric mean of ratios, each of one pair of runs, with its 95 % confidence interval.
type paired struct {
	pairs           int
	mean, low, high float64 // low and high are 0 and +Inf for fewer than two pairs
}

// pairedOf is a t-test of the ratios' logarithms against 0: how much slower and how much faster count alike. Ratios are above 0.
func pairedOf(ratios []float64) paired {
	n := float64(len(ratios))
	if n == 0 {
		return paired{0, math.NaN(), 0, math.Inf(1)}
	}
	var sum, squares float64
	for _, r := range ratios {
		sum += math.Log(r)
	}
	mean := sum / n
	for _, r := range ratios {
		d := math.Log(r) - mean
		squares += d * d
	}
	if n < 2 {
		return paired{1, math.Exp(mean), 0, math.Inf(1)}
	}
	t := 1.96 + 2.5/(n-1) // for many degrees of freedom, within 0.001
	if int(n-1) <= len(quantiles) {
		t = quantiles[int(n)-2]
	}
	half := t * math.Sqrt(squares/(n-1)/n)
	return paired{len(ratios), math.Exp(mean), math.Exp(mean - half), math.Exp(mean + half)}
}

// differs: the ratio can be told from 1 (p < 0.05).
func (p paired) differs() bool { return p.low > 1 || p.high < 1 }

// String is the mean and its interval, with a star where it can be told from 1.
func (p paired) String() string {
	if math.IsNaN(p.mean) {
		return "-"
	}
	if p.pairs < 2 {
		return fmt.Sprintf("%.3f", p.mean)
	}
	star := ""
	if p.differs() {
		star = " *"
	}
	return fmt.Sprintf("%.3f [%.3f, %.3f]%s", p.mean, p.low, p.high, star)
}
