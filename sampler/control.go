// Package sampler asks busy threads for their stacks. It is a process of its own beside the collector, the same
// binary run again with the session's segment, so that its clock never waits for the collector's garbage
// collection. control.go is the memory that the two share; start.go is the collector's side, main.go and
// loop.go the process itself, thread.go what it does with one thread, procfs.go what it reads under /proc.
//
// What the sampler is told it must not find out for itself: which processes belong to the session. A pid or a
// tid in the segment was written by the target, and a target that lies must not get strangers signalled. So
// the collector verifies processes (SO_PEERCRED, or the segment in /proc/PID/maps) and names them here; the
// sampler finds a thread only below the /proc/PID directory of such a process, which it holds open: a pid that
// is used again does not lead there.
package sampler

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

const controlMagic = 0x31_6c_72_74_63_62_68 // "hbctrl1"

// controlHead is grouped by writer. Both sides are the same binary, so that its layout needs no version.
type controlHead struct {
	// immutable, written by the collector before the sampler starts
	magic           uint64
	procs, threads  uint32
	freq, parentPID uint32

	// written by the collector
	_    [64]byte
	stop atomic.Uint32
	// 1: the collector sleeps and wants to be woken; taken back by whoever wakes it
	asleep atomic.Uint32

	// written by the sampler
	_ [64]byte
	samplerHead
}

type samplerHead struct {
	ready      atomic.Uint32 // 1: the loop runs; 2: it could not start, failure says why
	mode       atomic.Uint32 // Mode
	ticks      atomic.Uint64 // wake-ups
	missed     atomic.Uint64 // ticks with no wake-up of their own
	lateNs     atomic.Uint64 // sum over wake-ups of (woke - wanted)
	sent       atomic.Uint64
	failed     atomic.Uint64
	stuck      atomic.Uint64
	cpuNs      atomic.Uint64 // of this sampler process so far, as of its last look
	noFD       atomic.Uint64 // threads not looked at for want of a descriptor
	failureLen atomic.Uint32
	failure    [256]byte // before ready = 2
}

// procControl belongs to one process slot. The collector writes it: ok = 0 first, the rest, then ok = uid
// (release); the sampler reads ok (acquire), the rest, and ok again.
type procControl struct {
	ok         atomic.Uint32 // uid of the verified process; 0 none
	hostPID    atomic.Uint32
	startTicks atomic.Uint64 // field 22 of /proc/PID/stat: tells a pid's second owner from its first
	translate  atomic.Uint32 // 1: tids in the segment are of another pid namespace; see threadControl
	// written by the sampler: uid of the process that cannot be signalled, and why
	quietUID atomic.Uint32
	quiet    atomic.Uint32 // Quiet
	_        uint32
}

// threadControl belongs to one thread slot.
type threadControl struct {
	// written by the collector, hostTID first: the thread's tid in our pid namespace
	hostTID atomic.Uint32
	uid     atomic.Uint32
	// written by the sampler: uid of a thread that is no more
	gone atomic.Uint32
	// written by the sampler: signals sent to the thread with uid sentUID
	sentUID atomic.Uint32
	sent    atomic.Uint64
}

// Mode is how the sampler gets the CPU when it wants it.
type Mode uint32

const (
	ModePlain Mode = iota // like any other process: ticks are missed when all CPUs are busy
	ModeSlice             // a short slice (Linux 6.12 and later)
	ModeNice              // a raised priority
	ModeFIFO              // SCHED_FIFO 1
)

func (m Mode) String() string {
	switch m {
	case ModeFIFO:
		return "SCHED_FIFO"
	case ModeNice:
		return "raised priority"
	case ModeSlice:
		return "short slice"
	}
	return "ordinary priority"
}

// Quiet is why a process of the session is not signalled.
type Quiet uint32

const (
	QuietNo        Quiet = iota
	QuietNoHandler       // our handler is not installed: the target keeps the signal for itself, or ran another program
	QuietDenied          // the kernel does not let us signal it
)

type control struct {
	mem     []byte
	head    *controlHead
	procs   []procControl
	threads []threadControl
}

const controlPage = 4096

func controlOffsets(procs, threads int) (procsOff, threadsOff, size int) {
	procsOff = controlPage
	threadsOff = procsOff + procs*int(unsafe.Sizeof(procControl{}))
	threadsOff = (threadsOff + 63) &^ 63
	size = threadsOff + threads*int(unsafe.Sizeof(threadControl{}))
	return procsOff, threadsOff, (size + controlPage - 1) &^ (controlPage - 1)
}

// createControl makes the shared memory and returns its descriptor, which the caller closes.
func createControl(procs, threads, freq int) (*control, int, error) {
	_, _, size := controlOffsets(procs, threads)
	fd, err := unix.MemfdCreate("hbtrace-sampler", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, -1, fmt.Errorf("create the sampler's control memory: %w", err)
	}
	if err := unix.Ftruncate(fd, int64(size)); err != nil {
		unix.Close(fd)
		return nil, -1, fmt.Errorf("size the sampler's control memory: %w", err)
	}
	mem, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		unix.Close(fd)
		return nil, -1, fmt.Errorf("map the sampler's control memory: %w", err)
	}
	c := newControl(mem, procs, threads)
	c.head.procs, c.head.threads = uint32(procs), uint32(threads)
	c.head.freq, c.head.parentPID = uint32(freq), uint32(unix.Getpid())
	c.head.magic = controlMagic
	return c, fd, nil
}

func mapControl(fd int) (*control, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, fmt.Errorf("look at control fd %d: %w", fd, err)
	}
	if st.Size < controlPage || st.Size > 1<<30 {
		return nil, fmt.Errorf("control fd %d has %d bytes", fd, st.Size)
	}
	mem, err := unix.Mmap(fd, 0, int(st.Size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map control fd %d: %w", fd, err)
	}
	h := (*controlHead)(unsafe.Pointer(&mem[0]))
	procs, threads := int(h.procs), int(h.threads)
	if h.magic != controlMagic || procs > 1<<20 || threads > 1<<22 {
		unix.Munmap(mem)
		return nil, fmt.Errorf("control fd %d: not control memory", fd)
	}
	if _, _, size := controlOffsets(procs, threads); size != len(mem) {
		unix.Munmap(mem)
		return nil, fmt.Errorf("control fd %d: %d bytes, want %d", fd, len(mem), size)
	}
	return newControl(mem, procs, threads), nil
}

func newControl(mem []byte, procs, threads int) *control {
	p, t, _ := controlOffsets(procs, threads)
	return &control{
		mem:     mem,
		head:    (*controlHead)(unsafe.Pointer(&mem[0])),
		procs:   unsafe.Slice((*procControl)(unsafe.Pointer(&mem[p])), procs),
		threads: unsafe.Slice((*threadControl)(unsafe.Pointer(&mem[t])), threads),
	}
}

func (c *control) close() {
	if c.mem != nil {
		unix.Munmap(c.mem)
		c.mem = nil
	}
}

// fail leaves the reason why the sampler could not start.
func (h *samplerHead) fail(err error) {
	h.failureLen.Store(uint32(copy(h.failure[:], err.Error())))
	h.ready.Store(2)
}

func (h *samplerHead) reason() string {
	return string(h.failure[:min(int(h.failureLen.Load()), len(h.failure))])
}

const _ = uint(controlPage - unsafe.Sizeof(controlHead{}))
