// A process with one thread: the loop's. Go's runtime has threads of its own, and a loop that never lets go of the
// runtime's only processor keeps them busy: its monitor wakes up a hundred times a second for ever, sees a goroutine that has run
// for 10 ms, and has it give way to another thread, which gives back. That was a sixth of the sampler's wake-ups.
package sampler

import (
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// The runtime marks a goroutine for giving way when it has run for 10 ms; the mark would be copied, and the copy would wait
	// for a thread that it does not have.
	markAfterNs = 5e6
	stackRoom   = 64 << 10 // more than f uses: growing a stack takes locks of the runtime's
	triedLate   = 77       // status of a copy that was made too late
	copies      = 20
)

// alone runs f in a forked copy of this process, which has the calling thread only and no other of the runtime's, and waits for
// it: a process that waits is asleep as a whole. f must neither allocate nor wait for another goroutine, and returns when
// the copy is to end. parent is the process that the copy dies with; what kills the copy is done to this process, too.
func alone(f func(parent int)) (status int) {
	runtime.LockOSThread()
	growStack()
	parent := unix.Getpid()
	all := ^uint64(0) // a signal would be handled by the runtime, which is not all there
	var old uint64
	syscall.RawSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_BLOCK, uintptr(unsafe.Pointer(&all)), uintptr(unsafe.Pointer(&old)), 8, 0, 0)
	for range copies {
		runtime.Gosched() // its time begins anew
		pid := forkNow()
		if pid == 0 {
			syscall.RawSyscall(unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0)
			if ppid, _, _ := syscall.RawSyscall(unix.SYS_GETPPID, 0, 0, 0); int(ppid) == parent {
				f(parent)
			}
			for {
				syscall.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
			}
		}
		if pid < 0 { // a limit on processes: with the runtime's other threads, then
			f(unix.Getppid())
			return 0
		}
		var ws unix.WaitStatus
		for {
			if _, err := unix.Wait4(pid, &ws, 0, nil); err != unix.EINTR {
				break
			}
		}
		if ws.Signaled() {
			syscall.RawSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(&old)), 0, 8, 0, 0)
			unix.Kill(os.Getpid(), ws.Signal())
			return 128 + int(ws.Signal())
		}
		if ws.ExitStatus() != triedLate {
			return ws.ExitStatus()
		}
	}
	f(unix.Getppid())
	return 0
}

// forkNow is fork(2); a copy that may have been marked ends at once, before it looks at the mark.
//
//go:nosplit
func forkNow() int {
	before := rawClockNs()
	pid, _, e := syscall.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
	if e != 0 {
		return -int(e)
	}
	if pid == 0 && rawClockNs()-before > markAfterNs {
		syscall.RawSyscall(unix.SYS_EXIT_GROUP, triedLate, 0, 0)
	}
	return int(pid)
}

//go:nosplit
func rawClockNs() int64 {
	var ts unix.Timespec
	syscall.RawSyscall(unix.SYS_CLOCK_GETTIME, unix.CLOCK_MONOTONIC, uintptr(unsafe.Pointer(&ts)), 0)
	return ts.Sec*1e9 + ts.Nsec
}

//go:noinline
func growStack() byte {
	var room [stackRoom]byte
	for i := range room {
		room[i] = byte(i)
	}
	return room[len(room)/2]
}
