// Buffers in files: other processes that write, and what is left of a process that died.

package blockbuf

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Open gives access to a buffer that another process has made in a file. Its writers and readers are as good as
// those of the maker; it cannot resize, and its Close ends only its own use.
func Open(path string) (*Buffer, error) {
	mem, s, err := openFile(path, os.O_RDWR, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("opening a block buffer: %w", err)
	}
	b := &Buffer{shape: s, mem: mem, view: viewOf(mem.bytes, &s)}
	mem.kind, mem.blocks = inFile, s.sizes().blocks
	b.unmapWhenUnused()
	return b, nil
}

// Recover reads the history that a file holds, whether whoever wrote it is alive or was killed at any point: all
// records that were committed, but for those behind one that was reserved, not even described, in the same
// block. The file is not changed, and nothing in it is trusted.
func Recover(path string) ([]Block, Stats, error) {
	mem, s, err := openFile(path, os.O_RDONLY, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, Stats{}, fmt.Errorf("recovering a block buffer: %w", err)
	}
	defer mem.release()
	v := viewOf(mem.bytes, &s)
	return v.snapshot(), v.stats(), nil
}

// openFile maps a file that ought to hold a buffer.
func openFile(path string, how, prot, flags int) (*memory, shape, error) {
	f, err := os.OpenFile(path, how, 0)
	if err != nil {
		return nil, shape{}, err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return nil, shape{}, err
	}
	if !fi.Mode().IsRegular() || fi.Size() < int64(unsafe.Sizeof(control{})) {
		return nil, shape{}, fmt.Errorf("%s: not a block buffer: %d bytes", path, fi.Size())
	}
	m := &memory{kind: forReading}
	if err := m.mapFile(f, int(fi.Size()), prot, flags); err != nil {
		return nil, shape{}, fmt.Errorf("%s: mapping %d bytes: %w", path, fi.Size(), err)
	}
	s := (*control)(unsafe.Pointer(unsafe.SliceData(m.bytes))).shape // a copy: the file may change
	if err := s.check(uint64(fi.Size())); err != nil {
		m.release()
		return nil, shape{}, fmt.Errorf("%s: %w", path, err)
	}
	return m, s, nil
}
