package main

import (
	"syscall"
	"time"
	"unsafe"
)

// stopwatch turns differences of cycles into nanoseconds.
type stopwatch struct {
	nsPerCycle float64
	overhead   float64 // ns that two readings around nothing are apart
}

func newStopwatch() stopwatch {
	t0, c0 := time.Now(), cycles()
	time.Sleep(50 * time.Millisecond)
	s := stopwatch{nsPerCycle: float64(time.Since(t0).Nanoseconds()) / float64(cycles()-c0)}
	least := ^uint64(0)
	for range 10000 {
		c := cycles()
		least = min(least, cycles()-c)
	}
	s.overhead = float64(least) * s.nsPerCycle
	return s
}

// ns is how long it took from one reading to the other.
func (s stopwatch) ns(from, to uint64) float64 {
	return max(float64(to-from)*s.nsPerCycle-s.overhead, 0)
}

// sleepUntil blocks the thread, not the goroutine: Go's own timers would wake one thread by way of another.
func sleepUntil(t time.Time, deadline time.Time) {
	for {
		d := min(time.Until(t), time.Until(deadline))
		if d <= 0 {
			return
		}
		ts := syscall.NsecToTimespec(int64(d))
		_, _, errno := syscall.Syscall(syscall.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&ts)), 0, 0)
		if errno == 0 {
			return
		}
	}
}
