package goruntime

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// onThread runs f on a thread of its own, from which alone a process may be traced. The thread ends with f, so that
// the kernel lets go of whatever f did not. It is never the process's first thread, which Go does not end.
func onThread(f func()) {
	done := make(chan struct{})
	go func() {
		runtime.LockOSThread() // until the goroutine's end, and the thread ends with it
		if unix.Gettid() == unix.Getpid() {
			onThread(f) // this one is held meanwhile: the next is another
			runtime.UnlockOSThread()
		} else {
			f()
		}
		close(done)
	}()
	<-done
}

// tracee is a process that is traced and has one thread, as a Go program has when its first instruction runs.
type tracee struct {
	pid  int
	mem  *os.File // /proc/PID/mem
	regs unix.PtraceRegs
	at   uint64 // where a system call instruction and a breakpoint lie; 0: nowhere
	mask uint64 // of signals, before it was set
}

var (
	errEnded = errors.New("it ended while it was started")
	errTrap  = errors.New("it stopped where it was not expected to")
)

// wait waits for a stop, and passes signals on that are not the traps asked for. Its end is left for others to reap.
func (t *tracee) wait() error {
	for {
		step()
		var si unix.Siginfo
		err := unix.Waitid(unix.P_PID, t.pid, &si, unix.WEXITED|unix.WSTOPPED|unix.WNOWAIT|unix.WALL, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("wait for process %d: %w", t.pid, err)
		}
		const exited, killed, dumped = 1, 2, 3 // CLD_*
		if si.Code == exited || si.Code == killed || si.Code == dumped {
			return errEnded
		}
		var ws unix.WaitStatus
		if _, err := unix.Wait4(t.pid, &ws, unix.WALL, nil); err != nil {
			if errors.Is(err, unix.EINTR) {
				continue
			}
			return fmt.Errorf("wait for process %d: %w", t.pid, err)
		}
		if !ws.Stopped() {
			return errEnded
		}
		sig := ws.StopSignal()
		if ws.TrapCause() == unix.PTRACE_EVENT_STOP && sig != unix.SIGTRAP { // it is stopped, as by a shell, until it is continued
			if _, _, e := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_LISTEN, uintptr(t.pid), 0, 0, 0, 0); e != 0 {
				return fmt.Errorf("leave process %d stopped: %w", t.pid, e)
			}
			continue
		}
		if sig == unix.SIGTRAP {
			return nil
		}
		if err := unix.PtraceCont(t.pid, int(sig)); err != nil {
			return fmt.Errorf("let process %d go on with signal %d: %w", t.pid, sig, err)
		}
	}
}

// step is called before each thing that is done to a stopped process: a test kills the recorder there.
var step = func() {}

func (t *tracee) cont() error {
	step()
	if err := unix.PtraceCont(t.pid, 0); err != nil {
		return fmt.Errorf("let process %d go on: %w", t.pid, err)
	}
	return t.wait()
}

func (t *tracee) read(addr uint64, b []byte) error {
	if _, err := t.mem.ReadAt(b, int64(addr)); err != nil {
		return fmt.Errorf("read its memory at %#x: %w", addr, err)
	}
	return nil
}

func (t *tracee) word(addr uint64) (uint64, error) {
	var b [8]byte
	err := t.read(addr, b[:])
	return binary.LittleEndian.Uint64(b[:]), err
}

func (t *tracee) write(addr uint64, b []byte) error {
	step()
	if _, err := t.mem.WriteAt(b, int64(addr)); err != nil {
		return fmt.Errorf("write its memory at %#x: %w", addr, err)
	}
	return nil
}

// call makes a system call in the stopped process, with all its signals blocked.
func (t *tracee) call(nr uint64, args ...uint64) (uint64, error) {
	r := t.regs
	r.Rax, r.Rip, r.Orig_rax = nr, t.at, ^uint64(0)
	for i, p := range []*uint64{&r.Rdi, &r.Rsi, &r.Rdx, &r.R10, &r.R8, &r.R9} {
		if i < len(args) {
			*p = args[i]
		}
	}
	if err := unix.PtraceSetRegs(t.pid, &r); err != nil {
		return 0, fmt.Errorf("set its registers: %w", err)
	}
	if err := t.cont(); err != nil {
		return 0, err
	}
	if err := unix.PtraceGetRegs(t.pid, &r); err != nil {
		return 0, fmt.Errorf("read its registers: %w", err)
	}
	if r.Rip != t.at+3 {
		return 0, errTrap
	}
	if e := -int64(r.Rax); e > 0 && e < 4096 {
		return 0, syscall.Errno(e)
	}
	return r.Rax, nil
}

// setMask sets the stopped thread's signal mask and returns the one before.
func (t *tracee) setMask(mask uint64) (old uint64, err error) {
	step()
	const getSigMask, setSigMask = 0x420a, 0x420b // PTRACE_GETSIGMASK, PTRACE_SETSIGMASK
	if _, _, e := unix.Syscall6(unix.SYS_PTRACE, getSigMask, uintptr(t.pid), 8, uintptr(unsafe.Pointer(&old)), 0, 0); e != 0 {
		return 0, fmt.Errorf("read its signal mask: %w", e)
	}
	if _, _, e := unix.Syscall6(unix.SYS_PTRACE, setSigMask, uintptr(t.pid), 8, uintptr(unsafe.Pointer(&mask)), 0, 0); e != 0 {
		return 0, fmt.Errorf("set its signal mask: %w", e)
	}
	return old, nil
}

// room finds size free bytes within reach of a jump from near: the gap that is closest below it, else above.
func room(maps string, near, size uint64) (uint64, error) {
	const low, reach = 1 << 16, 1 << 30
	var below, above, end uint64
	end = low
	for line := range strings.Lines(maps) {
		from, rest, _ := strings.Cut(line, "-")
		to, _, _ := strings.Cut(rest, " ")
		lo, err1 := strconv.ParseUint(from, 16, 64)
		hi, err2 := strconv.ParseUint(to, 16, 64)
		if err := errors.Join(err1, err2); err != nil {
			return 0, err
		}
		const distance = 1 << 16 // from what is there: a heap grows behind the program
		if lo > end && lo-end >= size+2*distance {
			if lo <= near {
				below = lo - size - distance
			} else if above == 0 && end >= near {
				above = lo - size - distance
			}
		}
		end = max(end, hi)
	}
	switch {
	case below != 0 && near-below < reach:
		return below &^ 4095, nil
	case above != 0 && above-near < reach:
		return above &^ 4095, nil
	}
	return 0, errors.New("there is no room for code near its text")
}
