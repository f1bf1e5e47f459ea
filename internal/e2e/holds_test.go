package e2e

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/hbtrace/hbtrace/internal/testprog"
	"github.com/hbtrace/hbtrace/trace"
)

// TestHolds: a wait's releaser is known with the place where it had taken the lock, once the lock was waited for.
func TestHolds(t *testing.T) {
	t.Parallel()
	exe := testprog.BuildFile(t, "../../bench/locks/src/truth.c")
	s := start(t, testprog.Command{Args: []string{exe, "mutex", "100", filepath.Join(t.TempDir(), "truth")}})
	if r := s.finish(t); r.Code != 0 {
		t.Fatalf("exit %d: %s", r.Code, r.Stderr)
	}
	r := s.openTrace(t)
	type ended struct {
		by trace.ThreadID
		at trace.Ns
	}
	taken := map[ended]string{}
	var waits []ended
	if err := trace.Events(r, func(e *trace.Event) error {
		switch {
		case e.Kind == trace.KindHold:
			for id := e.Stack; id != 0; id = r.Node(id).Parent {
				for _, f := range r.Symbols(id) {
					if strings.HasPrefix(f.Func, "take_") {
						taken[ended{e.Thread, e.Time}] = f.Func
					}
				}
			}
		case e.Kind == trace.KindWait && r.Meta().Hooks[e.Hook].Name == "pthread_mutex_lock" && e.Time-e.Start >= 50e3:
			waits = append(waits, ended{e.Releaser, e.Release})
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	known, places := 0, map[string]int{}
	for _, w := range waits {
		if f := taken[w]; f != "" {
			known++
			places[f]++
		}
	}
	t.Logf("%d of %d waits: taken in %v", known, len(waits), places)
	if known*10 < len(waits)*9 || len(places) != 3 {
		t.Errorf("of %d waits for a lock that three functions take, %d say in which: %v", len(waits), known, places)
	}
}
