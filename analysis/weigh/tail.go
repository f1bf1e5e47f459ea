// The place of CPU time that a thread used after its last sample.

package weigh

import (
	"github.com/hbtrace/hbtrace/analysis/frames"
	"github.com/hbtrace/hbtrace/trace"
)

// Tails knows the nodes that name a start routine's first instruction: those can be symbolised.
type Tails struct{ nodeAt map[trace.Addr]trace.StackID }

// NewTails looks for the start routines of src's threads.
func NewTails(src trace.Source) *Tails {
	t := &Tails{nodeAt: map[trace.Addr]trace.StackID{}}
	threads := src.Threads()
	for i := range threads {
		if a := threads[i].StartRoutine; a != (trace.Addr{}) {
			t.nodeAt[a] = 0
		}
	}
	if len(t.nodeAt) == 0 {
		return t
	}
	for id := trace.StackID(1); int64(id) <= int64(src.Nodes()); id++ {
		n := src.Node(id)
		if n.How != trace.HowExact || n.Parent != 0 {
			continue
		}
		if at, ok := t.nodeAt[n.Addr]; ok && at == 0 {
			t.nodeAt[n.Addr] = id
		}
	}
	return t
}

// Stack is where the CPU time of a thread's exit e goes: the event's own stack, or that of the thread's start routine, or
// the thread's last stack; 0 where there is none of these.
func (t *Tails) Stack(tab *frames.Table, e *trace.Event, routine trace.Addr, last trace.StackID) trace.StackID {
	switch {
	case tab.Valid(e.Stack):
		return e.Stack
	case t.nodeAt[routine] != 0:
		return t.nodeAt[routine]
	}
	return last
}
