package stacktable

import (
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/hbtrace/hbtrace/trace"
)

// TestCollect takes back what no root needs, and nothing else.
func TestCollect(t *testing.T) {
	tab := New(Options{})
	at := func(off uint64) trace.Addr { return trace.Addr{Module: 1, Off: off} }
	push := func(offs ...uint64) (id trace.StackID) {
		for _, o := range offs {
			id = tab.Push(id, at(o), trace.HowTable)
		}
		return id
	}
	a, b := push(1, 2, 3), push(1, 2, 4, 5) // 1 2 3, and 4 5 under 2
	c := push(6, 7)
	if a != 3 || b != 5 || c != 7 {
		t.Fatalf("ids %d %d %d", a, b, c)
	}
	var gone []Made
	n := tab.Collect(func(mark func(trace.StackID)) {
		mark(b)
		mark(b)
		mark(0)
		mark(99) // never given out
	}, func(id trace.StackID, n trace.Node) { gone = append(gone, Made{id, n}) })
	want := []Made{
		{3, trace.Node{Parent: 2, Addr: at(3), How: trace.HowTable}},
		{6, trace.Node{Addr: at(6), How: trace.HowTable}},
		{7, trace.Node{Parent: 6, Addr: at(7), How: trace.HowTable}},
	}
	if n != 3 || len(gone) != 3 || gone[0] != want[0] || gone[1] != want[1] || gone[2] != want[2] {
		t.Errorf("took back %d: %+v", n, gone)
	}
	if s := tab.Stats(); s.Nodes != 4 || s.Made != 7 || s.Collected != 3 || tab.Len() != 4 {
		t.Errorf("stats %+v", s)
	}
	if tab.Node(a) != (trace.Node{}) || tab.Depth(a) != 0 {
		t.Errorf("a node that was taken back is still there: %+v", tab.Node(a))
	}
	if got := push(1, 2, 4, 5); got != b {
		t.Errorf("a root has id %d now, had %d", got, b)
	}
	if made, _ := tab.AppendMade(nil, 0); len(made) != 0 {
		t.Errorf("a lap that made nothing: %+v", made)
	}
	// Ids come back in ascending order, then new ones; a parent may be above its child.
	d := push(1, 2, 4, 5, 10, 11, 12, 13)
	var ids []trace.StackID
	made, last := tab.AppendMade(nil, 0)
	for _, m := range made {
		ids = append(ids, m.ID)
	}
	if len(ids) != 4 || ids[0] != 3 || ids[1] != 6 || ids[2] != 7 || ids[3] != 8 || d != 8 || last != 8 ||
		made[0].Parent != b {
		t.Errorf("made %+v up to %d, stack %d", made, last, d)
	}
	if tab.Depth(d) != 8 {
		t.Errorf("depth %d", tab.Depth(d))
	}
	if made, _ = tab.AppendMade(nil, 7); len(made) != 1 || made[0].ID != 8 {
		t.Errorf("made since 7: %+v", made)
	}
	// A parent that was taken back is none.
	tab.Collect(func(func(trace.StackID)) {}, nil)
	if tab.Len() != 0 {
		t.Errorf("%d nodes without a root", tab.Len())
	}
	if got := tab.Push(d, at(1), trace.HowTable); got != d || tab.Stats().Refused != 1 {
		t.Errorf("pushed on a node that was taken back: %d, %+v", got, tab.Stats())
	}
}

// TestCollectAtEveryFill collects at all sizes around the words of the bitmap and at the cap.
func TestCollectAtEveryFill(t *testing.T) {
	for limit := 1; limit < 200; limit++ {
		tab := New(Options{MaxNodes: limit})
		off := uint64(0)
		for lap := range 5 {
			var ids []trace.StackID
			for tab.Room() > 0 {
				off++
				ids = append(ids, tab.Push(0, trace.Addr{Off: off}, trace.HowFP))
			}
			if tab.Push(0, trace.Addr{Off: 1 << 40}, trace.HowFP) != 0 || tab.Len() != limit {
				t.Fatalf("limit %d, lap %d: %d nodes in a full table", limit, lap, tab.Len())
			}
			made, _ := tab.AppendMade(nil, 0)
			if len(made) != len(ids) {
				t.Fatalf("limit %d, lap %d: %d made, want %d", limit, lap, len(made), len(ids))
			}
			for i, m := range made {
				if m.ID != ids[i] {
					t.Fatalf("limit %d, lap %d: id %d, want %d", limit, lap, m.ID, ids[i])
				}
			}
			tab.Collect(func(mark func(trace.StackID)) {
				for _, id := range ids[:len(ids)/2] {
					mark(id)
				}
			}, nil)
			if tab.Len() != limit-tab.Room() {
				t.Fatalf("limit %d: %d nodes and room for %d", limit, tab.Len(), tab.Room())
			}
		}
		if s := tab.Stats(); s.Overflow != 5 {
			t.Fatalf("limit %d: %+v", limit, s)
		}
	}
}

// TestEndlessStacks lets ever-new stacks through a table of 64 MB, as a program does that runs for weeks: the newest
// ones are alive, as those in a history of fixed size are. HBTRACE_STRESS=1 makes it 50 million stacks.
func TestEndlessStacks(t *testing.T) {
	const (
		tableBytes = 64 << 20
		perNode    = 22.5
		alive      = 200_000
	)
	stacks := 50_000_000
	limit, window := tableBytes*10/int(perNode*10), alive
	if os.Getenv("HBTRACE_STRESS") == "" {
		stacks, limit, window = stacks/100, limit/50, alive/50
		t.Logf("%d stacks through a table of %d nodes: HBTRACE_STRESS=1 makes it 50 million through 64 MB", stacks, limit)
	}
	tab := New(Options{MaxNodes: limit})
	type stack struct {
		number uint64
		id     trace.StackID
	}
	// Stack n is three callers that it shares with some, two that it shares with few, and a leaf of its own.
	frame := func(n uint64, depth int) trace.Addr {
		return trace.Addr{Module: trace.ModuleID(1 + depth), Off: n >> (max(0, 5-depth) * 3) << 4}
	}
	check := func(s stack) {
		id := s.id
		for d := 5; d >= 0; d-- {
			n := tab.Node(id)
			if n.Addr != frame(s.number, d) {
				t.Fatalf("stack %d, depth %d: %+v", s.number, d, n)
			}
			id = n.Parent
		}
		if id != 0 {
			t.Fatalf("stack %d has callers above its outermost frame", s.number)
		}
	}
	ring := make([]stack, window)
	collections, most := 0, 0
	rng := rand.New(rand.NewPCG(1, 1))
	for n := range uint64(stacks) {
		if tab.Room() < 16 {
			most = max(most, tab.Stats().Bytes)
			collections++
			tab.Collect(func(mark func(trace.StackID)) {
				for _, s := range ring {
					mark(s.id)
				}
			}, nil)
			for range 100 {
				check(ring[rng.IntN(len(ring))])
			}
		}
		s := stack{number: n}
		for d := range 6 {
			s.id = tab.Push(s.id, frame(n, d), trace.HowTable)
		}
		ring[n%uint64(window)] = s
	}
	for _, s := range ring {
		check(s)
		var again trace.StackID
		for d := range 6 {
			again = tab.Push(again, frame(s.number, d), trace.HowTable)
		}
		if again != s.id {
			t.Fatalf("stack %d has ids %d and %d", s.number, s.id, again)
		}
	}
	s := tab.Stats()
	if s.Overflow+s.Refused != 0 || s.Made < uint64(stacks) || collections < 5 {
		t.Errorf("%d collections, %+v", collections, s)
	}
	if bound := int(perNode*float64(limit)) + chunkNodes*nodeBytes + shardCount*firstIndexWords*4; most > bound {
		t.Errorf("the table took %d bytes, want at most %d", most, bound)
	}
	t.Logf(
		"%d collections, %d nodes made, at most %d bytes: %.1f a node",
		collections,
		s.Made,
		most,
		float64(most)/float64(limit),
	)
}

// TestReadBesideCollect reads stacks that are alive while others are taken back and made.
func TestReadBesideCollect(t *testing.T) {
	tab := New(Options{MaxNodes: 20_000})
	var live []trace.StackID
	var id trace.StackID
	for d := range 300 {
		id = tab.Push(id, trace.Addr{Module: 7, Off: uint64(d)}, trace.HowTable)
		live = append(live, id)
	}
	var stop atomic.Bool
	var wg sync.WaitGroup
	for range 2 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for !stop.Load() {
				for d, id := range live {
					if n := tab.Node(id); n.Addr != (trace.Addr{Module: 7, Off: uint64(d)}) || tab.Depth(id) != d+1 {
						t.Errorf("stack %d reads %+v, depth %d", id, n, tab.Depth(id))
						return
					}
				}
			}
		}()
	}
	for off := uint64(0); off < 400_000; off++ {
		if tab.Room() == 0 {
			tab.Collect(func(mark func(trace.StackID)) { mark(live[len(live)-1]) }, nil)
		}
		tab.Push(live[off%300], trace.Addr{Module: 8, Off: off}, trace.HowTable)
	}
	stop.Store(true)
	wg.Wait()
}
