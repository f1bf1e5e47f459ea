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
	// step[k][i] is by how much every bucket from i on has more than those before: what reaches over many
	// buckets costs two additions.
	step [loadKinds][]float64
}

func newLoad(length int64) *load {
	l := &load{width: max(1, (length+loadBuckets-1)/loadBuckets)}
	for k := range l.sum {
		l.sum[k] = make([]float64, loadBuckets)
		l.step[k] = make([]float64, loadBuckets)
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
	first, last := start/l.width, (end-1)/l.width
	if first == last {
		l.sum[k][first] += float64(end-start) * weight
		return
	}
	l.sum[k][first] += float64((first+1)*l.width-start) * weight
	l.sum[k][last] += float64(end-last*l.width) * weight
	l.step[k][first+1] += float64(l.width) * weight
	l.step[k][last] -= float64(l.width) * weight
}

// whole is the sum of each bucket.
func (l *load) whole(k loadKind) []float64 {
	out := make([]float64, loadBuckets)
	level := 0.0
	for i := range out {
		level += l.step[k][i]
		out[i] = l.sum[k][i] + level
	}
	return out
}

// widen makes the buckets twice as wide.
func (l *load) widen() {
	l.width *= 2
	for k := range loadKinds {
		all, s := l.whole(k), l.sum[k]
		for i := range loadBuckets / 2 {
			s[i] = all[2*i] + all[2*i+1]
		}
		clear(s[loadBuckets/2:])
		clear(l.step[k])
	}
}

// between gives the sums of cols equal parts of [from, to); a bucket's sum is taken to be even over its width.
func (l *load) between(k loadKind, from, to int64, cols int) []float64 {
	out, all := make([]float64, cols), l.whole(k)
	per := float64(to-from) / float64(cols)
	for c := range out {
		a, b := float64(from)+float64(c)*per, float64(from)+float64(c+1)*per
		for i := int64(max(0, a)) / l.width; i < loadBuckets && float64(i*l.width) < b; i++ {
			lo, hi := max(a, float64(i*l.width)), min(b, float64((i+1)*l.width))
			if hi > lo {
				out[c] += all[i] * (hi - lo) / float64(l.width)
			}
		}
	}
	return out
}
