// Finding an event's row: a look-up for every event of a recording, so a table made for it.

package weigh

import "github.com/hbtrace/hbtrace/trace"

// place is what an event says of its row, before anything is looked up: stack, hook and kind in a, the object's number and
// thread or process in b. Rows are kept apart by less: a hook that is the stack's leaf is none, and no stack is as good as another.
type place struct{ a, b uint64 }

func placeOf(stack trace.StackID, hook trace.HookID, kind uint8, group uint32) place {
	return place{uint64(stack)<<32 | uint64(hook)<<16 | uint64(kind), uint64(group)}
}

// slot is what is known of a place, and what the events there come to that most are: it is added to the row at the end,
// so that an event touches no more memory than this.
type slot struct {
	place
	row                   int32 // one more than the row's number; 0: the slot is free
	doubt                 doubtBits
	samples, cpu, blocked int64
}

// doubtBits are doubts that all events of a place share.
type doubtBits uint8

const (
	doubtNoStack doubtBits = 1 << iota
	doubtUnsymbolised
)

// placeIndex finds slots by open addressing.
type placeIndex struct {
	slots []slot // a power of two, at most two thirds full
	used  int
	last  *slot // events repeat
}

// find returns the slot of p, free when p is new. It is valid until the next find.
func (x *placeIndex) find(p place) *slot {
	if x.last != nil && x.last.place == p && x.last.row != 0 {
		return x.last
	}
	if 3*(x.used+1) > 2*len(x.slots) {
		x.grow()
	}
	s := x.probe(p)
	x.last = s
	return s
}

func (p place) hash() uint64 {
	h := (p.a ^ p.b*0x9e3779b97f4a7c15) * 0xd6e8feb86659fd93
	return h ^ h>>32
}

func (x *placeIndex) probe(p place) *slot {
	mask := uint64(len(x.slots) - 1)
	for i := p.hash() & mask; ; i = (i + 1) & mask {
		if s := &x.slots[i]; s.row == 0 || s.place == p {
			return s
		}
	}
}

// set fills a free slot that find returned.
func (x *placeIndex) set(s *slot, p place, row int32, d doubtBits) {
	*s = slot{place: p, row: row + 1, doubt: d}
	x.used++
}

func (x *placeIndex) grow() {
	old := x.slots
	x.slots, x.last = make([]slot, max(1024, 2*len(old))), nil
	for i := range old {
		if old[i].row != 0 {
			*x.probe(old[i].place) = old[i]
		}
	}
}

// numbering numbers objects from 1, in the order in which they are met: a place has no room for an address.
type numbering struct {
	numbers map[uint64]uint32
	recent  [64]struct { // a map is slow for every wait
		object uint64
		number uint32
	}
}

func (x *numbering) of(object uint64) uint32 {
	r := &x.recent[(object>>4^object>>12)%64]
	if r.number != 0 && r.object == object {
		return r.number
	}
	n, ok := x.numbers[object]
	if !ok {
		if x.numbers == nil {
			x.numbers = map[uint64]uint32{}
		}
		n = uint32(len(x.numbers) + 1)
		x.numbers[object] = n
	}
	r.object, r.number = object, n
	return n
}
