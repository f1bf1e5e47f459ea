package e2e

// gotruth_test.go: what is recorded of a Go program, against the Go runtime's own execution trace of the same run.

import (
	"cmp"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hbtrace/hbtrace/internal/testprog"
	"github.com/hbtrace/hbtrace/internal/validate"
	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/tracefile"
)

// seenWait is a wait of a goroutine as one of the two saw it.
type seenWait struct {
	goroutine, waker int // by the runtime's numbers; waker 0: none
	hook             string
	start, end       trace.Ns
}

// goroutineWaits are those of the program's own goroutines that are longer than least and lie in [from, to], by start.
func goroutineWaits(t *testing.T, r *tracefile.Reader, least time.Duration, from, to trace.Ns) (out []seenWait) {
	t.Helper()
	threads := r.Threads()
	if err := trace.Events(r, func(e *trace.Event) error {
		if e.Kind != trace.KindWait && e.Kind != trace.KindCall || !threads[e.Thread-1].Goroutine {
			return nil
		}
		w := seenWait{goroutine: threads[e.Thread-1].TID, hook: r.Meta().Hooks[e.Hook].Name, start: e.Start, end: e.Time}
		if e.Releaser != 0 {
			w.waker = threads[e.Releaser-1].TID
		}
		mains := strings.HasPrefix(threads[e.Thread-1].Name, "main.") || w.goroutine == 1
		if mains && w.hook != "syscall" && time.Duration(e.Time-e.Start) >= least && e.Start >= from && (e.Time <= to || e.Flags&trace.FlagOpen != 0) {
			out = append(out, w)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(out, func(a, b seenWait) int {
		return cmp.Or(cmp.Compare(a.goroutine, b.goroutine), cmp.Compare(a.start, b.start))
	})
	return out
}

// match finds the wait of the same goroutine for the same reason that holds the middle of w.
func match(w seenWait, in []seenWait) *seenWait {
	middle := w.start + (w.end-w.start)/2
	for i := range in {
		if x := &in[i]; x.goroutine == w.goroutine && x.hook == w.hook && x.start <= middle && middle <= x.end {
			return x
		}
	}
	return nil
}

// TestGoTruth: both see the same run, so no verdict depends on how long anything took. Clocks are read some 100 ns apart; where
// the thread is preempted in between, two lengths differ, which is rare.
func TestGoTruth(t *testing.T) {
	t.Parallel()
	prog := buildGo(t, "gotrace", nil)
	file := filepath.Join(t.TempDir(), "trace.out")
	s := start(t, testprog.Command{Args: []string{prog, file}})
	if r := s.finish(t); r.Status() != 0 {
		t.Fatal(r)
	}
	ours := s.openTrace(t).Reader
	imported := filepath.Join(t.TempDir(), "truth.hbt")
	if out, err := exec.Command(testprog.Hbtrace(t), "import", "-o", imported, file).CombinedOutput(); err != nil {
		t.Fatalf("import: %v\n%s", err, out)
	}
	if err := validate.File(imported); err != nil {
		t.Error(err)
	}
	truth, err := tracefile.Open(imported)
	if err != nil {
		t.Fatal(err)
	}
	defer truth.Close()
	from, to := truth.Meta().StartNs, truth.Meta().EndNs
	if from < ours.Meta().StartNs || to > ours.Meta().EndNs {
		t.Skip("the execution trace has no clock in common with the recording: it was made by a Go before 1.25")
	}
	const kept = time.Millisecond // the program's waits last for 2 ms and more; the threshold is 100 us
	real, seen := goroutineWaits(t, truth, kept, from, to), goroutineWaits(t, ours, kept, from, to)
	all, allReal := goroutineWaits(t, ours, 0, from, to), goroutineWaits(t, truth, 0, from, to)
	if len(real) < 150 {
		t.Fatalf("%d waits in the execution trace: the program did not wait as it should", len(real))
	}
	var edges, equal, near int
	var trueNs, ourNs trace.Ns
	for _, w := range real {
		x := match(w, all)
		if x == nil {
			t.Errorf("missing: %+v", w)
			continue
		}
		if w.waker != 0 || x.waker != 0 {
			edges++
			if w.waker == x.waker {
				equal++
			} else {
				t.Logf("the waker differs: %+v, recorded %+v", w, *x)
			}
		}
		if d := (min(x.end, to) - x.start) - (w.end - w.start); max(d, -d) < trace.Ns(100*time.Microsecond) {
			near++
			trueNs, ourNs = trueNs+w.end-w.start, ourNs+min(x.end, to)-x.start
		}
	}
	for _, w := range seen {
		if match(w, allReal) == nil {
			t.Errorf("made up: %+v", w)
		}
	}
	if equal*100 < edges*99 || edges < 50 {
		t.Errorf("%d of %d wakers are right", equal, edges)
	}
	if near*100 < len(real)*95 {
		t.Errorf("of %d waits %d are as long as they were", len(real), near)
	}
	if d := trueNs - ourNs; max(d, -d)*100 > trueNs {
		t.Errorf("waited for %d ns, recorded %d", trueNs, ourNs)
	}
	t.Logf("%d waits, %d wakers of which %d are equal, %d ns waited, %d recorded", len(real), edges, equal, trueNs, ourNs)
}
