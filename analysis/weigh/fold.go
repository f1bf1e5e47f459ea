// What makes weighing a long recording quick: one reading however many labels have to be given up, and no waiting for memory.

package weigh

import "github.com/hbtrace/hbtrace/trace"

// fold keeps rows apart by the next of Options.Fewer. What there is becomes what it would be had rows been kept apart by
// that from the beginning, in the same order.
func (c *Collector) fold() {
	c.empty()
	rows, objs, had := c.rows, c.objs, c.o.By
	if c.o.By, c.o.Fewer = c.o.Fewer[0], c.o.Fewer[1:]; len(c.o.Fewer) == 0 {
		c.o.MaxRows = 0
	}
	c.rows, c.objs, c.index, c.places = nil, nil, map[Key]int32{}, placeIndex{}
	became := make([]int32, len(rows))
	for i := range rows {
		k := rows[i].Key
		kind, id, t := kindOf(k.Kind), k.Thread, &thread{proc: k.Proc}
		if had&ByKind == 0 {
			kind = kindCPU
		}
		k.Kind, k.Thread, k.Proc = "", 0, 0
		if c.o.By&ByObject == 0 {
			k.Object = 0
		}
		n := c.at(k, id, t, kind)
		became[i] = n
		for v, x := range rows[i].Values {
			c.rows[n].Values[v] += x
		}
		if i < len(objs) {
			if n := int(n) + 1 - len(c.objs); n > 0 {
				c.objs = append(c.objs, make([]objects, n)...)
			}
			c.objs[n].all += objs[i].all
			c.objs[n].inUse += objs[i].inUse
		}
	}
	for b, a := range c.live.live {
		a.row = became[a.row]
		c.live.live[b] = a
	}
	c.runs.fold(became)
}

// Coarser is a collector of the same events that keeps rows apart by less: by a part of what this one does. Its table is the one that
// would be had it been made so from the beginning. What was added before is all that it has; it takes no more events, and this
// one should not either. Where this one has already given up as much, it is the very same.
func (c *Collector) Coarser(by By) *Collector {
	if c.o.By == by || c.ended {
		return c
	}
	x := *c
	x.t = &Table{Frames: c.t.Frames, Doubt: c.t.Doubt}
	x.o.MaxRows, x.o.Fewer = 0, []By{by}
	x.live.live = nil // rows of memory in use are settled by events alone
	x.fold()
	return &x
}

func kindOf(k Kind) uint8 {
	for i := range kinds {
		if kinds[i] == k {
			return uint8(i)
		}
	}
	return kindCPU
}

// fold takes over what rows have become.
func (rs *runs) fold(became []int32) {
	old := *rs
	rs.sums, rs.used = make([]runSum, len(old.sums)), 0 // as many, or fewer
	for i := range old.sums {
		s := &old.sums[i]
		if s.key == 0 {
			continue
		}
		x := rs.sum(int32(s.key>>32-1), became[uint32(s.key)])
		x.ns += s.ns
		x.sum(s.Arrived)
	}
}

// maxAhead is for how many events memory is requested at a time: what they need fits a core's own cache.
const maxAhead = 512

// ahead reads what the given events will need: processors wait for several reads that do not depend on each other at the
// same time. The events' rows may not be there yet; then nothing is gained, and nothing lost.
func (c *Collector) ahead(events []trace.Event) {
	if len(c.places.slots) < worthwhile {
		return
	}
	var at [maxAhead]uint32
	mask, sum := uint64(len(c.places.slots)-1), int32(0)
	for i := range events {
		e := &events[i]
		var kind uint8
		var object uint64
		switch e.Kind {
		case trace.KindCPU:
			kind = kindCPU
		case trace.KindWait:
			if kind = kindWait; c.o.By&ByObject != 0 {
				object = e.Object
			}
		case trace.KindCall:
			kind = kindCall
		case trace.KindAlloc:
			kind = kindAlloc
		default:
			continue
		}
		p := c.place(e.Stack, e.Hook, e.Thread, c.thread(e.Thread), kind, object)
		at[i] = uint32(p.hash() & mask)
		sum += c.places.slots[at[i]].row
	}
	if mask := uint64(len(c.runs.sums) - 1); len(c.runs.sums) >= worthwhile {
		for i := range events {
			e := &events[i]
			if e.Kind != trace.KindCPU || e.Object == 0 || e.Hook != 0 {
				continue
			}
			// A slot that is not the event's own is of no use, and does no harm.
			o := Origin{c.thread(e.Thread).proc, e.Thread, e.Object}
			if r := c.runs.near(o); r.number != 0 && r.Origin == o {
				sum += int32(c.runs.sums[runHash(runKey(r.number-1, c.places.slots[at[i]].row-1))&mask].inTime)
			}
		}
	}
	c.read = sum
}

// worthwhile is how many slots do not fit a core's own cache.
const worthwhile = 4096
