// One thread's open spans, and what an event does to them.

package spans

import (
	"slices"

	"github.com/hbtrace/hbtrace/analysis/frames"
	"github.com/hbtrace/hbtrace/analysis/nest"
	"github.com/hbtrace/hbtrace/trace"
)

type thread struct {
	id    trace.ThreadID
	open  []Span          // root first; empty where nobody wants spans
	count int             // spans that are open
	nodes []trace.StackID // the stack that is open, root first
	first []int           // nodes[i]'s outermost function is open[first[i]]
	in    []inside        // intervals that have begun and not ended, outermost first
	known bool            // something was seen: seen means something
	lost  bool            // records were lost since
	entry bool            // the last thing seen was the entry of a call that may block
	seen  trace.Ns        // end of the last thing seen
	edge  trace.Ns        // latest edge reported; later ones are not before it

	stacks       uint64
	cpu, blocked uint64 // ns of samples, and in intervals
	cov          Coverage
}

// inside is an interval that has begun, and what was when it did.
type inside struct {
	drawn   Interval
	event   trace.Event // Interval.Event: the step's is gone when the interval ends
	nodes   int         // its stack
	count   int         // its spans
	root    int         // nodes before the root of its stack
	base    int         // likewise of the latest stack inside it: root, or nodes where that is on a stack of its own
	inner   int64       // Inner of the span around it
	blocked uint64
}

func (t *thread) reset() {
	*t = thread{open: t.open[:0], nodes: t.nodes[:0], first: t.first[:0], in: t.in[:0]}
}

func (b *Builder) add(t *thread, s *nest.Step) error {
	e := s.Event
	switch e.Kind {
	case trace.KindThreadStart:
		if !t.known {
			t.see(e.Time)
		}
		return nil
	case trace.KindThreadExit:
		at, edge := t.seen, EdgeSeen
		if gap := e.Time - t.seen; t.stacks > 0 && t.known && !t.lost && gap >= 0 && gap <= b.closeNs {
			at, edge = t.seen+gap/2, EdgeMiddle
			t.cov.Sampled += int64(gap)
		}
		if err := b.pop(t, 0, at, edge); err != nil {
			return err
		}
		b.forget(t)
		return nil
	case trace.KindLost:
		// The next stack comes whole (Same 0): nothing that is open can be known to go on.
		if err := b.pop(t, 0, t.seen, EdgeSeen); err != nil {
			return err
		}
		t.nodes, t.first = t.nodes[:0], t.first[:0]
		t.lost, t.entry = true, false
		return b.point(s, 0)
	case trace.KindFree:
		return nil
	}
	if s.Phase == nest.Leave {
		return b.leave(t)
	}
	valid := b.tab.Valid(e.Stack) && e.Flags&trace.FlagNoStack == 0
	if !valid && s.Phase == nest.At {
		switch {
		case e.Kind == trace.KindCPU && frames.Begins(b.src.Meta(), e.Hook):
			t.cov.Exact += int64(max(0, e.Time-t.seen)) // all of the time until then: the exec and the loader
			t.see(e.Time)
		case e.Kind == trace.KindRelease:
			return b.point(s, t.count)
		}
		return nil
	}
	start, end := max(s.Start, t.seen), max(s.End, t.seen)
	if !t.known {
		start, end = s.Start, s.End
	}
	clipped := s.Clipped || s.Phase == nest.Enter && start != s.Start
	if clipped {
		t.cov.Clipped++
	}
	if err := b.diff(t, s, start); err != nil {
		return err
	}
	if valid {
		t.stacks += uint64(max(e.Count, 1))
		if e.Kind == trace.KindCPU {
			t.cpu += uint64(max(e.CPU, 0))
		}
	}
	if s.Phase == nest.Enter {
		return b.enter(t, s, start, end, clipped)
	}
	if len(t.in) == 0 {
		t.cov.Sampled += int64(end - start)
	}
	t.see(end)
	switch e.Kind {
	case trace.KindEnter:
		t.entry = true
	case trace.KindRelease:
		return b.point(s, t.count)
	}
	return nil
}

// enter begins an interval. Its stack is open.
func (b *Builder) enter(t *thread, s *nest.Step, start, end trace.Ns, clipped bool) error {
	x := inside{event: *s.Event, nodes: len(t.nodes), count: t.count, blocked: t.blocked}
	if n := len(t.in); n > 0 {
		x.root = t.in[n-1].base
	}
	x.base = x.root
	x.drawn = Interval{Tag: s.Tag, Depth: t.count, Start: start, End: end, Clipped: clipped}
	if n := len(t.open); n > 0 {
		x.inner = t.open[n-1].Inner
	}
	t.in = append(t.in, x)
	t.see(start)
	t.entry = true // what is on top of it is a signal handler's
	t.edge = max(t.edge, start)
	if b.sink == nil {
		return nil
	}
	in := &t.in[len(t.in)-1]
	in.drawn.Event = &in.event
	return b.sink.Interval(&in.drawn)
}

// leave ends the latest interval, and what is still open inside it where it was last seen.
func (b *Builder) leave(t *thread) error {
	x := &t.in[len(t.in)-1]
	end := max(x.drawn.End, t.edge)
	at, edge := t.seen, EdgeSeen
	if gap := end - t.seen; gap <= b.closeNs {
		at, edge = t.seen+gap/2, EdgeMiddle
	}
	if err := b.pop(t, x.count, at, edge); err != nil {
		return err
	}
	t.nodes, t.first = t.nodes[:x.nodes], t.first[:x.nodes]
	took := int64(end - x.drawn.Start)
	t.see(end)
	t.edge = max(t.edge, end)
	if len(t.in) == 1 {
		t.cov.Exact += took
	}
	var err error
	if b.sink != nil {
		t.blocked = x.blocked + uint64(took)
		if n := len(t.open); n > 0 {
			t.open[n-1].Inner = x.inner + took
		}
		x.drawn.End, x.drawn.Event = end, &x.event
		err = b.sink.Return(&x.drawn)
	}
	t.in = t.in[:len(t.in)-1]
	return err
}

func (t *thread) see(at trace.Ns) {
	t.known, t.lost, t.entry = true, false, false
	t.seen = max(t.seen, at)
}

// diff makes the open spans those of a step's stack, which was seen next at start. Spans around an interval that has
// not ended stay.
func (b *Builder) diff(t *thread, s *nest.Step, start trace.Ns) error {
	e, stack, claimed := s.Event, s.Event.Stack, int(min(s.Event.Same, 1<<20))
	if e.Flags&trace.FlagNoStack != 0 || !b.tab.Valid(stack) {
		stack = 0
	}
	floor, count, base := 0, 0, 0 // nodes and spans that stay; nodes before the root of this stack
	if n := len(t.in); n > 0 {
		x := &t.in[n-1]
		floor, count, base = x.nodes, x.count, x.root
		if s.Own {
			base = floor
		}
		if base != x.base {
			claimed = 0 // the stack before was on the other base
		}
		x.base = base
		if stack == 0 {
			base = floor
		}
	}
	depth := b.tab.Depth(stack)
	same := max(min(claimed, depth, len(t.nodes)-base), floor-base)
	gap := start - t.seen
	if same == depth && base+depth == len(t.nodes) && (same == floor-base || t.nodes[base+depth-1] == stack) {
		// The same stack on both sides is what a merged run is made of, and counts as one, however far apart.
		if t.known && !t.lost && (gap <= b.closeNs || !t.entry) && depth > 0 && len(t.in) == 0 {
			t.cov.Sampled += int64(gap)
		}
		return nil
	}
	// b.path is the new part of the stack, root first. A Same that the nodes contradict is not believed.
	b.path = b.path[:0]
	id := stack
	for i := depth; i > same; i-- {
		b.path = append(b.path, id)
		id = b.tab.Parent(id)
	}
	for base+same > floor && t.nodes[base+same-1] != id {
		b.path = append(b.path, id)
		id = b.tab.Parent(id)
		same--
	}
	slices.Reverse(b.path)

	keep, at := t.count, 0 // at: functions of b.path[0] that stay
	if base+same < len(t.nodes) {
		keep = max(t.first[base+same], count)
		if len(b.path) > 0 && same == int(e.Same) && e.Flags&trace.FlagSameCall != 0 && !t.lost {
			at = b.staying(t.nodes[base+same], b.path[0])
			keep += at
		}
	}
	insideCall := t.entry && base+same == len(t.nodes) // frames on top of a call that was entered: a signal handler's
	closeBy := t.known && !t.lost && gap <= b.closeNs
	ended, began, edge := t.seen, start, EdgeSeen
	if closeBy {
		if len(t.in) == 0 {
			t.cov.Sampled += int64(gap)
		}
		if !insideCall {
			ended = t.seen + gap/2
			began, edge = ended, EdgeMiddle
		}
	}
	if err := b.pop(t, keep, ended, edge); err != nil {
		return err
	}
	began = max(began, t.edge)
	t.nodes, t.first = t.nodes[:base+same], t.first[:base+same]
	for i, n := range b.path {
		stay := 0
		if i == 0 {
			stay = at
		}
		t.first = append(t.first, t.count-stay)
		t.nodes = append(t.nodes, n)
		begin := b.tab.Functions(n) - stay
		if begin <= 0 {
			continue
		}
		t.edge = began
		t.count += begin
		if b.sink == nil {
			continue
		}
		for _, f := range b.tab.Of(n)[stay:] {
			t.open = append(t.open, Span{
				Thread: t.id, Frame: f.ID, Depth: len(t.open), Start: began, StartEdge: edge,
				from: t.stacks, fromCPU: t.cpu, fromBlocked: t.blocked,
			})
			if err := b.sink.Begin(&t.open[len(t.open)-1]); err != nil {
				return err
			}
		}
	}
	return nil
}

// staying is how many functions of was are still running in is, where both are one physical frame at two of its
// instructions. Functions without a symbol have no name to compare: the frame stays under its first address.
func (b *Builder) staying(was, is trace.StackID) int {
	w, i := b.tab.Of(was), b.tab.Of(is)
	n := 0
	for n < len(w) && n < len(i) && w[n].Same(i[n]) {
		n++
	}
	if n == 0 && len(w) == 1 && len(i) == 1 {
		x, y := b.tab.Frame(w[0].ID), b.tab.Frame(i[0].ID)
		if !x.Symbolised && !y.Symbolised && !x.Mark && !y.Mark && x.Module == y.Module {
			return 1
		}
	}
	return n
}

// pop ends the spans above the first keep, innermost first.
func (b *Builder) pop(t *thread, keep int, at trace.Ns, edge Edge) error {
	if keep >= t.count {
		return nil
	}
	t.count = keep
	at = max(at, t.edge)
	t.edge = at
	for len(t.open) > keep {
		s := &t.open[len(t.open)-1]
		s.End, s.EndEdge, s.Stacks = at, edge, t.stacks-s.from
		ns := int64(at - s.Start)
		s.Inner = min(s.Inner, ns)
		s.Blocked = min(int64(t.blocked-s.fromBlocked), ns)
		s.CPU = min(int64(t.cpu-s.fromCPU), ns-s.Blocked)
		if n := len(t.open) - 2; n >= 0 {
			t.open[n].Inner += ns
		}
		if err := b.sink.End(s); err != nil {
			return err
		}
		t.open = t.open[:len(t.open)-1]
	}
	return nil
}

func (b *Builder) point(s *nest.Step, depth int) error {
	if b.sink == nil {
		return nil
	}
	return b.sink.Point(s.Event, depth, s.Tag)
}
