package attach

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// aside runs f on an OS thread of its own, which ends with it: what it has seized and not stopped is let go only then. The first
// thread of a process never ends, so f does not run on that one.
func aside(f func()) {
	tid := make(chan int)
	var body func()
	body = func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			go body() // on another thread, while this one is taken
			<-time.After(time.Millisecond)
			runtime.UnlockOSThread()
			return
		}
		f()
		tid <- unix.Gettid()
		// the goroutine ends locked to its thread, and the thread with it
	}
	go body()
	task := fmt.Sprintf("/proc/self/task/%d", <-tid)
	for {
		if _, err := os.Stat(task); err != nil {
			return
		}
		time.Sleep(100 * time.Microsecond)
	}
}

const (
	ptraceDetach  = 17
	ptraceGetRseq = 0x420f
	eventStop     = unix.PTRACE_EVENT_STOP
	sliceOfWait   = 200 * time.Microsecond // of watching for the stop without sleeping
	stopLimit     = 500 * time.Millisecond

	errnoEINTR        = 4
	errRestartSys     = 512
	errRestartNoIntr  = 513
	errRestartNoHand  = 514
	errRestartBlock   = 516
	sysRestartSyscall = 219
	trapFlag          = 0x100
	directionFlag     = 0x400
	userCode32        = 0x23
	sysFutex          = 202
	sysNanosleep      = 35
	sysClockNanosleep = 230
	sysPoll, sysPpoll = 7, 271
)

// endedByStops are system calls that any stop ends with EINTR, and that the program would notice; they are made again.
var endedByStops = map[int64]bool{
	232: true, 281: true, 441: true, // epoll_wait, epoll_pwait, epoll_pwait2
	65: true, 220: true, // semop, semtimedop
	128: true,            // rt_sigtimedwait
	426: true,            // io_uring_enter
	208: true, 333: true, // io_getevents, io_pgetevents
	42: true, 43: true, 288: true, 44: true, 45: true, 46: true, 47: true, 299: true, 307: true, 0: true, 1: true, 19: true, 20: true, // on sockets with a time-out
}

// outcome is what became of an attempt to stop a thread.
type outcome int

const (
	stopped   outcome = iota // by us
	signalled                // a signal of the program's own came first
	halted                   // job control holds the process
	vanished
	late
)

// waitStop waits until a seized and interrupted thread stands still.
func waitStop(tid int, limit time.Duration) (outcome, unix.WaitStatus) {
	begun := time.Now()
	for {
		var ws unix.WaitStatus
		got, err := unix.Wait4(tid, &ws, unix.WALL|unix.WNOHANG, nil)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return vanished, ws
		case got == tid && (ws.Exited() || ws.Signaled()):
			return vanished, ws
		case got == tid && int(ws)>>16 == eventStop:
			if ws.StopSignal() == unix.SIGTRAP {
				return stopped, ws
			}
			return halted, ws
		case got == tid:
			return signalled, ws
		}
		since := time.Since(begun)
		if since > limit {
			return late, ws
		}
		if since > sliceOfWait {
			unix.Nanosleep(&unix.Timespec{Nsec: 20000}, nil)
		}
	}
}

// peek reads the memory that a stopped thread has now.
func peek(tid int, at uint64, b []byte) bool {
	n, err := unix.PtracePeekData(tid, uintptr(at), b)
	return err == nil && n == len(b)
}

func detach(tid, sig int) error {
	_, _, errno := unix.RawSyscall6(unix.SYS_PTRACE, ptraceDetach, uintptr(tid), 0, uintptr(sig), 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// inRestartable: the thread stands in a restartable sequence, which must not be left for a while.
func (t *Target) inRestartable(tid int, rip uint64) bool {
	var c struct {
		ptr             uint64
		size, sig, a, b uint32
	}
	_, _, errno := unix.RawSyscall6(unix.SYS_PTRACE, ptraceGetRseq, uintptr(tid), 24, uintptrOf(&c), 0, 0)
	if errno != 0 || c.ptr == 0 {
		return false
	}
	cs, ok := t.read64(c.ptr + 8)
	if !ok || cs == 0 {
		return false
	}
	var d [32]byte
	if t.read(cs, d[:]) != nil {
		return true
	}
	return rip-binary.LittleEndian.Uint64(d[8:]) < binary.LittleEndian.Uint64(d[16:])
}

// choose picks the thread to stop: asleep in a system call, best in one that a stop does not end. avoid are those that it did not work
// with.
func (t *Target) choose(avoid map[int]bool) (best int) {
	score := 0
	threads := t.threads()
	const looks = 256 // of many threads, any of so many will do
	from := 0
	if len(threads) > looks {
		from = int(time.Now().UnixNano()) % len(threads)
	}
	for i := range min(len(threads), looks) {
		tid := threads[(from+i)%len(threads)]
		if avoid[tid] {
			continue
		}
		state, nr, _, _ := t.where(tid)
		s := 0
		switch {
		case state == 'R':
			s = 30
		case state != 'S':
		case nr == sysFutex:
			s = 90
		case nr == sysNanosleep, nr == sysClockNanosleep, nr == sysPoll, nr == sysPpoll:
			s = 80
		case endedByStops[nr]:
			s = 20
		case nr >= 0:
			s = 40
		default:
			s = 10
		}
		if s > score {
			best, score = tid, s
		}
	}
	return best
}

// runStub has a thread run the stub.
func (t *Target) runStub(ops []op, done uint64) error {
	code, back := makeStub(ops, done)
	if err := t.findPad(uint64(len(code))); err != nil {
		return err
	}
	if err := t.clearPad(); err != nil {
		return err
	}
	if done != 0 {
		_ = t.write32(done, 0) // where it is mapped already
	}
	rcxWay := binary.LittleEndian.Uint64(code[back:])
	binary.LittleEndian.PutUint64(code[back:], t.pad.at+rcxWay)
	if err := t.write(t.pad.at, code); err != nil {
		return err
	}
	reached(StepPlaced)
	var tid int
	var err error
	aside(func() { tid, err = t.send(code, back) })
	if err != nil {
		return err
	}
	t.diverted = tid
	return t.await(tid, done, ops)
}

// send stops a thread, sends it to the stub, and lets it go. Returns which.
func (t *Target) send(code []byte, back int) (int, error) {
	avoid := map[int]bool{}
	var last error
	for try := 0; try < 48; try++ {
		tid := t.choose(avoid)
		if tid == 0 {
			if !t.alive() {
				return 0, ErrGone
			}
			clear(avoid)
			time.Sleep(2 * time.Millisecond)
			continue
		}
		if err := unix.PtraceSeize(tid); err != nil {
			last = err
			if errors.Is(err, unix.EPERM) {
				if tracer := status(t.pid)["TracerPid"]; tracer != "0" && tracer != "" {
					return 0, errTraced
				}
			}
			avoid[tid] = true
			continue
		}
		reached(StepSeized)
		if err := unix.PtraceInterrupt(tid); err != nil {
			last = err
			avoid[tid] = true
			continue
		}
		got, ws := waitStop(tid, stopLimit)
		held := time.Now()
		switch got {
		case signalled:
			detach(tid, int(ws.StopSignal()))
			continue
		case halted:
			detach(tid, 0)
			return 0, fmt.Errorf("process %d is stopped: let it go on (kill -CONT %d), then try again", t.pid, t.pid)
		case vanished:
			avoid[tid] = true
			continue
		case late: // it is let go when this thread ends
			return 0, fmt.Errorf("thread %d of process %d did not stop within %v: try again", tid, t.pid, stopLimit)
		}
		again, err := t.divert(tid, code, back)
		if !again {
			t.holds = append(t.holds, time.Since(held))
			if err == nil {
				reached(StepReleased)
			}
			return tid, err
		}
		last = err
		avoid[tid] = true
	}
	if last == nil {
		last = errors.New("every one of its threads was busy")
	}
	return 0, fmt.Errorf("no thread of process %d could be stopped: %w", t.pid, last)
}

// divert sends a stopped thread to the stub. again: another thread, or another moment.
func (t *Target) divert(tid int, code []byte, back int) (again bool, err error) {
	var r unix.PtraceRegs
	if err := unix.PtraceGetRegs(tid, &r); err != nil {
		detach(tid, 0)
		return true, err
	}
	reached(StepStopped)
	// An exec since has left this thread with other memory. While it is stopped, none can: it would end the thread.
	if now := make([]byte, len(code)); !peek(tid, t.pad.at, now) || !bytes.Equal(now, code) {
		detach(tid, 0)
		return false, ErrGone
	}
	if r.Cs == userCode32 {
		detach(tid, 0)
		return false, fmt.Errorf("process %d is a 32-bit program: only 64-bit programs are recorded", t.pid)
	}
	nr := int64(r.Orig_rax)
	to := r
	to.Rip, to.Orig_rax = t.pad.at, ^uint64(0)
	to.Eflags &^= directionFlag
	if nr >= 0 {
		to.Rax, to.Rcx = again2(&r)
	} else {
		if t.inRestartable(tid, r.Rip) {
			detach(tid, 0)
			return true, errors.New("it stood in a restartable sequence")
		}
		if err := t.write64(t.pad.at+uint64(back), r.Rip); err != nil {
			detach(tid, 0)
			return false, err
		}
	}
	if err := unix.PtraceSetRegs(tid, &to); err != nil {
		detach(tid, 0)
		return true, err
	}
	reached(StepSent)
	return false, detach(tid, 0)
}

// again2 is what a thread that was stopped in a system call is to have in rax, and where it is to go on: the call is made again where
// the stop has ended it.
func again2(r *unix.PtraceRegs) (ax, ip uint64) {
	const syscallBytes = 2
	switch e := -int64(r.Rax); {
	case e == errRestartSys, e == errRestartNoIntr, e == errRestartNoHand,
		e == errnoEINTR && endedByStops[int64(r.Orig_rax)]:
		return r.Orig_rax, r.Rip - syscallBytes
	case e == errRestartBlock:
		return sysRestartSyscall, r.Rip - syscallBytes
	}
	return r.Rax, r.Rip
}

// await waits until the stub has run.
func (t *Target) await(tid int, done uint64, ops []op) error {
	const limit = 20 * time.Second
	begun := time.Now()
	for {
		if done != 0 {
			var b [4]byte
			if t.read(done, b[:]) == nil && bytes.Equal(b[:], []byte{1, 0, 0, 0}) {
				return nil
			}
		}
		since := time.Since(begun)
		if since > 100*time.Millisecond || done == 0 {
			out := !t.isInside(tid, t.pad.at, t.pad.at+t.pad.bytes)
			if done != 0 && out {
				var b [4]byte
				if t.read(done, b[:]) == nil && bytes.Equal(b[:], []byte{1, 0, 0, 0}) {
					return nil
				}
				if !t.alive() {
					return ErrGone
				}
				return fmt.Errorf("process %d could not map %d MB (a limit on address space?)", t.pid, mapped(ops)>>20)
			}
			if out {
				return nil
			}
		}
		if since > limit {
			return fmt.Errorf("thread %d of process %d did not come back within %v", tid, t.pid, limit)
		}
		time.Sleep(100 * time.Microsecond)
	}
}
