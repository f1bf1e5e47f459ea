package e2e

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/hbtrace/hbtrace/internal/testprog"
)

// TestAttachUnprivileged: a user without privileges attaches to a process of that user, and is told what to do about another user's.
func TestAttachUnprivileged(t *testing.T) {
	dir, nobody := ordinaryUser(t)
	t.Parallel()
	exe := testprog.BuildFile(t, "../../attach/testdata/busy.c")
	env := append(os.Environ(), "HOME="+dir, "XDG_CACHE_HOME="+dir, "XDG_RUNTIME_DIR="+dir)
	attachAs := func(pid int) testprog.Result {
		return testprog.Run(t, testprog.Command{Args: []string{testprog.Hbtrace(t), "attach", "-d", "100ms", "-o", filepath.Join(dir, "x"), strconv.Itoa(pid)},
			Cred: nobody, Env: env, Dir: dir})
	}
	roots := testprog.Start(t, testprog.Command{Args: []string{exe}})
	eventually(t, "the program's threads", func() bool { return len(tasks(roots.PID())) >= busyThreads })
	r := attachAs(roots.PID())
	if want := fmt.Sprintf("process %d belongs to user 0: attach as that user, or as root", roots.PID()); r.Code == 0 || !bytes.Contains(r.Stderr, []byte(want)) {
		t.Errorf("another user's process: %s", r)
	}
	right(t, roots)
	own := testprog.Start(t, testprog.Command{Args: []string{exe}, Cred: nobody})
	eventually(t, "the program's threads", func() bool { return len(tasks(own.PID())) >= busyThreads })
	if r := attachAs(own.PID()); r.Code != 0 {
		skipUntraceable(t, r)
		t.Errorf("the user's own process: %s", r)
	}
	right(t, own)
}

// TestAttachTraced: a process that something else traces is refused, by that name.
func TestAttachTraced(t *testing.T) {
	t.Parallel()
	strace := testprog.LookPath(t, "strace", "strace")
	p := busy(t, testprog.BuildFile(t, "../../attach/testdata/busy.c"))
	s := testprog.Start(t, testprog.Command{Args: []string{strace, "-f", "-e", "trace=none", "-o", "/dev/null", "-p", strconv.Itoa(p.PID())}})
	eventually(t, "the tracer", func() bool {
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID()))
		return strings.Contains(string(b), fmt.Sprintf("TracerPid:\t%d\n", s.PID()))
	})
	r := testprog.Run(t, testprog.Command{Args: []string{testprog.Hbtrace(t), "attach", "-d", "100ms", "-o", filepath.Join(t.TempDir(), "x"), strconv.Itoa(p.PID())}})
	if want := fmt.Sprintf("is traced by process %d", s.PID()); r.Code == 0 || !bytes.Contains(r.Stderr, []byte(want)) {
		t.Errorf("attach: %s", r)
	}
	if err := s.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	s.Wait(t)
	if err := p.Signal(syscall.SIGTERM); err != nil { // strace ends calls early: what busy says of that is not ours
		t.Fatal(err)
	}
	p.Wait(t)
}
