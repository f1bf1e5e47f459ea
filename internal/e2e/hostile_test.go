package e2e

// hostile_test.go: things that are done to hbtrace and its target from outside, and surroundings that nobody planned.

import (
	"bytes"
	"fmt"
	"math/rand"
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
	"github.com/hbtrace/hbtrace/internal/validate"
	"github.com/hbtrace/hbtrace/segment"
	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/tracefile"
)

// samplersOf waits for a session's sampler: the process that the recorder waits for, and the copy of it that does the work.
func (s *session) samplersOf(t *testing.T) (waits, works int) {
	t.Helper()
	waits, works = s.samplersIfAny(t)
	if works == 0 {
		t.Fatalf("no sampler: %v", s.Wait(t))
	}
	return waits, works
}

// samplersIfAny is samplersOf, or 0 when all have ended before they were seen.
func (s *session) samplersIfAny(t *testing.T) (waits, works int) {
	t.Helper()
	await(t, "a sampler", func() bool {
		var pids []int
		all := s.Descendants()
		for _, pid := range all {
			if line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); err == nil && bytes.HasPrefix(line, []byte("hbtrace\x00__sampler\x00")) {
				pids = append(pids, pid)
			}
		}
		for _, pid := range pids {
			if i := slices.Index(pids, parentOf(pid)); i >= 0 {
				waits, works = pids[i], pid
			}
		}
		return works != 0 || len(all) == 0
	})
	return waits, works
}

func (s *session) samplerOf(t *testing.T) int {
	t.Helper()
	_, works := s.samplersOf(t)
	return works
}

func parentOf(pid int) (ppid int) {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)) // it may have ended
	fmt.Sscanf(string(stat[bytes.LastIndexByte(stat, ')')+1:]), " %c %d", new(rune), &ppid)
	return ppid
}

// TestKilledAtAnyMoment kills the target, the sampler or the recorder some time between their start and their end.
// The program's output is complete unless it was the one killed, and a file that is there is sound.
func TestKilledAtAnyMoment(t *testing.T) {
	random := rand.New(rand.NewSource(1))
	exe := demo(t)
	for i := range 18 {
		who := []string{"target", "sampler", "recorder"}[i%3]
		after := time.Duration(random.Intn(600)) * time.Millisecond
		t.Run(fmt.Sprintf("%s-%v", who, after), func(t *testing.T) {
			s := start(t, testprog.Command{Args: []string{exe, "0.5"}})
			var pid int
			switch who {
			case "target":
				pid = s.targetIfAny(t, "demo")
			case "sampler":
				waits, works := s.samplersIfAny(t)
				pid = []int{waits, works}[i/3%2]
			case "recorder":
				s.targetIfAny(t, "demo")
				pid = s.PID()
			}
			killed := false
			if fd, err := unix.PidfdOpen(pid, 0); err == nil { // it may end meanwhile, and somebody else have its number
				recordedFor(after)
				killed = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) == nil
				unix.Close(fd)
			}
			t.Logf("killed: %v", killed)
			res := s.finish(t)
			served := bytes.HasPrefix(res.Stdout, []byte("served ")) && bytes.HasSuffix(res.Stdout, []byte("ledger\n"))
			if !served && (who != "target" || !killed) {
				t.Errorf("the program's output is not complete: %v", res)
			}
			switch {
			case who == "sampler" && res.Status() != 0:
				t.Errorf("want status 0, got %v", res)
			case who == "target" && res.Status() != 137 && !served:
				t.Errorf("want status 137, got %v", res)
			}
			if err := validate.File(s.prefix + ".hbt"); err != nil {
				t.Error(err)
			}
			if who != "recorder" {
				s.open(t)
			}
		})
	}
}

// TestStopped stops each party for a while. Nothing is lost that there was room for, and nobody waits for ever.
func TestStopped(t *testing.T) {
	exe := demo(t)
	for _, who := range []string{"target", "sampler", "recorder"} {
		t.Run(who, func(t *testing.T) {
			for _, seconds := range []string{"1", "10", "60"} {
				s := start(t, testprog.Command{Args: []string{exe, seconds}})
				target := s.demoAtWork(t)
				pid := target
				switch who {
				case "sampler":
					_, pid = s.samplersIfAny(t)
				case "recorder":
					pid = s.PID()
				}
				recordedFor(300 * time.Millisecond)
				at := state(target)
				stopped := pid != 0 && syscall.Kill(pid, syscall.SIGSTOP) == nil
				recordedFor(500 * time.Millisecond)
				if stopped {
					stopped = syscall.Kill(pid, syscall.SIGCONT) == nil
				}
				res := s.finish(t)
				if res.Status() != 0 || !bytes.HasPrefix(res.Stdout, []byte("served ")) {
					t.Errorf("got %v", res)
				}
				s.open(t)
				if stopped && at != "gone" && at != "Z" {
					return
				}
				t.Logf("once more: the program was over after its %s s before the %s could be stopped", seconds, who)
			}
			t.Error("the program is always over before anybody can be stopped")
		})
	}
}

// TestSilentRecorder: a recorder that is stopped until its ring is full and agents have given it up is recorded into again as
// soon as it goes on.
func TestSilentRecorder(t *testing.T) {
	s := start(t, testprog.Command{Args: []string{demo(t), "3600"}})
	target := s.demoAtWork(t)
	seg := segmentOf(t, s.PID())
	if seg == nil {
		t.Fatal("the session has ended")
	}
	defer seg.Close()
	off := func() uint32 {
		for i := range seg.HighProcs() {
			if p := seg.Proc(i); p.State.Load() == segment.ProcLive && int(p.HostPID.Load()) == target {
				return p.Disabled.Load()
			}
		}
		return segment.OffNo
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(syscall.Kill(s.PID(), syscall.SIGSTOP))
	awaitState(t, "the recorder", s.PID(), "T", true)
	// Nobody needs to fill it: a ring that has no room is a full one. Again and again, since a record may be on its way there.
	await(t, "the agent has given the recorder up", func() bool {
		for i := range seg.Geometry().Rings {
			b := seg.Subbuf(i)
			b.Head.Store(b.Tail.Load() + seg.Geometry().RingBytes)
		}
		return off() == segment.OffCollectorSilent
	})
	for i := range seg.Geometry().Rings {
		b := seg.Subbuf(i)
		b.Head.Store(b.Tail.Load())
	}
	silent := trace.Ns(segment.Now())
	must(syscall.Kill(s.PID(), syscall.SIGCONT))
	await(t, "the agent records again", func() bool { return off() == segment.OffNo })
	must(syscall.Kill(target, syscall.SIGTERM))
	s.finish(t)
	r := s.openTrace(t)
	after := 0
	must(trace.Events(r, func(e *trace.Event) error {
		if e.Start > silent {
			after++
		}
		return nil
	}))
	if after == 0 || r.Stats().Lost == 0 {
		t.Errorf("%d events after the silence, %d lost in it", after, r.Stats().Lost)
	}
}

// TestIdleThreads: the sampler's work does not grow with threads that do nothing.
func TestIdleThreads(t *testing.T) {
	python := "/usr/bin/python3"
	if _, err := os.Stat(python); err != nil {
		t.Skipf("needs %s", python)
	}
	script := `import threading
threading.stack_size(65536)
done = threading.Event()
idle = [threading.Thread(target=done.wait) for _ in range(1000)]
for t in idle: t.start()
x = 0
for i in range(12000000): x += i
done.set()
for t in idle: t.join()
print(x)`
	s, _ := compare(t, testprog.Command{Args: []string{python, "-S", "-E", "-c", script}})
	r := s.open(t)
	if n := len(r.Threads()); n < 1001 {
		t.Errorf("%d threads, want 1001", n)
	}
	// A half is far more than it is: what must not be is a system call for each thread and tick.
	if st := r.Stats(); st.SamplerCPU > st.TargetCPU/2 {
		t.Errorf("the sampler used %v, the program %v", st.SamplerCPU, st.TargetCPU)
	}
}

// TestSurroundings: wrappers, limits and environments. What the program prints and returns is what it is without us.
func TestSurroundings(t *testing.T) {
	bash := testprog.LookPath(t, "bash", "bash")
	limit := func(how, what string) []string {
		return []string{bash, "-c", "ulimit " + how + " || exit 9; exec " + what}
	}
	many := []string{"/bin/echo"}
	for range 1500 {
		many = append(many, strings.Repeat("y", 1000))
	}
	env := func(v ...string) []string { return append([]string{"PATH=/usr/bin:/bin"}, v...) }
	for _, c := range []struct {
		name string
		args []string
		env  []string
		// unrecorded: the program is not given what recording needs; it runs all the same
		unrecorded bool
	}{
		{name: "timeout", args: []string{"timeout", "0.3", "sleep", "5"}},
		{name: "nice", args: []string{"nice", "-n", "3", bash, "-c", "nice; (exit 4)"}},
		{name: "setsid", args: []string{"setsid", "-w", bash, "-c", "echo hi; exit 7"}},
		{name: "nohup", args: []string{"nohup", bash, "-c", "echo hi; exit 7"}},
		{name: "long arguments", args: many},
		{name: "long environment", args: []string{"printenv", "BIG"}, env: env("BIG=" + strings.Repeat("z", 130000))},
		{name: "loader cannot find the user's preload", args: []string{"echo", "hi"}, env: env("LD_PRELOAD=/nonexistent.so:libm.so.6")},
		{name: "empty preload", args: []string{"echo", "hi"}, env: env("LD_PRELOAD= : :")},
		{name: "odd library path", args: []string{"printenv", "LD_LIBRARY_PATH"}, env: env("LD_LIBRARY_PATH=/nonexistent:.::")},
		{name: "no home, no temporary directory", args: []string{"echo", "hi"}, env: env("TMPDIR=/nonexistent", "HOME=")},
		{name: "loader run by hand", args: []string{"/lib64/ld-linux-x86-64.so.2", "/bin/echo", "hi"}},
		{name: "symbols bound at once", args: []string{"echo"}, env: env("LD_BIND_NOW=1")},
		{name: "5 descriptors", args: limit("-n 5", "/bin/ls /")},
		{name: "no files may grow", args: limit("-f 0", "/bin/ls /")},
		{name: "no locked memory", args: limit("-l 0", "/bin/ls /")},
		{name: "unlimited stack", args: limit("-s unlimited", "/bin/ls /")},
		{name: "64 KiB of stack", args: limit("-s 64", "/bin/ls /")},
		{name: "20 MB of addresses", args: limit("-v 20000", "/bin/ls /")},
		{name: "8 MB of addresses", args: limit("-v 8000", "/bin/ls /"), unrecorded: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			if !filepath.IsAbs(c.args[0]) {
				c.args[0] = testprog.LookPath(t, c.args[0], "coreutils")
			}
			if _, err := os.Stat(c.args[0]); err != nil {
				t.Skip(err)
			}
			s, bare := compare(t, testprog.Command{Args: c.args, Env: c.env})
			if bare.Code == 9 {
				t.Skip("the limit is refused")
			}
			if !c.unrecorded {
				if r := s.openTrace(t); !r.Stats().Complete || len(r.Processes()) == 0 {
					t.Errorf("%d processes, complete: %v", len(r.Processes()), r.Stats().Complete)
				}
				return
			}
			r, err := tracefile.Open(s.prefix + ".hbt")
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			if notes := strings.Join(r.Stats().Notes, "\n"); !strings.Contains(notes, "cannot be recorded") {
				t.Errorf("nothing says what was not recorded; notes %q", notes)
			}
		})
	}
}

// TestIgnoredSignalsStayIgnored: a program inherits what signals are ignored and blocked, as services rely on.
func TestIgnoredSignalsStayIgnored(t *testing.T) {
	bash := testprog.LookPath(t, "bash", "bash")
	for _, signals := range []string{"INT HUP", "PIPE TERM QUIT USR1 USR2 ALRM TSTP TTOU"} {
		t.Run(signals, func(t *testing.T) {
			ignored := func(words ...string) string {
				args := append([]string{"-c", `trap '' ` + signals + `; exec "$@"`, "bash"}, words...)
				out, err := exec.Command(bash, append(args, "grep", "SigIgn", "/proc/self/status")...).Output()
				if err != nil {
					t.Fatal(err)
				}
				return string(out)
			}
			bare := ignored()
			if traced := ignored(testprog.Hbtrace(t), "run", "-q", "-o", filepath.Join(t.TempDir(), "rec"), "--"); traced != bare {
				t.Errorf("bare %q, traced %q", bare, traced)
			}
		})
	}
}

// TestInterruptOfBackgroundJob: a shell starts what is in the background with SIGINT ignored. A program that handles
// it nevertheless must get it.
func TestInterruptOfBackgroundJob(t *testing.T) {
	bash := testprog.LookPath(t, "bash", "bash")
	python := testprog.LookPath(t, "python3", "python3")
	up := filepath.Join(t.TempDir(), "up")
	script := `import signal, sys, time
signal.signal(signal.SIGINT, lambda *a: sys.exit(3))
open(sys.argv[1], "w").close()
time.sleep(300)`
	out, err := exec.Command(bash, "-c", `"$@" & p=$!; until [ -e "$0" ]; do sleep 0.02; done; kill -INT $p; wait $p; echo $?`,
		up, testprog.Hbtrace(t), "run", "-q", "-o", filepath.Join(t.TempDir(), "rec"), "--", python, "-c", script, up).CombinedOutput()
	if string(out) != "3\n" || err != nil {
		t.Errorf("want status 3, got %q (%v)", out, err)
	}
}

// TestUnderDebuggers: strace and gdb inside a recording.
func TestUnderDebuggers(t *testing.T) {
	exe := testprog.Build(t, "hello")
	for _, c := range [][]string{
		{"strace", "-f", "-o", "/dev/null", exe, "x"},
		{"gdb", "-nx", "-q", "-batch", "-ex", "set startup-with-shell off", "-ex", "run", "--args", exe, "x"},
	} {
		t.Run(c[0], func(t *testing.T) {
			args := append([]string{testprog.LookPath(t, c[0], c[0])}, c[1:]...)
			s := start(t, testprog.Command{Args: args})
			res := s.finish(t)
			if res.Status() != 0 || !bytes.Contains(res.Stdout, []byte("[x]\n")) {
				t.Errorf("%v", res)
			}
			s.open(t)
		})
	}
}

// TestNested: hbtrace is a static program; what it starts is recorded by the inner one, and nobody else is disturbed.
func TestNested(t *testing.T) {
	inner := filepath.Join(t.TempDir(), "inner")
	s := start(t, testprog.Command{Args: []string{testprog.Hbtrace(t), "run", "-q", "-o", inner, "--", demo(t), "0.3"}})
	res := s.finish(t)
	if res.Status() != 0 || !bytes.HasPrefix(res.Stdout, []byte("served ")) {
		t.Errorf("%v", res)
	}
	s.open(t)
	if err := validate.File(inner + ".hbt"); err != nil {
		t.Error(err)
	}
}
