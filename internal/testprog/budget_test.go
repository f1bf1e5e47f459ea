package testprog

// budget_test.go: how much memory the agent takes in the target, by the kernel's account of the whole process: what is private
// to it under hbtrace and is not when it runs alone. Segment and unwind tables are shared and do not count; what handlers and
// hooks need of threads' stacks is said, and not held against the budget: it is the program's again a moment later.

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/tracefile"
)

// budget is what recording adds, in KiB.
type budget struct{ private, stacks, file float64 }

func TestMemoryBudget(t *testing.T) {
	hb, exe := Hbtrace(t), Build(t, "budget")
	const workers, sleepers = 40, 600
	const noise = 32 // KiB by which the process itself differs from run to run; a thread's memory comes in pages
	added := func(workers, sleepers, depth int, more ...string) budget {
		t.Helper()
		args := append([]string{exe, fmt.Sprint(workers), fmt.Sprint(sleepers), fmt.Sprint(depth)}, more...)
		prefix := filepath.Join(t.TempDir(), "out")
		var b [2]budget
		for i, c := range [][]string{args, append([]string{hb, "run", "-q", "-F", "1000", "-o", prefix, "--"}, args...)} {
			r := Run(t, Command{Args: c})
			if _, err := fmt.Sscanf(string(r.Stdout), "%f KiB private, %f KiB on stacks, %f KiB", &b[i].private, &b[i].stacks, &b[i].file); err != nil || r.Status() != 0 {
				t.Fatal(err, r)
			}
		}
		sampled, threads := withStacks(t, prefix+".hbt")
		// Some that slept are sampled as well, when they end, behind the measurement.
		want := workers + sleepers + 1 + len(more) // with "hot", one that makes the lock so
		if threads != want || sampled < workers {
			t.Errorf("%d threads, %d of them with stacks; want %d and %d", threads, sampled, want, workers)
		}
		return budget{b[1].private - b[0].private, b[1].stacks - b[0].stacks, b[1].file}
	}
	none := added(0, 0, 30)
	fixed := none.private + none.file
	idle := added(1, sleepers, 30)
	perIdle := (idle.private - added(1, 0, 30).private) / sleepers
	t.Logf("fixed: %.0f KiB, %.0f of them the agent's file; a thread that is never sampled: %.2f KiB, and %.2f of its stack", fixed, none.file, perIdle, idle.stacks/sleepers)
	if fixed > 1024 {
		t.Errorf("fixed: %.0f KiB, want at most 1024", fixed)
	}
	if none.file == 0 {
		t.Error("the agent's file was not found among the mappings: nothing was measured")
	}
	if perIdle > 4 {
		t.Errorf("a thread that is never sampled takes %.2f KiB, want at most 4", perIdle)
	}
	for _, depth := range []int{1, 30, 240} {
		one, b := added(1, 0, depth), added(1+workers, 0, depth) // one, for what the first needs next to its own
		per := (b.private - one.private) / workers
		t.Logf("a sampled thread, %d frames deep: %.1f KiB, and %.1f of its stack", depth, per, (b.stacks-one.stacks)/workers)
		if per*workers > 32*workers+noise {
			t.Errorf("a sampled thread, %d frames deep, takes %.1f KiB, want at most 32", depth, per)
		}
		if per < 4 {
			t.Errorf("a sampled thread, %d frames deep, takes %.1f KiB: less than its last stack", depth, per)
		}
	}
	// Where it took locks that others wait for is kept next to (hooks/hold.h).
	one, b := added(1, 0, 30, "hot"), added(1+workers, 0, 30, "hot")
	per := (b.private - one.private) / workers
	t.Logf("one that takes such locks: %.1f KiB", per)
	if per*workers > 32*workers+noise {
		t.Errorf("a thread that takes locks that others wait for takes %.1f KiB, want at most 32", per)
	}
	if per < 28 {
		t.Errorf("a thread that takes locks that others wait for takes %.1f KiB: where it took them is not kept", per)
	}
}

// withStacks counts the threads of a recording, and those next to main threads that left a stack.
func withStacks(t *testing.T, file string) (sampled, threads int) {
	t.Helper()
	src, err := tracefile.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	stacks := map[trace.ThreadID]bool{}
	if err := trace.Events(src, func(e *trace.Event) error {
		if e.Stack != 0 {
			stacks[e.Thread] = true
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for _, th := range src.Threads() {
		if stacks[th.ID] && !th.Main {
			sampled++
		}
	}
	return sampled, len(src.Threads())
}
