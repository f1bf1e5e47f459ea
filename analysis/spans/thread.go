// One thread's open spans, and what an event does to them.

package spans

import (
	"slices"

	"github.com/hbtrace/hbtrace/analysis/frames"
	"github.com/hbtrace/hbtrace/trace"
)

type thread struct {
	id     trace.ThreadID
	open   []Span          // root first; empty where nobody wants spans
	count  int             // spans that are open
	root   trace.Ns        // when the outermost of them began
	nodes  []trace.StackID // the stack that is open, root first
	first  []int           // nodes[i]'s outermost function is open[first[i]]
	known  bool            // something was seen: seen means something
	lost   bool            // records were lost since
	behind bool            // spans that begin now begin behind edges that were reported
	entry  bool            // the last thing seen was the entry of a call that may block
	seen   trace.Ns        // end of the last thing seen
	edge   trace.Ns        // latest edge reported; later ones are not before it

	stacks       uint64
	cpu, blocked uint64 // ns of samples, and in intervals
	cov          Coverage
	enter        entered
	dark         dark
	held         trace.Event // KindEnter that waits for the thread's next event; Kind 0: none
}

// entered remembers the entry of a call, so that an interval that turns out to have begun there can be drawn around
// what a signal handler did meanwhile.
type entered struct {
	valid          bool // nothing at or above its stack has changed since
	stack          trace.StackID
	spans          int
	floor          trace.Ns // latest edge when it was entered
	exact, sampled int64    // coverage then
}

// dark remembers the latest stretch that nothing is drawn in, so that an interval that turns out to have begun there
// can be drawn around what a signal handler did meanwhile, although its entry was not seen.
type dark struct {
	from, to       trace.Ns // to 0: none
	lost           bool     // records were lost in it, or nothing was seen before it
	exact, sampled int64    // coverage then
}

func (t *thread) reset() {
	*t = thread{open: t.open[:0], nodes: t.nodes[:0], first: t.first[:0]}
}

func (b *Builder) add(t *thread, e *trace.Event) error {
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
		return b.point(e, 0)
	case trace.KindFree:
		return nil
	}
	interval := isInterval(e)
	valid := b.tab.Valid(e.Stack) && e.Flags&trace.FlagNoStack == 0
	if !valid && e.Kind == trace.KindCPU && frames.Begins(b.src.Meta(), e.Hook) {
		t.cov.Exact += int64(max(0, e.Time-t.seen)) // all of the time until then: the exec and the loader
		t.see(e.Time)
		return nil
	}
	if !valid && !interval {
		if e.Kind == trace.KindRelease {
			return b.point(e, t.count)
		}
		return nil
	}
	start, end := min(e.Start, e.Time), e.Time
	if e.Start == 0 {
		start = e.Time
	}
	behind := interval && t.known && start < t.seen && end >= t.seen &&
		t.enter.valid && t.enter.stack == e.Stack && t.count > t.enter.spans
	clipped := false
	if !behind && interval && valid && end >= t.seen && t.inDark(e, start) {
		behind = true
		if err := b.light(t, e, start); err != nil {
			return err
		}
		t.cov.Exact += int64(end - start)
	} else if t.known && start < t.seen && !behind {
		clipped = interval || end < t.seen
		start, end = t.seen, max(end, t.seen)
		if clipped {
			t.cov.Clipped++
		}
	}
	if behind && t.dark.to == lit {
		t.dark.to = 0
	} else if behind {
		// Its spans end between the last thing seen and the call's return.
		if err := b.diff(t, e, end); err != nil {
			return err
		}
		t.cov.Exact = t.enter.exact + int64(end-start)
		t.cov.Sampled = t.enter.sampled
		start = max(start, t.enter.floor)
	} else {
		if err := b.diff(t, e, start); err != nil {
			return err
		}
		if interval {
			t.cov.Exact += int64(end - start)
		} else {
			t.cov.Sampled += int64(end - start)
		}
	}
	if valid {
		t.stacks += uint64(max(e.Count, 1))
		if e.Kind == trace.KindCPU {
			t.cpu += uint64(max(e.CPU, 0))
		}
	}
	t.see(end)
	switch {
	case interval:
		t.enter.valid = false
		t.edge = max(t.edge, end)
		if b.sink == nil {
			return nil
		}
		t.blocked += uint64(end - start)
		if n := len(t.open); n > 0 {
			t.open[n-1].Inner += int64(end - start)
		}
		return b.sink.Interval(&Interval{Event: e, Depth: t.count, Start: start, End: end, Clipped: clipped, Behind: behind})
	case e.Kind == trace.KindEnter:
		t.entry = true
		t.enter = entered{true, e.Stack, t.count, t.edge, t.cov.Exact, t.cov.Sampled}
	case e.Kind == trace.KindRelease:
		return b.point(e, t.count)
	}
	return nil
}

func (t *thread) see(at trace.Ns) {
	t.known, t.lost, t.entry = true, false, false
	t.seen = max(t.seen, at)
}

// diff makes the open spans those of e's stack, which was seen next at start.
func (b *Builder) diff(t *thread, e *trace.Event, start trace.Ns) error {
	stack := e.Stack
	if e.Flags&trace.FlagNoStack != 0 || !b.tab.Valid(stack) {
		stack = 0
	}
	depth := b.tab.Depth(stack)
	same := min(int(min(e.Same, 1<<20)), depth, len(t.nodes))
	gap := start - t.seen
	if same == depth && depth == len(t.nodes) && (depth == 0 || t.nodes[depth-1] == stack) {
		// The same stack on both sides is what a merged run is made of, and counts as one, however far apart.
		if t.known && !t.lost && (gap <= b.closeNs || !t.entry) && depth > 0 {
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
	for same > 0 && t.nodes[same-1] != id {
		b.path = append(b.path, id)
		id = b.tab.Parent(id)
		same--
	}
	slices.Reverse(b.path)

	keep, at := t.count, 0 // at: functions of b.path[0] that stay
	if same < len(t.nodes) {
		keep = t.first[same]
		if len(b.path) > 0 && same == int(e.Same) && e.Flags&trace.FlagSameCall != 0 && !t.lost {
			at = b.staying(t.nodes[same], b.path[0])
			keep += at
		}
	}
	insideCall := t.entry && same == len(t.nodes) // frames on top of a call that was entered: a signal handler's
	closeBy := t.known && !t.lost && gap <= b.closeNs
	ended, began, edge := t.seen, start, EdgeSeen
	if closeBy {
		t.cov.Sampled += int64(gap)
		if !insideCall {
			ended = t.seen + gap/2
			began, edge = ended, EdgeMiddle
		}
	}
	if !closeBy && !t.behind {
		t.dark = dark{t.seen, start, t.lost || !t.known, t.cov.Exact, t.cov.Sampled}
	}
	if err := b.pop(t, keep, ended, edge); err != nil {
		return err
	}
	began = max(began, t.edge)
	t.nodes, t.first = t.nodes[:same], t.first[:same]
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
		if t.count == 0 {
			t.root = began
		}
		t.edge = began
		t.count += begin
		if b.sink == nil {
			continue
		}
		for _, f := range b.tab.Of(n)[stay:] {
			t.open = append(t.open, Span{
				Thread: t.id, Frame: f.ID, Depth: len(t.open), Start: began, StartEdge: edge, Behind: t.behind,
				from: t.stacks, fromCPU: t.cpu, fromBlocked: t.blocked,
			})
			if err := b.sink.Begin(&t.open[len(t.open)-1]); err != nil {
				return err
			}
		}
	}
	return nil
}

// lit marks a dark stretch that has just been drawn in.
const lit = -1

// inDark says whether an interval began where nothing is drawn and everything drawn since can lie inside it.
func (t *thread) inDark(e *trace.Event, start trace.Ns) bool {
	return t.known && start < t.seen && t.dark.to > 0 && e.Same == 0 && start >= t.dark.from && start < t.dark.to &&
		(t.count == 0 || t.root >= t.dark.to)
}

// light ends what is open and begins the stack of e, which covers it, back in the dark stretch.
func (b *Builder) light(t *thread, e *trace.Event, start trace.Ns) error {
	if err := b.pop(t, 0, t.seen, EdgeSeen); err != nil {
		return err
	}
	seen, edge := t.seen, t.edge
	t.nodes, t.first = t.nodes[:0], t.first[:0]
	t.seen, t.edge, t.lost, t.entry = t.dark.from, t.dark.from, t.dark.lost, false
	t.cov.Exact, t.cov.Sampled = t.dark.exact, t.dark.sampled
	t.behind = true
	err := b.diff(t, e, start)
	t.behind = false
	t.seen, t.edge, t.dark.to = seen, max(edge, t.edge), lit
	return err
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
	if t.enter.valid && keep < t.enter.spans {
		t.enter.valid = false
	}
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

func (b *Builder) point(e *trace.Event, depth int) error {
	if b.sink == nil {
		return nil
	}
	return b.sink.Point(e, depth)
}
