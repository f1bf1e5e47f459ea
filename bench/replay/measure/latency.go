package measure

import "math"

// Latency is a histogram of durations: 32 bins to the octave (2 % wide), 1 ns to 2^32 ns, and their exact
// geometric mean. The zero value is empty. It is for one goroutine.
type Latency struct {
	bins   [32 * 32]uint32
	logSum float64
	n      uint64
	sum    float64
}

// Add counts weight durations of ns each.
func (l *Latency) Add(ns float64, weight int) {
	lg := math.Log2(max(ns, 1))
	l.logSum += lg * float64(weight)
	l.sum += ns * float64(weight)
	l.n += uint64(weight)
	l.bins[min(int(lg*32), len(l.bins)-1)] += uint32(weight)
}

// Merge adds what another histogram has.
func (l *Latency) Merge(o *Latency) {
	for i, n := range o.bins {
		l.bins[i] += n
	}
	l.logSum += o.logSum
	l.sum += o.sum
	l.n += o.n
}

// AddBin counts n durations that fell into bin i of another such histogram.
func (l *Latency) AddBin(i int, n uint32) {
	lg := (float64(i) + 0.5) / 32
	l.bins[i] += n
	l.logSum += lg * float64(n)
	l.sum += math.Exp2(lg) * float64(n)
	l.n += uint64(n)
}

// N is how many durations were counted.
func (l *Latency) N() uint64 { return l.n }

// GeoMean is their geometric mean in ns, the paper's figure; 0 when there are none.
func (l *Latency) GeoMean() float64 {
	if l.n == 0 {
		return 0
	}
	return math.Exp2(l.logSum / float64(l.n))
}

// Mean is their arithmetic mean in ns.
func (l *Latency) Mean() float64 {
	if l.n == 0 {
		return 0
	}
	return l.sum / float64(l.n)
}

// Quantile is the duration in ns below which the share q of them lies, to 2 %; 0 when there are none.
func (l *Latency) Quantile(q float64) float64 {
	rank, seen := uint64(q*float64(l.n)), uint64(0)
	for i, n := range l.bins {
		if seen += uint64(n); seen > rank {
			return math.Exp2((float64(i) + 0.5) / 32)
		}
	}
	return 0
}

// GeoMean is the geometric mean of positive values; values below floor count as floor, so that one zero does
// not swallow the rest.
func GeoMean(values []float64, floor float64) float64 {
	if len(values) == 0 {
		return 0
	}
	s := 0.0
	for _, v := range values {
		s += math.Log(max(v, floor))
	}
	return math.Exp(s / float64(len(values)))
}
