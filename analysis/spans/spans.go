// Package spans turns the stacks of a recording into spans by diffing: consecutive stacks of a thread are compared;
// what stays is one running call, what differs ends and begins. It streams: state is kept per live thread only.
//
// Which frames stay is known, not guessed: Event.Same counts the frames that are the same invocations as in the
// thread's previous stack, and FlagSameCall says that the next one is the same too, at another of its instructions:
// it stays as long as it is in the same function and, within it, in the same inlined calls.
//
// Where a frame begins and ends is known only between two stacks (a, the end of the last thing seen, and b, the
// start of the next):
//
//	close       b-a ≤ 2 ticks and nothing lost between   both edges in the middle, so that durations are unbiased
//	otherwise   ended at a, began at b                   nobody saw what was between: nothing is drawn there
//
// Frames that are the same invocation run on through such a gap: that they were there all the time is proven.
// A merged run (Start..Time) supports its stack over its whole length. Intervals are exact: events come in the order of
// package nest, what lies inside an interval is drawn inside it, and the spans around it stay open. A thread's start
// and exit count as sightings of an empty stack.
package spans

import (
	"github.com/hbtrace/hbtrace/analysis/frames"
	"github.com/hbtrace/hbtrace/analysis/nest"
	"github.com/hbtrace/hbtrace/trace"
)

// Edge says how a span's edge is known.
type Edge uint8

// Edges.
const (
	EdgeMiddle Edge = iota // halfway between two close stacks: wrong by a tick at most
	EdgeSeen               // where it was first or last seen: it may have begun before, ended after
)

// Span is one call of a function. A pointer to one is valid during a call of a [Sink] only.
type Span struct {
	Thread             trace.ThreadID
	Frame              frames.ID
	Depth              int      // spans of the thread that this one lies in
	Start, End         trace.Ns // End is set when it ends
	StartEdge, EndEdge Edge
	Stacks             uint64 // stacks that show it, counted when it ends; merged ones count as many

	// In ns, when it ends. CPU and Blocked are at most its duration, together too: the CPU time of a sample was used up to
	// the one before, which may lie before the span.
	Inner   int64 // of the duration, in spans and intervals directly inside: the rest is its own
	Blocked int64 // in waits and calls that it lies around
	CPU     int64 // that samples with it stand for

	from, fromCPU, fromBlocked uint64 // the thread's stacks and times when it began
}

// Interval is a wait or a blocking call as drawn inside the spans of its stack.
type Interval struct {
	Event      *trace.Event
	Tag        uint64   // as given to AddTagged
	Depth      int      // spans that it lies in
	Start, End trace.Ns // Event.Start and Event.Time, unless Clipped
	Clipped    bool     // overlaps what was seen before: only the rest is drawn; the event has the exact times
}

// Sink receives what a [Builder] finds, in the order of time within each thread. An error ends the run.
type Sink interface {
	Begin(*Span) error
	End(*Span) error
	// Interval comes when one begins, after the Begin of the spans that it lies in. What comes between it and its Return
	// lies inside it: what a signal handler did.
	Interval(*Interval) error
	Return(*Interval) error
	// Point is a KindRelease or KindLost; depth is the number of spans it lies in, tag as given to AddTagged.
	Point(e *trace.Event, depth int, tag uint64) error
}

// Coverage is what is known of one thread's time, in ns. The three sum to the time that it lived while recorded.
type Coverage struct {
	Exact   int64 // in recorded intervals
	Sampled int64 // between close stacks, between equal ones of the same calls, or in merged runs
	Unknown int64
	Stacks  uint64 // stacks that were seen
	Clipped uint64 // events that overlapped what had been seen before, and were cut
}

// Builder diffs the stacks of one recording.
type Builder struct {
	src     trace.Source
	tab     *frames.Table
	sink    Sink // nil: nobody wants spans
	nest    *nest.Nest
	closeNs trace.Ns
	live    trace.PerThread[thread]
	free    []*thread
	done    map[trace.ThreadID]Coverage
	path    []trace.StackID
}

const defaultTickNs = 1_000_000

// New makes a Builder that reports to sink. tab may be shared with others that run in the same goroutine. The functions
// get the same steps of the events as the Builder does, after it.
func New(src trace.Source, tab *frames.Table, sink Sink, also ...func(*nest.Step) error) *Builder {
	tick := src.Meta().TickNs
	if tick <= 0 {
		tick = defaultTickNs
	}
	if sink == (Discard{}) {
		sink = nil
	}
	b := &Builder{
		src: src, tab: tab, sink: sink, closeNs: trace.Ns(2 * tick),
		done: map[trace.ThreadID]Coverage{},
	}
	b.nest = nest.New(tab, append([]func(*nest.Step) error{b.step}, also...)...)
	return b
}

// Run diffs all of src into sink and returns each thread's coverage.
func Run(src trace.Source, sink Sink) (map[trace.ThreadID]Coverage, error) {
	b := New(src, frames.New(src), sink)
	if err := trace.Events(src, b.Add); err != nil {
		return nil, err
	}
	return b.Close()
}

// Discard is a Sink for those who want the coverage alone: no spans are made then.
type Discard struct{}

// Begin implements [Sink].
func (Discard) Begin(*Span) error { return nil }

// End implements [Sink].
func (Discard) End(*Span) error { return nil }

// Interval implements [Sink].
func (Discard) Interval(*Interval) error { return nil }

// Return implements [Sink].
func (Discard) Return(*Interval) error { return nil }

// Point implements [Sink].
func (Discard) Point(*trace.Event, int, uint64) error { return nil }

// Add takes the next stored event. It keeps no reference to it.
func (b *Builder) Add(e *trace.Event) error { return b.nest.Add(e, 0) }

// AddTagged is Add with a number that Interval.Tag and Point give back.
func (b *Builder) AddTagged(e *trace.Event, tag uint64) error { return b.nest.Add(e, tag) }

func (b *Builder) step(s *nest.Step) error {
	if s.Event.Kind.Beside() {
		return nil // next to the thread's own account
	}
	return b.add(b.thread(s.Event.Thread), s)
}

// Close ends what is open where it was last seen and returns each thread's coverage.
func (b *Builder) Close() (map[trace.ThreadID]Coverage, error) {
	if err := b.nest.Close(); err != nil {
		return nil, err
	}
	for _, t := range b.live.All() {
		if err := b.pop(t, 0, t.seen, EdgeSeen); err != nil {
			return nil, err
		}
		b.forget(t)
	}
	b.account()
	return b.done, nil
}

// account fills Unknown: the part of each thread's life that nothing covers.
func (b *Builder) account() {
	threads := b.src.Threads()
	for i := range threads {
		th := &threads[i]
		c := b.done[th.ID]
		end := th.End
		if end == 0 {
			end = b.src.Meta().EndNs
		}
		c.Unknown = max(int64(end-th.Start)-c.Exact-c.Sampled, 0)
		b.done[th.ID] = c
	}
}

func (b *Builder) thread(id trace.ThreadID) *thread {
	t := b.live.Get(id)
	if t == nil {
		if n := len(b.free); n > 0 {
			t, b.free = b.free[n-1], b.free[:n-1]
			t.reset()
		} else {
			t = &thread{}
		}
		t.id = id
		b.live.Put(id, t)
	}
	return t
}

// forget gives up a thread's state; what it covered is kept.
func (b *Builder) forget(t *thread) {
	c := b.done[t.id]
	c.Exact += t.cov.Exact
	c.Sampled += t.cov.Sampled
	c.Stacks += t.stacks
	c.Clipped += t.cov.Clipped
	b.done[t.id] = c
	b.live.Delete(t.id)
	b.free = append(b.free, t)
}
