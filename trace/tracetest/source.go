// The in-memory trace.Source.

package tracetest

import "github.com/hbtrace/hbtrace/trace"

// Source is a recording in memory. It implements [trace.Source].
type Source struct {
	meta    trace.Meta
	stats   trace.Stats
	procs   []trace.Process
	threads []trace.Thread
	modules []trace.Module
	nodes   []trace.Node
	events  []trace.Event
	symbols map[trace.Addr][]trace.SymFrame
}

var _ trace.Source = (*Source)(nil)

// Meta implements [trace.Source].
func (s *Source) Meta() *trace.Meta { return &s.meta }

// Stats implements [trace.Source].
func (s *Source) Stats() *trace.Stats { return &s.stats }

// Processes implements [trace.Source].
func (s *Source) Processes() []trace.Process { return s.procs }

// Threads implements [trace.Source].
func (s *Source) Threads() []trace.Thread { return s.threads }

// Modules implements [trace.Source].
func (s *Source) Modules() []trace.Module { return s.modules }

// Nodes implements [trace.Source].
func (s *Source) Nodes() int { return len(s.nodes) }

// Node implements [trace.Source].
func (s *Source) Node(id trace.StackID) trace.Node {
	if id == 0 || int64(id) > int64(len(s.nodes)) {
		return trace.Node{}
	}
	return s.nodes[id-1]
}

// EventBatches implements [trace.Source]. As a reader of a file would, it reuses one Event for all calls.
func (s *Source) EventBatches(f func([]trace.Event, func()) error) error {
	return trace.InBatches(s.each, f)
}

func (s *Source) each(f func(*trace.Event) error) error {
	var e trace.Event
	for i := range s.events {
		e = s.events[i]
		if err := f(&e); err != nil {
			return err
		}
	}
	return nil
}

// Symbols implements [trace.Source].
func (s *Source) Symbols(id trace.StackID) []trace.SymFrame {
	n := s.Node(id)
	if id == 0 || n.How == trace.HowMark {
		return nil
	}
	return s.symbols[n.Addr]
}

// Summary implements [trace.Source].
func (s *Source) Summary() []byte { return nil }
