package symbols

// This file owns flatMap: overlapping address ranges painted into a list that does not overlap.

import (
	"cmp"
	"slices"
)

// span is the range [lo, hi) that belongs to val. Where spans overlap the greatest val is on top.
type span struct {
	lo, hi uint64
	val    int32
}

// flatMap maps an address to the val of the topmost span over it. start is sorted; val[i] holds from start[i] up
// to start[i+1], and is -1 where no span is.
type flatMap struct {
	start []uint64
	val   []int32
}

// flatten paints spans in O(n log n) whatever their overlap. It sorts its argument.
func flatten(spans []span) flatMap {
	slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.lo, b.lo) })
	bounds := make([]uint64, 0, 2*len(spans))
	for _, s := range spans {
		if s.lo < s.hi {
			bounds = append(bounds, s.lo, s.hi)
		}
	}
	slices.Sort(bounds)
	bounds = slices.Compact(bounds)

	var m flatMap
	var active spanHeap
	next := 0
	for _, at := range bounds {
		for next < len(spans) && spans[next].lo <= at {
			if spans[next].hi > at {
				active.push(spans[next])
			}
			next++
		}
		// Spans that ended stay in the heap until they surface: each is pushed and popped once.
		for len(active) > 0 && active[0].hi <= at {
			active.pop()
		}
		v := int32(-1)
		if len(active) > 0 {
			v = active[0].val
		}
		if n := len(m.val); n > 0 && m.val[n-1] == v {
			continue
		}
		m.start = append(m.start, at)
		m.val = append(m.val, v)
	}
	return m
}

// find returns the val at addr, or -1.
func (m *flatMap) find(addr uint64) int32 {
	v, _ := m.part(addr, extent{0, 1<<64 - 1})
	return v
}

// extent is the range [lo, hi) of addresses that an answer holds for.
type extent struct{ lo, hi uint64 }

func (e extent) within(lo, hi uint64) extent { return extent{max(e.lo, lo), min(e.hi, hi)} }

// part returns the val at addr, or -1, and what of e has it too.
func (m *flatMap) part(addr uint64, e extent) (int32, extent) {
	i, exact := slices.BinarySearch(m.start, addr)
	if !exact {
		i--
	}
	if i+1 < len(m.start) {
		e.hi = min(e.hi, m.start[i+1])
	}
	if i < 0 {
		return -1, e
	}
	e.lo = max(e.lo, m.start[i])
	return m.val[i], e
}

// spanHeap is a max-heap by val.
type spanHeap []span

func (h *spanHeap) push(s span) {
	a := append(*h, s)
	i := len(a) - 1
	for i > 0 {
		up := (i - 1) / 2
		if a[up].val >= a[i].val {
			break
		}
		a[up], a[i] = a[i], a[up]
		i = up
	}
	*h = a
}

func (h *spanHeap) pop() {
	a := *h
	n := len(a) - 1
	a[0] = a[n]
	a = a[:n]
	for i := 0; ; {
		big := i
		for c := 2*i + 1; c <= 2*i+2 && c < n; c++ {
			if a[c].val > a[big].val {
				big = c
			}
		}
		if big == i {
			break
		}
		a[big], a[i] = a[i], a[big]
		i = big
	}
	*h = a
}
