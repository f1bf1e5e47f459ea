package attach

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

const (
	ptraceSeccompGetFilter = 0x420c
	maxInstructions        = 4096 // BPF_MAXINSNS
)

// filters reads the seccomp filters of a thread, for which it is stopped for a moment.
func (t *Target) filters(tid int) (out [][]instruction, err error) {
	aside(func() { out, err = t.readFilters(tid) })
	return out, err
}

func (t *Target) readFilters(tid int) (out [][]instruction, err error) {
	if err := unix.PtraceSeize(tid); err != nil {
		if errors.Is(err, unix.ESRCH) {
			return nil, nil // it has ended
		}
		return nil, err
	}
	if err := unix.PtraceInterrupt(tid); err != nil {
		return nil, err
	}
	got, ws := waitStop(tid, stopLimit)
	begun := time.Now()
	switch got {
	case vanished:
		return nil, nil
	case late:
		return nil, fmt.Errorf("thread %d did not stop within %v", tid, stopLimit)
	case signalled:
		defer detach(tid, int(ws.StopSignal()))
	default:
		defer detach(tid, 0)
	}
	defer func() { t.holds = append(t.holds, time.Since(begun)) }()
	callAgain(tid)
	for n := 0; ; n++ {
		f := make([]instruction, maxInstructions)
		count, _, errno := unix.RawSyscall6(unix.SYS_PTRACE, ptraceSeccompGetFilter, uintptr(tid), uintptr(n), uintptrOf(&f[0]), 0, 0)
		switch {
		case errno == unix.ENOENT && n > 0:
			return out, nil
		case errno == unix.EACCES || errno == unix.EPERM:
			return nil, errors.New("that takes CAP_SYS_ADMIN, and no seccomp for hbtrace itself")
		case errno != 0:
			return nil, fmt.Errorf("the kernel does not show them: %w", errno)
		}
		out = append(out, f[:min(int(count), len(f))])
	}
}
