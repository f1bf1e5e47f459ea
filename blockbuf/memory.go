// Where the memory comes from and goes back to.

package blockbuf

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

var pageBytes = os.Getpagesize()

// memory is one range of bytes, zero and free of cost until it is written. It never moves or shrinks: what was
// given back keeps its addresses, so a late access reads zeros instead of faulting.
type memory struct {
	bytes  []byte
	blocks uint64 // where they begin
	kind   memoryKind
}

type memoryKind int

const (
	anonymous memoryKind = iota
	inFile
	onHeap
	forReading // a file, without leave to write
)

// reserve gets memory for a buffer of these sizes.
func reserve(o Options, z sizes) (*memory, error) {
	m := &memory{blocks: z.blocks}
	if o.heap {
		m.kind = onHeap
		words := make([]uint64, (z.end+7)/8)
		m.bytes = unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), z.end)
		return m, nil
	}
	if o.File == "" {
		var err error
		m.bytes, err = unix.Mmap(-1, 0, int(z.end), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
		if err != nil {
			return nil, fmt.Errorf("reserving %d bytes of address space: %w", z.end, err)
		}
		return m, nil
	}
	m.kind = inFile
	f, err := os.OpenFile(o.File, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err = f.Truncate(int64(z.end)); err == nil {
		err = m.mapFile(f, int(z.end), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: mapping %d bytes: %w", o.File, z.end, err), os.Remove(o.File))
	}
	return m, nil
}

func (m *memory) mapFile(f *os.File, bytes, prot, flags int) (err error) {
	m.bytes, err = unix.Mmap(int(f.Fd()), 0, bytes, prot, flags)
	return err
}

// prefault takes the first bytes' pages. Where the kernel is older than 5.14 they come one by one instead.
func (m *memory) prefault(bytes uint64) {
	if m.kind != onHeap {
		_ = unix.Madvise(m.bytes[:bytes], unix.MADV_POPULATE_WRITE)
	}
}

// discard gives part of the blocks, whole pages, back to the system. It reads as zeros from then on.
func (m *memory) discard(off, bytes uint64) error {
	part := m.bytes[m.blocks+off : m.blocks+off+bytes]
	switch m.kind {
	case anonymous:
		return unix.Madvise(part, unix.MADV_DONTNEED)
	case inFile:
		return unix.Madvise(part, unix.MADV_REMOVE)
	}
	sharedClear(unsafe.Pointer(unsafe.SliceData(part)), bytes)
	return nil
}

// forget gives all blocks back, except those of a file.
func (m *memory) forget() error {
	if m.kind == anonymous {
		return m.discard(0, uint64(len(m.bytes))-m.blocks)
	}
	return nil
}

// release ends the use of the range.
func (m *memory) release() error {
	if m.kind == onHeap {
		return nil
	}
	return unix.Munmap(m.bytes)
}
