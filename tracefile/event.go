// What of an event is stored, and event sections of version 1, which are read but no longer written: batch.go has those
// of the versions since.
//
//	payload for each event: number fields       number: of the event's shape, in order of appearance in the
//	                                            section; a new shape follows its number
//	shape   kind uint8, flags, hook, mask       mask: which of the optional fields follow
//	fields  thread, time, then by mask, in the order of the has… constants
//
// Numbers are varints. Time is the difference to the event before, Start and Release to Time, Stack and Object
// to the same thread's last event that had one.

package tracefile

import (
	"encoding/binary"

	"github.com/hbtrace/hbtrace/trace"
)

const (
	hasStart    = 1 << iota // absent: Start == Time
	hasStack                // absent: 0, as for all the others but Count
	hasSame                 //
	hasCount                // absent: 1
	hasCPU                  //
	hasObject               //
	hasObject2              //
	hasSize                 //
	hasWeight               //
	hasDebt                 //
	hasResult               //
	hasOwner                //
	hasReleaser             //
	hasRelease              //
	hasEnd
)

// shape is what events of a kind mostly share.
type shape struct {
	kind  trace.Kind
	flags trace.Flags
	hook  trace.HookID
	mask  uint16
}

// before is what an event is coded against.
type before struct {
	time   trace.Ns
	thread *threadBefore
}

type threadBefore struct {
	stack  trace.StackID
	object uint64
}

func shapeOf(e *trace.Event) shape {
	s := shape{kind: e.Kind, flags: e.Flags, hook: e.Hook}
	set := func(present bool, bit uint16) {
		if present {
			s.mask |= bit
		}
	}
	set(e.Start != e.Time, hasStart)
	set(e.Stack != 0, hasStack)
	set(e.Same != 0, hasSame)
	set(e.Count != 1, hasCount)
	set(e.CPU != 0, hasCPU)
	set(e.Object != 0, hasObject)
	set(e.Object2 != 0, hasObject2)
	set(e.Size != 0, hasSize)
	set(e.Weight != 0, hasWeight)
	set(e.Debt != 0, hasDebt)
	set(e.Result != 0, hasResult)
	set(e.Owner != 0, hasOwner)
	set(e.Releaser != 0, hasReleaser)
	set(e.Release != 0, hasRelease)
	return s
}

func (c *cursor) shape() shape {
	s := shape{kind: trace.Kind(c.byte()), flags: trace.Flags(c.uint16()), hook: trace.HookID(c.uint16()), mask: c.uint16()}
	if s.mask >= hasEnd {
		c.fail()
	}
	return s
}

// appendEventFields writes what follows the time, and updates b.
func appendEventFields(dst []byte, e *trace.Event, mask uint16, b *threadBefore) []byte {
	if mask&hasStart != 0 {
		dst = binary.AppendVarint(dst, int64(e.Time-e.Start))
	}
	if mask&hasStack != 0 {
		dst = binary.AppendVarint(dst, int64(e.Stack)-int64(b.stack))
		b.stack = e.Stack
	}
	if mask&hasSame != 0 {
		dst = binary.AppendUvarint(dst, uint64(e.Same))
	}
	if mask&hasCount != 0 {
		dst = binary.AppendUvarint(dst, uint64(e.Count))
	}
	if mask&hasCPU != 0 {
		dst = binary.AppendVarint(dst, e.CPU)
	}
	if mask&hasObject != 0 {
		dst = binary.AppendVarint(dst, int64(e.Object-b.object))
		b.object = e.Object
	}
	if mask&hasObject2 != 0 {
		dst = binary.AppendVarint(dst, int64(e.Object2-e.Object)) // a mutex is often near its condition
	}
	if mask&hasSize != 0 {
		dst = binary.AppendUvarint(dst, e.Size)
	}
	if mask&hasWeight != 0 {
		dst = binary.AppendUvarint(dst, e.Weight)
	}
	if mask&hasDebt != 0 {
		dst = binary.AppendVarint(dst, e.Debt)
	}
	if mask&hasResult != 0 {
		dst = binary.AppendVarint(dst, e.Result)
	}
	if mask&hasOwner != 0 {
		dst = binary.AppendUvarint(dst, uint64(e.Owner))
	}
	if mask&hasReleaser != 0 {
		dst = binary.AppendUvarint(dst, uint64(e.Releaser))
	}
	if mask&hasRelease != 0 {
		dst = binary.AppendVarint(dst, int64(e.Time-e.Release))
	}
	return dst
}

// eventFields reads the time and what appendEventFields writes; it sets every field of e but Thread.
func (c *cursor) eventFields(e *trace.Event, s shape, b before) {
	*e = trace.Event{Kind: s.kind, Flags: s.flags, Hook: s.hook, Thread: e.Thread, Count: 1}
	e.Time = b.time + trace.Ns(c.varint())
	e.Start = e.Time
	mask := s.mask
	if mask&hasStart != 0 {
		e.Start = e.Time - trace.Ns(c.varint())
	}
	if mask&hasStack != 0 {
		stack := int64(b.thread.stack) + c.varint()
		if stack != int64(uint32(stack)) {
			c.fail()
		}
		e.Stack = trace.StackID(stack)
		b.thread.stack = e.Stack
	}
	if mask&hasSame != 0 {
		e.Same = c.uint32()
	}
	if mask&hasCount != 0 {
		e.Count = c.uint32()
	}
	if mask&hasCPU != 0 {
		e.CPU = c.varint()
	}
	if mask&hasObject != 0 {
		e.Object = b.thread.object + uint64(c.varint())
		b.thread.object = e.Object
	}
	if mask&hasObject2 != 0 {
		e.Object2 = e.Object + uint64(c.varint())
	}
	if mask&hasSize != 0 {
		e.Size = c.uvarint()
	}
	if mask&hasWeight != 0 {
		e.Weight = c.uvarint()
	}
	if mask&hasDebt != 0 {
		e.Debt = c.varint()
	}
	if mask&hasResult != 0 {
		e.Result = c.varint()
	}
	if mask&hasOwner != 0 {
		e.Owner = trace.ThreadID(c.uint32())
	}
	if mask&hasReleaser != 0 {
		e.Releaser = trace.ThreadID(c.uint32())
	}
	if mask&hasRelease != 0 {
		e.Release = e.Time - trace.Ns(c.varint())
	}
}

// threadStates finds what a thread's event is coded against. Batches mostly have runs of one thread.
type threadStates struct {
	states map[trace.ThreadID]*threadBefore
	id     trace.ThreadID
	last   *threadBefore
}

func (t *threadStates) reset() {
	clear(t.states)
	t.last = nil
}

func (t *threadStates) of(id trace.ThreadID) *threadBefore {
	if t.last != nil && t.id == id {
		return t.last
	}
	b := t.states[id]
	if b == nil {
		if t.states == nil {
			t.states = map[trace.ThreadID]*threadBefore{}
		}
		b = new(threadBefore)
		t.states[id] = b
	}
	t.id, t.last = id, b
	return b
}

// oldDecoder holds what decoding a section of version 1 needs, to be used again.
type oldDecoder struct {
	shapes  []shape
	threads threadStates
	event   trace.Event
}

// stopped wraps an error of the caller's function, to tell it from one of the file.
type stopped struct{ error }

// decode calls f for the events of a section.
func (d *oldDecoder) decode(payload []byte, count uint32, f func(*trace.Event) error) error {
	d.shapes = d.shapes[:0]
	d.threads.reset()
	c := cursor{p: payload}
	var time trace.Ns
	for range count {
		number := c.uvarint()
		if number == uint64(len(d.shapes)) {
			d.shapes = append(d.shapes, c.shape())
		}
		if number >= uint64(len(d.shapes)) {
			return errMalformed
		}
		thread := trace.ThreadID(c.uint32())
		d.event.Thread = thread
		c.eventFields(&d.event, d.shapes[number], before{time, d.threads.of(thread)})
		if c.bad {
			return errMalformed
		}
		time = d.event.Time
		if err := f(&d.event); err != nil {
			return stopped{err}
		}
	}
	if len(c.p) > 0 {
		return errMalformed
	}
	return nil
}
