package e2e

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/hbtrace/hbtrace/agent"
	"github.com/hbtrace/hbtrace/attach"
	"github.com/hbtrace/hbtrace/internal/testprog"
	"github.com/hbtrace/hbtrace/segment"
	"github.com/hbtrace/hbtrace/tracefile"
)

// dormant is where hbtrace preload says that the dormant agent lies.
func dormant(t *testing.T) string {
	t.Helper()
	if runtime.GOARCH != "amd64" {
		t.Skip("attaching works on x86-64 only")
	}
	r := testprog.Run(t, testprog.Command{Args: []string{testprog.Hbtrace(t), "preload", "--path"}})
	if r.Code != 0 {
		t.Fatalf("preload: %s", r)
	}
	return strings.TrimSpace(string(r.Stdout))
}

// TestDormant: a program that has preloaded the dormant agent is recorded and left by a process that may not call ptrace.
func TestDormant(t *testing.T) {
	t.Parallel()
	object := dormant(t)
	for _, c := range []struct {
		name  string
		build func(t *testing.T) string
	}{
		{"glibc", func(t *testing.T) string { return testprog.BuildFile(t, "../../attach/testdata/busy.c") }},
		{"musl", func(t *testing.T) string { return buildMusl(t, "../../attach/testdata/busy.c") }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := busy(t, c.build(t), "LD_PRELOAD="+object)
			without := []string{testprog.BuildFile(t, "../../attach/testdata/noptrace.c"), testprog.Hbtrace(t)}
			pid := strconv.Itoa(p.PID())
			before := stateOf(t, p.PID())
			for range 2 {
				prefix := filepath.Join(t.TempDir(), "at")
				r := testprog.Run(t, testprog.Command{Args: append(without, "attach", "-v", "-d", "300ms", "-o", prefix, pid)})
				if r.Code != 0 || !bytes.Contains(r.Stderr, []byte("stopped 0 times")) {
					skipUntraceable(t, r)
					t.Fatalf("attach without ptrace: %s", r)
				}
				src, err := tracefile.Open(prefix + ".hbt")
				if err != nil {
					t.Fatal(err)
				}
				if n := len(src.Threads()); n < busyThreads {
					t.Errorf("%d threads recorded, it has %d", n, busyThreads)
				}
				src.Close()
				eventually(t, "the last of the agent to be taken back", func() bool {
					r := testprog.Run(t, testprog.Command{Args: append(without, "detach", pid)})
					if r.Code != 0 && !bytes.Contains(r.Stderr, []byte("hbtrace detach")) {
						t.Fatalf("detach: %s", r)
					}
					return r.Code == 0
				})
			}
			compareStates(t, before, stateOf(t, p.PID()))
			right(t, p)
		})
	}
}

// TestDormantKilled: whenever the attacher of such a program is killed, the program is right and the next hbtrace takes all back.
func TestDormantKilled(t *testing.T) {
	t.Parallel()
	p := busy(t, testprog.BuildFile(t, "../../attach/testdata/busy.c"), "LD_PRELOAD="+dormant(t))
	attachTo(t, p.PID(), "-d", "10ms")
	takenBack(t, p.PID())
	killedAt(t, p, attach.DormantSteps)
}

// TestDormantSilent: a program that makes no call is attached to by a stop.
func TestDormantSilent(t *testing.T) {
	t.Parallel()
	source := filepath.Join(t.TempDir(), "pauser.c")
	if err := os.WriteFile(source, []byte("#include <unistd.h>\nint main(void) { for (;;) pause(); }\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	p := testprog.Start(t, testprog.Command{Args: []string{testprog.BuildFile(t, source)}, Env: append(os.Environ(), "LD_PRELOAD="+dormant(t))})
	eventually(t, "its sleep", func() bool {
		b, _ := os.ReadFile("/proc/" + strconv.Itoa(p.PID()) + "/syscall")
		return bytes.HasPrefix(b, []byte("34 ")) // pause
	})
	r, _ := attachTo(t, p.PID(), "-v", "-d", "10ms")
	if bytes.Contains(r.Stderr, []byte("stopped 0 times")) {
		t.Errorf("nobody was stopped, and nobody called: %s", r)
	}
}

// TestDormantVersion: a dormant agent of another version is named, with what to do; attach then works as it does without one.
func TestDormantVersion(t *testing.T) {
	t.Parallel()
	object, err := os.ReadFile(dormant(t))
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(object, binary.LittleEndian.AppendUint64(nil, segment.DormantMagic))
	if at < 0 {
		t.Fatal("the dormant agent has no magic")
	}
	binary.LittleEndian.PutUint32(object[at+8:], 77)
	path := filepath.Join(t.TempDir(), agent.DormantName)
	if err := os.WriteFile(path, object, 0o755); err != nil {
		t.Fatal(err)
	}
	p := busy(t, testprog.BuildFile(t, "../../attach/testdata/busy.c"), "LD_PRELOAD="+path)
	pid := strconv.Itoa(p.PID())
	r := testprog.Run(t, testprog.Command{Args: []string{testprog.BuildFile(t, "../../attach/testdata/noptrace.c"), testprog.Hbtrace(t),
		"attach", "-d", "10ms", "-o", filepath.Join(t.TempDir(), "at"), pid}})
	const word = "dormant agent of version 77, and this hbtrace wakes version 1"
	if r.Code == 0 || !bytes.Contains(r.Stderr, []byte(word)) {
		skipUntraceable(t, r)
		t.Errorf("without ptrace: %s", r)
	}
	if r, src := attachTo(t, p.PID(), "-d", "10ms"); !strings.Contains(strings.Join(src.Stats().Notes, "\n"), word) {
		t.Errorf("with ptrace: %s", r)
	}
	if r := testprog.Run(t, testprog.Command{Args: []string{testprog.Hbtrace(t), "doctor", pid}}); !bytes.Contains(r.Stdout, []byte("of version 77")) {
		t.Errorf("doctor: %s", r)
	}
	takenBack(t, p.PID())
	right(t, p)
}
