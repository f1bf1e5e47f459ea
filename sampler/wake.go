// Waking the collector. It has to look when a ring fills, when a process appears or loads a module, and when a thread has gone;
// the sampler wakes up every millisecond anyway and sees that with a few loads, so that the collector can sleep. To
// look by itself fifty times a second, as it did, took 2 % of a CPU in sessions that had nothing to collect.
package sampler

import (
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	wakeFill    = 8    // the collector is woken when one part in so many of a ring is full
	threadsWait = 20e6 // ns between two wake-ups for threads that have gone, or that it has to find
)

// waker is what the sampler knows of the collector's work.
type waker struct {
	fd        int    // write end of a pipe
	processes uint32 // numbers given out when it was woken last
	modules   uint32 // sum of the processes' generations of modules then
	threads   bool   // there is one that has gone, or that cannot be sampled before the collector has found it
	since     int64  // when it was woken for threads last
}

// wakeCollector wakes the collector if it sleeps and there is something to do.
func (l *loop) wakeCollector() {
	if l.ctl.head.asleep.Load() == 0 || !l.due() || !l.ctl.head.asleep.CompareAndSwap(1, 0) {
		return
	}
	var b byte
	syscall.RawSyscall(unix.SYS_WRITE, uintptr(l.wake.fd), uintptr(unsafe.Pointer(&b)), 1) // never more than one is in it
}

func (l *loop) due() bool {
	g, w := l.seg.Geometry(), &l.wake
	due := false
	for i := range g.Rings {
		r := l.seg.Subbuf(i)
		due = due || r.Head.Load()-r.Tail.Load() > g.RingBytes/wakeFill
	}
	modules := uint32(0)
	for i := range l.seg.HighProcs() {
		modules += l.seg.Proc(i).ModulesGen.Load()
	}
	if n := l.head.NextProcUID.Load(); n != w.processes || modules != w.modules {
		w.processes, w.modules, due = n, modules, true
	}
	if w.threads && l.now-w.since >= threadsWait {
		w.threads, w.since, due = false, l.now, true
	}
	return due
}

// wakes reads the pipe until it is closed, and passes on that there was something.
func wakes(f *os.File, to chan<- struct{}) {
	var b [1]byte
	for {
		if _, err := f.Read(b[:]); err != nil {
			return
		}
		select {
		case to <- struct{}{}:
		default:
		}
	}
}

// Sleep lets the sampler wake the collector: the next time there is something to do, Wakes delivers.
func (s *Sampler) Sleep() { s.ctl.head.asleep.Store(1) }

// Wakes delivers when there is something for the collector to do, at most once after each Sleep.
func (s *Sampler) Wakes() <-chan struct{} { return s.wakes }
