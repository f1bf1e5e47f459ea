// likely.go says whom a wait names where several threads may have ended it, and how likely that is.
//
// Whoever is let go on comes back soon: how soon is mostly up to the machine's load, so it is learnt from the recording's own
// waits, by kind of wait. A release that lies d before the wait's end is then the one in proportion to the density of
// these delays at d, and to the chance that it did not let others go on before: a signal ends one wait. That is Bayes'
// rule, nothing being known of the candidates otherwise; a wait with several candidates adds to what is learnt in
// parts (expectation and maximisation, as they come by). Of several releases by one thread it is the thread that is asked about.
package assemble

import (
	"math"
	"math/bits"

	"github.com/hbtrace/hbtrace/hooks"
	"github.com/hbtrace/hbtrace/trace"
)

// Chances are stored in thousandths (trace.Event.Size of a wait).
const chanceWhole = 1000

// delays is a histogram of the time between a release and the end of the wait that it ended.
type delays struct {
	n     [delayClasses]float32 // waits
	total float32
}

const (
	delayClasses = 2 * 40 // two an octave: up to 2^40 ns
	delaysMost   = 1 << 12
	// What is assumed before anything is learnt, as so many waits: every octave is as likely as the others,
	// so that of two releases one ten times as near is ten times as likely.
	delaysPrior = 16.0
)

// delayClass is the class of a delay of d ns.
func delayClass(d trace.Ns) int {
	x := uint64(max(d, 1))
	octave := bits.Len64(x) - 1
	half := 0
	if octave > 0 {
		half = int(x >> (octave - 1) & 1)
	}
	return min(2*octave+half, delayClasses-1)
}

// add learns that part of a wait (1: all of it) ended d after its release. What was learnt long ago fades.
func (l *delays) add(d trace.Ns, part float32) {
	l.n[delayClass(d)] += part
	if l.total += part; l.total < delaysMost {
		return
	}
	l.total = 0
	for i := range l.n {
		l.n[i] /= 2
		l.total += l.n[i]
	}
}

// density is proportional to the probability that a delay is d, to the nanosecond.
func (l *delays) density(d trace.Ns) float64 {
	c := delayClass(d)
	width := max(float64(uint64(1)<<(c/2))/2, 1) // ns
	return (float64(l.n[c]) + delaysPrior/delayClasses) / width
}

// delaysOf is the histogram for waits of a kind.
func (a *Assembler) delaysOf(hook hooks.Info) *delays {
	switch hook.Class {
	case hooks.ClassCond:
		return &a.delays[0]
	case hooks.ClassSem:
		return &a.delays[1]
	}
	return &a.delays[2]
}

// candidates are releases by some threads, any of which may have ended a wait. Of more than are kept the newest are.
type candidates struct {
	r    [32]*release
	n    int // that are kept
	left int // that are not
}

func (s *candidates) add(x *release) {
	if s.n < len(s.r) {
		s.r[s.n] = x
		s.n++
		return
	}
	s.left++
	oldest := 0
	for i := range s.r {
		if s.r[i].at < s.r[oldest].at {
			oldest = i
		}
	}
	if x.at > s.r[oldest].at {
		s.r[oldest] = x
	}
}

// Joins err, and learning from them makes them surer of themselves than they may be. These are fitted to what the kernel
// saw in the pools of bench/locks (six waiters, three who signal; docs/design/chains.md has the figures): without them waits
// said 0.81 to 0.88 and were right in 0.69 to 0.78 of cases.
const (
	leastLeft = 0.2 // the weight of a release that seems to have ended others' waits
	temper    = 0.7 // exponent of a candidate's weight
	astray    = 0.1 // of joins, in which anybody may have been the one
)

// likeliest picks the thread that is most likely to have ended a wait, of at least one, with its likeliest release; among how
// many threads; and how likely it is, in thousandths. It learns from that, and books it with the releases.
func (s *candidates) likeliest(l *delays, end trace.Ns) (c release, threads int, chance uint64) {
	var p [len(s.r)]float64
	sum := 0.0
	for i, x := range s.r[:s.n] {
		p[i] = math.Pow(l.density(end-x.at)*max(float64(x.left), leastLeft), temper)
		sum += p[i]
	}
	best := -1.0
	for i, x := range s.r[:s.n] {
		of, first, top := 0.0, true, i
		for j, y := range s.r[:s.n] {
			if y.by != x.by {
				continue
			}
			first = first && j >= i
			of += p[j]
			if p[j] > p[top] || p[j] == p[top] && y.at > s.r[top].at {
				top = j
			}
		}
		if !first {
			continue
		}
		threads++
		if of > best || of == best && s.r[top].at > c.at {
			best, c = of, *s.r[top]
		}
	}
	for i, x := range s.r[:s.n] {
		part := float32(p[i] / sum)
		l.add(end-x.at, part)
		x.left = max(x.left-part, 0)
	}
	p1 := best/sum*(1-astray) + astray/float64(threads)
	return c, threads, max(1, min(uint64(p1*chanceWhole+0.5), chanceWhole-1))
}

// lets is how many waits a release by a hook may end; woken is what its record says.
func lets(hook trace.HookID, woken uint32) float32 {
	switch hook {
	case hooks.PthreadCondSignal, hooks.CndSignal, hooks.SemPost:
		return 1
	case hooks.FutexWake:
		return float32(woken)
	}
	return 1 << 20 // everybody
}
