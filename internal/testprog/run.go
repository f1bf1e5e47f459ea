package testprog

// run.go runs a command to its end within a limit, and knows every process that came of it.

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// Command is a program to run.
type Command struct {
	Args  []string // Args[0] is the path
	Env   []string // nil: this process's
	Stdin []byte   // nil: /dev/null
	Dir   string
	Limit time.Duration // 0: five minutes; then everything is dumped and killed
	Cred  *syscall.Credential
	// Mark is the value of the environment variable that finds this command's processes, however they were
	// orphaned; "" makes one up. Two commands whose output is to be compared take the same.
	Mark string
}

// markName is the environment variable that every process of a command inherits.
const markName = "HBTEST_MARK"

var marks atomic.Int64

// NewMark makes a value for Command.Mark.
func NewMark() string { return fmt.Sprintf("%d-%d", os.Getpid(), marks.Add(1)) }

// Result is how a command ended.
type Result struct {
	Stdout, Stderr []byte
	Code           int            // exit status; -1 when a signal ended it
	Signal         syscall.Signal // 0: none
	PID            int
	Wall           time.Duration
	Usage          syscall.Rusage // of the command and the children that it waited for
}

// Status is the exit status as a shell, and hbtrace, give it: 128+n for signal n.
func (r Result) Status() int {
	if r.Signal != 0 {
		return 128 + int(r.Signal)
	}
	return r.Code
}

func (r Result) String() string {
	end := fmt.Sprintf("exit status %d", r.Code)
	if r.Signal != 0 {
		end = fmt.Sprintf("signal %d (%v)", int(r.Signal), r.Signal)
	}
	return fmt.Sprintf("%s after %v\n-- stdout --\n%s\n-- stderr --\n%s", end, r.Wall.Round(time.Millisecond),
		clip(r.Stdout), clip(r.Stderr))
}

func clip(b []byte) string {
	const most = 1500
	if len(b) <= most {
		return string(b)
	}
	return fmt.Sprintf("%s\n[… %d bytes …]\n%s", b[:most/2], len(b)-most, b[len(b)-most/2:])
}

// Running is a command that was started and has not been waited for.
type Running struct {
	cmd            *exec.Cmd
	command        Command
	stdout, stderr bytes.Buffer
	started        time.Time
}

// PID is the process started.
func (r *Running) PID() int { return r.cmd.Process.Pid }

// Signal sends a signal to the process started, and to no other.
func (r *Running) Signal(s syscall.Signal) error { return r.cmd.Process.Signal(s) }

// Start starts a command in a process group of its own. What is left of it when the test ends is killed.
func Start(t testing.TB, c Command) *Running {
	t.Helper()
	if c.Limit == 0 {
		c.Limit = 5 * time.Minute
	}
	if c.Mark == "" {
		c.Mark = NewMark()
	}
	env := c.Env
	if env == nil {
		env = os.Environ()
	}
	r := &Running{command: c, cmd: exec.Command(c.Args[0], c.Args[1:]...)}
	r.cmd.Env = append(slices.Clone(env), markName+"="+c.Mark)
	r.cmd.Dir = c.Dir
	if c.Stdin != nil {
		r.cmd.Stdin = bytes.NewReader(c.Stdin)
	}
	r.cmd.Stdout, r.cmd.Stderr = &r.stdout, &r.stderr
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: c.Cred}
	r.cmd.WaitDelay = time.Minute // a descendant that keeps the output open
	r.started = time.Now()
	if err := r.cmd.Start(); err != nil {
		t.Fatalf("testprog: starting %s: %v", strings.Join(c.Args, " "), err)
	}
	t.Cleanup(func() { killAll(c.Mark, r.cmd.Process.Pid) })
	return r
}

// Wait waits for the end. A command that is over its limit, or that leaves processes behind, fails the test.
func (r *Running) Wait(t testing.TB) Result {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- r.cmd.Wait() }()
	var err error
	select {
	case err = <-done:
	case <-time.After(r.command.Limit - time.Since(r.started)):
		dump := dumpAll(r.command.Mark, r.PID())
		killAll(r.command.Mark, r.PID())
		err = <-done
		t.Errorf("testprog: %s did not end within %v and was killed; where its threads were:\n%s", strings.Join(r.command.Args, " "),
			r.command.Limit, dump)
	}
	res := Result{Stdout: r.stdout.Bytes(), Stderr: r.stderr.Bytes(), PID: r.PID(), Wall: time.Since(r.started)}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Errorf("testprog: waiting for %s: %v", strings.Join(r.command.Args, " "), err)
	}
	if ps := r.cmd.ProcessState; ps != nil {
		ws := ps.Sys().(syscall.WaitStatus)
		res.Code = ps.ExitCode()
		if ws.Signaled() {
			res.Signal = ws.Signal()
		}
		if u, ok := ps.SysUsage().(*syscall.Rusage); ok {
			res.Usage = *u
		}
	}
	return res
}

// Run starts a command and waits for its end.
func Run(t testing.TB, c Command) Result {
	t.Helper()
	return Start(t, c).Wait(t)
}

// Left lists the living processes that came of the command with this mark, or are in process group pgid, after
// giving those that are just ending up to a minute.
func Left(mark string, pgid int) []string {
	var left []string
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		left = left[:0]
		for _, pid := range find(mark, pgid) {
			cmdline, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
			left = append(left, fmt.Sprintf("%d %q", pid, strings.TrimRight(strings.ReplaceAll(string(cmdline), "\x00", " "), " ")))
		}
		if len(left) == 0 || time.Now().After(deadline) {
			return left
		}
	}
}

// CheckNothingLeft fails the test when a process of the command is still there.
func (r *Running) CheckNothingLeft(t testing.TB) {
	t.Helper()
	if left := Left(r.command.Mark, r.PID()); len(left) > 0 {
		t.Errorf("testprog: %s left processes behind: %s", strings.Join(r.command.Args, " "), strings.Join(left, "; "))
	}
}

// Descendants are the living processes of a started command, itself included.
func (r *Running) Descendants() []int { return find(r.command.Mark, r.PID()) }

// find lists processes, zombies aside, by mark or process group.
func find(mark string, pgid int) []int {
	want := []byte(markName + "=" + mark)
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	var pids []int
	for _, d := range dirs {
		pid, err := strconv.Atoi(filepath.Base(d))
		if err != nil {
			continue
		}
		stat, err := os.ReadFile(d + "/stat")
		if err != nil {
			continue
		}
		// "pid (comm) state ppid pgrp …"; comm may hold anything, so count from its last parenthesis
		end := bytes.LastIndexByte(stat, ')')
		if end < 0 {
			continue
		}
		fields := strings.Fields(string(stat[end+1:]))
		if len(fields) < 3 || fields[0] == "Z" || fields[0] == "X" {
			continue
		}
		mine := fields[2] == strconv.Itoa(pgid)
		if !mine {
			env, _ := os.ReadFile(d + "/environ")
			mine = slices.ContainsFunc(bytes.Split(env, []byte{0}), func(v []byte) bool { return bytes.Equal(v, want) })
		}
		if mine {
			pids = append(pids, pid)
		}
	}
	return pids
}

func killAll(mark string, pgid int) {
	for range 20 { // until nobody is left who could fork another one
		pids := find(mark, pgid)
		if len(pids) == 0 {
			return
		}
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL) // gone already: what was wanted
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// dumpAll says where every thread of the command's processes is.
func dumpAll(mark string, pgid int) string {
	var b strings.Builder
	for _, pid := range find(mark, pgid) {
		cmdline, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		fmt.Fprintf(&b, "process %d %q\n", pid, bytes.ReplaceAll(cmdline, []byte{0}, []byte{' '}))
		tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
		for _, task := range tasks {
			read := func(name string) string {
				f, err := os.Open(filepath.Join(task, name))
				if err != nil {
					return ""
				}
				defer f.Close()
				data, err := io.ReadAll(io.LimitReader(f, 4096))
				if err != nil {
					return "(" + err.Error() + ")"
				}
				return strings.TrimSpace(string(data))
			}
			fmt.Fprintf(&b, "  thread %s %s wchan %s syscall %s\n", filepath.Base(task), read("comm"), read("wchan"), read("syscall"))
			for _, line := range strings.Split(read("status"), "\n") {
				if name, _, _ := strings.Cut(line, ":"); slices.Contains([]string{"State", "SigPnd", "ShdPnd", "SigBlk", "SigIgn", "SigCgt"}, name) {
					fmt.Fprintf(&b, "    %s\n", line)
				}
			}
			if st := read("stack"); st != "" {
				fmt.Fprintf(&b, "    %s\n", strings.ReplaceAll(st, "\n", "\n    "))
			}
		}
	}
	return b.String()
}
