// Decoding of batches (batch.go): the inner loop of whatever reads a recording.
//
// Numbers are read by index out of one slice, with no look at errors: what is not there or does not fit moves the
// index behind the end, where it stays, and an event is whole if the index is not there when it ends.

package tracefile

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"

	"github.com/hbtrace/hbtrace/trace"
)

// BatchDecoder decodes batches. The zero value is ready; it is for one goroutine at a time.
type BatchDecoder struct {
	shapes   []saltedShape
	contexts [contextCount]context
	stacks   [contextCount]trace.StackID

	// of the batch that is being decoded
	p      []byte
	at     int
	left   int // events
	time   trace.Ns
	thread trace.ThreadID

	one [1]trace.Event
}

type saltedShape struct {
	likeShape
	salt uint32
}

// Decode calls f for each event of a batch, which may hold anything; the Event is reused between calls. An error of f
// ends it and comes back as it is.
func (d *BatchDecoder) Decode(p []byte, f func(*trace.Event) error) error {
	err := d.decode(p, f)
	if stop, ok := err.(stopped); ok {
		return stop.error
	}
	if err != nil {
		return fmt.Errorf("decoding a batch of events of %d bytes: %w", len(p), err)
	}
	return nil
}

func (d *BatchDecoder) decode(p []byte, f func(*trace.Event) error) error {
	if err := d.begin(p); err != nil {
		return err
	}
	for d.left > 0 {
		if n, err := d.next(d.one[:]); n == 0 {
			return err
		}
		if err := f(&d.one[0]); err != nil {
			return stopped{err}
		}
	}
	return d.end()
}

// stopped wraps an error of the caller's function, to tell it from one of the file.
type stopped struct{ error }

// begin takes up a batch.
func (d *BatchDecoder) begin(p []byte) error {
	if len(p) < batchHeaderBytes {
		return errMalformed
	}
	d.shapes = d.shapes[:0]
	d.contexts = [contextCount]context{}
	d.stacks = [contextCount]trace.StackID{}
	d.p, d.at, d.left, d.time, d.thread = p, batchHeaderBytes, int(binary.LittleEndian.Uint16(p)), 0, 0
	return nil
}

// end says whether the batch ended with its last event.
func (d *BatchDecoder) end() error {
	if d.at != len(d.p) {
		return errMalformed
	}
	return nil
}

// badAt is an index behind the end of every payload.
const badAt = math.MaxInt32

// uvarint reads a number at p[i]; the next one begins at the index that it returns.
func uvarint(p []byte, i int) (uint64, int) {
	if uint(i) < uint(len(p)) && p[i] < 0x80 { // most of them
		return uint64(p[i]), i + 1
	}
	return longUvarint(p, i)
}

// longUvarint takes the low seven bits of up to eight bytes together in three steps.
func longUvarint(p []byte, i int) (uint64, int) {
	if i >= 0 && i <= len(p)-8 {
		x := binary.LittleEndian.Uint64(p[i:])
		if ends := ^x & 0x8080808080808080; ends != 0 {
			bytes := bits.TrailingZeros64(ends)/8 + 1
			x &= math.MaxUint64 >> (64 - 8*bytes)
			x = x&0x007f007f007f007f | x&0x7f007f007f007f00>>1
			x = x&0x00003fff00003fff | x&0x3fff00003fff0000>>2
			x = x&0x000000000fffffff | x&0x0fffffff00000000>>4
			return x, i + bytes
		}
	}
	if i < 0 || i > len(p) {
		return 0, badAt
	}
	v, n := binary.Uvarint(p[i:])
	if n <= 0 {
		return 0, badAt
	}
	return v, i + n
}

func unzigzag(v uint64) int64 { return int64(v>>1) ^ -int64(v&1) }

// newShape reads what follows the number of a shape that is new.
func (d *BatchDecoder) newShape(at int) (int, error) {
	if at > len(d.p) {
		return 0, errMalformed
	}
	c := cursor{p: d.p[at:]}
	var s likeShape
	differs := uint8(differsEnd - 1)
	from := c.uvarint()
	if from > uint64(len(d.shapes)) {
		return 0, errMalformed
	}
	if from > 0 {
		s, differs = d.shapes[from-1].likeShape, c.byte()
	}
	if differs&differsKind != 0 {
		s.kind = trace.Kind(c.byte())
	}
	if differs&differsFlags != 0 {
		s.flags = trace.Flags(c.uint16())
	}
	if differs&differsHook != 0 {
		s.hook = trace.HookID(c.uint16())
	}
	if differs&differsMask != 0 {
		s.mask = c.uint16()
	}
	if differs&differsLike != 0 {
		s.like = c.uint16()
	}
	if c.bad || differs >= differsEnd || s.mask >= hasEnd || s.like >= likeEnd {
		return 0, errMalformed
	}
	d.shapes = append(d.shapes, saltedShape{s, s.salt()})
	return len(d.p) - len(c.p), nil
}

// next decodes events of the batch into dst and returns how many: as many as there is room for, or are left. On an
// error those in front of it are there.
func (d *BatchDecoder) next(dst []trace.Event) (int, error) {
	p, at, time, thread := d.p, d.at, d.time, d.thread
	dst = dst[:min(len(dst), d.left)]
	done := 0
	var bad uint64 // not 0: a number was too large for its field
	for ; done < len(dst); done++ {
		var v uint64
		v, at = uvarint(p, at)
		if v >= uint64(len(d.shapes)) {
			if v > uint64(len(d.shapes)) {
				break
			}
			var err error
			if at, err = d.newShape(at); err != nil {
				break
			}
		}
		s := &d.shapes[v]
		mask, like := s.mask, s.like
		if like&likeThread == 0 {
			v, at = uvarint(p, at)
			bad |= v >> 32
			thread = trace.ThreadID(v)
		}
		before := &d.contexts[contextOf(s.salt, thread)]
		last := &d.stacks[stackSlot(thread)]
		v, at = uvarint(p, at)
		if like&timeBack != 0 {
			time -= trace.Ns(v)
		} else {
			time += trace.Ns(v)
		}

		e := &dst[done]
		*e = trace.Event{Kind: s.kind, Flags: s.flags, Hook: s.hook, Thread: thread, Time: time, Start: time, Count: 1}
		if mask&hasStart != 0 {
			v, at = uvarint(p, at)
			e.Start = time - trace.Ns(unzigzag(v))
		}
		if like&likeStack != 0 {
			e.Stack, e.Same = before.stack, before.same
		}
		if mask&(hasStack|hasSame) != 0 {
			if mask&hasStack != 0 {
				v, at = uvarint(p, at)
				stack := uint64(*last) + uint64(unzigzag(v))
				bad |= stack >> 32
				e.Stack = trace.StackID(stack)
			}
			if mask&hasSame != 0 {
				v, at = uvarint(p, at)
				bad |= v >> 32
				e.Same = uint32(v)
			}
			before.stack, before.same = e.Stack, e.Same
		}
		if e.Stack != 0 {
			*last = e.Stack
		}
		if mask&hasCount != 0 {
			v, at = uvarint(p, at)
			bad |= v >> 32
			e.Count = uint32(v)
		}
		if mask&hasCPU != 0 {
			v, at = uvarint(p, at)
			e.CPU = unzigzag(v)
			before.cpu = e.CPU
		} else if like&likeCPU != 0 {
			e.CPU = before.cpu
		}
		if like&likeObject != 0 {
			e.Object, e.Object2 = before.object, before.object2
		}
		if mask&(hasObject|hasObject2) != 0 {
			if mask&hasObject != 0 {
				v, at = uvarint(p, at)
				e.Object = before.object + uint64(unzigzag(v))
			}
			if mask&hasObject2 != 0 {
				v, at = uvarint(p, at)
				e.Object2 = e.Object + uint64(unzigzag(v))
			}
			before.object, before.object2 = e.Object, e.Object2
		}
		if like&(likeSize|likeResult|likeWho) != 0 || mask&rareFields != 0 {
			var wide uint64
			at, wide = rare(p, at, e, mask, like, before)
			bad |= wide
		}
		if at > len(p) || bad != 0 {
			break
		}
	}
	d.at, d.time, d.thread = at, time, thread
	if done < len(dst) {
		d.left = 0
		return done, errMalformed
	}
	d.left -= done
	return done, nil
}

const rareFields = hasSize | hasWeight | hasDebt | hasResult | hasOwner | hasReleaser | hasRelease

// rare reads the fields that samples do not have. wide is not 0 where a number was too large for its field.
func rare(p []byte, at int, e *trace.Event, mask, like uint16, before *context) (next int, wide uint64) {
	var v uint64
	if like&likeSize != 0 {
		e.Size, e.Weight = before.size, before.weight
	}
	if like&likeResult != 0 {
		e.Result = before.result
	}
	if like&likeWho != 0 {
		e.Owner, e.Releaser = before.owner, before.releaser
	}
	if mask&(hasSize|hasWeight) != 0 {
		if mask&hasSize != 0 {
			e.Size, at = uvarint(p, at)
		}
		if mask&hasWeight != 0 {
			e.Weight, at = uvarint(p, at)
		}
		before.size, before.weight = e.Size, e.Weight
	}
	if mask&hasDebt != 0 {
		v, at = uvarint(p, at)
		e.Debt = unzigzag(v)
	}
	if mask&hasResult != 0 {
		v, at = uvarint(p, at)
		e.Result = unzigzag(v)
		before.result = e.Result
	}
	if mask&(hasOwner|hasReleaser) != 0 {
		if mask&hasOwner != 0 {
			v, at = uvarint(p, at)
			wide |= v >> 32
			e.Owner = trace.ThreadID(v)
		}
		if mask&hasReleaser != 0 {
			v, at = uvarint(p, at)
			wide |= v >> 32
			e.Releaser = trace.ThreadID(v)
		}
		before.owner, before.releaser = e.Owner, e.Releaser
	}
	if mask&hasRelease != 0 {
		v, at = uvarint(p, at)
		e.Release = e.Time - trace.Ns(unzigzag(v))
	}
	return at, wide
}
