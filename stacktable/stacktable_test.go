package stacktable

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/hbtrace/hbtrace/trace"
)

func TestNodeLayout(t *testing.T) {
	if got := unsafe.Sizeof(node{}); got != nodeBytes {
		t.Errorf("a node takes %d bytes, want %d", got, nodeBytes)
	}
}

func TestPushAndNode(t *testing.T) {
	tab := New(Options{})
	frames := []trace.Node{
		{Addr: trace.Addr{Module: 1, Off: 0x1000}, How: trace.HowTable},
		{Addr: trace.Addr{Module: maxModule, Off: 1<<64 - 1}, How: trace.HowExact},
		{Addr: trace.Addr{}, How: 0},
		{Addr: trace.Addr{Module: 1, Off: 0x1000}, How: trace.HowFP}, // differs from the first in How alone
		{Addr: trace.Addr{Module: 2, Off: 0x1000}, How: trace.HowFP},
		{Addr: trace.Addr{Off: 12}, How: trace.HowMark},
	}
	for round := range 2 {
		for i, f := range frames {
			if id := tab.Push(0, f.Addr, f.How); id != trace.StackID(i+1) {
				t.Fatalf("round %d: frame %d has id %d", round, i, id)
			}
		}
	}
	leaf := tab.Push(3, frames[0].Addr, frames[0].How)
	if leaf != trace.StackID(len(frames)+1) || tab.Depth(leaf) != 2 || tab.Node(leaf).Parent != 3 {
		t.Errorf("leaf %d: depth %d, node %+v", leaf, tab.Depth(leaf), tab.Node(leaf))
	}
	for i, f := range frames {
		if got := tab.Node(trace.StackID(i + 1)); got != f {
			t.Errorf("node %d = %+v, want %+v", i+1, got, f)
		}
	}
	if tab.Len() != 7 {
		t.Errorf("Len = %d, want 7", tab.Len())
	}
	for _, id := range []trace.StackID{0, 8, 1 << 20, 1<<32 - 1} {
		if n := tab.Node(id); n != (trace.Node{}) || tab.Depth(id) != 0 {
			t.Errorf("Node(%d) = %+v, Depth = %d", id, n, tab.Depth(id))
		}
	}
}

func TestDepthBeyondItsBits(t *testing.T) {
	tab := New(Options{})
	var id trace.StackID
	for i := 1; i <= 3*depthMax; i++ {
		id = tab.Push(id, trace.Addr{Module: 1, Off: 5}, trace.HowFP)
		if got := tab.Depth(id); got != i {
			t.Fatalf("depth %d is said to be %d", i, got)
		}
	}
}

func TestRefused(t *testing.T) {
	tab := New(Options{})
	root := tab.Push(0, trace.Addr{Module: 1, Off: 1}, trace.HowFP)
	for _, c := range []struct {
		parent trace.StackID
		addr   trace.Addr
		how    trace.How
	}{
		{root, trace.Addr{Module: maxModule + 1}, trace.HowFP},
		{root, trace.Addr{Module: 1}, maxHow + 1},
		{77, trace.Addr{Module: 1}, trace.HowFP},
	} {
		if got := tab.Push(c.parent, c.addr, c.how); got != c.parent {
			t.Errorf("Push(%+v) = %d, want the parent", c, got)
		}
	}
	if s := tab.Stats(); s.Refused != 3 || s.Nodes != 1 {
		t.Errorf("stats = %+v", s)
	}
}

func TestOverflow(t *testing.T) {
	const limit = 5000 // above one chunk
	tab := New(Options{MaxNodes: limit})
	for i := range limit {
		if id := tab.Push(0, trace.Addr{Off: uint64(i)}, trace.HowFP); id != trace.StackID(i+1) {
			t.Fatalf("node %d has id %d", i, id)
		}
	}
	for i := range 3 {
		if id := tab.Push(9, trace.Addr{Off: uint64(i)}, trace.HowFP); id != 9 {
			t.Errorf("past the cap: id %d, want the parent", id)
		}
	}
	if id := tab.Push(0, trace.Addr{Off: 3}, trace.HowFP); id != 4 {
		t.Errorf("a full table finds %d, want 4", id)
	}
	if s := tab.Stats(); s.Nodes != limit || s.Overflow != 3 {
		t.Errorf("stats = %+v", s)
	}
}

// TestAgainstMap pushes random frames that often repeat and holds ids and nodes against a map.
func TestAgainstMap(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	tab := New(Options{})
	ids := map[trace.Node]trace.StackID{}
	var nodes []trace.Node
	for range 400_000 {
		n := trace.Node{
			Parent: trace.StackID(rng.IntN(min(len(nodes), 3000) + 1)),
			Addr:   trace.Addr{Module: trace.ModuleID(rng.IntN(4)), Off: uint64(rng.IntN(40)) * 0x1000},
			How:    trace.How(rng.IntN(3)),
		}
		got := tab.Push(n.Parent, n.Addr, n.How)
		want, ok := ids[n]
		if !ok {
			nodes = append(nodes, n)
			want = trace.StackID(len(nodes))
			ids[n] = want
		}
		if got != want {
			t.Fatalf("%+v: id %d, want %d", n, got, want)
		}
	}
	stored, last := tab.AppendMade(nil, 0)
	if len(stored) != len(nodes) || int(last) != len(nodes) {
		t.Fatalf("%d nodes read back up to %d, want %d", len(stored), last, len(nodes))
	}
	for i := range nodes {
		if stored[i] != (Made{trace.StackID(i + 1), nodes[i]}) {
			t.Fatalf("node %d = %+v, want %+v", i+1, stored[i], nodes[i])
		}
	}
	// A directory of chunks and the last chunk are there however few nodes there are: leave them out.
	s := tab.Stats()
	fixed := len(tab.chunks)*8 + chunkNodes*nodeBytes
	if perNode := float64(s.Bytes-fixed) / float64(s.Nodes); perNode > 24 {
		t.Errorf("%.1f bytes a node at %d nodes, want at most 24", perNode, s.Nodes)
	}
}

// TestConcurrent has goroutines push the same stacks in different orders while a reader follows: equal stacks
// must get equal ids, and what Len covers must be whole.
func TestConcurrent(t *testing.T) {
	const workers, stacks, depth = 6, 3000, 12
	tab := New(Options{})
	var leaves [workers][stacks]trace.StackID
	var wg sync.WaitGroup
	done := make(chan struct{})
	for w := range workers {
		wg.Add(1)
		go func() {
			defer wg.Done()
			order := rand.New(rand.NewPCG(uint64(w), 7)).Perm(stacks)
			for _, s := range order {
				var id trace.StackID
				for d := range depth {
					id = tab.Push(id, trace.Addr{Module: 1, Off: uint64(s>>max(0, 12-d)) + 1}, trace.HowTable)
				}
				leaves[w][s] = id
			}
		}()
	}
	go func() { wg.Wait(); close(done) }()
	var stored []Made
	var since trace.StackID
	for last := false; ; {
		stored, since = tab.AppendMade(stored, since)
		if last {
			break
		}
		select {
		case <-done:
			last = true
		default:
		}
	}
	for w := range workers {
		if leaves[w] != leaves[0] {
			t.Fatalf("worker %d got other ids than worker 0", w)
		}
	}
	if len(stored) != tab.Len() {
		t.Fatalf("the reader saw %d nodes of %d", len(stored), tab.Len())
	}
	seen := map[trace.Node]bool{}
	for i, n := range stored {
		if n.Addr.Module != 1 || seen[n.Node] || int(n.ID) != i+1 || n.Parent >= n.ID {
			t.Fatalf("node %d = %+v: torn or twice", i+1, n)
		}
		seen[n.Node] = true
	}
}

// BenchmarkPush looks up frames that are there. The order is drawn beforehand and lies in memory as it is used, so
// that what is measured is the table.
func BenchmarkPush(b *testing.B) {
	for _, size := range []int{1 << 10, 1 << 16, 1 << 20} {
		b.Run(fmt.Sprintf("op=find/order=random/nodes=%d", size), func(b *testing.B) {
			tab := New(Options{})
			nodes := fill(tab, size)
			rand.New(rand.NewPCG(5, 6)).Shuffle(len(nodes), func(i, j int) { nodes[i], nodes[j] = nodes[j], nodes[i] })
			i, from := 0, used()
			for b.Loop() {
				n := &nodes[i&(size-1)]
				tab.Push(n.Parent, n.Addr, n.How)
				i++
			}
			perSecond(b, 1, from)
			s := tab.Stats()
			b.ReportMetric(float64(s.Bytes)/float64(s.Nodes), "B/node")
		})
	}
	// What a recording asks for: a thread's next stack keeps some of its frames, for which the table is not asked, and
	// goes on through callees, of which every function has one that is likely and others that are less and less so.
	b.Run("op=find/order=calls", func(b *testing.B) {
		const deepest = 40
		tab := New(Options{})
		rng := rand.New(rand.NewPCG(7, 8))
		type frame struct {
			depth int // of its parent
			addr  trace.Addr
		}
		walk := make([]frame, 1<<18)
		for i, depth := 0, 0; i < len(walk); {
			depth = max(0, depth-rng.IntN(8))
			for n := 1 + rng.IntN(8); n > 0 && depth < deepest && i < len(walk); n-- {
				callee := bits.TrailingZeros64(rng.Uint64()) / 2
				walk[i] = frame{depth, trace.Addr{Module: 1, Off: uint64(depth*100+callee) * 0x40}}
				i++
				depth++
			}
		}
		var path [deepest + 1]trace.StackID
		i := 0
		step := func() {
			f := &walk[i&(len(walk)-1)]
			path[f.depth+1] = tab.Push(path[f.depth], f.addr, trace.HowTable)
			i++
		}
		for range walk {
			step()
		}
		from := used()
		for b.Loop() {
			step()
		}
		perSecond(b, 1, from)
		b.ReportMetric(float64(tab.Len()), "nodes")
	})
	b.Run("op=insert", func(b *testing.B) {
		b.ReportAllocs()
		tab := New(Options{MaxNodes: 1 << 22})
		i := 0
		for b.Loop() {
			if i++; i%(1<<22) == 0 {
				tab = New(Options{MaxNodes: 1 << 22})
			}
			tab.Push(0, trace.Addr{Module: 1, Off: uint64(i)}, trace.HowTable)
		}
	})
	b.Run("op=path/depth=30", func(b *testing.B) {
		tab, from := New(Options{}), used()
		for b.Loop() {
			var id trace.StackID
			for d := range 30 {
				id = tab.Push(id, trace.Addr{Module: 1, Off: uint64(d) * 0x40}, trace.HowTable)
			}
		}
		perSecond(b, 30, from)
	})
}

// perSecond reports how many nodes a core looks up in a second of processor time, of which `from` had been used before.
func perSecond(b *testing.B, perOp float64, from time.Duration) {
	b.ReportMetric(perOp*float64(b.N)/(used()-from).Seconds()/1e6, "Mnodes/cpu-s")
}

// used is the processor time of this process so far.
func used() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func BenchmarkCollect(b *testing.B) {
	for _, live := range []int{1, 50} {
		b.Run(fmt.Sprintf("nodes=%d/live=%d%%", DefaultMaxNodes, live), func(b *testing.B) {
			tab := New(Options{})
			var ids []trace.StackID
			off := uint64(0)
			for b.Loop() {
				b.StopTimer()
				for tab.Room() > 0 {
					var id trace.StackID
					for range 4 {
						off++
						id = tab.Push(id, trace.Addr{Module: 1, Off: off}, trace.HowTable)
					}
					ids = append(ids, id)
				}
				ids = ids[len(ids)-DefaultMaxNodes/4*live/100:]
				b.StartTimer()
				tab.Collect(func(mark func(trace.StackID)) {
					for _, id := range ids {
						mark(id)
					}
				}, nil)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/DefaultMaxNodes, "ns/node")
		})
	}
}

func BenchmarkNode(b *testing.B) {
	tab := New(Options{})
	const size = 1 << 16
	fill(tab, size)
	i := 0
	var sum uint64
	for b.Loop() {
		sum += tab.Node(trace.StackID(i*40503&(size-1) + 1)).Addr.Off
		i++
	}
	_ = sum
}

func fill(tab *Table, size int) []trace.Node {
	rng := rand.New(rand.NewPCG(3, 4))
	nodes := make([]trace.Node, 0, size)
	for tab.Len() < size {
		n := trace.Node{
			Parent: trace.StackID(rng.IntN(len(nodes)/2 + 1)),
			Addr:   trace.Addr{Module: trace.ModuleID(1 + rng.IntN(8)), Off: uint64(rng.IntN(1 << 22))},
			How:    trace.HowTable,
		}
		if id := tab.Push(n.Parent, n.Addr, n.How); int(id) > len(nodes) {
			nodes = append(nodes, n)
		}
	}
	return nodes
}
