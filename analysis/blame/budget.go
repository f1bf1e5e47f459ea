// What one wait may take. In a queue of n threads for one lock each wait overlaps the turns of all n, so that following
// all of them exactly takes n² steps, and more where holders wait themselves.
//
// Every wait may take a share of the steps that are left: several times its part, since most waits take few. A wait
// that has used up its share goes on from there by instants: the rest of it is cut into equal strata, the chain is
// followed at one random instant of each, and its end stands for the whole stratum. All of the wait's time is spent, and
// sums over many waits are without bias. In a recording with few waits each is followed exactly.

package blame

import (
	"math"

	"github.com/hbtrace/hbtrace/trace"
)

const (
	shares       = 8 // times its part that a wait may take
	leastSteps   = 8
	leastStrata  = 8
	mostStrata   = 256
	stepsStratum = 4 // that an instant takes, about
)

// spread spends a wait, the first of left.
func (w *walker) spread(iv *interval, left int) {
	share := max(leastSteps, (w.a.o.MaxSteps-w.steps)/max(left, 1)*shares)
	w.reached, w.stands, w.until = iv.start, 0, w.steps+share
	w.chains(iv, iv.start, iv.end)
	rest := iv.end - w.reached
	if rest <= 0 {
		return
	}
	w.a.res.WaitsEstimated++
	w.until = math.MaxInt
	n := min(trace.Ns(min(max(share/stepsStratum, leastStrata), mostStrata)), rest)
	from := w.reached
	for k := range n {
		lo, hi := from+part(rest, k, n), from+part(rest, k+1, n)
		w.at = lo + trace.Ns(mix(uint64(w.wait)<<16|uint64(k))%uint64(hi-lo))
		w.stands, w.part.From, w.part.To = hi-lo, lo, hi
		w.chains(iv, iv.start, iv.end)
	}
}

// chains spends [from, to) of a wait.
func (w *walker) chains(iv *interval, from, to trace.Ns) {
	w.path, w.hands = append(w.path[:0], iv.thread), w.hands[:0]
	w.waited(0, iv, from, to, 0)
}

// over says that the wait has used up its share.
func (w *walker) over() bool { return w.steps >= w.until }

// weight is what [from, to) stands for, in ns.
func (w *walker) weight(from, to trace.Ns) int64 {
	if w.stands != 0 {
		return int64(w.stands)
	}
	return max(0, int64(to-from))
}

// skips says that a wait is followed at an instant which is not in [from, to).
func (w *walker) skips(from, to trace.Ns) bool { return w.stands != 0 && (w.at < from || w.at >= to) }

// first and last are what has to be read of [from, to): all of it, or about the instant.
func (w *walker) first(from trace.Ns) trace.Ns {
	if w.stands != 0 {
		return max(from, w.at)
	}
	return from
}

func (w *walker) last(to trace.Ns) trace.Ns {
	if w.stands != 0 {
		return min(to, w.at+1)
	}
	return to
}

// part is k of n equal parts of a length.
func part(length, k, n trace.Ns) trace.Ns { return length/n*k + length%n*k/n }

// mix makes a number that looks random (the finaliser of splitmix64).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
