// Sampled allocations that are live, matched with their frees.

package weigh

import "github.com/hbtrace/hbtrace/trace"

type block struct {
	proc trace.ProcID
	addr uint64
}

type alloc struct {
	time    trace.Ns
	row     int32
	objects float64
	bytes   int64
}

// heap matches frees with allocations by process, address and time. Threads are stored interleaved only roughly by
// time, so a free by one thread may be read before the allocation by another that it belongs to: such frees wait in
// early. An address is live once at a time, so a later allocation at it proves that the earlier one was freed.
type heap struct {
	live  map[block]alloc
	early map[block]trace.Ns
}

func newHeap() heap { return heap{map[block]alloc{}, map[block]trace.Ns{}} }

// alloc adds a live allocation. inUse is false where its free was read before it or the address has been used again
// since. gone is an earlier allocation at the address, whose free was not read (yet); its row is -1 where there is none.
func (h *heap) alloc(p trace.ProcID, addr uint64, a alloc) (gone alloc, inUse bool) {
	b := block{p, addr}
	gone.row = -1
	if freed, ok := h.early[b]; ok && freed >= a.time {
		delete(h.early, b)
		return gone, false
	}
	if old, ok := h.live[b]; ok {
		if old.time > a.time {
			return gone, false
		}
		gone = old
	}
	h.live[b] = a
	return gone, true
}

// free ends the allocation at addr and returns it; ok is false where there is none that began before.
func (h *heap) free(p trace.ProcID, addr uint64, at trace.Ns) (a alloc, ok bool) {
	b := block{p, addr}
	a, ok = h.live[b]
	switch {
	case !ok:
		h.early[b] = at
	case a.time > at: // it freed an earlier allocation at this address, which the live one has replaced
		ok = false
	default:
		delete(h.live, b)
	}
	return a, ok
}

// unmet is the number of frees whose allocation never came.
func (h *heap) unmet() uint64 { return uint64(len(h.early)) }
