package e2e

// badends_test.go: what is left when something dies, fills up or is refused.

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hbtrace/hbtrace/internal/testprog"
	"github.com/hbtrace/hbtrace/trace"
)

func demo(t *testing.T) string { return testprog.BuildFile(t, "../../examples/demo/demo.c", "-O2") }

// recordedFor waits for d: the moment is the test's input, and nothing may depend on its being exact.
func recordedFor(d time.Duration) { time.Sleep(d) }

func TestTargetKilled(t *testing.T) {
	s := start(t, testprog.Command{Args: []string{demo(t), "60"}})
	pid := s.demoAtWork(t)
	recordedFor(2 * time.Second) // twice what has to be there
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	res := s.finish(t)
	if res.Status() != 128+int(syscall.SIGKILL) {
		t.Errorf("want status 137, got %v", res)
	}
	r := s.open(t)
	if m := r.Meta(); m.ExitSignal != int(syscall.SIGKILL) {
		t.Errorf("the recording says status %d, signal %d", m.ExitStatus, m.ExitSignal)
	}
	checkSpan(t, r, time.Second)
}

// checkSpan fails the test when the recording's events cover less than least.
func checkSpan(t *testing.T, r recording, least time.Duration) {
	t.Helper()
	var first, last trace.Ns
	n := 0
	if err := trace.Events(r, func(e *trace.Event) error {
		if n == 0 || e.Start < first {
			first = e.Start
		}
		last = max(last, e.Time)
		n++
		return nil
	}); err != nil {
		t.Error(err)
	}
	if n < 100 || time.Duration(last-first) < least {
		t.Errorf("%d events over %v are left, want at least 100 over %v", n, time.Duration(last-first), least)
	}
}

func TestCollectorKilled(t *testing.T) {
	c := testprog.Command{Args: []string{demo(t), "6"}}
	s := start(t, c)
	s.demoAtWork(t)
	recordedFor(3 * time.Second) // twice what has to be there
	if err := s.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	res := s.Wait(t) // its pipes stay open until the demo has ended too
	if res.Signal != syscall.SIGKILL {
		t.Errorf("hbtrace: %v", res)
	}
	if !bytes.HasPrefix(res.Stdout, []byte("served ")) || !bytes.HasSuffix(res.Stdout, []byte("ledger\n")) {
		t.Errorf("the program's output is not complete: %v", res)
	}
	s.CheckNothingLeft(t) // no sampler, and with the last process the segment is gone too
	r := s.openTrace(t)
	if r.Stats().Complete {
		t.Error("the recording claims to be complete")
	}
	checkSpan(t, r, 1500*time.Millisecond) // stored four times a second
	out := filepath.Join(t.TempDir(), "late.pb.gz")
	if msg, err := exec.Command(testprog.Hbtrace(t), "export", s.prefix+".hbt", "--pprof", out).CombinedOutput(); err != nil {
		t.Errorf("exporting what was left: %v\n%s", err, msg)
	}
}

func TestInterrupt(t *testing.T) {
	bash := testprog.LookPath(t, "bash", "bash")
	for _, c := range []struct {
		sig  syscall.Signal
		trap string
		want int
	}{
		{syscall.SIGTERM, `trap 'echo got it; exit 5' TERM`, 5},
		{syscall.SIGINT, `trap 'echo got it; exit 6' INT`, 6},
		{syscall.SIGTERM, `:`, 128 + 15},
	} {
		t.Run(fmt.Sprintf("%d %s", c.sig, c.trap), func(t *testing.T) {
			s := start(t, testprog.Command{Args: []string{bash, "-c", c.trap + `; echo ready; echo up > "$0"; while :; do sleep 0.05; done`, filepath.Join(t.TempDir(), "up")}})
			up := func() bool {
				m, _ := filepath.Glob(filepath.Join(filepath.Dir(filepath.Dir(s.prefix)), "*", "up"))
				return len(m) > 0
			}
			await(t, "the program is up", up)
			if err := s.Signal(c.sig); err != nil {
				t.Fatal(err)
			}
			res := s.Wait(t)
			if res.Status() != c.want {
				t.Errorf("want status %d, got %v", c.want, res)
			}
			want := "ready\n"
			if c.want < 128 {
				want += "got it\n"
			}
			if string(res.Stdout) != want {
				t.Errorf("want %q, got %v", want, res)
			}
			s.CheckNothingLeft(t)
			s.open(t)
		})
	}
}

func TestFullDisk(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to mount a small file system")
	}
	dir := t.TempDir()
	if err := unix.Mount("hbtrace-test", dir, "tmpfs", 0, "size=32k"); err != nil {
		t.Skipf("needs to mount a tmpfs: %v", err)
	}
	defer unix.Unmount(dir, unix.MNT_DETACH)
	s := startAt(t, filepath.Join(dir, "rec"), testprog.Command{Args: []string{demo(t), "3"}}, "-F", "999")
	res := s.finish(t)
	if !bytes.HasPrefix(res.Stdout, []byte("served ")) {
		t.Errorf("the program's output is not complete: %v", res)
	}
	if res.Status() != 0 {
		t.Errorf("want the program's status, 0, got %v", res)
	}
	if !strings.Contains(string(res.Stderr), "no space left") {
		t.Errorf("nothing says that the disk is full: %v", res)
	}
	r := s.openTrace(t) // what there was room for
	t.Logf("stderr: %s; complete: %v", bytes.TrimSpace(res.Stderr), r.Stats().Complete)
}

// ordinaryUser is somebody without privileges, and a folder of his that he can reach; the test is skipped where it has no right to be him.
func ordinaryUser(t *testing.T) (dir string, who *syscall.Credential) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root, to be somebody else")
	}
	dir, err := os.MkdirTemp("", "hbtrace-e2e-") // not below t.TempDir(), which is root's alone
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	const nobody = 65534
	if err := os.Chown(dir, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	return dir, &syscall.Credential{Uid: nobody, Gid: nobody}
}

func TestOrdinaryUser(t *testing.T) {
	dir, nobody := ordinaryUser(t)
	s := startAt(t, filepath.Join(dir, "rec"), testprog.Command{Args: []string{demo(t), "1.5"}, Env: []string{"PATH=/usr/bin:/bin", "HOME=/nonexistent"},
		Dir: dir, Cred: nobody}, "-F", "499")
	res := s.finish(t)
	if res.Status() != 0 || !bytes.HasPrefix(res.Stdout, []byte("served ")) {
		t.Errorf("as nobody: %v", res)
	}
	r := s.open(t)
	r.wantShare(t, "cpu", "plate_order", 0.7, function("plate_order"))
	r.wantIntervals(t, "pthread_mutex_lock")
}

func TestDuration(t *testing.T) {
	for attempt := range 4 {
		begun := time.Now()
		s := start(t, testprog.Command{Args: []string{demo(t), "3"}}, "-d", "800ms")
		res := s.finish(t)
		if !bytes.HasPrefix(res.Stdout, []byte("served ")) || res.Status() != 0 {
			t.Errorf("the program does not go on to its end: %v", res)
		}
		if took := time.Since(begun); took < 2900*time.Millisecond {
			t.Errorf("all was over after %v", took)
		}
		r := s.open(t)
		span := time.Duration(r.Meta().EndNs - r.Meta().StartNs)
		if span < 700*time.Millisecond {
			t.Errorf("recorded for %v, asked for 800ms", span)
		}
		if span <= 2*time.Second {
			return
		}
		t.Logf("attempt %d: recorded for %v, asked for 800ms: the machine was late, unless it always is", attempt, span)
	}
	t.Error("recorded for more than twice what was asked for, each time")
}

// TestBadInput: what cannot be run or read is one clear line and status 125.
func TestBadInput(t *testing.T) {
	hb := testprog.Hbtrace(t)
	dir := t.TempDir()
	write(t, filepath.Join(dir, "text"), "not a program\n")
	write(t, filepath.Join(dir, "script"), "#!/nonexistent/interpreter\n")
	write(t, filepath.Join(dir, "garbage"), "\x7fELF garbage that no loader takes")
	write(t, filepath.Join(dir, "empty.hbt"), "")
	write(t, filepath.Join(dir, "noise.hbt"), strings.Repeat("noise", 1000))
	for _, f := range []string{"script", "garbage"} {
		if err := os.Chmod(filepath.Join(dir, f), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	out := filepath.Join(dir, "out")
	for _, c := range []struct {
		name string
		args []string
		want string // in the message
	}{
		{"no command", []string{"run"}, ""},
		{"no such program", []string{"run", "-o", out, "--", "/nonexistent/program"}, "/nonexistent/program"},
		{"no such program in PATH", []string{"run", "-o", out, "--", "no-such-program-here"}, "no-such-program-here"},
		{"not executable", []string{"run", "-o", out, "--", filepath.Join(dir, "text")}, "text"},
		{"a directory", []string{"run", "-o", out, "--", dir}, dir},
		{"a bad interpreter", []string{"run", "-o", out, "--", filepath.Join(dir, "script")}, "script"},
		{"not an ELF file", []string{"run", "-o", out, "--", filepath.Join(dir, "garbage")}, "garbage"},
		{"output is a directory", []string{"run", "-o", dir, "--", "true"}, dir},
		{"output's directory is missing", []string{"run", "-o", filepath.Join(dir, "no", "where"), "--", "true"}, "where"},
		{"unknown flag", []string{"run", "--no-such-flag", "--", "true"}, "no-such-flag"},
		{"bad frequency", []string{"run", "-F", "lots", "--", "true"}, "lots"},
		{"bad duration", []string{"run", "-d", "soon", "--", "true"}, "soon"},
		{"report of nothing", []string{"report", filepath.Join(dir, "missing.hbt")}, "missing.hbt"},
		{"report of an empty file", []string{"report", filepath.Join(dir, "empty.hbt")}, "empty.hbt"},
		{"report of noise", []string{"report", filepath.Join(dir, "noise.hbt")}, "noise.hbt"},
		{"report of a directory", []string{"report", dir}, dir},
		{"export of noise", []string{"export", filepath.Join(dir, "noise.hbt"), "--pprof", out}, "noise.hbt"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := testprog.Start(t, testprog.Command{Args: append([]string{hb}, c.args...), Dir: dir})
			res := r.Wait(t)
			r.CheckNothingLeft(t)
			msg := string(res.Stderr)
			if res.Code != 125 || strings.Count(msg, "\n") != 1 || !strings.HasPrefix(msg, "hbtrace: ") || !strings.Contains(msg, c.want) {
				t.Errorf("want status 125 and one line about %q; got %v", c.want, res)
			}
			if strings.Contains(msg, "panic") || len(res.Stdout) > 0 {
				t.Errorf("got %v", res)
			}
		})
	}
}

// TestDamagedRecording cuts and flips a real recording: never a panic, and what is whole is read.
func TestDamagedRecording(t *testing.T) {
	hb := testprog.Hbtrace(t)
	s := start(t, testprog.Command{Args: []string{demo(t), "0.5"}})
	s.finish(t)
	s.open(t)
	good, err := os.ReadFile(s.prefix + ".hbt")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "damaged.hbt")
	report := func(what string, data []byte, mustRead bool) {
		write(t, path, string(data))
		r := testprog.Run(t, testprog.Command{Args: []string{hb, "report", path}})
		if r.Signal != 0 || r.Code != 0 && r.Code != 125 || bytes.Contains(r.Stderr, []byte("goroutine ")) {
			t.Errorf("%s: %v", what, r)
		}
		if mustRead && r.Code != 0 {
			t.Errorf("%s: want what is whole to be read; got %v", what, r)
		}
		if r.Code == 125 && !bytes.Contains(r.Stderr, []byte("damaged.hbt")) {
			t.Errorf("%s: the message does not name the file: %v", what, r)
		}
	}
	report("whole", good, true)
	for i := 1; i < 12; i++ {
		report(fmt.Sprintf("cut to %d/12", i), good[:len(good)*i/12], false)
		flipped := bytes.Clone(good)
		flipped[len(good)*i/12] ^= 0x40
		report(fmt.Sprintf("flipped at %d/12", i), flipped, false)
	}
	report("cut by a few bytes", good[:len(good)-5], true)
}

// A program whose clocks show other times than the recorder's is not recorded: that is said, and why.
func TestTimeNamespace(t *testing.T) {
	if err := exec.Command("unshare", "--time", "--monotonic", "1000", "--fork", "true").Run(); err != nil {
		t.Skipf("needs the right to make a time namespace: %v", err)
	}
	unshare := testprog.LookPath(t, "unshare", "util-linux")
	s := start(t, testprog.Command{Args: []string{unshare, "--time", "--monotonic", "1000", "--fork", demo(t), "1"}})
	res := s.finish(t)
	if res.Status() != 0 || !bytes.HasPrefix(res.Stdout, []byte("served ")) {
		t.Errorf("the program does not run as it should: %v", res)
	}
	r := s.openTrace(t)
	if !slices.ContainsFunc(r.Stats().Notes, func(n string) bool { return strings.Contains(n, "another time namespace") }) {
		t.Errorf("no note says so: %q", r.Stats().Notes)
	}
}
