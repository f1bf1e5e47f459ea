// What lies where in a buffer's memory: control words, then the blocks. All of it is shared, by goroutines and,
// in a file, by processes; nothing in it is a pointer.

package blockbuf

import (
	"fmt"
	"unsafe"
)

const (
	magic   = 0x6675_626b_636f_6c62 // "blockbuf", little endian
	version = 2
)

// shape is what is fixed for a buffer's life. It stands at the beginning of its memory.
type shape struct {
	magic      uint64
	version    uint32
	mapping    uint32 // Mapping
	blockBytes uint32
	slots      uint32
	active     uint32 // A: entries of the active table
	maxBlocks  uint32
}

// control is the first part of the memory. Words that different threads write often have lines of their own,
// and a second line's distance, because processors fetch lines in pairs.
type control struct {
	shape
	_ [128 - unsafe.Sizeof(shape{})]byte

	// Who opens a block writes both, one after the other: in one line they come together.
	next   word // next position to be given out; the first is 1. Producers add
	cursor word // turn<<24 | block whose turn it is to be overwritten. Late binding only; producers and Resize
	_      [112]byte

	blocks word // N: how many blocks the history may have. Resize writes
	lag    word // positions after which a block is closed for its slot: min(A, N/2). Resize writes
	made   word // blocks that were ever part of the history: readers look at these. Resize writes
	closed word // 1: no more writing
	_      [96]byte
}

// slot is one producer's share: the paper's core-local ratio_and_pos, and its statistics.
type slot struct {
	word    word // position and block that this slot's writers fill
	borrows word // since<<24 | one more than how often; 0: the slot is fast. See borrow
	slotStats
	_ [128 - 2*8 - unsafe.Sizeof(slotStats{})]byte
}

// slotStats count what a slot's writers did when they needed a block.
type slotStats struct {
	opened, borrowed, lagging, sealed, skipped, overtaken, unused word
}

// meta is what is known of a block: the paper's Allocated and Confirmed, its place in the order of turns.
type meta struct {
	alloc word // position, bytes given out to writers
	conf  word // position, bytes confirmed by them; or a mark
	next  word // the block whose turn to be overwritten comes after this one's. Late binding only; Resize
	tag   word // how often it was opened: see header. Written by who has claimed the block
}

// sizes are the offsets of the parts, in bytes.
type sizes struct {
	slots, active, metas, blocks, end uint64
}

func (s *shape) sizes() sizes {
	var z sizes
	// Blocks begin at a page whatever the machine's pages are, up to 64 KiB. Tests have blocks smaller than any.
	align := uint64(64 << 10)
	if s.blockBytes < leastBlock {
		align = 128
	}
	up := func(n, to uint64) uint64 { return (n + to - 1) / to * to }
	z.slots = uint64(unsafe.Sizeof(control{}))
	z.active = z.slots + uint64(s.slots)*uint64(unsafe.Sizeof(slot{}))
	z.metas = up(z.active+8*uint64(s.active), 128)
	z.blocks = up(z.metas+uint64(s.maxBlocks)*uint64(unsafe.Sizeof(meta{})), align)
	z.end = z.blocks + uint64(s.maxBlocks)*uint64(s.blockBytes)
	return z
}

// check tells whether s can be the shape of a buffer in so many bytes of memory. It may come from a file that
// anybody has written.
func (s *shape) check(bytes uint64) error {
	switch {
	case s.magic != magic:
		return fmt.Errorf("not a block buffer: begins with %#x", s.magic)
	case s.version != version:
		return fmt.Errorf("layout version %d: this program knows %d", s.version, version)
	case Mapping(s.mapping) >= mappings:
		return fmt.Errorf("unknown mapping %d", s.mapping)
	case s.blockBytes < 8 || s.blockBytes > maxBlock || s.blockBytes&(s.blockBytes-1) != 0:
		return fmt.Errorf("blocks of %d bytes", s.blockBytes)
	case s.slots == 0 || s.active == 0 || s.maxBlocks == 0 || s.slots > 1<<24 || s.active > 1<<24 || s.maxBlocks >= claimed:
		return fmt.Errorf("%d slots, %d active blocks of %d", s.slots, s.active, s.maxBlocks)
	case s.sizes().end > bytes:
		return fmt.Errorf("%d bytes, of which its shape needs %d", bytes, s.sizes().end)
	}
	return nil
}

// view is memory seen as a buffer's parts.
type view struct {
	ctl    *control
	slots  []slot
	active []word // by position mod A: the last position opened, or given up, and its block
	metas  []meta // by block
	data   unsafe.Pointer
	cap    uint64 // bytes of a block
}

// viewOf lays the parts over mem, whose shape was checked.
func viewOf(mem []byte, s *shape) view {
	base, z := unsafe.Pointer(unsafe.SliceData(mem)), s.sizes()
	return view{
		ctl:    (*control)(base),
		slots:  unsafe.Slice((*slot)(unsafe.Add(base, z.slots)), s.slots),
		active: unsafe.Slice((*word)(unsafe.Add(base, z.active)), s.active),
		metas:  unsafe.Slice((*meta)(unsafe.Add(base, z.metas)), s.maxBlocks),
		data:   unsafe.Add(base, z.blocks),
		cap:    uint64(s.blockBytes),
	}
}

// at is where a byte of a block is.
func (v *view) at(block, off uint64) unsafe.Pointer {
	return unsafe.Add(v.data, block*v.cap+off)
}
