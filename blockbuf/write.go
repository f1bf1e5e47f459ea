// Writing: a record gets its room by one compare-and-swap and is confirmed by one addition. What happens when a
// block is full is in advance.go.

package blockbuf

import (
	"fmt"
	"unsafe"
)

// Writer is a producer's handle. Any number of writers may share a slot, and with it a block; one Writer is for
// one goroutine at a time, and it is its records whose order is kept.
type Writer struct {
	buf  *Buffer
	slot *slot
}

// Writer returns a handle on a slot. Numbers from Slots on wrap around.
func (b *Buffer) Writer(slot int) *Writer {
	return &Writer{buf: b, slot: &b.slots[uint(slot)%uint(len(b.slots))]}
}

// Write stores a copy of p as one record.
func (w *Writer) Write(p []byte) error {
	b := w.buf
	block, off, err := w.allocate(len(p))
	if err != nil {
		return err
	}
	at, m := b.at(block, off), &b.metas[block]
	h := header(m.tag.load(), len(p))
	storeHeader(at, h)
	copyIn(unsafe.Add(at, headerBytes), p)
	storeHeader(at, h|flagCommitted)
	m.conf.add(recordBytes(len(p)))
	return nil
}

// Reservation is room for one record. The zero value is not usable.
type Reservation struct {
	// Data is the record's room, to be filled before Commit and not touched after.
	Data []byte

	buf  *Buffer
	meta *meta
	at   unsafe.Pointer // where the header is
	h    uint32
}

// Reserve makes room for a record of n bytes, which the caller fills and then commits or discards. Until then
// the other records of its block reach readers late: a [Reader] waits for it until half a buffer of newer blocks
// exists. A reservation that is never ended costs its block, nothing more. Each must be ended at most once.
func (w *Writer) Reserve(n int) (Reservation, error) {
	b := w.buf
	block, off, err := w.allocate(n)
	if err != nil {
		return Reservation{}, err
	}
	at, m := b.at(block, off), &b.metas[block]
	h := header(m.tag.load(), n)
	storeHeader(at, h)
	r := Reservation{buf: b, meta: m, at: at, h: h}
	if copiesAreAtomic {
		r.Data = make([]byte, n) // Commit copies: a reader may look at the room meanwhile
	} else {
		r.Data = unsafe.Slice((*byte)(unsafe.Add(at, headerBytes)), n)
	}
	return r, nil
}

// Commit makes the record visible to readers.
func (r Reservation) Commit() {
	if copiesAreAtomic {
		copyIn(unsafe.Add(r.at, headerBytes), r.Data)
	}
	r.end(r.h | flagCommitted)
}

// Discard gives the record up. Its room stays empty.
func (r Reservation) Discard() { r.end(r.h | flagCommitted | flagDummy) }

func (r Reservation) end(h uint32) {
	storeHeader(r.at, h)
	r.meta.conf.add(sized(h))
}

// allocate finds room for a record of n bytes: the block, and where in it the header comes.
//
// The room belongs to the caller from the compare-and-swap on: the block cannot be confirmed without it, and
// what is not confirmed is not overwritten. (Paper, 3.2: fetch-and-add instead. It may land in a later round of
// the block or beyond its end, and both must be undone; the two cost the same where slots are cores.)
func (w *Writer) allocate(n int) (block, off uint64, err error) {
	b := w.buf
	need := recordBytes(n)
	if n < 0 || need > b.cap {
		return 0, 0, fmt.Errorf("%w: %d bytes, blocks have %d", ErrTooLarge, n, b.cap-headerBytes)
	}
	for {
		cur := w.slot.word.load()
		block = lowOf(cur)
		if block >= uint64(len(b.metas)) {
			return 0, 0, ErrCorrupt
		}
		m := &b.metas[block]
		a := m.alloc.load()
		if posOf(a) == posOf(cur) && lowOf(a)+need <= b.cap {
			if m.alloc.cas(a, a+need) {
				return block, lowOf(a), nil
			}
			continue
		}
		if err := b.advance(w.slot, cur, need); err != nil {
			return 0, 0, err
		}
	}
}
