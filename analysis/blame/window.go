// Windows: recordings of any length in bounded memory. When a list is full, the waits whose surroundings are all there are
// followed, and the older half of everything is forgotten.

package blame

import (
	"math"
	"slices"

	"github.com/hbtrace/hbtrace/trace"
)

// goneKey is a thread's last release of an object that is no longer remembered.
type goneKey struct {
	object Object
	thread trace.ThreadID
}

// room says whether a list of n may take one more, of limit, having made room where that can be.
func (a *Analyser) room(n func() int, limit int) bool {
	if n() < limit {
		return true
	}
	if a.o.Whole && !a.stuck {
		a.roll()
		// What all happened at one moment cannot be split: then it is as without windows.
		a.stuck = a.stuck || n() > limit-limit/8
	}
	return n() < limit
}

// roll looks at the waits that ended in the first three quarters of what is remembered, by the time of the fullest list, and
// forgets what ended in its first half: so each wait is followed with a quarter of all around it, both ways. A thread that held
// something in a call that ends later still is taken for not seen then, and what a wait that began earlier was spent on at
// first is not known: Result.WaitsFaded counts those.
func (a *Analyser) roll() {
	l := &a.line
	forget, follow := l.quantiles()
	if forget <= l.forgotten {
		a.stuck = true
		return
	}
	a.look(follow)
	a.forget(forget)
}

// quantiles are the times at a half and at three quarters of the longest list.
func (l *timeline) quantiles() (half, most trace.Ns) {
	var ends []trace.Ns
	switch n := max(len(l.intervals), len(l.samples)/2, len(l.releases), len(l.offs), len(l.holds)); n {
	case len(l.intervals):
		for i := range l.intervals {
			ends = append(ends, l.intervals[i].end)
		}
	case len(l.releases):
		for i := range l.releases {
			ends = append(ends, l.releases[i].at)
		}
	case len(l.offs):
		for i := range l.offs {
			ends = append(ends, l.offs[i].end)
		}
	case len(l.holds):
		for k := range l.holds {
			ends = append(ends, k.at)
		}
	default:
		for i := range l.samples {
			ends = append(ends, l.samples[i].end)
		}
	}
	slices.Sort(ends)
	return ends[len(ends)/2], ends[len(ends)*3/4]
}

// look follows the waits that ended until a time and were not followed before.
func (a *Analyser) look(until trace.Ns) {
	a.line.sort()
	if until == math.MaxInt64 { // the last time
		a.line.spare = spare{}
	}
	a.holds = map[Object]*holds{}
	a.findHolds()
	a.walk.steps = 0
	a.walk.all(until)
}

// forget drops what ended before a time. Of releases the last of each thread and object is kept, which a deadlock would be
// contradicted by.
func (a *Analyser) forget(before trace.Ns) {
	l := &a.line
	l.forgotten = before
	l.intervals = slices.DeleteFunc(l.intervals, func(iv interval) bool { return iv.end < before })
	l.samples = slices.DeleteFunc(l.samples, func(s sample) bool { return s.end < before })
	l.offs = slices.DeleteFunc(l.offs, func(o off) bool { return o.end < before })
	l.releases = slices.DeleteFunc(l.releases, func(r letGo) bool {
		if r.at >= before {
			return false
		}
		if k := (goneKey{Object{a.procOf[r.thread], r.object}, r.thread}); len(a.gone) < a.o.MaxIntervals || a.gone[k] != 0 {
			a.gone[k] = max(a.gone[k], r.at)
		}
		return true
	})
	clear(l.released)
	for i := range l.releases {
		l.released[releaseKey{l.releases[i].thread, l.releases[i].at}] = int32(i)
	}
	for k := range l.holds {
		if k.at < before {
			delete(l.holds, k)
		}
	}
}
