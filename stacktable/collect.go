package stacktable

import (
	"math/bits"

	"github.com/hbtrace/hbtrace/trace"
)

// Collect takes back every node that is not on the way from a root to its outermost frame. roots calls mark for
// each stack that is alive, in any order and as often as it likes. gone, if not nil, is told of each node that is
// taken back, while its callers can still be read; it must not call the table. Collect returns how many were taken
// back and begins a lap: their ids are given out again.
//
// The ids of what stays stay. An id that was taken back names nothing, until Push gives it to another stack.
//
// It costs a few ns for each node of the table, in one go, and must not run next to Push.
func (t *Table) Collect(roots func(mark func(trace.StackID)), gone func(trace.StackID, trace.Node)) int {
	top := t.top.Load()
	words := int(top/64) + 1
	live := t.bitmap(words)
	roots(func(id trace.StackID) {
		for n := uint32(id); n != 0 && n <= top; n = t.at(n).parent {
			if live[n/64]>>(n%64)&1 != 0 || t.at(n).meta.Load() == 0 {
				return
			}
			live[n/64] |= 1 << (n % 64)
		}
	})
	freed := 0
	for id := uint32(1); id <= top; id++ {
		if live[id/64]>>(id%64)&1 != 0 || t.at(id).meta.Load() == 0 {
			continue
		}
		freed++
		if gone != nil {
			gone(trace.StackID(id), t.Node(trace.StackID(id)))
		}
	}
	// Forgotten only now, so that gone could read them all.
	for i := range t.shards {
		s := &t.shards[i]
		s.used = 0
		clear(s.index.Load().words)
	}
	for w, word := range live {
		for word != 0 {
			id := uint32(w*64 + bits.TrailingZeros64(word))
			word &= word - 1
			n := t.at(id)
			h := hash(n.parent, n.off, n.meta.Load()&keyMask)
			s := &t.shards[h>>(64-shardBits)]
			s.used++
			s.index.Load().put(h, id, t)
		}
		live[w] = ^live[w]
	}
	live[0] &^= 1 // no node is 0
	if rest := (top + 1) % 64; rest != 0 {
		live[words-1] &= 1<<rest - 1
	}
	for id := uint32(1); id <= top; id++ {
		if live[id/64]>>(id%64)&1 != 0 {
			t.at(id).meta.Store(0)
		}
	}
	t.free, t.recycled = live, top
	t.cursor.Store(0)
	t.collected.Add(uint64(freed))
	return freed
}

// bitmap is a cleared one, of the memory of the last lap's where that is large enough.
func (t *Table) bitmap(words int) []uint64 {
	if cap(t.free) < words {
		return make([]uint64, words, max(words, min(2*words, int(t.maxNodes)/64+1)))
	}
	b := t.free[:words]
	clear(b)
	return b
}
