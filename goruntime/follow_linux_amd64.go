package goruntime

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Following is a process that is about to exec a Go program.
type Following struct {
	PID  int
	File os.FileInfo // of the program that it is about to exec
	// Held is called when the process is traced: it may exec now.
	Held func() error
	// Over says whether the exec failed, or is not waited for any more.
	Over func() bool
	// Join is Launch's.
	Join func(pid int) (Session, error)
}

// Follow hooks the runtime of a program that a process is about to exec. Whatever fails leaves the process as it is. If the
// recorder dies before the exec, the process runs on; after it, as with Launch.
func Follow(p *Program, f Following) (err error) {
	onThread(func() {
		t := &tracee{pid: f.PID}
		if _, _, e := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_SEIZE, uintptr(f.PID), 0, unix.PTRACE_O_TRACEEXEC, 0, 0); e != 0 {
			err = fmt.Errorf("trace process %d: %w", f.PID, e)
			f.Held()
			return
		}
		if err = f.Held(); err == nil {
			err = t.execed(f.Over)
		}
		if err != nil && !errors.Is(err, errEnded) {
			t.leave()
		}
		if err != nil {
			return
		}
		defer unix.PtraceDetach(t.pid)
		if now, statErr := os.Stat(fmt.Sprintf("/proc/%d/exe", t.pid)); statErr != nil || !os.SameFile(now, f.File) {
			err = ErrNoExec
			return
		}
		err = t.change(p, f.Join)
	})
	return err
}

// execed waits for the end of the exec.
func (t *tracee) execed(over func() bool) error {
	const pause, often = 100 * time.Microsecond, 50
	for i := 1; ; i++ {
		var ws unix.WaitStatus
		pid, err := unix.Wait4(t.pid, &ws, unix.WALL|unix.WNOHANG|unix.WUNTRACED, nil)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return fmt.Errorf("wait for process %d: %w", t.pid, err)
		case pid == 0 && over():
			return ErrNoExec
		case pid == 0:
			time.Sleep(pause * time.Duration(min(max(i/often, 1), 10)))
			continue
		case !ws.Stopped():
			return errEnded
		case ws.TrapCause() == unix.PTRACE_EVENT_EXEC:
			return nil
		}
		if err := t.pass(ws); err != nil {
			return err
		}
	}
}

// pass lets the process go on from a stop that is not ours.
func (t *tracee) pass(ws unix.WaitStatus) error {
	request, sig := uintptr(unix.PTRACE_CONT), uintptr(ws.StopSignal())
	switch cause := ws.TrapCause(); {
	case cause == unix.PTRACE_EVENT_STOP && ws.StopSignal() != unix.SIGTRAP:
		request, sig = unix.PTRACE_LISTEN, 0
	case cause > 0:
		sig = 0
	}
	if _, _, e := unix.Syscall6(unix.SYS_PTRACE, request, uintptr(t.pid), 0, sig, 0, 0); e != 0 {
		return fmt.Errorf("let process %d go on: %w", t.pid, e)
	}
	return nil
}

// leave ends the tracing of a process that runs: it has to stop for that.
func (t *tracee) leave() {
	if _, _, e := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_INTERRUPT, uintptr(t.pid), 0, 0, 0, 0); e != 0 {
		return
	}
	for {
		var ws unix.WaitStatus
		_, err := unix.Wait4(t.pid, &ws, unix.WALL, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || !ws.Stopped() {
			return
		}
		sig := syscall.Signal(0)
		if ws.TrapCause() < 0 && ws.StopSignal() != unix.SIGTRAP { // a signal on its way: it is delivered
			sig = ws.StopSignal()
		}
		unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_DETACH, uintptr(t.pid), 0, uintptr(sig), 0, 0)
		return
	}
}
