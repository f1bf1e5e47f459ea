package exectrace

import (
	"slices"
	"strings"

	"github.com/hbtrace/hbtrace/trace"
	exp "golang.org/x/exp/trace"
)

// module stands for the program: a trace has its functions' names and no more.
const module trace.ModuleID = 1

// stacks is the recording's table of stacks. The trace has a frame for each inlined call; those of one address are one node.
type stacks struct {
	nodes     map[trace.Node]trace.StackID
	known     map[exp.Stack]trace.StackID
	next      trace.StackID
	seen      map[uint64]struct{} // addresses with symbols
	addresses []uint64
	symbols   [][]trace.SymFrame
	lo, hi    uint64
}

func newStacks() *stacks {
	return &stacks{nodes: map[trace.Node]trace.StackID{}, known: map[exp.Stack]trace.StackID{}, next: 1, seen: map[uint64]struct{}{}, lo: 1<<64 - 1}
}

// root is the function that a stack began with; "" of none.
func root(s exp.Stack) (name string) {
	for f := range s.Frames() {
		if f.Func != "runtime.goexit" {
			name = f.Func
		}
	}
	return name
}

// physical is a frame of the machine's stack.
type physical struct {
	pc     uint64
	frames []trace.SymFrame // innermost first
}

// inRuntime: what every wait ends in says nothing of the program.
func inRuntime(name string) bool {
	return strings.HasPrefix(name, "runtime.") || strings.HasPrefix(name, "sync.") || strings.HasPrefix(name, "internal/sync.") || name == "time.Sleep"
}

// push puts a stack into the table, without the runtime's own frames at its leaf where others are left.
func (s *stacks) push(m *importer, stack exp.Stack) trace.StackID {
	if stack == exp.NoStack {
		return 0
	}
	if id, ok := s.known[stack]; ok {
		return id
	}
	var all []physical
	for f := range stack.Frames() {
		sym := trace.SymFrame{Func: f.Func, Linkage: f.Func, File: f.File, Line: int(f.Line)}
		// A function is not inlined into itself: the same again is a recursion.
		if n := len(all); n > 0 && all[n-1].pc == f.PC && !slices.ContainsFunc(all[n-1].frames, func(x trace.SymFrame) bool { return x.Func == f.Func }) {
			all[n-1].frames[len(all[n-1].frames)-1].Inlined = true
			all[n-1].frames = append(all[n-1].frames, sym)
		} else {
			all = append(all, physical{f.PC, []trace.SymFrame{sym}})
		}
	}
	leaf := 0
	for leaf < len(all) && inRuntime(all[leaf].frames[len(all[leaf].frames)-1].Func) {
		leaf++
	}
	if leaf == len(all) {
		leaf = 0
	}
	var id trace.StackID
	for i := len(all) - 1; i >= leaf; i-- {
		id = s.node(m, id, all[i])
	}
	s.known[stack] = id
	return id
}

func (s *stacks) node(m *importer, parent trace.StackID, p physical) trace.StackID {
	n := trace.Node{Parent: parent, Addr: trace.Addr{Module: module, Off: p.pc}, How: trace.HowExact}
	if id, ok := s.nodes[n]; ok {
		return id
	}
	id := s.next
	s.next++
	s.nodes[n] = id
	if err := m.w.PutNode(id, n); err != nil && m.failed == nil {
		m.failed = err
	}
	if _, ok := s.seen[p.pc]; !ok {
		s.seen[p.pc] = struct{}{}
		s.addresses, s.symbols = append(s.addresses, p.pc), append(s.symbols, p.frames)
		s.lo, s.hi = min(s.lo, p.pc), max(s.hi, p.pc)
	}
	return id
}
