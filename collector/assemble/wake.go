// wake.go joins waits with what ended them.
//
// A lock's hand-over is known exactly: the agent leaves the releaser's name with the lock, and the last one who
// let go before the wait ended is the one. For condition variables, semaphores and futexes there may be several
// candidates; the join is certain when only one other thread released the object during the wait. Of several
// threads the likeliest is named, with their number and how likely it is (likely.go).
package assemble

import (
	"cmp"
	"math"
	"slices"
	"sort"

	"github.com/hbtrace/hbtrace/hooks"
	"github.com/hbtrace/hbtrace/segment"
	"github.com/hbtrace/hbtrace/trace"
)

const (
	releasesKept = 16 // of one object, at first
	// A wait is joined some passes after it ended: of an object that is let go of often more are kept, as long as the
	// oldest of them is so young.
	releasesMost = 2048
	releasesAge  = trace.Ns(200e6)
	releasesAll  = 1 << 21 // of all objects together, beyond the first ones
	objectsKept  = 1 << 15 // in each of two generations
	exitsKept    = 64      // of one process
	// A release's record says when it began. One that began just before a wait may still have been under way
	// when the wait had begun: it is a candidate, but not a certain one.
	overlapSlack = trace.Ns(20e3)
)

type objectKey struct {
	object uint64
	proc   uint32 // whose memory: sharing
}

// sharing is the process in whose memory an object of p lies: p itself, or, where processes share it, the oldest that p
// was forked from without an exec: what it had mapped lies at the same address in all of them. What each of them mapped by
// itself does not: of such objects nothing is joined. 0 unknown.
func (a *Assembler) sharing(p *process, flags uint8) uint32 {
	if p == nil {
		return 0
	}
	for range maxForks {
		up := a.procs[p.parentUID]
		if flags&segment.RecFlagShared == 0 || !p.meta.Forked || up == nil {
			break
		}
		p = up
	}
	return p.uid
}

// maxForks is how many generations are looked back.
const maxForks = 64

// release is one of them.
type release struct {
	at     trace.Ns
	by     uint32
	lasted uint32   // ns that the call took; 0: not known, or not a call that wakes
	reach  trace.Ns // no wait that begins later overlaps this release, or an earlier one of its object
	left   float32  // how many waiters it may yet have let go on, by what has been joined with it: see consume
}

// releases are the newest ones of an object.
type releases struct {
	ring     []release
	n        uint32   // ever added since the ring has its size; n % len(ring) is the next place
	gone     trace.Ns // newest time that was overwritten: about times up to here nothing is known
	unsorted bool     // some were added since they were put in order
	partial  bool     // earlier ones may have been forgotten with a generation
}

// wakes keeps releases by object, in two generations, so that what is not used any more goes.
type wakes struct {
	now, old map[objectKey]*releases
	grown    int  // places beyond the first ones, of both
	forgot   bool // a generation has been dropped: an object that is not there may have had releases
}

func (w *wakes) get(k objectKey) *releases {
	if r := w.now[k]; r != nil {
		return r
	}
	return w.old[k]
}

func (w *wakes) released(proc uint32, object uint64, x release) {
	k := objectKey{object, proc}
	r := w.now[k]
	if r == nil {
		if r = w.old[k]; r == nil {
			r = &releases{ring: make([]release, releasesKept), partial: w.forgot}
		}
		if len(w.now) >= objectsKept {
			w.forgot = w.forgot || len(w.old) > 0
			w.dropped(r)
			w.old, w.now = w.now, nil
		}
		if w.now == nil {
			w.now = map[objectKey]*releases{}
		}
		w.now[k] = r
	}
	size := uint32(len(r.ring))
	if r.n >= size && size < releasesMost && w.grown+int(size) <= releasesAll && x.at-r.ring[r.n%size].at < releasesAge {
		w.grown += int(size)
		r.grow()
		size *= 2
	}
	i := r.n % size
	if r.n >= size {
		r.gone = max(r.gone, r.ring[i].at)
	} else if r.partial && r.n == 0 {
		r.gone = x.at // what happened before the first that is remembered is not known
	}
	r.ring[i] = x
	r.n++
	r.unsorted = true
}

// sort puts the releases in order of time: they come from one sub-buffer after the other.
func (r *releases) sort() {
	size := uint32(len(r.ring))
	if oldest := r.n % size; r.n > size && oldest != 0 {
		slices.Reverse(r.ring[:oldest])
		slices.Reverse(r.ring[oldest:])
		slices.Reverse(r.ring)
	}
	r.n = min(r.n, size)
	all := r.ring[:r.n]
	slices.SortFunc(all, func(x, y release) int { return cmp.Or(cmp.Compare(x.at, y.at), cmp.Compare(x.by, y.by)) })
	reach := trace.Ns(math.MinInt64)
	for i := range all {
		reach = max(reach, all[i].at+max(trace.Ns(all[i].lasted), overlapSlack))
		all[i].reach = reach
	}
	r.unsorted = false
}

// overlapping are the releases among which are all that overlap a wait.
func (r *releases) overlapping(start, end trace.Ns) []release {
	if r.unsorted {
		r.sort()
	}
	all := r.ring[:r.n]
	to := sort.Search(len(all), func(i int) bool { return all[i].at > end })
	from := sort.Search(to, func(i int) bool { return all[i].reach >= start })
	return all[from:to]
}

// grow doubles the ring; the oldest comes first then.
func (r *releases) grow() {
	size := len(r.ring)
	oldest := int(r.n) % size
	ring := make([]release, 2*size)
	copy(ring[copy(ring, r.ring[oldest:]):], r.ring[:oldest])
	r.ring, r.n = ring, uint32(size)
}

// dropped accounts for the older generation, which is about to be forgotten but for what moved on.
func (w *wakes) dropped(moving *releases) {
	for k, r := range w.old {
		if w.now[k] != r && r != moving {
			w.grown -= len(r.ring) - releasesKept
		}
	}
}

// join fills in who ended a wait, and whether that is certain.
func (a *Assembler) join(t *thread, hook hooks.Info, space uint32, e *trace.Event) {
	if e.Flags&trace.FlagTimedOut != 0 {
		e.Releaser, e.Release = 0, 0 // nobody did
		return
	}
	if e.Flags&(trace.FlagInterrupted|trace.FlagFailed|trace.FlagUnwound) != 0 {
		return
	}
	switch {
	case hook.Class == hooks.ClassLock || hook.Go(): // the Go runtime says which goroutine made which runnable
		if e.Releaser != 0 {
			e.Flags |= trace.FlagCertain
		}
	case hook.ID == hooks.PthreadJoin || hook.ID == hooks.PthreadTimedjoinNp || hook.ID == hooks.PthreadClockjoinNp || hook.ID == hooks.ThrdJoin:
		if e.Releaser != 0 {
			e.Flags |= trace.FlagCertain
		} else if t.proc != nil {
			by, at, n := t.proc.exits.within(e.Start, e.Time, uint32(t.meta.ID))
			if n > 0 {
				e.Releaser, e.Release = a.ref(by), at
			}
			if n == 1 && e.Releaser != 0 {
				e.Flags |= trace.FlagCertain
			}
		}
	case hook.ID == hooks.PthreadBarrierWait:
		if e.Releaser != 0 {
			e.Flags |= trace.FlagCertain // the last to arrive lets everybody go
		}
	default:
		a.joinOverlapping(t, hook, space, e)
		t.woken = woken{e.Object, uint32(e.Releaser), e.Release}
	}
}

// woken is what ended a thread's last wait for something that is signalled. A signal lets a thread go on once: a later
// wait of the same thread was not ended by it, however close.
type woken struct {
	object uint64
	by     uint32
	at     trace.Ns
}

// joinOverlapping looks for the releases of e.Object that overlap the wait.
func (a *Assembler) joinOverlapping(t *thread, hook hooks.Info, space uint32, e *trace.Event) {
	if space == 0 {
		return
	}
	r := a.wakes.get(objectKey{e.Object, space})
	if r == nil {
		return
	}
	var among candidates
	near := r.overlapping(e.Start, e.Time)
	for i := range near {
		x := &near[i]
		if x.by == uint32(t.meta.ID) || !x.overlaps(e.Start, e.Time) || a.ref(x.by) == 0 {
			continue
		}
		if t.woken == (woken{e.Object, x.by, x.at}) {
			continue
		}
		among.add(x)
	}
	if among.n == 0 {
		return
	}
	c, threads, chance := among.likeliest(a.delaysOf(hook), e.Time)
	if threads > 1 {
		e.Releaser, e.Release = a.ref(c.by), c.at
		e.Weight, e.Size = uint64(threads), chance
		return
	}
	switch e.Releaser {
	case 0:
		e.Releaser, e.Release = a.ref(c.by), c.at
	case a.ref(c.by):
	default:
		return // the agent names another: it may have seen a release whose record was lost
	}
	whole := r.gone < e.Start-overlapSlack
	if (c.at >= e.Start || c.lasted != 0) && whole && among.left == 0 {
		e.Flags |= trace.FlagCertain
	}
}

// overlaps says whether it may have ended a wait from start to end. Its record says when it began; where it does not say
// how long it took, it may still have been under way for a while.
func (x *release) overlaps(start, end trace.Ns) bool {
	if x.at > end {
		return false
	}
	if x.lasted != 0 {
		return x.at+trace.Ns(x.lasted) > start
	}
	return x.at >= start-overlapSlack
}

// exits are the newest thread exits of a process.
type exits struct {
	at [exitsKept]trace.Ns
	by [exitsKept]uint32
	n  uint32
}

func (x *exits) add(by uint32, at trace.Ns) {
	i := x.n % exitsKept
	x.at[i], x.by[i] = at, by
	x.n++
}

// within finds the exits of other threads between two times: the last of them, and how many there are. When
// some may have been forgotten the answer is never 1.
func (x *exits) within(from, to trace.Ns, self uint32) (by uint32, at trace.Ns, n int) {
	if x.n > exitsKept && x.at[x.n%exitsKept] >= from {
		n++ // the oldest that is kept is not old enough
	}
	for i := range min(x.n, exitsKept) {
		if x.by[i] != self && x.at[i] >= from && x.at[i] <= to {
			n++
			if x.at[i] >= at {
				by, at = x.by[i], x.at[i]
			}
		}
	}
	if by == 0 {
		n = 0
	}
	return by, at, n
}
