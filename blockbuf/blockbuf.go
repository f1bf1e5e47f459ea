package blockbuf

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
)

// DefaultBlockBytes is the size of a block unless Options say otherwise.
const DefaultBlockBytes = 4096

const (
	leastBlock    = 4096
	activePerSlot = 8 // A over the number of slots; the paper takes 16 × cores
)

// Errors that a caller may want to tell apart.
var (
	ErrClosed   = errors.New("block buffer is closed")
	ErrTooLarge = errors.New("record does not fit into a block")
	ErrHeld     = errors.New("every block is held by a record that was not committed")
	ErrFull     = errors.New("block buffer has used up its 2^40 positions: make a new one")
	ErrCorrupt  = errors.New("block buffer's shared memory was overwritten")
)

// Mapping says how a position gets its block of memory, and whether slow slots have blocks of their own.
type Mapping uint32

const (
	// LateBorrowing is late binding and borrowing: the default. Late binding: a block is the one whose turn it
	// is to be overwritten, taken when everything else is ready, so that one that cannot be overwritten yet is
	// passed over and costs just itself. Borrowing: a slot whose last block was open for long writes into the
	// newest block of anybody instead of leaving another one half empty.
	LateBorrowing Mapping = iota
	// Late is late binding alone.
	Late
	// Paper is the paper's mapping: position G is written to block G mod N, if the block A positions before it,
	// which shares its metadata, is confirmed; else G is skipped. A record that is never committed costs N/A blocks.
	Paper
	// PaperBorrowing is Paper with borrowing.
	PaperBorrowing

	mappings
)

func (m Mapping) late() bool      { return m == LateBorrowing || m == Late }
func (m Mapping) borrowing() bool { return m == LateBorrowing || m == PaperBorrowing }

func (m Mapping) String() string {
	if m < mappings {
		return [mappings]string{"late+borrowing", "late", "paper", "paper+borrowing"}[m]
	}
	return fmt.Sprintf("Mapping(%d)", uint32(m))
}

// Options describe a buffer.
type Options struct {
	// Bytes is the size of the history, rounded up to whole blocks (with the paper's mapping to whole rows of
	// A). It must hold 2 blocks per slot. Have more blocks than records that are reserved and not committed at
	// one time: writing fails with ErrHeld when every block is held.
	Bytes int
	// BlockBytes is the size of a block: a power of two from 4 KiB to 64 KiB, a multiple of the page size.
	// 0: DefaultBlockBytes. Larger blocks make fewer writes slow, and leave more unfilled.
	BlockBytes int
	// Slots is the number of producers that fill a block of their own: cores, or threads. 0: 1.
	Slots int
	// ActivePerSlot times Slots is A: after so many newer positions a block is closed for its slot. 0: 8, which keeps
	// more of the history than the paper's 16 when writers are stuck (docs/design/replay.md).
	ActivePerSlot int
	// MaxBytes is the most that Resize can go up to; only address space (and a hole in File) is taken for it.
	// 0: 4 × Bytes.
	MaxBytes int
	// Mapping is how positions get their blocks. The zero value is the best one known.
	Mapping Mapping
	// File, if set, is created to hold the buffer, so that Recover can read what was written after this process
	// is gone, and Open can write from others. It must not exist. Put it on a tmpfs or a local disk; nothing
	// waits for the disk, so it survives the death of processes, not of the machine.
	File string
	// Prefault takes all memory of Bytes at once, instead of a page fault at the first use of each page: about
	// 0.3 µs for anonymous memory, several for a file on disk.
	Prefault bool

	heap bool   // tests: memory from the Go heap, which the race detector sees
	tiny bool   // tests: any BlockBytes
	from uint64 // tests: first position; 0: 1
}

// Buffer is a block buffer. All methods may be called from any number of goroutines.
type Buffer struct {
	view

	// immutable
	shape shape
	mem   *memory
	owner bool // made by New: may resize

	resize sync.Mutex
	halted atomic.Bool // this process has called Close
}

// New returns an empty buffer.
func New(o Options) (*Buffer, error) {
	b, err := newBuffer(o)
	if err != nil {
		return nil, fmt.Errorf("making a block buffer: %w", err)
	}
	return b, nil
}

func newBuffer(o Options) (*Buffer, error) {
	if o.BlockBytes == 0 {
		o.BlockBytes = DefaultBlockBytes
	}
	if o.Slots == 0 {
		o.Slots = 1
	}
	if o.ActivePerSlot == 0 {
		o.ActivePerSlot = activePerSlot
	}
	least := max(leastBlock, pageBytes)
	if o.tiny {
		least = 8
	}
	if o.BlockBytes < least || o.BlockBytes&(o.BlockBytes-1) != 0 || o.BlockBytes > maxBlock {
		return nil, fmt.Errorf("block of %d bytes: want a power of two from %d to %d", o.BlockBytes, least, maxBlock)
	}
	if o.Slots < 0 || o.Bytes < 0 || o.MaxBytes < 0 || o.ActivePerSlot < 0 {
		return nil, fmt.Errorf("negative size: %d bytes, %d slots, at most %d bytes, %d active blocks per slot", o.Bytes, o.Slots, o.MaxBytes, o.ActivePerSlot)
	}
	if o.Slots > 1<<20 || o.ActivePerSlot > 1<<10 {
		return nil, fmt.Errorf("%d slots, %d active blocks for each: want at most %d and %d", o.Slots, o.ActivePerSlot, 1<<20, 1<<10)
	}
	if o.Mapping >= mappings {
		return nil, fmt.Errorf("unknown mapping %d", o.Mapping)
	}
	if o.MaxBytes == 0 {
		o.MaxBytes = 4 * o.Bytes
	}
	blocks := (o.Bytes + o.BlockBytes - 1) / o.BlockBytes
	s := shape{
		magic: magic, version: version, mapping: uint32(o.Mapping),
		blockBytes: uint32(o.BlockBytes), slots: uint32(o.Slots),
		active: uint32(min(o.ActivePerSlot*o.Slots, max(o.Slots, blocks/2))),
	}
	blocks = s.whole(blocks)
	most := s.whole((max(o.Bytes, o.MaxBytes) + o.BlockBytes - 1) / o.BlockBytes)
	if most >= claimed {
		return nil, fmt.Errorf("%d blocks of %d bytes: want fewer than %d", most, o.BlockBytes, claimed)
	}
	s.maxBlocks = uint32(most)
	if err := s.checkBlocks(blocks); err != nil {
		return nil, err
	}
	mem, err := reserve(o, s.sizes())
	if err != nil {
		return nil, err
	}
	b := &Buffer{shape: s, mem: mem, owner: true, view: viewOf(mem.bytes, &s)}
	b.format(uint64(blocks), max(o.from, 1))
	if o.Prefault {
		mem.prefault(s.sizes().blocks + uint64(blocks)*b.cap)
	}
	b.ctl.shape = s // last: a file without it is not a buffer
	b.unmapWhenUnused()
	return b, nil
}

// unmapWhenUnused keeps the memory for as long as something refers to the buffer: writers do not take part in Close.
func (b *Buffer) unmapWhenUnused() {
	runtime.AddCleanup(b, func(m *memory) { m.release() }, b.mem)
}

// format makes the first blocks part of the history, used up, so that the first write of each slot opens one.
func (b *Buffer) format(blocks, first uint64) {
	b.ctl.next.v.Store(first)
	b.ctl.blocks.v.Store(blocks)
	b.ctl.lag.v.Store(b.lagOf(blocks))
	b.ctl.made.v.Store(blocks)
	order := spread(0, blocks)
	for i, k := range order {
		b.metas[k].alloc.v.Store(pack(0, b.cap))
		b.metas[k].conf.v.Store(pack(0, b.cap))
		b.metas[k].next.v.Store(order[(i+1)%len(order)])
	}
	b.ctl.cursor.v.Store(pack(0, order[0]))
}

// spread lists the blocks from lo to hi so that neighbours in the list, which different slots fill at the same
// time, do not share a line of metas.
func spread(lo, hi uint64) []uint64 {
	const perLine, group = 4, 64 // with a line's neighbour, which processors fetch, too
	order := make([]uint64, 0, hi-lo)
	for at := lo; at < hi; at += group {
		for first := range uint64(perLine) {
			for k := at + first; k < min(at+group, hi); k += perLine {
				order = append(order, k)
			}
		}
	}
	return order
}

// lagOf is after how many newer positions a block is closed in a history of so many blocks. More than half of
// them must not be open at once.
func (b *Buffer) lagOf(blocks uint64) uint64 {
	return max(1, min(uint64(b.shape.active), blocks/2))
}

// whole rounds a number of blocks up to what the mapping can have.
func (s *shape) whole(blocks int) int {
	if a := int(s.active); !Mapping(s.mapping).late() {
		return (blocks + a - 1) / a * a
	}
	return blocks
}

func (s *shape) checkBlocks(n int) error {
	if least := 2 * int(s.slots); n < least {
		return fmt.Errorf("%d blocks of %d bytes are too few for %d slots: give at least %d bytes", n, s.blockBytes, s.slots, least*int(s.blockBytes))
	}
	if n > int(s.maxBlocks) {
		return fmt.Errorf("%d bytes are more than the %d that Options.MaxBytes reserved", n*int(s.blockBytes), int(s.maxBlocks)*int(s.blockBytes))
	}
	return nil
}

// Close ends the use of the buffer: writers get ErrClosed from their next new block on at the latest, readers
// nothing, and the memory goes back to the system. Records that were reserved may still be filled and
// committed, to no effect. A buffer in a file is closed for all processes; the file keeps what it holds.
func (b *Buffer) Close() error {
	b.resize.Lock()
	defer b.resize.Unlock()
	if b.halted.Swap(true) {
		return nil
	}
	if b.owner {
		b.ctl.closed.store(1)
	}
	b.Seal()
	return b.mem.forget()
}

func (b *Buffer) isClosed() bool { return b.ctl.closed.load() != 0 || b.halted.Load() }
