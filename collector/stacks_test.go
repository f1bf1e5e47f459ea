package collector

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/hbtrace/hbtrace/segment"
	"github.com/hbtrace/hbtrace/trace"
)

// TestEverNewStacks records a program with more stacks than the stack table holds. Every allocation must have the stack
// that it was made on, although ids were given out many times.
func TestEverNewStacks(t *testing.T) {
	_, r, _ := recordIn(t, Options{
		Command: []string{compile(t, "paths")}, Features: segment.FeatureAlloc, AllocPeriod: 1, maxNodes: 40_000,
	})
	st := r.Stats()
	t.Logf("%d events, %d nodes, %d taken back, lost %d", st.Events, st.Nodes, st.NodesCollected, st.Lost)
	if slices.ContainsFunc(st.Notes, func(n string) bool { return strings.Contains(n, "stack table was full") }) {
		t.Errorf("notes %q", st.Notes)
	}
	if st.NodesCollected == 0 || st.NodesCap != 40_000 || st.NodeBytes == 0 || st.NodeBytes > 2<<20 {
		t.Errorf("stats %+v", st)
	}
	whole := 0
	for _, e := range allEvents(t, r) {
		if e.Kind != trace.KindAlloc || e.Size < 256 || e.Size >= 256+1<<16 || e.Stack == 0 {
			continue
		}
		var got string // outermost first
		for id := e.Stack; id != 0; id = r.Node(id).Parent {
			for _, f := range r.Symbols(id) {
				if len(f.Func) == 2 && f.Func[0] == 'p' {
					got = f.Func[1:] + got
				}
			}
		}
		var want string
		for path, d := e.Size-256, 0; d < 8; d++ {
			want += fmt.Sprint(path & 3)
			path >>= 2
		}
		if got != want {
			t.Fatalf("an allocation of %d bytes has stack %q, want %q", e.Size, got, want)
		}
		whole++
	}
	if whole < 1000 {
		t.Errorf("%d allocations with whole stacks", whole)
	}
}
