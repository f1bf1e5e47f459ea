// Starting the command, passing signals on to it and waiting for it.
package collector

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/hbtrace/hbtrace/goruntime"
	"golang.org/x/sys/unix"
)

// child is the running command.
type child struct {
	pid int
	// done is closed when it has ended; status and usage are set then.
	done   chan struct{}
	status syscall.WaitStatus
	usage  syscall.Rusage
	mu     sync.Mutex // held while it is reaped or signalled: its pid is not somebody else's
	reaped bool
}

// stdio are the descriptors the command gets as 0, 1 and 2. os.File.Fd is not asked for them: it makes what it
// returns blocking, for everybody who shares it.
func stdio(files [3]*os.File) ([]uintptr, error) {
	fds := []uintptr{0, 1, 2}
	for i, f := range files {
		if f == nil {
			continue
		}
		raw, err := f.SyscallConn()
		if err == nil {
			err = raw.Control(func(fd uintptr) { fds[i] = fd })
		}
		if err != nil {
			return nil, fmt.Errorf("descriptor %d of the command: %w", i, err)
		}
	}
	return fds, nil
}

// launch starts the program in the recorder's own process group, so that the terminal treats both alike.
// Descriptors above 2 that the recorder inherited stay open in it: whoever passed them meant them for it. Signals
// are ignored and blocked in it as they were when the recorder started (inherited.go).
//
// join takes the process of a Go program into the session; golang says why that was not possible.
func launch(p *program, env []string, dir string, files [3]*os.File, join func(pid int) (goruntime.Session, error)) (c *child, golang, err error) {
	fds, err := stdio(files)
	if err != nil {
		return nil, nil, err
	}
	path, args := p.path, p.args
	if p.shells {
		path, args = "/bin/sh", append([]string{"sh", p.path}, p.args[1:]...)
	}
	h := inherited()
	start := func(sys *syscall.SysProcAttr) (pid int, err error) {
		err = h.around(func() error {
			pid, _, err = syscall.StartProcess(path, args, &syscall.ProcAttr{Env: env, Dir: dir, Files: fds, Sys: sys})
			return err
		})
		return pid, err
	}
	var pid int
	if p.golang != nil {
		var started goruntime.Started
		started, err = goruntime.Launch(p.golang, start, join)
		pid, golang = started.PID, started.Refused
	} else {
		pid, err = start(nil)
	}
	runtime.KeepAlive(files) // closes its descriptors when it is collected
	if errors.Is(err, syscall.ENOEXEC) {
		return nil, nil, fmt.Errorf("start %s: the kernel cannot run a file of this format (for another machine, or damaged)", p.path)
	}
	if errors.Is(err, syscall.E2BIG) {
		return nil, nil, fmt.Errorf("start %s: arguments and environment are too long", p.path)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("start %s: %w", p.path, err)
	}
	c = &child{pid: pid, done: make(chan struct{})}
	go c.wait()
	return c, golang, nil
}

func (c *child) wait() {
	defer close(c.done)
	// Wait without reaping first, so that a signal is never passed on to a pid that has been used again.
	c.awaitEnd()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reaped = true
	for {
		_, err := syscall.Wait4(c.pid, &c.status, 0, &c.usage)
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
}

// awaitEnd returns when the child has ended. A wait in the kernel would also return when the child stops while another thread
// of this process traces it (goruntime.Follow), so it is made only where there is no pidfd.
func (c *child) awaitEnd() {
	if fd, err := unix.PidfdOpen(c.pid, 0); err == nil {
		defer unix.Close(fd)
		for {
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1)
			if n > 0 {
				return
			}
			if err != nil && !errors.Is(err, syscall.EINTR) {
				break
			}
		}
	}
	for {
		const exited, killed, dumped = 1, 2, 3 // CLD_*
		var si unix.Siginfo
		err := unix.Waitid(unix.P_PID, c.pid, &si, unix.WEXITED|unix.WNOWAIT, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil || si.Code == exited || si.Code == killed || si.Code == dumped {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// signal sends a signal if the child has not been reaped.
func (c *child) signal(s syscall.Signal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.reaped {
		syscall.Kill(c.pid, s)
	}
}

// result is the exit status, or the signal that ended it.
func (c *child) result() (status int, sig syscall.Signal) {
	if c.status.Signaled() {
		return -1, c.status.Signal()
	}
	return c.status.ExitStatus(), 0
}

func (c *child) cpu() time.Duration {
	return time.Duration(c.usage.Utime.Nano() + c.usage.Stime.Nano())
}

// forwarded are the signals that the recorder survives and its command is to get.
var forwarded = []os.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2}

// signals catches them from now on; those that come before the command runs are kept for it. Signals that were
// ignored when the recorder started (nohup, a background job of a script) are left so until the command, which
// inherits that, has been launched; all is for then: the command may have installed handlers.
func signals() (ch chan os.Signal, all, stop func()) {
	ch = make(chan os.Signal, 64)
	h := inherited()
	for _, s := range forwarded {
		if !h.ignores(s) {
			signal.Notify(ch, s)
		}
	}
	return ch, func() { signal.Notify(ch, forwarded...); catchSuspend(ch) }, func() { signal.Stop(ch); close(ch) }
}

// pass hands signals to the command until it has ended. One that comes later closes hurry: somebody waits for
// the recorder alone.
func (c *child) pass(ch <-chan os.Signal, hurry chan<- struct{}) {
	for s := range ch {
		select {
		case <-c.done:
			close(hurry)
			return
		default:
			switch s {
			case unix.SIGTSTP:
				c.suspend()
				continue
			case unix.SIGCONT:
				c.resume()
				continue
			}
			// What is typed at the terminal goes to the whole foreground group: the command has it already,
			// and many programs take the second Ctrl-C as "at once".
			if (s == unix.SIGINT || s == unix.SIGQUIT) && inForeground() {
				continue
			}
			c.signal(s.(syscall.Signal))
		}
	}
}

// inForeground: this process's group is the one that its terminal sends Ctrl-C to.
func inForeground() bool {
	fd, err := unix.Open("/dev/tty", unix.O_RDONLY|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	group, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}
