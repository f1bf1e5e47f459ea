package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/hbtrace/hbtrace/internal/testprog"
	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/tracefile"
)

// find returns the first event that match accepts.
func find(t *testing.T, r trace.Source, match func(*trace.Event) bool) (found *trace.Event) {
	t.Helper()
	if err := trace.Events(r, func(e *trace.Event) error {
		if found == nil && match(e) {
			x := *e
			found = &x
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return found
}

// TestTrigger: a long wait makes a dump, which holds the whole wait, its holder and what that did meanwhile, says so on top
// of every report, and is alone: a trigger that has held is silent for a while.
func TestTrigger(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	exe, dir := testprog.BuildFile(t, "testdata/flight.c"), t.TempDir()
	now := filepath.Join(dir, "now") // that it is there makes the writer hold the lock long
	if err := os.WriteFile(now, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s := startAt(t, filepath.Join(dir, "rec"), testprog.Command{Args: []string{exe, now}},
		"--keep", "60s", "--on", `lock > 1s && thread == "reader"`, "--after", "100ms")
	path := filepath.Join(dir, "rec.001.lock.hbt")
	await(t, "a dump", func() bool { _, err := os.Stat(path); return err == nil })
	s.terminate(t)
	r := openDump(t, path)
	d := r.Meta().Dump
	if d.Why != trace.DumpedTrigger || d.Trigger != `lock > 1s && thread == "reader"` || d.Thread == 0 || !strings.Contains(d.Event, "reader") {
		t.Fatalf("%+v", d)
	}
	wait := find(t, r, func(e *trace.Event) bool {
		return e.Kind == trace.KindWait && e.Thread == d.Thread && e.Start == d.Start && e.Time == d.End
	})
	if wait == nil || wait.Owner == 0 || r.Threads()[wait.Owner-1].Name != "writer" || wait.Time-wait.Start < 1e9 {
		t.Fatalf("the wait %+v in a dump of %+v", wait, d)
	}
	for _, view := range []string{"--locks", "--cpu"} {
		out, err := exec.Command(testprog.Hbtrace(t), "report", view, path).CombinedOutput()
		top, _, _ := strings.Cut(strings.Join(strings.Fields(string(out)), " "), " ran 1")
		if err != nil || !strings.Contains(top, "dump because of --on") || !strings.Contains(top, "writer, which had it,") {
			t.Errorf("hbtrace report %s: %v\n%s", view, err, out)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "rec*")); len(left) != 1 {
		t.Errorf("files: %q", left)
	}
}

// TestCrash: a program that is killed, by itself or by others, leaves a dump with what its threads were in.
func TestCrash(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	exe := testprog.BuildFile(t, "testdata/crash.c")
	for _, c := range []struct {
		name   string
		args   []string
		signal syscall.Signal
	}{{"segv", nil, syscall.SIGSEGV}, {"kill", []string{"kill"}, syscall.SIGKILL}} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			s := startAt(t, filepath.Join(dir, "rec"), testprog.Command{Args: append([]string{exe}, c.args...)}, "--keep", "1M")
			if res := s.finish(t); res.Status() != 128+int(c.signal) {
				t.Errorf("%v", res)
			}
			r := openDump(t, filepath.Join(dir, "rec.001.crash.hbt"))
			if m := r.Meta(); m.ExitSignal != int(c.signal) || m.Dump.Trigger != "crash" {
				t.Errorf("%+v", m)
			}
			checkOpenWait(t, r)
		})
	}
}

// checkOpenWait looks for the wait of crash.c's second thread.
func checkOpenWait(t *testing.T, r *tracefile.Reader) {
	t.Helper()
	threads := r.Threads()
	wait := find(t, r, func(e *trace.Event) bool {
		return e.Kind == trace.KindWait && e.Flags&trace.FlagOpen != 0 && threads[e.Thread-1].Name == "waiter"
	})
	if wait == nil || wait.Owner == 0 || !threads[wait.Owner-1].Main || !strings.Contains(strings.Join(names(r, wait.Stack), " "), "wait_for_state") {
		t.Errorf("the wait that had not ended: %+v", wait)
	}
}

// TestBadTrigger: a mistake in an expression is one line, and a mark under it.
func TestBadTrigger(t *testing.T) {
	out, err := exec.Command(testprog.Hbtrace(t), "run", "--keep", "10s", "--on", "lokc > 50ms", "--", "/bin/true").CombinedOutput()
	lines := strings.Split(strings.TrimRight(string(out), "\n"), "\n")
	if err == nil || len(lines) != 3 || !strings.Contains(lines[0], "there is no lokc") || lines[1] != "  lokc > 50ms" || lines[2] != "  ^" {
		t.Errorf("%v\n%s", err, out)
	}
	out, err = exec.Command(testprog.Hbtrace(t), "run", "--on", "crash", "--", "/bin/true").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "add --keep 60s") {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestStall: an event loop that does not come back makes a dump while that lasts, with what the thread does instead.
func TestStall(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	exe, dir := testprog.BuildFile(t, "../../examples/stall/stall.c", "-O2"), t.TempDir()
	const forever = "100000" // times over: some days
	s := startAt(t, filepath.Join(dir, "rec"), testprog.Command{Args: []string{exe, "0.3", forever}},
		"--keep", "60s", "--on", `stall("stall") > 2s`, "--after", "300ms")
	path := filepath.Join(dir, "rec.001.stall.hbt")
	await(t, "a dump", func() bool { _, err := os.Stat(path); return err == nil })
	s.terminate(t)
	r := openDump(t, path)
	d := r.Meta().Dump
	if d.Thread == 0 || d.End-d.Start < 2e9 || !strings.Contains(d.Event, "thread stall did not come back to its event loop") {
		t.Fatalf("%+v", d)
	}
	if find(t, r, func(e *trace.Event) bool {
		return e.Kind == trace.KindCPU && e.Thread == d.Thread && e.Time > d.Start && strings.Contains(strings.Join(names(r, e.Stack), " "), "find_duplicates")
	}) == nil {
		t.Error("what the thread did instead is not in the dump")
	}
}
