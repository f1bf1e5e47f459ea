package attach

import (
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

func uintptrOf[T any](p *T) uintptr { return uintptr(unsafe.Pointer(p)) }

// callAgain has a system call that the stop has ended made again, and returns the registers as they were.
func callAgain(tid int) (r unix.PtraceRegs, ok bool) {
	if unix.PtraceGetRegs(tid, &r) != nil {
		return r, false
	}
	if int64(r.Orig_rax) >= 0 && -int64(r.Rax) == errnoEINTR && endedByStops[int64(r.Orig_rax)] {
		again := r
		again.Rax = ^uint64(errRestartNoHand) + 1
		unix.PtraceSetRegs(tid, &again)
	}
	return r, true
}

// registersHold: a stopped thread has a value of the range in a register or on its stack. A system call that the stop ended is made again.
func (t *Target) registersHold(tid int, lo, hi uint64) bool {
	r, ok := callAgain(tid)
	if !ok {
		return true
	}
	for _, v := range []uint64{r.Rip, r.Rax, r.Rbx, r.Rcx, r.Rdx, r.Rsi, r.Rdi, r.Rbp, r.R8, r.R9, r.R10, r.R11, r.R12, r.R13, r.R14, r.R15} {
		if v-lo < hi-lo {
			return true
		}
	}
	return t.stackHolds(r.Rsp-128, lo, hi)
}

// stoppedInside stops a running thread to look where it is.
func (t *Target) stoppedInside(tid int, lo, hi uint64) bool {
	inside := true
	aside(func() { inside = t.lookInside(tid, lo, hi) })
	return inside
}

func (t *Target) lookInside(tid int, lo, hi uint64) bool {
	if err := unix.PtraceSeize(tid); err != nil {
		return err != unix.ESRCH
	}
	if unix.PtraceInterrupt(tid) != nil {
		return true
	}
	got, ws := waitStop(tid, stopLimit)
	begun := time.Now()
	switch got {
	case vanished:
		return false
	case late:
		return true
	case signalled:
		defer detach(tid, int(ws.StopSignal()))
	default:
		defer detach(tid, 0)
	}
	defer func() { t.holds = append(t.holds, time.Since(begun)) }()
	return t.registersHold(tid, lo, hi)
}
