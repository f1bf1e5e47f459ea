package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/hbtrace/hbtrace/internal/testprog"
	"github.com/hbtrace/hbtrace/trace"
)

// TestThreadEnds: what destructors of thread_local objects and keys free is free, and the time that they take is the
// thread's.
func TestThreadEnds(t *testing.T) {
	s := start(t, testprog.Command{Args: []string{testprog.Build(t, "tlsend")}, Mark: testprog.NewMark()})
	res := s.finish(t)
	r := s.openTrace(t)
	var cpu, used []int64
	for _, line := range strings.Fields(string(res.Stdout)) {
		var ns int64
		fmt.Sscan(line, &ns)
		cpu = append(cpu, ns)
	}
	for _, th := range r.Threads() {
		if !th.Main {
			used = append(used, th.CPU)
		}
	}
	if res.Status() != 0 || len(cpu) != 2 || len(used) != 2 {
		t.Fatalf("%v: %d times are printed, %d threads recorded", res, len(cpu), len(used))
	}
	for i := range cpu {
		if used[i] < cpu[i] {
			t.Errorf("thread %d used %d ns of CPU before its last destructor ended, %d are recorded", i+1, cpu[i], used[i])
		}
	}
	type place struct {
		proc trace.ProcID
		addr uint64
	}
	live, allocated := map[place]uint64{}, uint64(0)
	threads := map[trace.ThreadID]trace.ProcID{}
	for _, th := range r.Threads() {
		threads[th.ID] = th.Proc
	}
	if err := trace.Events(r, func(e *trace.Event) error {
		at := place{threads[e.Thread], e.Object}
		switch e.Kind {
		case trace.KindAlloc:
			live[at] = e.Weight
			allocated += e.Weight
		case trace.KindFree:
			delete(live, at)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	var left uint64
	for _, w := range live {
		left += w
	}
	if allocated < 300<<20 || left > 8<<20 {
		t.Errorf("%d MiB were allocated and %d are still in use, want 400 and none", allocated>>20, left>>20)
	}
	for _, p := range r.Processes() {
		if p.Doubt.AllocTableFull != 0 {
			t.Errorf("%d frees were not seen", p.Doubt.AllocTableFull)
		}
	}
}
