// The timelines: what every thread was seen to do, ordered for look-ups by time.

package blame

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/hbtrace/hbtrace/trace"
)

// interval is a wait or a call.
type interval struct {
	start, end, release     trace.Ns
	object, object2         uint64
	thread, owner, releaser trace.ThreadID
	stack                   trace.StackID
	hook                    trace.HookID
	flags                   trace.Flags
	wait, lock, followed    bool
}

// sample is a moment, or a run of equal ones, at which a thread was seen running.
type sample struct {
	start, end trace.Ns
	thread     trace.ThreadID
	stack      trace.StackID
}

// letGo is a recorded release.
type letGo struct {
	at, taken trace.Ns // taken 0: unknown
	object    uint64
	thread    trace.ThreadID
	site      trace.Site
}

// off is a time off a CPU, as the kernel saw it: blocked until wake, then without a CPU until end.
type off struct {
	start, wake, end trace.Ns
	thread           trace.ThreadID
	stack            trace.StackID
	waker            trace.ThreadID // 0: nobody, an interrupt, or a thread outside the recording
}

type releaseKey struct {
	thread trace.ThreadID
	at     trace.Ns
}

type span struct{ lo, hi int }

type timeline struct {
	intervals []interval
	samples   []sample
	releases  []letGo
	released  map[releaseKey]int32
	holds     map[releaseKey]trace.Site // by when it ended: where the lock had been taken
	offs      []off
	forgotten trace.Ns // what ended before
	// After sort: where a thread's begin and end. Waits and calls of a thread are in the order of their starts.
	ofThread, samplesOf, offsOf map[trace.ThreadID]span
	spare                       spare
}

// spare is room for the next sort.
type spare struct {
	intervals []interval
	samples   []sample
	offs      []off
}

// Add takes the next stored event.
func (a *Analyser) Add(e *trace.Event) {
	l := &a.line
	switch e.Kind {
	case trace.KindWait, trace.KindCall:
		if e.Time <= e.Start {
			return
		}
		if !a.room(func() int { return len(l.intervals) }, a.o.MaxIntervals) {
			a.res.IntervalsLeft++
			return
		}
		iv := interval{
			start: e.Start, end: e.Time, release: e.Release, object: e.Object, object2: e.Object2, thread: e.Thread,
			owner: e.Owner, releaser: e.Releaser, stack: e.Stack, hook: e.Hook, flags: e.Flags, wait: e.Kind == trace.KindWait,
		}
		iv.lock = iv.wait && a.locking.Wait(e.Hook, e.Stack)
		if iv.wait || a.signals(e.Hook) {
			a.use(e, a.kind(e.Hook))
		} else if iv.releaser != 0 {
			a.res.names[Object{a.procOf[e.Thread], e.Object}] = fmt.Sprintf("descriptor %d", e.Object)
		}
		l.intervals = append(l.intervals, iv)
	case trace.KindRelease:
		if !a.room(func() int { return len(l.releases) }, a.o.MaxIntervals) {
			a.res.IntervalsLeft++
			return
		}
		if l.released == nil {
			l.released = map[releaseKey]int32{}
		}
		l.released[releaseKey{e.Thread, e.Time}] = int32(len(l.releases))
		l.releases = append(l.releases, letGo{e.Time, e.Release, e.Object, e.Thread, trace.Site{Stack: e.Stack, Hook: e.Hook}})
	case trace.KindHold:
		a.use(e, "")
		if !a.room(func() int { return len(l.holds) }, a.o.MaxIntervals) {
			a.res.IntervalsLeft++
			return
		}
		if l.holds == nil {
			l.holds = map[releaseKey]trace.Site{}
		}
		l.holds[releaseKey{e.Thread, e.Time}] = trace.Site{Stack: e.Stack, Hook: e.Hook}
	case trace.KindOff:
		if e.Weight == trace.OffNew {
			return
		}
		if !a.room(func() int { return len(l.offs) }, a.o.MaxIntervals) {
			a.res.IntervalsLeft++
			return
		}
		o := off{start: e.Start, wake: e.Start, end: e.Time, thread: e.Thread, stack: e.Stack}
		if e.Result != trace.OffRunnable {
			if o.wake = e.Release; o.wake == 0 {
				o.wake = e.Time
			}
			if e.Weight != trace.OffByInterrupt {
				o.waker = e.Releaser
			}
		}
		l.offs = append(l.offs, o)
	case trace.KindCPU, trace.KindGap, trace.KindSync, trace.KindAlloc:
		if e.Stack == 0 {
			return
		}
		if !a.room(func() int { return len(l.samples) }, a.o.MaxSamples) {
			a.res.SamplesLeft++
			return
		}
		l.samples = append(l.samples, sample{e.Start, e.Time, e.Thread, e.Stack})
	}
}

// release finds where a wait's releaser let go.
func (l *timeline) release(iv *interval) trace.Site {
	if iv.releaser == 0 || iv.release == 0 {
		return trace.Site{}
	}
	if i, ok := l.released[releaseKey{iv.releaser, iv.release}]; ok {
		return l.releases[i].site
	}
	return trace.Site{}
}

func (l *timeline) sort() {
	l.intervals, l.spare.intervals, l.ofThread = byThread(l.intervals, l.spare.intervals, func(x *interval) trace.ThreadID { return x.thread },
		func(x, y *interval) int { return cmp.Or(cmp.Compare(x.start, y.start), cmp.Compare(y.end, x.end)) })
	l.samples, l.spare.samples, l.samplesOf = byThread(l.samples, l.spare.samples, func(x *sample) trace.ThreadID { return x.thread },
		func(x, y *sample) int { return cmp.Compare(x.start, y.start) })
	l.offs, l.spare.offs, l.offsOf = byThread(l.offs, l.spare.offs, func(x *off) trace.ThreadID { return x.thread },
		func(x, y *off) int { return cmp.Compare(x.start, y.start) })
}

// offFrom is the index of a thread's first time off a CPU that reaches beyond a time, the end of them, and when the one before it
// ended.
func (l *timeline) offFrom(t trace.ThreadID, at trace.Ns) (i, hi int, before trace.Ns) {
	s := l.offsOf[t]
	i, _ = slices.BinarySearchFunc(l.offs[s.lo:s.hi], at, func(o off, at trace.Ns) int { return cmp.Compare(o.end, at) })
	if i > 0 {
		before = l.offs[s.lo+i-1].end
	}
	return s.lo + i, s.hi, before
}

// third is the thread that the kernel saw waking a wait from its last sleep, where that is neither its owner nor its releaser;
// 0: one of them did, nobody, or it is not known.
func (l *timeline) third(iv *interval) trace.ThreadID {
	var by trace.ThreadID
	i, hi, _ := l.offFrom(iv.thread, iv.start)
	for ; i < hi && l.offs[i].start < iv.end; i++ {
		if l.offs[i].waker != 0 {
			by = l.offs[i].waker
		}
	}
	if by == iv.owner || by == iv.releaser {
		return 0
	}
	return by
}

// from is the index of a thread's first interval that may reach beyond a time, the end of its intervals, and when the one before it
// ended. A signal handler's intervals may lie in another; those are found through the one that they lie in.
func (l *timeline) from(t trace.ThreadID, at trace.Ns) (i, hi int, before trace.Ns) {
	s := l.ofThread[t]
	ivs := l.intervals[s.lo:s.hi]
	i, _ = slices.BinarySearchFunc(ivs, at, func(iv interval, at trace.Ns) int { return cmp.Compare(iv.start, at) })
	// Intervals of a thread do not overlap but for those nested in one: looking back past a few is enough.
	for back := 0; i > 0 && back < maxNested; back++ {
		if ivs[i-1].end <= at && back > 0 {
			break
		}
		i--
	}
	if i > 0 {
		before = ivs[i-1].end
	}
	return s.lo + i, s.hi, before
}

const maxNested = 4

// near is how far from a sample a thread is believed to do what the sample says: it was asked once a tick.
const near = trace.Ns(3e6)

// seen calls f for the pieces of [from, to) in which thread t, in no interval, was seen running, and for those in
// which it was not (stack 0), until f returns false. Between two samples the edge is in the middle. What is in front of first may
// be left out.
func (l *timeline) seen(t trace.ThreadID, from, to, first trace.Ns, f func(stack trace.StackID, from, to trace.Ns) bool) {
	s := l.samplesOf[t]
	all := l.samples[s.lo:s.hi]
	i, _ := slices.BinarySearchFunc(all, from, func(x sample, at trace.Ns) int { return cmp.Compare(x.end, at) })
	if first > from {
		j, _ := slices.BinarySearchFunc(all[i:], first, func(x sample, at trace.Ns) int { return cmp.Compare(x.end, at) })
		i += max(j-1, 0)
	}
	at := from
	for ; i < len(all) && all[i].start < to && at < to; i++ {
		lo := max(at, all[i].start-near)
		if lo > at && !f(0, at, lo) {
			return
		}
		hi := min(to, all[i].end+near)
		if i+1 < len(all) && all[i+1].start < to {
			hi = min(hi, max(all[i].end, all[i].end+(all[i+1].start-all[i].end)/2))
		}
		if hi > lo {
			if !f(all[i].stack, lo, hi) {
				return
			}
			at = hi
		}
	}
	if at < to {
		f(0, at, to)
	}
}
