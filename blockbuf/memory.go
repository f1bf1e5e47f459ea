// Where the bytes come from.

package blockbuf

import (
	"os"

	"golang.org/x/sys/unix"
)

var pageBytes = os.Getpagesize()

// memory is one range of bytes that is zero and costs nothing until it is written.
type memory interface {
	bytes() []byte
	discard(part []byte) error // gives the memory behind part, whole pages, back to the system
	release() error            // ends the use of the range
}

// mapping is anonymous memory. The range never moves or shrinks: what is given back keeps its addresses, so a
// late access reads zeros instead of faulting.
type mapping []byte

func reserve(bytes int) (mapping, error) {
	return unix.Mmap(-1, 0, bytes, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
}

func (m mapping) bytes() []byte             { return m }
func (m mapping) discard(part []byte) error { return unix.Madvise(part, unix.MADV_DONTNEED) }
func (m mapping) release() error            { return unix.Munmap(m) }

// heapMemory is Go memory, for tests: the race detector does not look at mappings.
type heapMemory []byte

func (m heapMemory) bytes() []byte { return m }
func (m heapMemory) discard(part []byte) error {
	clear(part)
	return nil
}
func (m heapMemory) release() error { return nil }
