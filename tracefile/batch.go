// How events are stored: in batches of a few KiB that can be decoded alone. A batch
// is a record of the block buffer, and an event section is a sequence of batches, so that what is moved from the
// one to the other is copied and not coded anew.
//
//	section  for each batch: its length, the batch
//	batch    count uint16 (little endian), then for each event: number fields
//	         number: of the event's shape, in order of appearance in the batch; a new shape follows its number
//	shape    from, then kind uint8, flags, hook, mask, like: all where from is 0, else differs uint8, which says which
//	         of them follow; the others are those of shape from-1
//	fields   thread, time, then by mask and like, in the order of the has… constants
//
// mask says which fields follow (event.go). like says which are as they were before and do not: the thread as
// in the event before, the others as in the last event of the same context. Contexts are contextCount slots that a
// batch begins with empty; thread, kind and hook choose one. Two that share a slot spoil each other's guesses, no more.
//
// Numbers are varints. Time is the distance from the event before, the first one's from 0, back where like says so;
// Start and Release are differences to Time, Object to the context's. Stack is the difference to the thread's last one,
// for which a batch has as many slots: near stacks have near ids, and what a thread did last is nearer than what it did
// last in the same place.

package tracefile

import (
	"encoding/binary"
	"math"
	"math/bits"

	"github.com/hbtrace/hbtrace/trace"
)

const (
	likeThread = 1 << iota // thread of the event before
	likeStack              // Stack and Same of the context
	likeObject             // Object and Object2
	likeSize               // Size and Weight
	likeResult             // Result
	likeWho                // Owner and Releaser
	likeCPU                // CPU
	timeBack               // Time is before that of the event before
	likeEnd
)

// In what a shape differs from the one that it is described by.
const (
	differsKind = 1 << iota
	differsFlags
	differsHook
	differsMask
	differsLike
	differsEnd
)

const (
	contextBits  = 7
	contextCount = 1 << contextBits

	batchHeaderBytes = 2
	maxBatchEvents   = math.MaxUint16
	// Batches that the file's writer makes itself: large enough for their beginnings not to count.
	fileBatchBytes = 16 << 10
)

// context is what the events of a thread that come from one place have in common. Only what an event has is stored.
type context struct {
	object, object2, size, weight uint64
	result, cpu                   int64
	stack                         trace.StackID
	same                          uint32
	owner, releaser               trace.ThreadID
}

// likeShape is a shape and what of its events is as before.
type likeShape struct {
	shape
	like uint16
}

func (s *likeShape) salt() uint32 { return uint32(s.kind)*0x9e3779b1 + uint32(s.hook)*0x85ebca6b }

func stackSlot(thread trace.ThreadID) uint32 { return uint32(thread) & (contextCount - 1) }

func contextOf(salt uint32, thread trace.ThreadID) uint32 {
	return (salt + uint32(thread)*0xc2b2ae35) >> (32 - contextBits)
}

// Batch collects events in the form in which block buffer and file keep them. The zero value is empty and ready.
type Batch struct {
	p        []byte
	count    int
	time     trace.Ns
	thread   trace.ThreadID
	numbers  map[likeShape]uint64
	shapes   []likeShape // by number
	contexts [contextCount]context
	stacks   [contextCount]trace.StackID // by thread
	recent   [contextCount]recentShape
}

// recentShape saves a look-up in the map.
type recentShape struct {
	likeShape
	number uint64
	known  bool
}

// Add appends an event.
func (b *Batch) Add(e *trace.Event) {
	if len(b.p) == 0 {
		b.p = append(b.p, make([]byte, batchHeaderBytes)...)
	}
	s := likeShape{shape: shapeOf(e)}
	slot := contextOf(s.salt(), e.Thread)
	c := &b.contexts[slot]
	if e.Thread == b.thread {
		s.like = likeThread
	}
	if e.Time < b.time {
		s.like |= timeBack
	}
	take := func(fields, like uint16, equal bool) {
		if s.mask&fields != 0 && equal {
			s.mask &^= fields
			s.like |= like
		}
	}
	had := s.mask
	take(hasStack|hasSame, likeStack, e.Stack == c.stack && e.Same == c.same)
	take(hasObject|hasObject2, likeObject, e.Object == c.object && e.Object2 == c.object2)
	take(hasSize|hasWeight, likeSize, e.Size == c.size && e.Weight == c.weight)
	take(hasResult, likeResult, e.Result == c.result)
	take(hasOwner|hasReleaser, likeWho, e.Owner == c.owner && e.Releaser == c.releaser)
	take(hasCPU, likeCPU, e.CPU == c.cpu)

	r := &b.recent[slot]
	if !r.known || r.likeShape != s {
		number, ok := b.numbers[s]
		if !ok {
			number = b.newShape(&s)
		} else {
			b.p = binary.AppendUvarint(b.p, number)
		}
		*r = recentShape{s, number, true}
	} else {
		b.p = binary.AppendUvarint(b.p, r.number)
	}
	if s.like&likeThread == 0 {
		b.p = binary.AppendUvarint(b.p, uint64(e.Thread))
		b.thread = e.Thread
	}
	last := &b.stacks[stackSlot(e.Thread)]
	t := threadBefore{*last, c.object}
	if s.like&timeBack == 0 {
		b.p = binary.AppendUvarint(b.p, uint64(e.Time-b.time))
	} else {
		b.p = binary.AppendUvarint(b.p, uint64(b.time-e.Time))
	}
	b.p = appendEventFields(b.p, e, s.mask, &t)
	if e.Stack != 0 {
		*last = e.Stack
	}
	b.time = e.Time
	b.count++
	c.keep(e, had)
}

// newShape gives a shape its number and appends both.
func (b *Batch) newShape(s *likeShape) uint64 {
	if b.numbers == nil {
		b.numbers = map[likeShape]uint64{}
	}
	number := uint64(len(b.shapes))
	b.numbers[*s] = number
	b.p = binary.AppendUvarint(b.p, number)
	// Nearly all are like a recent one but for one or two fields.
	const looks = 16
	from, differs, fewest := uint64(0), uint8(differsEnd-1), 5
	for i := len(b.shapes) - 1; i >= max(0, len(b.shapes)-looks); i-- {
		if d := s.differs(&b.shapes[i]); bits.OnesCount8(d) < fewest {
			from, differs, fewest = uint64(i)+1, d, bits.OnesCount8(d)
		}
	}
	b.p = binary.AppendUvarint(b.p, from)
	if from > 0 {
		b.p = append(b.p, differs)
	}
	if differs&differsKind != 0 {
		b.p = append(b.p, byte(s.kind))
	}
	if differs&differsFlags != 0 {
		b.p = binary.AppendUvarint(b.p, uint64(s.flags))
	}
	if differs&differsHook != 0 {
		b.p = binary.AppendUvarint(b.p, uint64(s.hook))
	}
	if differs&differsMask != 0 {
		b.p = binary.AppendUvarint(b.p, uint64(s.mask))
	}
	if differs&differsLike != 0 {
		b.p = binary.AppendUvarint(b.p, uint64(s.like))
	}
	b.shapes = append(b.shapes, *s)
	return number
}

// differs says in what s is not like o.
func (s *likeShape) differs(o *likeShape) (d uint8) {
	if s.kind != o.kind {
		d |= differsKind
	}
	if s.flags != o.flags {
		d |= differsFlags
	}
	if s.hook != o.hook {
		d |= differsHook
	}
	if s.mask != o.mask {
		d |= differsMask
	}
	if s.like != o.like {
		d |= differsLike
	}
	return d
}

// keep takes over what an event has.
func (c *context) keep(e *trace.Event, has uint16) {
	if has&(hasStack|hasSame) != 0 {
		c.stack, c.same = e.Stack, e.Same
	}
	if has&(hasObject|hasObject2) != 0 {
		c.object, c.object2 = e.Object, e.Object2
	}
	if has&(hasSize|hasWeight) != 0 {
		c.size, c.weight = e.Size, e.Weight
	}
	if has&hasResult != 0 {
		c.result = e.Result
	}
	if has&(hasOwner|hasReleaser) != 0 {
		c.owner, c.releaser = e.Owner, e.Releaser
	}
	if has&hasCPU != 0 {
		c.cpu = e.CPU
	}
}

// Len is the size of the batch in bytes. An event adds [MaxEventBytes] at most.
func (b *Batch) Len() int { return len(b.p) }

// Count is the number of events in the batch.
func (b *Batch) Count() int { return b.count }

// MaxEventBytes is the most that an event adds to a batch; 8 is usual.
const MaxEventBytes = 160

// Full says that the batch must be taken away before the next Add.
func (b *Batch) Full() bool { return b.count == maxBatchEvents }

// Bytes is the batch so far, valid until the next Add or Reset; empty when there are no events.
func (b *Batch) Bytes() []byte {
	if b.count > 0 {
		binary.LittleEndian.PutUint16(b.p, uint16(b.count))
	}
	return b.p
}

// Reset empties the batch.
func (b *Batch) Reset() {
	b.p, b.count, b.time, b.thread = b.p[:0], 0, 0, 0
	clear(b.numbers)
	b.shapes = b.shapes[:0]
	b.contexts = [contextCount]context{}
	b.stacks = [contextCount]trace.StackID{}
	b.recent = [contextCount]recentShape{}
}
