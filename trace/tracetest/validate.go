// The validator: what must hold in every recording. Tests pass every trace that they make
// through it.

package tracetest

import (
	"errors"
	"fmt"

	"github.com/hbtrace/hbtrace/trace"
)

// maxProblems ends a validation: a broken recorder breaks everything.
const maxProblems = 20

var errEnough = errors.New("… and perhaps more")

// Validate checks that a recording is consistent in itself: ids exist, stacks end, the events of each thread are
// in order, and Same agrees with the stacks. It returns up to 20 problems, joined.
func Validate(src trace.Source) error {
	v := validator{
		src:     src,
		procs:   map[trace.ProcID]bool{},
		threads: map[trace.ThreadID]*threadState{},
		modules: map[trace.ModuleID]bool{},
	}
	v.tables()
	v.nodes()
	err := trace.Events(src, func(e *trace.Event) error {
		v.event(e)
		if len(v.problems) >= maxProblems {
			return errEnough
		}
		return nil
	})
	if err != nil {
		v.problems = append(v.problems, err)
	} else {
		v.account()
	}
	return errors.Join(v.problems...)
}

type validator struct {
	src      trace.Source
	problems []error
	procs    map[trace.ProcID]bool
	threads  map[trace.ThreadID]*threadState
	modules  map[trace.ModuleID]bool
	depth    []uint32 // of node i+1
	events   uint64
}

type threadState struct {
	events  int
	time    trace.Ns
	stack   trace.StackID
	unknown bool // records were lost: the next stack shares nothing that we know of
	exited  bool
}

func (v *validator) add(format string, args ...any) {
	if len(v.problems) < maxProblems {
		v.problems = append(v.problems, fmt.Errorf(format, args...))
	}
}

func (v *validator) tables() {
	m := v.src.Meta()
	if m.StartNs > m.EndNs {
		v.add("meta: the recording ends at %d, before it starts at %d", m.EndNs, m.StartNs)
	}
	for _, p := range v.src.Processes() {
		if p.ID == 0 || v.procs[p.ID] {
			v.add("process %d: id is 0 or there twice", p.ID)
		}
		v.procs[p.ID] = true
		if p.End != 0 && p.End < p.Start {
			v.add("process %d: ends at %d, before it starts at %d", p.ID, p.End, p.Start)
		}
	}
	for _, p := range v.src.Processes() {
		if p.Parent != 0 && !v.procs[p.Parent] || p.Parent == p.ID {
			v.add("process %d: no parent %d", p.ID, p.Parent)
		}
	}
	for _, t := range v.src.Threads() {
		if t.ID == 0 || v.threads[t.ID] != nil {
			v.add("thread %d: id is 0 or there twice", t.ID)
		}
		v.threads[t.ID] = &threadState{}
		if !v.procs[t.Proc] {
			v.add("thread %d: no process %d", t.ID, t.Proc)
		}
		if t.End != 0 && t.End < t.Start {
			v.add("thread %d: ends at %d, before it starts at %d", t.ID, t.End, t.Start)
		}
	}
	for _, t := range v.src.Threads() {
		if t.Parent != 0 && v.threads[t.Parent] == nil {
			v.add("thread %d: no parent %d", t.ID, t.Parent)
		}
	}
	for _, m := range v.src.Modules() {
		if m.ID == 0 || v.modules[m.ID] {
			v.add("module %d: id is 0 or there twice", m.ID)
		}
		v.modules[m.ID] = true
	}
}

func (v *validator) nodes() {
	v.depth = make([]uint32, v.src.Nodes())
	for i := range v.depth {
		id := trace.StackID(i + 1)
		n := v.src.Node(id)
		switch {
		case n.Parent >= id:
			v.add("node %d: its parent %d does not come first", id, n.Parent)
			continue
		case n.How < trace.HowExact || n.How > trace.HowMark:
			v.add("node %d: found in way %d", id, n.How)
		case n.Addr.Module != 0 && !v.modules[n.Addr.Module]:
			v.add("node %d: no module %d", id, n.Addr.Module)
		}
		v.depth[i] = 1 + v.depthOf(n.Parent)
	}
}

func (v *validator) depthOf(id trace.StackID) uint32 {
	if id == 0 || int(id) > len(v.depth) {
		return 0
	}
	return v.depth[id-1]
}

// outer is the stack's outermost depth frames.
func (v *validator) outer(id trace.StackID, depth uint32) trace.StackID {
	for d := v.depthOf(id); d > depth; d-- {
		id = v.src.Node(id).Parent
	}
	return id
}

func (v *validator) event(e *trace.Event) {
	v.events++
	bad := func(format string, args ...any) {
		v.add("event %d (kind %d of thread %d at %d): %s", v.events, e.Kind, e.Thread, e.Time, fmt.Sprintf(format, args...))
	}
	if e.Kind < trace.KindCPU || e.Kind > trace.KindKnob {
		bad("no such kind")
	}
	t := v.threads[e.Thread]
	if t == nil {
		bad("no such thread")
		return
	}
	if e.Kind.Beside() {
		return // not in the thread's order
	}
	v.times(e, t, bad)
	v.fields(e, bad)
	v.stack(e, t, bad)
}

func (v *validator) times(e *trace.Event, t *threadState, bad func(string, ...any)) {
	m := v.src.Meta()
	switch {
	case e.Start > e.Time:
		bad("it starts at %d, after its end", e.Start)
	case e.Time < m.StartNs || e.Time > m.EndNs:
		bad("the recording is from %d to %d", m.StartNs, m.EndNs)
	case e.Time < t.time:
		bad("the thread's event before it is at %d", t.time)
	}
	t.time = e.Time
	if e.Kind == trace.KindThreadStart && t.events > 0 {
		bad("it is not the thread's first event but number %d", t.events+1)
	}
	if t.exited {
		bad("the thread has ended before")
	}
	t.exited = e.Kind == trace.KindThreadExit
	t.events++
}

func (v *validator) fields(e *trace.Event, bad func(string, ...any)) {
	interval := e.Kind == trace.KindWait || e.Kind == trace.KindCall
	if e.Hook != 0 {
		if _, ok := v.src.Meta().Hooks[e.Hook]; !ok {
			bad("no hook %d", e.Hook)
		}
	} else if interval {
		bad("an interval without a hook")
	}
	if interval && e.Count != 1 {
		bad("an interval of %d samples", e.Count)
	}
	if e.Kind == trace.KindLost && e.Count == 0 {
		bad("nothing was lost")
	}
	if e.CPU < 0 || e.CPU != 0 && e.Kind != trace.KindCPU && e.Kind != trace.KindThreadExit {
		bad("it has %d ns of CPU time", e.CPU)
	}
	if e.Kind == trace.KindAlloc && e.Weight < e.Size {
		bad("it stands for %d bytes, fewer than its own %d", e.Weight, e.Size)
	}
	for _, id := range []trace.ThreadID{e.Owner, e.Releaser} {
		if id != 0 && v.threads[id] == nil {
			bad("no owner or releaser %d", id)
		}
	}
	if e.Flags&trace.FlagCertain != 0 && e.Releaser == 0 {
		bad("nobody is the certain releaser")
	}
}

func (v *validator) stack(e *trace.Event, t *threadState, bad func(string, ...any)) {
	if e.Kind == trace.KindLost {
		t.unknown = true
	}
	if e.Stack == 0 {
		if e.Same != 0 {
			bad("no stack, and %d frames of it are the same", e.Same)
		}
		return
	}
	switch {
	case e.Flags&trace.FlagNoStack != 0:
		bad("it has stack %d and FlagNoStack", e.Stack)
	case int64(e.Stack) > int64(v.src.Nodes()):
		bad("no stack %d: there are %d nodes", e.Stack, v.src.Nodes())
		return
	case e.Same > v.depthOf(e.Stack):
		bad("%d frames of %d are the same", e.Same, v.depthOf(e.Stack))
	case e.Same > 0 && t.unknown:
		bad("%d frames are the same as in a stack that was lost", e.Same)
	case e.Same > v.depthOf(t.stack):
		bad("%d frames are the same as in the stack before, which has %d", e.Same, v.depthOf(t.stack))
	case v.outer(e.Stack, e.Same) != v.outer(t.stack, e.Same):
		bad("its %d outermost frames are not those of the stack before (%d and %d)", e.Same, e.Stack, t.stack)
	}
	t.stack, t.unknown = e.Stack, false
}

func (v *validator) account() {
	s := v.src.Stats()
	if !s.Complete {
		return
	}
	if s.Events != v.events {
		v.add("stats: %d events, there are %d", s.Events, v.events)
	}
	if s.Nodes != uint64(v.src.Nodes()) {
		v.add("stats: %d nodes, there are %d", s.Nodes, v.src.Nodes())
	}
}
