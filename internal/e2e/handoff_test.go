package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hbtrace/hbtrace/internal/testprog"
	"github.com/hbtrace/hbtrace/trace"
)

// handoffPassed is how many recorded waits for a descriptor are passed over, at most, when nobody was found before (hooks/handoff.h).
const handoffPassed = 63

// TestHandoffLater: a descriptor that another process writes to is asked about less and less; nobody is named. When threads of the process begin
// to write, they are found again after so many waits at most; those before name nobody, and nobody wrong.
func TestHandoffLater(t *testing.T) {
	t.Parallel()
	// By chance the first wait may be one of those that are looked at.
	for range 3 {
		if handoffLater(t) > 0 {
			return
		}
	}
	t.Error("three times the very first wait named a thread: descriptors for which nobody was found are asked about every time")
}

// handoffLater is the number of the first wait that names a thread.
func handoffLater(t *testing.T) int {
	const rounds = 300
	exe, file := testprog.BuildFile(t, "../../bench/locks/src/truth.c"), filepath.Join(t.TempDir(), "truth")
	s := start(t, testprog.Command{Args: []string{exe, "pipe-later", fmt.Sprint(rounds), file}})
	if r := s.finish(t); r.Code != 0 {
		t.Fatalf("exit %d: %s", r.Code, r.Stderr)
	}
	r := s.openTrace(t)
	tids := map[trace.ThreadID]int{}
	for _, th := range r.Threads() {
		tids[th.ID] = th.TID
	}
	reads := map[int][]trace.Event{}
	if err := trace.Events(r, func(e *trace.Event) error {
		if e.Kind == trace.KindCall && r.Meta().Hooks[e.Hook].Name == "read" {
			reads[tids[e.Thread]] = append(reads[tids[e.Thread]], *e)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, after, named, first := 0, 0, 0, -1
	for line := range strings.Lines(string(text)) {
		var scenario string
		var tid, releaser int
		var from, to, object int64
		if _, err := fmt.Sscan(line, &scenario, &tid, &from, &to, &object, &releaser); err != nil {
			t.Fatalf("truth %q: %v", line, err)
		}
		i := slices.IndexFunc(reads[tid], func(e trace.Event) bool { return int64(e.Start) >= from-100e3 && int64(e.Time) <= to+100e3 })
		if i < 0 {
			continue // too short for a recorded call
		}
		e := reads[tid][i]
		switch {
		case releaser == 0:
			before++
			if e.Releaser != 0 {
				t.Errorf("what another process wrote was written by thread %d", tids[e.Releaser])
			}
			continue
		case e.Releaser == 0:
		case tids[e.Releaser] != releaser:
			t.Errorf("wait %d was ended by thread %d, not %d", after, releaser, tids[e.Releaser])
		default:
			if named++; first < 0 {
				first = after
			}
		}
		after++
	}
	t.Logf("%d waits for the other process, %d for threads; the first that names one is number %d; %d do", before, after, first, named)
	if before < 2*handoffPassed || after < 2*handoffPassed {
		t.Fatalf("%d waits for the other process and %d for threads are too few to tell", before, after)
	}
	if first < 0 || first > handoffPassed {
		t.Errorf("the first wait that names a thread is number %d, want 0 to %d", first, handoffPassed)
	}
	if late := after - max(first, 0); named*20 < late*19 {
		t.Errorf("of %d waits from then on %d name a thread", late, named)
	}
	return first
}

// TestHandoffReused: descriptors whose numbers come to mean others within the time for which the agent believes what they were. Who wrote to the
// first is named, and nobody for the second, which another process wrote to while a thread wrote to the number that the first's other end had.
func TestHandoffReused(t *testing.T) {
	t.Parallel()
	exe := testprog.BuildFile(t, "../testprog/src/fdreuse.c")
	s := start(t, testprog.Command{Args: []string{exe}})
	if r := s.finish(t); r.Code != 0 {
		t.Fatalf("exit %d: %s", r.Code, r.Stderr)
	}
	r := s.openTrace(t)
	const first, rounds = 100, 40
	named, unnamed := 0, 0
	if err := trace.Events(r, func(e *trace.Event) error {
		if e.Kind != trace.KindCall || e.Object < first || e.Object >= first+2*rounds {
			return nil
		}
		switch name := r.Meta().Hooks[e.Hook].Name; {
		case name == "read" && e.Releaser != 0:
			named++
		case name == "readv" && e.Releaser == 0:
			unnamed++
		case name == "readv":
			t.Errorf("descriptor %d was written to by another process, not by thread %d", e.Object, e.Releaser)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	t.Logf("of %d waits for a thread %d name one; of as many for another process %d name nobody", rounds, named, unnamed)
	if named < rounds/2 || unnamed < rounds/2 {
		t.Errorf("of %d waits each, %d for a thread name one and %d for another process are recorded: too few to tell", rounds, named, unnamed)
	}
}
