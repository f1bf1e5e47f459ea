// Ctrl-Z and kill -TSTP: the recorder stops when, and only when, its command does, so that the shell that waits for
// the recorder sees a job that stopped; and whoever continues it continues both.
package collector

import (
	"bytes"
	"fmt"
	"os"
	"os/signal"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// suspendLimit bounds how long a command may take to stop; programs that put the terminal in order first take a few
// milliseconds. One that does not stop is not waited for.
const suspendLimit = time.Second

// catchSuspend has SIGTSTP and SIGCONT sent to ch, unless stopping is ignored: then it is for the command as well.
func catchSuspend(ch chan<- os.Signal) {
	if !ignoredNow(unix.SIGTSTP) {
		signal.Notify(ch, unix.SIGTSTP, unix.SIGCONT)
	}
}

// ignoredNow asks the kernel, not the runtime, which leaves the signals of job control alone until it is asked for them.
func ignoredNow(s unix.Signal) bool {
	var action struct{ handler, flags, restorer, mask uintptr }
	const sigIgn, maskBytes = 1, 8
	_, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(s), 0, uintptr(unsafe.Pointer(&action)), maskBytes, 0, 0)
	return errno == 0 && action.handler == sigIgn
}

// suspend stops the command, if the terminal has not, and then this process.
func (c *child) suspend() {
	if !inForeground() {
		c.signal(unix.SIGTSTP)
	}
	for deadline := time.Now().Add(suspendLimit); !c.stopped(); time.Sleep(time.Millisecond) {
		select {
		case <-c.done:
			return
		default:
		}
		if time.Now().After(deadline) {
			return // it ignores or handles the signal
		}
	}
	// Not necessarily at once: another thread may be the one that meets the signal. What is to be done afterwards is
	// left to the SIGCONT that ends it.
	_ = unix.Kill(os.Getpid(), unix.SIGSTOP)
}

// resume continues the command when only this process was continued.
func (c *child) resume() {
	if c.stopped() {
		c.signal(unix.SIGCONT)
	}
}

// stopped: the state in /proc/PID/stat, behind the last parenthesis of the name.
func (c *child) stopped() bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.pid))
	if err != nil {
		return false
	}
	_, rest, ok := bytes.Cut(stat[max(bytes.LastIndexByte(stat, ')'), 0):], []byte(") "))
	return ok && len(rest) > 0 && rest[0] == 'T'
}
