// The shared words, how they are packed, and every access to memory that producers and readers share.

package blockbuf

import (
	"sync/atomic"
	"unsafe"
)

// A word is a position in the upper 40 bits and a number of 24 bits below it: bytes allocated or confirmed in
// the block that was opened at that position, or which block that is. 2^40 positions of 4 KiB are 4.5 PB.
const (
	lowBits  = 24
	lowMask  = 1<<lowBits - 1
	maxPos   = 1<<(64-lowBits) - 1
	noBlock  = lowMask     // in place of a block's number
	retired  = lowMask     // in place of confirmed bytes: the block is not part of the history's memory
	claimed  = lowMask - 1 // likewise: it is being taken for a new position
	maxBlock = 1 << 16     // bytes
)

func pack(pos, low uint64) uint64 { return pos<<lowBits | low }
func posOf(w uint64) uint64       { return w >> lowBits }
func lowOf(w uint64) uint64       { return w & lowMask }

// word is a shared word. Go's atomics are sequentially consistent, so that the orders which the algorithm needs
// are the orders in the source.
type word struct{ v atomic.Uint64 }

func (w *word) load() uint64 {
	if constant(w) {
		return w.v.Load()
	}
	stepBefore()
	v := w.v.Load()
	stepAfter(v)
	return v
}

func (w *word) store(v uint64) {
	changing(w)
	stepBefore()
	w.v.Store(v)
	stepAfter(0)
}

func (w *word) add(d uint64) uint64 {
	changing(w)
	stepBefore()
	v := w.v.Add(d)
	stepAfter(v)
	return v
}

func (w *word) cas(old, new uint64) bool {
	changing(w)
	stepBefore()
	ok := w.v.CompareAndSwap(old, new)
	if ok {
		stepAfter(1)
	} else {
		stepAfter(0)
	}
	return ok
}

// A record is a header and its bytes, padded to a multiple of 4. The header is stored when room was reserved, to
// say how much, and again on commit. Until the first of these, what the block held before stands there; so that
// it is not taken for a header, each has the tag of the block's use, one more than at its last use.
//
// Only readers of blocks that are not confirmed in whole depend on the tag, and only if they come in the few
// instructions between the allocation and the first store, or the writer died there. Former headers have other
// tags. Bytes of a former record pass for a committed header of this use once in 2^19 times, if they are random.
// Clearing blocks instead costs 3 ns a record, and makes the slow writes slower.
const (
	headerBytes = 4
	lengthMask  = 1<<16 - 1
	tagShift    = 16
	tagMask     = (1<<13 - 1) << tagShift
	// What is in use has this flag, so that no header is 0.
	flagReserved  = 1 << 29
	flagDummy     = 1 << 30 // filler; also what was never committed, in a copy
	flagCommitted = 1 << 31
)

// header is that of a record of n bytes, without flags, in a block with this tag.
func header(tag uint64, n int) uint32 {
	return flagReserved | uint32(tag)<<tagShift&tagMask | uint32(n)
}

// sized is the room that h claims with its record.
func sized(h uint32) uint64 { return recordBytes(int(h & lengthMask)) }

// valid tells whether h is a header in a block with this tag.
func valid(h uint32, tag uint64) bool {
	return h&(flagReserved|tagMask) == header(tag, 0)
}

// RecordBytes is the room in a block that a record of n bytes takes, with its header and padding.
func RecordBytes(n int) int { return int(recordBytes(n)) }

func recordBytes(n int) uint64 { return (uint64(n) + headerBytes + 3) &^ 3 }

func loadHeader(p unsafe.Pointer) uint32 {
	stepBefore()
	v := (*atomic.Uint32)(p).Load()
	stepAfter(uint64(v))
	return v
}

// storeHeader publishes what was stored before it to whoever loads the header.
func storeHeader(p unsafe.Pointer, h uint32) {
	stepBefore()
	releaseStore(p, h)
	stepAfter(0)
}

func copyIn(dst unsafe.Pointer, src []byte) {
	stepBefore()
	sharedCopyIn(dst, src)
	stepAfter(0)
}

func copyOut(dst []byte, src unsafe.Pointer) {
	stepBefore()
	sharedCopyOut(dst, src)
	stepAfter(hashForModel(dst))
}
