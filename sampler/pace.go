// When a thread is sampled, and how often at most.
package sampler

import "math"

// random is xorshift64 (Marsaglia 2003).
func (l *loop) random() uint64 {
	x := l.rng
	x ^= x << 13
	x ^= x >> 7
	x ^= x << 17
	l.rng = x
	return x
}

// chanceOf is the chance of every tick, as a fraction of 2^64, to be one at which a thread is sampled if it runs, for one
// sample per interval. It is the same for each tick, whatever the thread did before: that makes the samples unbiased. (Asking
// once enough CPU time has gone by is not: for a thread that runs in bursts the counter moves when a burst
// ends, so the request would always be met early in the next one.)
func chanceOf(tickNs, intervalNs uint64) uint64 {
	if tickNs >= intervalNs {
		return math.MaxUint64
	}
	return uint64(float64(tickNs) / float64(intervalNs) * (1 << 64))
}

// budget bounds a thread's samples of one kind by its CPU time: one that waits for a CPU most of the time looks as
// runnable as one that runs. The CPU time is read when what the last reading allowed is used up. Samples may run ahead of it by
// a lag, since the kernel's counter is behind and samples come at random; CPU time without samples counts for no more than that.
type budget struct {
	perNs uint64 // CPU time for one sample
	lagNs uint64
	due   uint64 // CPU time that justifies the samples so far, ns
}

func newBudget(perNs uint64) budget {
	return budget{perNs: perNs, lagNs: max(2*kernelTickNs, 10*perNs)}
}

// left: there may be another sample when the thread has used cpu ns.
func (b *budget) left(cpu uint64) bool { return cpu+b.lagNs >= b.due }

func (b *budget) spend(cpu uint64) { b.due = max(b.due+b.lagNs, cpu) - b.lagNs + b.perNs }
