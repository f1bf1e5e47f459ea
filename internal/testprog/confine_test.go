package testprog

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// numbers are those of the agent's system calls (documentedSyscalls) that a program of ours starts and ends without.
var numbers = map[string]int{
	"open": unix.SYS_OPEN, "socket": unix.SYS_SOCKET, "setsockopt": unix.SYS_SETSOCKOPT, "connect": unix.SYS_CONNECT, "recvmsg": unix.SYS_RECVMSG,
	"sendto": unix.SYS_SENDTO, "prlimit64": unix.SYS_PRLIMIT64, "readlink": unix.SYS_READLINK, "getpid": unix.SYS_GETPID, "getppid": unix.SYS_GETPPID,
	"gettid": unix.SYS_GETTID, "prctl": unix.SYS_PRCTL, "rt_sigaction": unix.SYS_RT_SIGACTION, "clock_gettime": unix.SYS_CLOCK_GETTIME,
	"sched_yield": unix.SYS_SCHED_YIELD, "sigaltstack": unix.SYS_SIGALTSTACK, "fstat": unix.SYS_FSTAT, "getsockname": unix.SYS_GETSOCKNAME,
	"getpeername": unix.SYS_GETPEERNAME, "rt_sigtimedwait": unix.SYS_RT_SIGTIMEDWAIT, "madvise": unix.SYS_MADVISE,
	"rt_sigprocmask": unix.SYS_RT_SIGPROCMASK,
}

// usedAnyway are those that the loader and libc may make of their own: a filter that kills for them kills a bare program, too.
var usedAnyway = []string{"prlimit64", "rt_sigaction", "fstat", "madvise", "rt_sigprocmask", "gettid", "clock_gettime", "prctl"}

// TestConfinedBeforeExec: a program that its launcher has taken system calls away from does what it does without us. A launcher that we see starts
// it without the agent, so that not even a filter that kills meets our calls; one that we do not see (it is static) starts it with the agent, of which each call fails in turn.
func TestConfinedBeforeExec(t *testing.T) {
	hb, program := Hbtrace(t), Build(t, "threads")
	seen, unseen := Build(t, "confine"), Build(t, "confine", "-static")
	var names, deadly []string
	for _, name := range documentedSyscalls(t) {
		if numbers[name] == 0 {
			continue
		}
		if names = append(names, name); !slices.Contains(usedAnyway, name) {
			deadly = append(deadly, name)
		}
	}
	if len(names) != len(numbers) {
		t.Errorf("of the calls %v ARCHITECTURE.md lists %v", numbers, names)
	}
	list := func(names []string) string {
		var s []string
		for _, name := range names {
			s = append(s, fmt.Sprint(numbers[name]))
		}
		return strings.Join(s, ",")
	}
	same := func(t *testing.T, launcher, then, how string, calls []string) {
		t.Helper()
		args, mark := []string{launcher, then, how, list(calls), program}, NewMark()
		bare := Run(t, Command{Args: args, Mark: mark})
		traced := Run(t, Command{Args: append([]string{hb, "run", "-q", "-F", "5000", "-o", filepath.Join(t.TempDir(), "out"), "--"}, args...), Mark: mark})
		if bare.Status() != traced.Status() || string(bare.Stdout) != string(traced.Stdout) || string(bare.Stderr) != string(traced.Stderr) {
			t.Errorf("%s %s without %v:\nbare   %v\ntraced %v", how, then, calls, bare, traced)
		}
		if then == "kill" && bare.Status() != 0 {
			t.Errorf("the program is killed without us, too: nothing was tested: %v", bare)
		}
	}
	t.Run("kill", func(t *testing.T) { same(t, seen, "kill", "exec", deadly) })
	t.Run("kill-system", func(t *testing.T) {
		same(t, seen, "kill", "system", slices.DeleteFunc(slices.Clone(deadly), func(name string) bool { return strings.HasPrefix(name, "get") })) // sh asks who it is
	})
	t.Run("errno-seen", func(t *testing.T) { same(t, seen, "errno", "exec", deadly) })
	t.Run("errno-all", func(t *testing.T) { same(t, unseen, "errno", "exec", deadly) })
	for _, name := range names {
		t.Run("errno-"+name, func(t *testing.T) {
			t.Parallel()
			same(t, unseen, "errno", "exec", []string{name})
		})
	}
}
