package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hbtrace/hbtrace/internal/perfettotest"
	"github.com/hbtrace/hbtrace/internal/testprog"
	"github.com/hbtrace/hbtrace/kernel"
	"github.com/hbtrace/hbtrace/trace"
)

// TestKernel: the kernel's account of a program whose threads wait for each other in a known way is in the recording,
// on the same clock, and names the same threads.
func TestKernel(t *testing.T) {
	t.Parallel()
	if err := kernel.Probe(); err != nil {
		t.Skipf("needs the kernel's scheduling events: %v", err)
	}
	exe := testprog.BuildFile(t, "../../bench/locks/src/truth.c")
	// Whether threads meet at the locks is the machine's doing: of 40 waits there are fewer where it is busy. The program knows.
	var s *session
	long := 0
	for try := 0; long < 10; try++ {
		if try == 5 {
			t.Fatalf("the program waited %d times only for 2 ms or more", long)
		}
		truth := filepath.Join(t.TempDir(), "truth")
		s = start(t, testprog.Command{Args: []string{exe, "chain", "10", truth}}, "--kernel", "on")
		if r := s.finish(t); r.Code != 0 {
			t.Fatalf("exit %d: %s", r.Code, r.Stderr)
		}
		lines, err := os.ReadFile(truth)
		if err != nil {
			t.Fatal(err)
		}
		long = 0
		for line := range strings.Lines(string(lines)) {
			var name string
			var tid int
			var from, to int64
			if _, err := fmt.Sscan(line, &name, &tid, &from, &to); err != nil {
				t.Fatalf("truth %q: %v", line, err)
			}
			if to-from >= 2e6 {
				long++
			}
		}
	}
	r := s.openTrace(t)
	var waits []trace.Event
	offs := map[trace.ThreadID][]trace.Event{}
	kernelFrames := 0
	if err := trace.Events(r, func(e *trace.Event) error {
		switch {
		case e.Kind == trace.KindWait && r.Meta().Hooks[e.Hook].Name == "pthread_mutex_lock" && e.Time-e.Start >= 1e6:
			waits = append(waits, *e)
		case e.Kind == trace.KindOff:
			offs[e.Thread] = append(offs[e.Thread], *e)
			for id := e.Stack; id != 0; id = r.Node(id).Parent {
				if y := r.Symbols(id); len(y) > 0 && y[0].Func == "do_futex" {
					kernelFrames++
				}
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if len(waits) < long {
		t.Fatalf("%d waits for mutexes of 1 ms or more, and the program knows of %d of 2", len(waits), long)
	}
	letGo := func(w trace.Event) trace.Ns {
		if w.Release != 0 {
			return w.Release
		}
		return w.Time
	}
	agree := 0
	for _, w := range waits {
		found := false
		for _, o := range offs[w.Thread] {
			// The thread left its CPU a little after it began to wait, and was woken by whoever let go: how long it then waited for a CPU
			// is the machine's doing.
			if o.Start >= w.Start && o.Time <= w.Time && o.Result == trace.OffInterruptible && o.Release-o.Start > (letGo(w)-w.Start)/2 {
				found = found || o.Releaser == w.Releaser
			}
		}
		if found {
			agree++
		} else {
			t.Logf("thread %d, wait %d to %d, let go by %d: the kernel saw %+v", w.Thread, w.Start, w.Time, w.Releaser, offs[w.Thread])
		}
	}
	// A thread that is preempted on its way into the wait, or overtaken after its wake-up, leaves its CPU more than once.
	if agree*4 < len(waits)*3 {
		t.Errorf("the kernel saw %d of %d waits, and their releasers wake them", agree, len(waits))
	}
	if kernelFrames == 0 {
		if _, err := kernel.Symbols(nil); err == nil {
			t.Error("no time off a CPU in the kernel's do_futex")
		}
	}
	rows := perfettotest.QueryAll(t, s.prefix+".perfetto-trace",
		`select count(*) from sched join thread using (utid) where name glob 't[0-4]'`,
		`select count(*) from thread_state s join thread t using (utid) join thread w on s.waker_utid = w.utid where t.name = 't3' and w.name = 't4'`)
	for i, what := range []string{"stretches on a CPU", "wake-ups of t3 by t4"} {
		if rows[i][0][0] == "0" {
			t.Errorf("Perfetto sees no %s", what)
		}
	}
	// Nothing of ours stays in the kernel: what is loaded hangs on the recorder's descriptors.
	if left, err := os.ReadDir("/sys/fs/bpf"); err == nil && len(left) > 0 {
		t.Logf("pinned in /sys/fs/bpf by somebody: %v", left)
	}
}
