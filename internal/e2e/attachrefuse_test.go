package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hbtrace/hbtrace/internal/testprog"
	"github.com/hbtrace/hbtrace/tracefile"
)

// TestAttachRefuses: what cannot be attached to is refused in one line that says why, and runs on untouched.
func TestAttachRefuses(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("attaching works on x86-64 only")
	}
	t.Parallel()
	hbtrace := testprog.Hbtrace(t)
	source := filepath.Join(t.TempDir(), "sleeper.c")
	if err := os.WriteFile(source, []byte("#include <unistd.h>\nint main(void) { for (;;) pause(); }\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	started := func(flags ...string) int {
		p := testprog.Start(t, testprog.Command{Args: []string{testprog.BuildFile(t, source, flags...)}})
		eventually(t, "the program's first sleep", func() bool {
			b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/syscall", p.PID()))
			return len(b) > 0 && !bytes.HasPrefix(b, []byte("running"))
		})
		return p.PID()
	}
	for _, c := range []struct {
		name, want string
		arg        func(t *testing.T) string
	}{
		{"nobody", "there is no such process", func(*testing.T) string { return strconv.Itoa(1<<22 - 1) }},
		{"no name", "no process has the name", func(*testing.T) string { return "no-program-has-this-name" }},
		{"static", "static program", func(t *testing.T) string { return strconv.Itoa(started("-static")) }},
		{"kernel", "thread of the kernel", func(t *testing.T) string {
			if b, err := os.ReadFile("/proc/2/comm"); err != nil || !bytes.HasPrefix(b, []byte("kthreadd")) {
				t.Skip("needs to see the kernel's threads: this is a pid namespace of its own")
			}
			return "2"
		}},
		{"stopped", "is stopped", func(t *testing.T) string {
			pid := started()
			syscall.Kill(pid, syscall.SIGSTOP)
			eventually(t, "the stop", func() bool {
				b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
				return bytes.Contains(b, []byte("State:\tT"))
			})
			return strconv.Itoa(pid)
		}},
		{"zombie", "zombie", func(t *testing.T) string {
			c := exec.Command("true")
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { c.Wait() })
			eventually(t, "the end", func() bool {
				b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.Process.Pid))
				return bytes.Contains(b, []byte("State:\tZ"))
			})
			return strconv.Itoa(c.Process.Pid)
		}},
		{"thread", "is a thread of process", func(t *testing.T) string {
			for _, tid := range tasks(os.Getpid()) {
				if tid != strconv.Itoa(os.Getpid()) {
					return tid
				}
			}
			t.Fatal("a Go program without a second thread")
			return ""
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			arg := c.arg(t)
			for _, command := range []string{"attach", "detach"} {
				if command == "detach" && c.name == "no name" {
					continue
				}
				args := []string{hbtrace, command}
				if command == "attach" {
					args = append(args, "-o", filepath.Join(t.TempDir(), "x"), "-d", "10ms")
				}
				r := testprog.Run(t, testprog.Command{Args: append(args, arg)})
				skipUntraceable(t, r)
				line := strings.TrimSuffix(string(r.Stderr), "\n")
				if r.Code != 125 || !strings.Contains(line, c.want) || strings.Contains(line, "\n") {
					t.Errorf("%s: want one line with %q: %s", command, c.want, r)
				}
			}
		})
	}
}

// TestAttachTwice: a program that is being recorded is left to its recorder; several programs go into one recording.
func TestAttachTwice(t *testing.T) {
	t.Parallel()
	exe := testprog.BuildFile(t, "../../attach/testdata/busy.c")
	p, q := busy(t, exe), busy(t, exe)
	prefix := filepath.Join(t.TempDir(), "both")
	r := testprog.Start(t, testprog.Command{Args: []string{testprog.Hbtrace(t), "attach", "-o", prefix, strconv.Itoa(p.PID()), strconv.Itoa(q.PID())}})
	var again testprog.Result
	eventually(t, "both to be recorded", func() bool {
		again = testprog.Run(t, testprog.Command{Args: []string{testprog.Hbtrace(t), "detach", strconv.Itoa(q.PID())}})
		skipUntraceable(t, again)
		return again.Code != 0
	})
	if !bytes.Contains(again.Stderr, []byte("is being recorded by hbtrace already")) {
		t.Errorf("detach from a program whose recorder lives: %s", again)
	}
	time.Sleep(100 * time.Millisecond) // for something to record
	if err := r.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if end := r.Wait(t); end.Code != 0 {
		t.Errorf("Ctrl-C of attach: %s", end)
	}
	src, err := tracefile.Open(prefix + ".hbt")
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	if n := len(src.Processes()); n != 2 {
		t.Errorf("%d processes recorded, not 2", n)
	}
	right(t, p)
	right(t, q)
}

// buildMusl compiles a C file with musl.
func buildMusl(t *testing.T, source string) string {
	t.Helper()
	gcc := testprog.LookPath(t, "musl-gcc", "musl-tools")
	exe := filepath.Join(t.TempDir(), "busy")
	if out, err := exec.Command(gcc, "-O2", "-o", exe, source, "-pthread").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return exe
}

// TestAttachMusl: as TestAttach, with another C library.
func TestAttachMusl(t *testing.T) {
	t.Parallel()
	p := busy(t, buildMusl(t, "../../attach/testdata/busy.c"))
	before := stateOf(t, p.PID())
	attachTo(t, p.PID(), "-d", "300ms")
	takenBack(t, p.PID())
	compareStates(t, before, stateOf(t, p.PID()))
	right(t, p)
}
