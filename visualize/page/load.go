// Load: what all threads together did, in buckets of the whole recording's time, for the charts above the lanes.

package page

type loadKind uint8

const (
	loadCPU     loadKind = iota // ns
	loadOff                     // ns
	loadLock                    // ns
	loadBlocked                 // ns, other than for locks
	loadAlloc                   // bytes
	loadKinds
)

// loadBuckets is a power of two and more than any screen has columns; a chart zoomed in further shows steps.
const loadBuckets = 1 << 15

type load struct {
	width int64 // ns a bucket
	sum   [loadKinds][]float64
}

func newLoad(length int64) *load {
	l := &load{width: max(1, (length+loadBuckets-1)/loadBuckets)}
	for k := range l.sum {
		l.sum[k] = make([]float64, loadBuckets)
	}
	return l
}

// add spreads weight per ns over [start, end), or puts weight at start where that is empty.
func (l *load) add(k loadKind, start, end int64, weight float64) {
	if start < 0 {
		return
	}
	for max(start, end-1)/l.width >= loadBuckets {
		l.widen()
	}
	if end <= start {
		l.sum[k][start/l.width] += weight
		return
	}
	for start < end {
		b := start / l.width
		until := min(end, (b+1)*l.width)
		l.sum[k][b] += float64(until-start) * weight
		start = until
	}
}

// widen makes the buckets twice as wide.
func (l *load) widen() {
	l.width *= 2
	for _, s := range l.sum {
		for i := range loadBuckets / 2 {
			s[i] = s[2*i] + s[2*i+1]
		}
		clear(s[loadBuckets/2:])
	}
}

// between gives the sums of cols equal parts of [from, to); a bucket's sum is taken to be even over its width.
func (l *load) between(k loadKind, from, to int64, cols int) []float64 {
	out := make([]float64, cols)
	per := float64(to-from) / float64(cols)
	for c := range out {
		a, b := float64(from)+float64(c)*per, float64(from)+float64(c+1)*per
		for i := int64(max(0, a)) / l.width; i < loadBuckets && float64(i*l.width) < b; i++ {
			lo, hi := max(a, float64(i*l.width)), min(b, float64((i+1)*l.width))
			if hi > lo {
				out[c] += l.sum[k][i] * (hi - lo) / float64(l.width)
			}
		}
	}
	return out
}
