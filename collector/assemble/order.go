// order.go puts records in order: by number within a thread, by time across threads.
package assemble

import (
	"cmp"
	"encoding/binary"
	"math"
	"slices"

	"github.com/hbtrace/hbtrace/segment"
)

// item is a record that waits in its thread's queue.
type item struct {
	time uint64
	seq  uint32
	at   uint32 // where it lies in its pass's arena; the lowest bit is that of the pass's number
}

// enqueue takes a copy of a record whose length is a multiple of 8; false when there is no room, which no pass over a
// ring needs.
func (a *Assembler) enqueue(t *thread, h *segment.Rec, rec []byte) bool {
	pass := a.pass & 1
	arena := a.arenas[pass]
	if len(arena) > math.MaxUint32-segment.MaxRecord {
		return false
	}
	if n := len(t.queue); n == 0 {
		a.queued = append(a.queued, t)
	} else if int32(h.Seq-t.queue[n-1].seq) < 0 {
		t.unsorted = true
	}
	t.queue = append(t.queue, item{time: h.TimeNs, seq: h.Seq, at: uint32(len(arena)) | pass})
	a.arenas[pass] = append(arena, rec...)
	return true
}

// bytes is the record of an item, whose length was checked against its first word.
func (a *Assembler) bytes(it item) []byte {
	rec := a.arenas[it.at&1][it.at&^1:]
	n := binary.LittleEndian.Uint32(rec)
	return rec[:n:n]
}

// interpret works off every queue up to its last record that is due, ordered by time across threads. Due is what came
// with the pass before this one, with what precedes it, or everything.
func (a *Assembler) interpret(all bool) {
	cs := a.cursors[:0]
	keep := a.queued[:0]
	for _, t := range a.queued {
		if t.unsorted {
			// Numbers wrap: they are compared by their distance from one of them.
			base := t.queue[0].seq
			slices.SortStableFunc(t.queue, func(x, y item) int {
				return cmp.Compare(int32(x.seq-base), int32(y.seq-base))
			})
			t.unsorted = false
		}
		n := len(t.queue)
		for n > 0 && !all && t.queue[n-1].at&1 == a.pass&1 {
			n--
		}
		if n > 0 {
			cs = append(cs, cursor{t: t, items: t.queue[:n], time: t.queue[0].time})
		}
		t.done = n
		if n < len(t.queue) {
			keep = append(keep, t)
		}
	}
	a.cursors = cs
	for i := len(cs)/2 - 1; i >= 0; i-- {
		siftDown(cs, i)
	}
	for len(cs) > 0 {
		c := &cs[0]
		t, items := c.t, c.items
		// Threads write in bursts: as long as the next record is not later than every other thread's, nothing moves.
		others := uint64(math.MaxUint64)
		for i := 1; i < min(len(cs), 3); i++ {
			others = min(others, cs[i].time)
		}
		for {
			a.next(t, a.bytes(items[0]))
			if items = items[1:]; len(items) == 0 || items[0].time > others {
				break
			}
		}
		if len(items) > 0 {
			c.items, c.time = items, items[0].time
		} else {
			t.queue = slices.Delete(t.queue, 0, t.done)
			last := len(cs) - 1
			cs[0], cs[last] = cs[last], cursor{}
			cs = cs[:last]
		}
		siftDown(cs, 0)
	}
	clear(a.queued[len(keep):])
	a.queued = keep
}

// cursor is one thread's place in interpret.
type cursor struct {
	t     *thread
	items []item
	time  uint64 // of items[0]; where it is less than that of the one before, numbers decide: it comes next
}

// siftDown moves cursor i of a heap, whose first has the least time, to where it belongs. It is package heap's, without
// calls through an interface, which are a third of its time.
func siftDown(cs []cursor, i int) {
	if i >= len(cs) {
		return
	}
	c := cs[i]
	for {
		child := 2*i + 1
		if child >= len(cs) {
			break
		}
		if child+1 < len(cs) && cs[child+1].time < cs[child].time {
			child++
		}
		if cs[child].time >= c.time {
			break
		}
		cs[i] = cs[child]
		i = child
	}
	cs[i] = c
}
