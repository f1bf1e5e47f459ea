package top

import (
	"github.com/hbtrace/hbtrace/live"
	"github.com/hbtrace/hbtrace/symbols"
	"github.com/hbtrace/hbtrace/trace"
)

// Names finds the functions of a session's snapshots, and remembers them from one to the next.
type Names struct {
	resolver *symbols.Resolver
	known    map[trace.Addr][]trace.SymFrame
	vars     map[trace.Addr]*trace.Variable // nil: none
	added    map[trace.ModuleID]bool
}

// NewNames returns a Names. Close it.
func NewNames() *Names {
	return &Names{
		resolver: symbols.NewResolver(symbols.Options{Cache: symbols.CacheDir()}),
		known:    map[trace.Addr][]trace.SymFrame{}, vars: map[trace.Addr]*trace.Variable{}, added: map[trace.ModuleID]bool{},
	}
}

// Close lets go of the files that names were read from.
func (n *Names) Close() error { return n.resolver.Close() }

// lookUp finds what is not known yet of a snapshot: many addresses in one go are cheaper than one by one.
func (n *Names) lookUp(s *live.Snapshot) {
	for _, m := range s.Modules {
		if !n.added[m.ID] {
			n.added[m.ID] = true
			n.resolver.Add(m) // what cannot be read appears as module+0xoffset
		}
	}
	code, data := map[trace.ModuleID][]uint64{}, map[trace.ModuleID][]uint64{}
	for _, node := range s.Nodes {
		at := trace.Addr{Module: node.Addr.Module, Off: node.Lookup()}
		if _, ok := n.known[at]; !ok && at.Module != 0 && node.How != trace.HowMark {
			n.known[at] = nil
			code[at.Module] = append(code[at.Module], at.Off)
		}
	}
	for _, t := range s.Threads {
		if _, ok := n.vars[t.Place]; !ok && t.Place.Module != 0 {
			n.vars[t.Place] = nil
			data[t.Place.Module] = append(data[t.Place.Module], t.Place.Off)
		}
	}
	for m, addrs := range code {
		for i, frames := range n.resolver.Resolve(m, addrs) {
			n.known[trace.Addr{Module: m, Off: addrs[i]}] = frames
		}
	}
	for m, addrs := range data {
		for off, v := range n.resolver.Variables(m, addrs) {
			n.vars[trace.Addr{Module: m, Off: off}] = &v
		}
	}
}

// source is a snapshot as a recording of no events: what names functions everywhere else names them here too.
type source struct {
	*live.Snapshot
	names *Names
	meta  trace.Meta
}

var _ trace.Source = (*source)(nil)

func (s *source) Meta() *trace.Meta          { return &s.meta }
func (s *source) Stats() *trace.Stats        { return &trace.Stats{} }
func (s *source) Processes() []trace.Process { return s.Snapshot.Processes }
func (s *source) Modules() []trace.Module    { return s.Snapshot.Modules }
func (s *source) Nodes() int                 { return len(s.Snapshot.Nodes) }

func (s *source) Threads() []trace.Thread {
	out := make([]trace.Thread, len(s.Snapshot.Threads))
	for i := range out {
		out[i] = s.Snapshot.Threads[i].Thread
	}
	return out
}

func (s *source) Node(id trace.StackID) trace.Node {
	if id == 0 || int(id) > len(s.Snapshot.Nodes) {
		return trace.Node{}
	}
	return s.Snapshot.Nodes[id-1]
}

func (s *source) EventBatches(func([]trace.Event, func()) error) error { return nil }

func (s *source) Summary() []byte { return nil }

func (s *source) Symbols(id trace.StackID) []trace.SymFrame {
	n := s.Node(id)
	return s.names.known[trace.Addr{Module: n.Addr.Module, Off: n.Lookup()}]
}
