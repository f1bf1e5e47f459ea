// Who had an object when: from the waits for it, each of which ends in an acquisition, and the recorded releases.

package blame

import (
	"cmp"
	"slices"

	"github.com/hbtrace/hbtrace/trace"
)

// turn is a moment at which a lock changed hands.
type turn struct {
	at     trace.Ns
	thread trace.ThreadID
	taken  bool       // else let go
	site   trace.Site // where; zero unknown
}

// holds are one lock's turns in the order of time.
type holds struct {
	turns []turn
	of    map[trace.ThreadID][]int32 // a thread's, by index; made when it is needed
}

// hold is one stretch of time in which a thread is known to have had a lock.
type hold struct {
	from, to trace.Ns
	object   Object
}

// acquired says whether a wait's end was an acquisition.
func (iv *interval) acquired() bool {
	return iv.flags&(trace.FlagTimedOut|trace.FlagFailed|trace.FlagUnwound|trace.FlagOpen) == 0
}

// findHolds gathers the turns of every lock.
func (a *Analyser) findHolds() {
	locks := map[Object]bool{}
	add := func(o Object, t turn) {
		h := a.holds[o]
		if h == nil {
			h = &holds{}
			a.holds[o] = h
		}
		h.turns = append(h.turns, t)
	}
	for i := range a.line.intervals {
		iv := &a.line.intervals[i]
		o := Object{a.procOf[iv.thread], iv.object}
		if iv.lock {
			locks[o] = true
			if iv.acquired() {
				add(o, turn{iv.end, iv.thread, true, trace.Site{Stack: iv.stack, Hook: iv.hook}})
			}
			if iv.releaser != 0 && iv.release != 0 {
				if _, recorded := a.line.released[releaseKey{iv.releaser, iv.release}]; !recorded {
					add(o, turn{iv.release, iv.releaser, false, trace.Site{}})
				}
			}
		}
		if iv.wait && iv.object2 != 0 { // waiting for a condition lets go of the mutex, and takes it again
			m := Object{o.Proc, iv.object2}
			add(m, turn{iv.start, iv.thread, false, trace.Site{Stack: iv.stack, Hook: iv.hook}})
			if iv.flags&trace.FlagOpen == 0 {
				add(m, turn{iv.end, iv.thread, true, trace.Site{Stack: iv.stack, Hook: iv.hook}})
			}
		}
	}
	for i := range a.line.releases {
		r := &a.line.releases[i]
		o := Object{a.procOf[r.thread], r.object}
		if !locks[o] {
			continue // a condition's or a semaphore's: nobody holds those
		}
		add(o, turn{r.at, r.thread, false, r.site})
		if r.taken != 0 {
			add(o, turn{r.taken, r.thread, true, a.line.holds[releaseKey{r.thread, r.at}]})
		}
	}
	for _, h := range a.holds {
		slices.SortStableFunc(h.turns, func(x, y turn) int {
			if c := cmp.Compare(x.at, y.at); c != 0 {
				return c
			}
			if x.taken != y.taken { // who lets go comes before who takes at the same instant
				if x.taken {
					return 1
				}
				return -1
			}
			return cmp.Compare(x.thread, y.thread)
		})
	}
}

// upTo is the number of turns before a time.
func (h *holds) upTo(at trace.Ns) int {
	if h == nil {
		return 0
	}
	i, _ := slices.BinarySearchFunc(h.turns, at, func(t turn, at trace.Ns) int { return cmp.Compare(t.at, at) })
	return i
}

// takenBy finds where thread, holding the lock at a time, had taken it; zero where that is not recorded.
func (h *holds) takenBy(thread trace.ThreadID, at trace.Ns) trace.Site {
	if h == nil {
		return trace.Site{}
	}
	if h.of == nil {
		h.of = map[trace.ThreadID][]int32{}
		for i := range h.turns {
			t := h.turns[i].thread
			h.of[t] = append(h.of[t], int32(i))
		}
	}
	of, n := h.of[thread], int32(h.upTo(at))
	if i, _ := slices.BinarySearch(of, n); i > 0 {
		if t := &h.turns[of[i-1]]; t.taken {
			return t.site
		}
	}
	return trace.Site{}
}

// piece is a part of a wait: somebody had the object, or it was on its way, or that is not known.
type piece struct {
	from, to trace.Ns
	holder   trace.ThreadID // 0: see act
	act      Act            // Handover, Nobody or TimedOut where there is no holder
	seen     bool           // holder was seen to have the lock when the piece began; else it is known from its release alone
}

// pieces splits a wait by who had its object. Of a lock's, those are found that reach into [from, to), most of
// them or some more.
func (a *Analyser) pieces(dst []piece, iv *interval, from, to trace.Ns, most int) []piece {
	seen := false
	add := func(from, to trace.Ns, holder trace.ThreadID, act Act) {
		if to <= from {
			return
		}
		if holder == iv.thread && (iv.owner != iv.thread || iv.flags&trace.FlagOpen == 0) { // else it waits for itself
			holder, act = 0, Nobody
		}
		if n := len(dst); n > 0 && dst[n-1].to == from && dst[n-1].holder == holder && dst[n-1].act == act && dst[n-1].seen == seen {
			dst[n-1].to = to
			return
		}
		dst = append(dst, piece{from, to, holder, act, seen && holder != 0})
	}
	end := iv.end
	if iv.releaser != 0 && iv.release > iv.start && iv.release < iv.end {
		end = iv.release
	}
	if !iv.lock {
		switch {
		case iv.releaser != 0:
			add(iv.start, end, iv.releaser, 0)
			add(end, iv.end, 0, Handover)
		case iv.flags&trace.FlagTimedOut != 0:
			add(iv.start, iv.end, 0, TimedOut)
		case iv.owner != 0:
			add(iv.start, iv.end, iv.owner, 0)
		default:
			add(iv.start, iv.end, 0, Nobody)
		}
		return dst
	}
	h := a.holds[Object{a.procOf[iv.thread], iv.object}]
	at, holder, free := iv.start, iv.owner, false
	seen = holder != 0
	next := h.upTo(iv.start)
	for i := h.upTo(from) - 1; i >= next; i-- { // the last turn in front of from says who had it then
		if t := &h.turns[i]; t.thread != iv.thread || !t.taken {
			if at = t.at; t.taken {
				holder, free, seen = t.thread, false, true
			} else {
				holder, free = 0, true
			}
			next = i + 1
			break
		}
	}
	pend := func(to trace.Ns) { // what is known of [at, to) now
		switch {
		case free:
			add(at, to, 0, Handover)
		case holder != 0:
			add(at, to, holder, 0)
		default:
			add(at, to, 0, Nobody)
		}
		at = to
	}
	for i := next; h != nil && i < len(h.turns); i++ {
		t := &h.turns[i]
		if t.at >= end {
			break
		}
		if at >= to || len(dst) > most {
			return dst
		}
		if t.thread == iv.thread && t.taken || t.at < at {
			continue
		}
		switch {
		case t.taken:
			pend(t.at)
			holder, free, seen = t.thread, false, true
		case holder == 0 && !free: // the releaser must have held it
			holder, seen = t.thread, false
			pend(t.at)
			holder, free = 0, true
		case t.thread == holder:
			pend(t.at)
			holder, free = 0, true
		default: // it changed hands unseen
			if seen = false; free {
				holder, free = t.thread, false
			} else {
				holder = 0
			}
			pend(t.at)
			holder, free = 0, true
		}
	}
	switch {
	case iv.releaser == 0:
	case holder == iv.releaser:
	case holder == 0: // unknown, or free to somebody who took it without waiting
		holder, free, seen = iv.releaser, false, false
	default:
		holder = 0 // one of two
	}
	pend(end)
	add(end, iv.end, 0, Handover)
	return dst
}
