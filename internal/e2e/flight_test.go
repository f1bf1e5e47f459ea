package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/hbtrace/hbtrace/internal/testprog"
	"github.com/hbtrace/hbtrace/internal/validate"
	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/tracefile"
)

// flightSession is a flight recorder that runs.
type flightSession struct {
	*session
	dir string // of its working directory and dumps
}

// startFlight starts `hbtrace run --keep` on testdata/flight.c, with a directory of sessions of its own.
func startFlight(t *testing.T, flags ...string) *flightSession {
	t.Helper()
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	exe := testprog.BuildFile(t, "testdata/flight.c")
	dir := t.TempDir()
	c := testprog.Command{Args: []string{exe, filepath.Join(dir, "now")}}
	return &flightSession{startAt(t, filepath.Join(dir, "rec"), c, flags...), dir}
}

// hbtrace runs a command of hbtrace's, and returns what it wrote.
func (s *flightSession) hbtrace(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	cmd := exec.Command(testprog.Hbtrace(t), args...)
	cmd.Stdout, cmd.Stderr, cmd.Dir = &out, &out, s.dir
	err := cmd.Run()
	return out.String(), err
}

// dump makes a dump, and opens it.
func (s *flightSession) dump(t *testing.T, name string, flags ...string) *tracefile.Reader {
	t.Helper()
	out, err := s.hbtrace(t, append([]string{"dump", "-o", name}, flags...)...)
	if err != nil {
		t.Fatalf("hbtrace dump: %v\n%s", err, out)
	}
	return openAny(t, filepath.Join(s.dir, name))
}

// openDump holds a dump against the invariants of recordings, and opens it.
func openDump(t *testing.T, path string) *tracefile.Reader {
	t.Helper()
	if err := validate.File(path); err != nil {
		t.Error(err)
	}
	return openAny(t, path)
}

func openAny(t *testing.T, path string) *tracefile.Reader {
	t.Helper()
	r, err := tracefile.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

// names are the functions of a stack, innermost first.
func names(r trace.Source, id trace.StackID) (list []string) {
	for ; id != 0; id = r.Node(id).Parent {
		for _, f := range r.Symbols(id) {
			list = append(list, f.Func)
		}
	}
	return list
}

// contended counts waits for a lock by threads of this name, with their function, held by another thread of that name.
func contended(t *testing.T, r trace.Source, waiter, function, owner string) (n int) {
	t.Helper()
	threads := r.Threads()
	if err := trace.Events(r, func(e *trace.Event) error {
		if e.Kind == trace.KindWait && threads[e.Thread-1].Name == waiter && e.Owner != 0 && threads[e.Owner-1].Name == owner &&
			strings.Contains(strings.Join(names(r, e.Stack), " "), function) {
			n++
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestKeep: a flight recorder writes nothing to the working directory until it is asked; a dump is an ordinary recording
// with the waits, their owners and the names of functions; at the end nothing is left, and the summary says what the
// window held.
func TestKeep(t *testing.T) {
	s := startFlight(t, "--keep", "60s")
	pid := s.target(t, "flight")
	await(t, "hbtrace ps lists the session", func() bool {
		out, err := s.hbtrace(t, "ps")
		return err == nil && strings.Contains(out, fmt.Sprintf("flight-%d", s.PID())) && strings.Contains(out, " "+strconv.Itoa(pid)+" ")
	})
	await(t, "a dump with a wait of a reader for the writer", func() bool {
		r := s.dump(t, "a.hbt", "-q")
		return contended(t, r, "reader", "reader", "writer") > 0
	})
	openDump(t, filepath.Join(s.dir, "a.hbt"))
	os.Remove(filepath.Join(s.dir, "a.hbt"))
	if left, _ := filepath.Glob(filepath.Join(s.dir, "*")); len(left) > 0 {
		t.Errorf("the recorder wrote %q", left)
	}
	s.terminate(t)
	if left, _ := filepath.Glob(filepath.Join(os.Getenv("XDG_RUNTIME_DIR"), "hbtrace", "*")); len(left) > 0 {
		t.Errorf("left of the session: %q", left)
	}
	if left, _ := filepath.Glob(filepath.Join(s.dir, "*")); len(left) > 0 {
		t.Errorf("the recorder wrote %q at its end", left)
	}
	if out, err := s.hbtrace(t, "dump"); err == nil || !strings.Contains(out, "no session is recording") || strings.Count(out, "\n") != 1 {
		t.Errorf("a dump of nothing: %v, %q", err, out)
	}
}
