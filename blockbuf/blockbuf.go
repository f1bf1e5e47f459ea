// Package blockbuf keeps the newest continuous history of small records in a buffer of fixed size.
//
// The buffer is cut into equal blocks. Each producer slot fills one block of its own; a full block is closed
// and the slot opens another one, taking the memory of the oldest. Every block that is opened gets the next
// global position, so positions order the history, however unevenly the slots produce, and what is kept are
// always the newest blocks of all slots together: a slot that is quiet costs one block, not a share.
//
//	buf, err := blockbuf.New(blockbuf.Options{Bytes: 12 << 20, Slots: 8})
//	w := buf.Writer(0)
//	err = w.Write(record)
//
//	r := buf.NewReader()
//	buf.Seal() // close what is partly filled, so that the reader gets it
//	for blk, ok := r.Next(); ok; blk, ok = r.Next() {
//		blk.Records(func(p []byte) bool { …; return true })
//	}
//
// # What is promised
//
// Producers never wait for readers, nor for one another's copying: locks are held for bookkeeping only. The
// newest record is never refused in favour of an older one. Records of one [Writer] keep their order, within a
// block and across blocks. A record is read whole or not at all, and never before its Commit. A reader that is
// too slow loses the oldest positions and is told how many.
//
// # Inside
//
// One mutex orders everything; record bytes are copied by Reserve's caller outside it, by Write inside it. The
// shape is that of BTrace (Wang et al., "Enabling Efficient Mobile Tracing with BTrace", ASPLOS '25), section
// 3: slots own active blocks, a block that lags behind is closed by whoever opens a new one, and a block with
// an unconfirmed writer is skipped when its turn comes to be overwritten. The lock-free algorithm of the
// paper can take the mutex's place behind the same API.
package blockbuf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
)

// DefaultBlockBytes is the size of a block unless Options say otherwise.
const DefaultBlockBytes = 4096

const (
	maxBlockBytes = 1 << 24
	// A slot's block is closed for it once this many newer blocks per slot were opened: BTrace's A.
	lagPerSlot = 16
)

// Errors that a caller may want to tell apart.
var (
	ErrClosed   = errors.New("block buffer is closed")
	ErrTooLarge = errors.New("record does not fit into a block")
	ErrHeld     = errors.New("every block is held by a reservation that was not committed")
)

// Options describe a buffer.
type Options struct {
	// Bytes is the size of the history, rounded up to whole blocks. It must hold 2 blocks per slot. Have more
	// blocks than reservations that are open at one time, plus one per reader: writing fails with ErrHeld
	// when every block is held.
	Bytes int
	// BlockBytes is the size of a block: a power of two, a multiple of the page size. 0: DefaultBlockBytes.
	BlockBytes int
	// Slots is the number of producers that fill a block of their own: cores, or threads. 0: 1.
	Slots int
	// MaxBytes is the most that Resize can go up to; only address space is taken for it. 0: 4 × Bytes.
	MaxBytes int

	heap bool // tests: memory from the Go heap, which the race detector sees
}

// Buffer is a block buffer. All methods may be called from any number of goroutines.
type Buffer struct {
	// immutable
	blockBytes int
	maxBlocks  int
	slots      []slot

	mu     sync.Mutex
	mem    memory
	closed bool
	blocks int   // how many the history may have
	made   int   // blocks that have address space, live and spare
	spare  []int // address space given back: block numbers
	live   []*block
	head   uint64 // position of the newest block; the first is 1
	pinned int    // reservations and readers' copies in progress, all blocks
	free   []*block
	stats  Stats
}

// slot is one producer's share; its fields are under Buffer.mu.
type slot struct {
	active *block
}

// block is one block of memory. Its fields are under Buffer.mu; the bytes in [0, used) of data belong to the
// reservations that are pending, and are immutable once there are none.
type block struct {
	number  int    // place in the address range
	pos     uint64 // 0: not in the history
	data    []byte
	used    int
	records int
	slot    *slot // nil: closed
	pending int   // reservations that were not committed
	readers int   // copies in progress
}

func (k *block) held() bool { return k.pending+k.readers > 0 }

// New returns an empty buffer.
func New(o Options) (*Buffer, error) {
	if o.BlockBytes == 0 {
		o.BlockBytes = DefaultBlockBytes
	}
	if o.Slots == 0 {
		o.Slots = 1
	}
	if o.BlockBytes < pageBytes || o.BlockBytes&(o.BlockBytes-1) != 0 || o.BlockBytes > maxBlockBytes {
		return nil, fmt.Errorf("making a block buffer: block of %d bytes: want a power of two from %d to %d", o.BlockBytes, pageBytes, maxBlockBytes)
	}
	if o.Slots < 0 || o.Bytes < 0 || o.MaxBytes < 0 {
		return nil, fmt.Errorf("making a block buffer: negative size: %d bytes, %d slots, at most %d bytes", o.Bytes, o.Slots, o.MaxBytes)
	}
	if o.MaxBytes == 0 {
		o.MaxBytes = 4 * o.Bytes
	}
	b := &Buffer{blockBytes: o.BlockBytes, slots: make([]slot, o.Slots)}
	b.maxBlocks = b.blocksFor(max(o.Bytes, o.MaxBytes))
	if err := b.checkBlocks(b.blocksFor(o.Bytes)); err != nil {
		return nil, fmt.Errorf("making a block buffer: %w", err)
	}
	b.blocks = b.blocksFor(o.Bytes)
	var err error
	if o.heap {
		b.mem = make(heapMemory, b.maxBlocks*b.blockBytes)
	} else if b.mem, err = reserve(b.maxBlocks * b.blockBytes); err != nil {
		return nil, fmt.Errorf("making a block buffer: reserving %d bytes of address space: %w", b.maxBlocks*b.blockBytes, err)
	}
	return b, nil
}

func (b *Buffer) blocksFor(bytes int) int { return (bytes + b.blockBytes - 1) / b.blockBytes }

func (b *Buffer) checkBlocks(n int) error {
	if least := 2 * len(b.slots); n < least {
		return fmt.Errorf("%d blocks of %d bytes are too few for %d slots: give at least %d bytes", n, b.blockBytes, len(b.slots), least*b.blockBytes)
	}
	if n > b.maxBlocks {
		return fmt.Errorf("%d bytes are more than the %d that Options.MaxBytes reserved", n*b.blockBytes, b.maxBlocks*b.blockBytes)
	}
	return nil
}

// Writer is a producer's handle. Writers of one slot share its block; one Writer is for one goroutine at a
// time, and it is its records whose order is kept.
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
	b.mu.Lock()
	defer b.mu.Unlock()
	_, room, err := b.allocate(w.slot, len(p))
	if err != nil {
		return err
	}
	copy(room, p)
	return nil
}

// Reservation is room for one record. The zero value is not usable.
type Reservation struct {
	// Data is the record's room, to be filled before Commit and not touched after.
	Data []byte

	buf   *Buffer
	block *block
}

// Reserve makes room for a record of n bytes, which the caller fills and commits. Until then readers stop in
// front of its block, and past half a buffer leave it out. A reservation that is never committed costs its
// block. Each must be committed at most once.
func (w *Writer) Reserve(n int) (Reservation, error) {
	b := w.buf
	b.mu.Lock()
	defer b.mu.Unlock()
	k, room, err := b.allocate(w.slot, n)
	if err != nil {
		return Reservation{}, err
	}
	k.pending++
	b.pinned++
	return Reservation{Data: room, buf: b, block: k}, nil
}

// Commit makes the record visible to readers.
func (r Reservation) Commit() {
	b := r.buf
	b.mu.Lock()
	defer b.mu.Unlock()
	r.block.pending--
	b.unpin(r.block)
}

// unpin ends a hold on k that has been taken off k already.
func (b *Buffer) unpin(k *block) {
	b.pinned--
	if b.closed {
		if b.pinned == 0 {
			b.mem.release()
		}
		return
	}
	if k.pos == 0 && !k.held() { // Resize took it out of the history while it was held
		b.giveBack(k)
	}
}

// allocate finds room for a record of n bytes in the slot's block or a new one. The caller holds mu.
func (b *Buffer) allocate(s *slot, n int) (*block, []byte, error) {
	if b.closed {
		return nil, nil, ErrClosed
	}
	var prefix [binary.MaxVarintLen64]byte
	m := binary.PutUvarint(prefix[:], uint64(n))
	if n < 0 || n > b.blockBytes-m {
		return nil, nil, fmt.Errorf("%w: %d bytes, blocks have %d", ErrTooLarge, n, b.blockBytes)
	}
	k := s.active
	if k == nil || m+n > len(k.data)-k.used {
		var err error
		if k, err = b.open(s); err != nil {
			return nil, nil, err
		}
	}
	copy(k.data[k.used:], prefix[:m])
	at := k.used + m
	k.used = at + n
	k.records++
	b.stats.Records++
	b.stats.Bytes += uint64(n)
	return k, k.data[at:k.used:k.used], nil
}

// open gives the slot a new block at the next position. The caller holds mu.
func (b *Buffer) open(s *slot) (*block, error) {
	k, err := b.take()
	if err != nil {
		return nil, err
	}
	if s.active != nil {
		b.close(s.active)
	}
	b.head++
	k.pos, k.used, k.records, k.slot = b.head, 0, 0, s
	s.active = k
	b.live = append(b.live, k)
	b.closeLagging()
	return k, nil
}

// closeLagging closes the blocks that their slots left unfilled for so long that readers would have to wait
// for them, and long before they are the oldest.
func (b *Buffer) closeLagging() {
	lag := uint64(min(lagPerSlot*len(b.slots), b.blocks/2))
	for i := range b.slots {
		if k := b.slots[i].active; k != nil && b.head-k.pos >= lag {
			b.close(k)
			b.stats.ClosedLagging++
		}
	}
}

func (b *Buffer) close(k *block) {
	k.slot.active = nil
	k.slot = nil
	b.stats.Closed++
	b.stats.UnusedBytes += uint64(len(k.data) - k.used)
}

// take returns memory for a new block: unused memory while the history is shorter than it may be, otherwise
// that of the oldest block that nobody holds.
func (b *Buffer) take() (*block, error) {
	if len(b.live) < b.blocks {
		if n := len(b.free); n > 0 {
			k := b.free[n-1]
			b.free = b.free[:n-1]
			return k, nil
		}
		if n := len(b.spare); n > 0 {
			number := b.spare[n-1]
			b.spare = b.spare[:n-1]
			return b.newBlock(number), nil
		}
		if b.made < b.maxBlocks {
			b.made++
			return b.newBlock(b.made - 1), nil
		}
		// Blocks that Resize dropped and that are still held use up the address range: overwrite instead.
	}
	for i, k := range b.live {
		if k.held() {
			b.stats.Skipped++
			continue
		}
		b.remove(i)
		b.stats.Overwritten++
		return k, nil
	}
	return nil, ErrHeld
}

func (b *Buffer) newBlock(number int) *block {
	at := number * b.blockBytes
	return &block{number: number, data: b.mem.bytes()[at : at+b.blockBytes : at+b.blockBytes]}
}

// remove takes live[i] out of the history.
func (b *Buffer) remove(i int) {
	k := b.live[i]
	if k.slot != nil {
		b.close(k)
	}
	k.pos = 0
	if i == 0 {
		b.live[0] = nil
		b.live = b.live[1:] // append moves the rest to the front of a new array now and then
		return
	}
	b.live = slices.Delete(b.live, i, i+1)
}

// giveBack returns a block's memory to the system and keeps its address space for later.
func (b *Buffer) giveBack(k *block) {
	if err := b.mem.discard(k.data); err != nil {
		b.free = append(b.free, k) // its memory stays ours, and is used again
		return
	}
	b.spare = append(b.spare, k.number)
}

// Seal closes all partly filled blocks, so that readers get what was written up to now.
func (b *Buffer) Seal() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.slots {
		if k := b.slots[i].active; k != nil {
			b.close(k)
			b.stats.Sealed++
		}
	}
}

// Resize changes the size of the history to that many bytes, rounded up to whole blocks. Growing loses
// nothing; shrinking drops the oldest blocks and gives their memory back to the system, that of blocks with an
// uncommitted reservation as soon as it is committed.
func (b *Buffer) Resize(bytes int) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return ErrClosed
	}
	n := b.blocksFor(max(bytes, 0))
	if err := b.checkBlocks(n); err != nil {
		return fmt.Errorf("resizing a block buffer: %w", err)
	}
	b.blocks = n
	for len(b.live) > n {
		k := b.live[0]
		b.remove(0)
		b.stats.Overwritten++
		if !k.held() {
			b.giveBack(k)
		}
	}
	return nil
}

// Close gives the memory back, that of uncommitted reservations with the last Commit. Readers get nothing
// any more and writers ErrClosed. Blocks that were read stay valid.
func (b *Buffer) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil
	}
	b.closed = true
	b.live, b.free, b.spare = nil, nil, nil
	for i := range b.slots {
		b.slots[i].active = nil
	}
	if b.pinned > 0 {
		return nil
	}
	return b.mem.release()
}

// Stats is an account of a buffer since it was made.
type Stats struct {
	CapBytes      int    // size of the history
	Blocks        int    // blocks in it now
	UsedBytes     int    // bytes of records and their lengths in it now
	Head          uint64 // position of the newest block: how many were opened
	Records       uint64 // records written
	Bytes         uint64 // bytes of them
	Closed        uint64 // blocks closed, full or not
	ClosedLagging uint64 // of them, closed because their slot had fallen behind
	Sealed        uint64 // of them, closed by Seal
	UnusedBytes   uint64 // bytes at the ends of closed blocks that hold nothing
	Overwritten   uint64 // blocks whose memory was taken for newer ones or by Resize
	Skipped       uint64 // times that a block was too old but held, so that a newer one was overwritten
}

// Stats counts the buffer.
func (b *Buffer) Stats() Stats {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.stats
	s.CapBytes, s.Blocks, s.Head = b.blocks*b.blockBytes, len(b.live), b.head
	for _, k := range b.live {
		s.UsedBytes += k.used
	}
	return s
}
