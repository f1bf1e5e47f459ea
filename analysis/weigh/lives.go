// How long sampled allocations lived.

package weigh

import "github.com/hbtrace/hbtrace/trace"

// Lives finds out when sampled allocations were freed, in the same way as the values of memory in use do. A caller numbers
// allocations; numbers of those that ended may be used again.
type Lives struct{ heap heap }

// Freed is the end of an allocation.
type Freed struct {
	Number int32
	At     trace.Ns
}

// NewLives makes an empty Lives.
func NewLives() *Lives { return &Lives{newHeap()} }

// Alloc takes an allocation, and returns which ended by that: an earlier one at the same address, whose free was not
// seen, or this one, whose free was seen before it.
func (l *Lives) Alloc(p trace.ProcID, addr uint64, at trace.Ns, number int32) (ended Freed, ok bool) {
	b := block{p, addr}
	freed, early := l.heap.early[b]
	gone, inUse := l.heap.alloc(p, addr, alloc{time: at, row: number})
	switch {
	case !inUse && early && freed >= at:
		return Freed{number, freed}, true
	case !inUse: // the address was used again
		return Freed{number, l.heap.live[b].time}, true
	case gone.row >= 0:
		return Freed{gone.row, at}, true
	}
	return Freed{}, false
}

// Free takes a free, and returns which allocation it ended.
func (l *Lives) Free(p trace.ProcID, addr uint64, at trace.Ns) (number int32, ok bool) {
	a, ok := l.heap.free(p, addr, at)
	return a.row, ok
}
