package e2e

// golang_test.go: Go programs, whose runtime is hooked.

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hbtrace/hbtrace/internal/testprog"
	"github.com/hbtrace/hbtrace/internal/validate"
	"github.com/hbtrace/hbtrace/trace"
)

// buildGo compiles a Go program of testdata, static unless env says otherwise.
func buildGo(t *testing.T, name string, env []string, flags ...string) string {
	t.Helper()
	if runtime.GOARCH != "amd64" {
		t.Skip("Go programs are recorded on x86-64 only")
	}
	out := filepath.Join(t.TempDir(), name)
	cmd := exec.Command("go", append(append([]string{"build", "-o", out}, flags...), ".")...)
	cmd.Dir = filepath.Join("testdata", name)
	cmd.Env = append(append(os.Environ(), "CGO_ENABLED=0"), env...)
	if b, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, b)
	}
	return out
}

// function is what a frame's innermost functions are called.
func (r recording) functionsOf(stack trace.StackID) (names []string) {
	for ; stack != 0; stack = r.Node(stack).Parent {
		for _, f := range r.Symbols(stack) {
			names = append(names, f.Func)
		}
	}
	return names
}

// goWait is a wait that a goroutine must have made.
type goWait struct{ hook, in, wakerIn string }

var goWaits = []goWait{
	{"chan receive", "main.receives", "main.sendsLate"},
	{"chan send", "main.sends", "main.receivesLate"},
	{"select", "main.selects", "main.sendsToSelect"},
	{"mutex lock", "main.wantsMutex", "main.holdsMutex"},
	{"rwmutex rlock", "main.reads", "main.wrote"},
	{"cond wait", "main.waitsForCond", "main.signals"},
	{"waitgroup wait", "main.waitsForGroup", "main.isDone"},
	{"io wait", "main.readsPipe", ""},
	{"sleep", "main.sleeps", ""},
}

// wantGoWaits demands every wait, with its stack and the goroutine that ended it, where that was.
func (r recording) wantGoWaits(t *testing.T, waits []goWait) {
	t.Helper()
	hooks := r.Meta().Hooks
	type release struct {
		by trace.ThreadID
		at trace.Ns
	}
	releases := map[release]trace.StackID{}
	var all []trace.Event
	if err := trace.Events(r, func(e *trace.Event) error {
		switch e.Kind {
		case trace.KindRelease:
			releases[release{e.Thread, e.Time}] = e.Stack
		case trace.KindWait, trace.KindCall:
			all = append(all, *e)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for _, w := range waits {
		found := ""
		ok := slices.ContainsFunc(all, func(e trace.Event) bool {
			if hooks[e.Hook].Name != w.hook || time.Duration(e.Time-e.Start) < 5*time.Millisecond {
				return false
			}
			in := r.functionsOf(e.Stack)
			if !slices.Contains(in, w.in) {
				return false
			}
			if w.wakerIn == "" {
				found = "it was woken by a goroutine"
				return e.Releaser == 0
			}
			found = "its waker is not certain"
			if e.Releaser == 0 || e.Flags&trace.FlagCertain == 0 || e.Release < e.Start || e.Release > e.Time {
				return false
			}
			by := r.functionsOf(releases[release{e.Releaser, e.Release}])
			found = "it was woken in " + strings.Join(by, " < ")
			return slices.Contains(by, w.wakerIn) && r.Threads()[e.Releaser-1].Goroutine
		})
		if !ok {
			t.Errorf("no %s in %s, ended in %q: %s", w.hook, w.in, w.wakerIn, found)
		}
	}
}

// wantLeak demands the one wait that never ends.
func (r recording) wantLeak(t *testing.T) {
	t.Helper()
	var open []string
	if err := trace.Events(r, func(e *trace.Event) error {
		if e.Flags&trace.FlagOpen == 0 {
			return nil
		}
		name := r.Meta().Hooks[e.Hook].Name
		if name == "chan receive" && slices.Contains(r.functionsOf(e.Stack), "main.leaks") && e.Time-e.Start > trace.Ns(5*time.Millisecond) {
			name = "leak"
		}
		open = append(open, name)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(open, []string{"leak"}) {
		t.Errorf("waits that have not ended: %q", open)
	}
}

func TestGoroutines(t *testing.T) {
	for _, tc := range []struct {
		name  string
		slow  bool
		flags []string
	}{
		{"static", false, nil},
		{"stripped", false, []string{"-ldflags=-s -w"}},
		{"pie", true, []string{"-buildmode=pie", "-ldflags=-linkmode=internal"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.slow && os.Getenv("HBTRACE_STRESS") == "" {
				t.Skip("compiles the standard library again: set HBTRACE_STRESS")
			}
			t.Parallel()
			prog := buildGo(t, "goroutines", nil, tc.flags...)
			s, bare := compare(t, testprog.Command{Args: []string{prog}})
			if bare.Code != 7 || string(bare.Stdout) != "all waits are over\n" {
				t.Fatalf("bare: %v", bare)
			}
			r := s.open(t)
			r.wantGoWaits(t, goWaits)
			r.wantLeak(t)
			var main int
			for _, th := range r.Threads() {
				if th.Goroutine && th.Main {
					main++
					if th.Name != "runtime.main" || th.TID != 1 {
						t.Errorf("the first goroutine is %q, number %d", th.Name, th.TID)
					}
				}
			}
			if main != 1 || r.Stats().Lost != 0 {
				t.Errorf("%d first goroutines, %d records lost", main, r.Stats().Lost)
			}
		})
	}
}

// TestGoCPU: CPU time by function and goroutine; the program keeps SIGWINCH, by which it is sampled, for itself.
func TestGoCPU(t *testing.T) {
	prog := buildGo(t, "goburn", nil)
	s, bare := compare(t, testprog.Command{Args: []string{prog}})
	if string(bare.Stdout) != "others: 0\n" {
		t.Fatalf("bare: %v", bare)
	}
	r := s.open(t)
	by, in, total := map[trace.ThreadID]int64{}, int64(0), int64(0)
	if err := trace.Events(r, func(e *trace.Event) error {
		if e.Kind != trace.KindCPU && e.Kind != trace.KindThreadExit {
			return nil
		}
		total += e.CPU
		if th := r.Threads()[e.Thread-1]; th.Goroutine && slices.Contains(r.functionsOf(e.Stack), "main.burns") {
			by[th.ID] += e.CPU
			in += e.CPU
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if used := int64(r.Stats().TargetCPU); total < used/2 {
		t.Errorf("%d ns of %d are accounted for", total, used)
	}
	if in < total/2 || len(by) > 2 {
		t.Errorf("%d ns of %d in main.burns: %v", in, total, by)
	}
}

// TestGoChildren: Go programs that recorded programs start: in their place, beside them, by a name in PATH. One of the files cannot
// be executed: the process goes on, and is let go by the recorder.
func TestGoChildren(t *testing.T) {
	t.Parallel()
	prog := buildGo(t, "goroutines", nil)
	data, err := os.ReadFile(prog)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "forbidden"), data, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(prog, filepath.Join(dir, "named")); err != nil {
		t.Fatal(err)
	}
	const script = `PATH=$PATH:"$0"; "$1" & env named; a=$?; wait; "$0"/forbidden; b=$?; "$0"/forbidden && exit 1; echo $a $b; exec "$1"`
	s, bare := compare(t, testprog.Command{Args: []string{"sh", "-c", script, dir, prog}})
	const line = "all waits are over\n"
	if want := line + line + "7 126\n" + line; bare.Code != 7 || string(bare.Stdout) != want {
		t.Fatalf("bare: %v", bare)
	}
	r := s.open(t)
	r.wantGoWaits(t, goWaits)
	mains := map[trace.ProcID]bool{}
	for _, th := range r.Threads() {
		if th.Goroutine && th.Main {
			mains[th.Proc] = true
		}
	}
	if len(mains) != 3 || len(r.Stats().Unrecorded) != 0 {
		t.Errorf("%d of 3 Go programs recorded; unrecorded: %+v", len(mains), r.Stats().Unrecorded)
	}
}

// TestGoTrigger: a flight recorder of a Go program, and what it says of the goroutine that a trigger was about.
func TestGoTrigger(t *testing.T) {
	t.Parallel()
	prog := buildGo(t, "goroutines", nil)
	prefix := filepath.Join(t.TempDir(), "k")
	cmd := exec.Command(testprog.Hbtrace(t), "run", "--keep", "60s", "--on", "call == \"mutex lock\" && ms > 1", "--after", "10ms", "-o", prefix, prog)
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() != 7 {
		t.Fatalf("%v\n%s", err, out)
	}
	if !strings.Contains(string(out), "thread main.both.func1 (") {
		t.Errorf("the dump's line does not name the goroutine:\n%s", out)
	}
	dumps, err := filepath.Glob(prefix + ".*.hbt")
	if err != nil || len(dumps) == 0 {
		t.Fatalf("no dump: %v\n%s", err, out)
	}
	if err := validate.File(dumps[0]); err != nil {
		t.Error(err)
	}
}
