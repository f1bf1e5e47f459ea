package e2e

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/hbtrace/hbtrace/internal/testprog"
)

// confined starts a program with a filter that kills it for one system call.
func confined(t *testing.T, number int, more ...string) *testprog.Running {
	t.Helper()
	exe := testprog.BuildFile(t, "../../attach/testdata/confined.c")
	p := testprog.Start(t, testprog.Command{Args: append([]string{exe, strconv.Itoa(number)}, more...)})
	if len(more) == 0 {
		eventually(t, "the filter", func() bool { return seccompOf(p.PID()) == "2" })
	}
	return p
}

func seccompOf(pid int) string {
	b, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, "Seccomp:"); ok {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// TestAttachSeccomp: a process under seccomp is attached to where its filter lets through all that is needed, and refused otherwise; one that
// confines itself while it is recorded is left unharmed.
func TestAttachSeccomp(t *testing.T) {
	t.Parallel()
	attempt := func(t *testing.T, p *testprog.Running) testprog.Result {
		t.Helper()
		r := testprog.Run(t, testprog.Command{Args: []string{testprog.Hbtrace(t), "attach", "-d", "100ms", "-o", filepath.Join(t.TempDir(), "x"), strconv.Itoa(p.PID())}})
		skipUntraceable(t, r)
		for _, why := range []string{"only root can read", "does not show them", "CAP_SYS_ADMIN"} {
			if bytes.Contains(r.Stderr, []byte(why)) {
				t.Skipf("needs to be allowed to read seccomp filters: %s", r.Stderr)
			}
		}
		return r
	}
	t.Run("another call", func(t *testing.T) {
		t.Parallel()
		p := confined(t, syscall.SYS_CHROOT)
		if r := attempt(t, p); r.Code != 0 {
			t.Errorf("attach: %s", r)
		}
		right(t, p)
	})
	t.Run("a needed call", func(t *testing.T) {
		t.Parallel()
		p := confined(t, syscall.SYS_SOCKETPAIR)
		if r := attempt(t, p); r.Code == 0 || !bytes.Contains(r.Stderr, []byte("by seccomp, which would refuse socketpair")) {
			t.Errorf("attach: %s", r)
		}
		right(t, p)
	})
	t.Run("meanwhile", func(t *testing.T) {
		t.Parallel()
		p := confined(t, syscall.SYS_MUNMAP, "late")
		eventually(t, "its first sleep", func() bool {
			b, _ := os.ReadFile("/proc/" + strconv.Itoa(p.PID()) + "/syscall")
			return bytes.HasPrefix(b, []byte("230 ")) || bytes.HasPrefix(b, []byte("35 "))
		})
		r := testprog.Start(t, testprog.Command{Args: []string{testprog.Hbtrace(t), "attach", "-q", "-o", filepath.Join(t.TempDir(), "x"), strconv.Itoa(p.PID())}})
		eventually(t, "the attach", func() bool {
			again := testprog.Run(t, testprog.Command{Args: []string{testprog.Hbtrace(t), "detach", strconv.Itoa(p.PID())}})
			skipUntraceable(t, again)
			maps, _ := os.ReadFile("/proc/" + strconv.Itoa(p.PID()) + "/maps")
			return bytes.Contains(again.Stderr, []byte("is being recorded by hbtrace already")) && bytes.Contains(maps, []byte("memfd:hbtrace"))
		})
		if err := p.Signal(syscall.SIGUSR1); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the filter", func() bool { return seccompOf(p.PID()) == "2" })
		if err := r.Signal(syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
		if end := r.Wait(t); end.Code != 0 {
			t.Errorf("attach: %s", end)
		}
		right(t, p)
	})
}
