package goruntime

import (
	"fmt"
	"unsafe"

	"github.com/hbtrace/hbtrace/segment"
	"golang.org/x/sys/unix"
)

// Entries is how many goroutines of one process can be told apart at a time. The table's memory is made as it is touched.
const Entries = 1 << 20

// Table is the recorder's mapping of a process's table of goroutines. The program can write anything into it.
type Table struct {
	mem []byte
	fd  int
}

// NewTable makes an empty one.
func NewTable() (*Table, error) {
	size := int(unsafe.Sizeof(segment.GoTable{})) + Entries*(int(unsafe.Sizeof(segment.GoEntry{}))+4)
	size = (size + 4095) &^ 4095
	fd, err := unix.MemfdCreate("hbtrace-go", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("create the table of goroutines: %w", err)
	}
	err = unix.Ftruncate(fd, int64(size))
	if err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL)
	}
	var mem []byte
	if err == nil {
		mem, err = unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("make the table of goroutines: %w", err)
	}
	return &Table{mem: mem, fd: fd}, nil
}

// Head are the process's counters.
func (t *Table) Head() *segment.GoTable { return (*segment.GoTable)(unsafe.Pointer(&t.mem[0])) }

// Entry is entry i, 0 ≤ i < Entries.
func (t *Table) Entry(i int) *segment.GoEntry {
	at := int(unsafe.Sizeof(segment.GoTable{})) + i*int(unsafe.Sizeof(segment.GoEntry{}))
	return (*segment.GoEntry)(unsafe.Pointer(&t.mem[at : at+int(unsafe.Sizeof(segment.GoEntry{}))][0]))
}

// Close gives the recorder's mapping back; the program keeps its own.
func (t *Table) Close() {
	if t.mem != nil {
		unix.Munmap(t.mem)
		unix.Close(t.fd)
		t.mem = nil
	}
}
