// Package timeline says what each thread of a recording did: segments of its time, in order and without overlap, each
// in one state at one place of the program. It is the one state machine behind every view that answers that question.
//
// What lies inside a wait or a blocking call is decided by package nest: such an interval is one segment, or several
// around what a signal handler did inside it. The CPU time of a sample was used since the thread's sample before; where
// in that time is not known. It is put up against the sample, which was due when the time had been used: outside waits
// and calls, and inside those whose handlers the sample shows. CPU time that does not fit there, up to one sampling
// period, may have been used before the previous sample, because samples count whole periods. The rest of the time
// between two samples was spent off the CPU. Where the kernel's scheduling was recorded ([trace.KindOff]), it says
// when, and how much of it the thread was ready to run. Time that no sample and no interval accounts for is in no
// segment.
//
// CPU time for which a thread's time has no room is no segment either: [Sink.Unplaced] has it. Segments in state
// Running and what Unplaced is called with add up to the CPU time of a thread's samples and of its exit.
//
// Memory is bounded by the live threads.
package timeline

import (
	"time"

	"github.com/hbtrace/hbtrace/analysis/frames"
	"github.com/hbtrace/hbtrace/analysis/nest"
	"github.com/hbtrace/hbtrace/analysis/weigh"
	"github.com/hbtrace/hbtrace/trace"
)

// Segment is a stretch of one thread's time.
type Segment struct {
	From, To trace.Ns
	State    weigh.State
	Site     trace.Site // zero: no place is known
	Wait     uint32     // what [Sink.Wait] returned; 0: no wait or call
	Work     uint32     // what [Sink.Work] returned for the sample that the time was counted by
}

// Sink takes what a [Builder] finds out. Calls for one thread come in the order of its time. [Discard] implements the
// methods that return numbers for consumers that need none.
type Sink interface {
	// Wait takes a wait or call that has time of its own, within [from, to), when it begins. The number comes back in its
	// segments: those of what lies inside it may come between them.
	Wait(e *trace.Event, from, to trace.Ns, state weigh.State) uint32
	// Work takes a sample. The number comes back with its CPU time.
	Work(e *trace.Event, site trace.Site) uint32
	// Segment takes the thread's next segment. The Segment is reused between calls.
	Segment(id trace.ThreadID, s *Segment) error
	// Unplaced takes CPU time, in ns, that a sample counted by the time at, and for which there was no room.
	Unplaced(id trace.ThreadID, at trace.Ns, site trace.Site, work uint32, cpu int64) error
}

// Discard is embedded by sinks that number neither waits nor samples.
type Discard struct{}

// Wait implements [Sink].
func (Discard) Wait(*trace.Event, trace.Ns, trace.Ns, weigh.State) uint32 { return 0 }

// Work implements [Sink].
func (Discard) Work(*trace.Event, trace.Site) uint32 { return 0 }

// Unplaced implements [Sink].
func (Discard) Unplaced(trace.ThreadID, trace.Ns, trace.Site, uint32, int64) error { return nil }

// MaxNs is the longest recording, in ns: what an IEEE double counts exactly, 104 days. What is beyond is cut.
const MaxNs = 1 << 53

const farNs = trace.Ns(1) << 61 // times beyond are nonsense, and would overflow

// Window is the time of a recording. open: the recording does not say when it ended.
func Window(m *trace.Meta) (from, to trace.Ns, open bool) {
	from, to = max(-farNs, min(m.StartNs, farNs)), max(-farNs, min(m.EndNs, farNs))
	if to <= from {
		return from, from + MaxNs, true
	}
	return from, min(to, from+MaxNs), false
}

// Builder makes the segments of all threads of a recording, whose events are added in stored order.
type Builder struct {
	Clipped uint64 // waits and calls that overlap what was seen of their thread before

	meta     *trace.Meta
	tab      *frames.Table
	nest     *nest.Nest
	tails    *weigh.Tails
	states   stateCache
	sink     Sink
	from, to trace.Ns
	period   int64 // ns of CPU time between samples
	starts   map[trace.ThreadID]*trace.Thread
	lines    trace.PerThread[line]
	err      error // of the sink
}

// ended stands for the line of a thread that has ended.
var ended line

// New makes a Builder of src's threads. tab names src's frames.
func New(src trace.Source, tab *frames.Table, sink Sink) *Builder {
	meta := src.Meta()
	b := &Builder{
		meta: meta, tab: tab, tails: weigh.NewTails(src), states: newStateCache(meta, tab), sink: sink,
		period: int64(time.Second) / int64(max(1, meta.Freq)), starts: map[trace.ThreadID]*trace.Thread{},
	}
	b.from, b.to, _ = Window(meta)
	b.nest = nest.New(tab, b.Step)
	threads := src.Threads()
	for i := range threads {
		b.starts[threads[i].ID] = &threads[i]
	}
	return b
}

func (b *Builder) at(t trace.Ns) trace.Ns { return max(b.from, min(t, b.to)) }

func (b *Builder) line(id trace.ThreadID) *line {
	if l := b.lines.Get(id); l != nil {
		return l
	}
	l := &line{id: id, until: b.from, seen: b.from}
	if th := b.starts[id]; th != nil {
		l.proc, l.routine = th.Proc, th.StartRoutine
		if th.Start != 0 {
			l.until = b.at(th.Start)
		}
	}
	b.lines.Put(id, l)
	return l
}

// Add takes the recording's next event, and keeps no reference to it. Errors are the sink's.
func (b *Builder) Add(e *trace.Event) error { return b.nest.Add(e, 0) }

// Step takes what a [nest.Nest] makes of the recording's next events: it is called by one, or Add is, and not both.
func (b *Builder) Step(s *nest.Step) error {
	e := s.Event
	switch e.Kind {
	case trace.KindCPU, trace.KindThreadExit, trace.KindWait, trace.KindCall, trace.KindOff, trace.KindLost:
	default:
		return nil
	}
	l := b.line(e.Thread)
	if l == &ended {
		return nil
	}
	switch e.Kind {
	case trace.KindCPU:
		b.sample(l, s, trace.Site{Stack: b.valid(e.Stack), Hook: e.Hook})
	case trace.KindThreadExit:
		b.sample(l, s, trace.Site{Stack: b.tails.Stack(b.tab, e, l.routine, s.Last)})
		b.flush(l)
		b.lines.Put(e.Thread, &ended)
	case trace.KindWait, trace.KindCall:
		if s.Phase == nest.Enter {
			b.enter(l, s)
		} else {
			b.leave(l, b.at(s.End))
		}
	case trace.KindOff:
		l.offCPU(b, e)
	case trace.KindLost:
		b.flush(l)
		l.until = max(l.until, b.at(e.Time))
	}
	return b.err
}

// Close gives the sink what is left of all threads. Where Step is called by a Nest, that one is closed first.
func (b *Builder) Close() error {
	if err := b.nest.Close(); err != nil {
		return err
	}
	for _, l := range b.lines.All() {
		if l != &ended {
			b.flush(l)
		}
	}
	b.lines = trace.PerThread[line]{}
	return b.err
}

func (b *Builder) valid(id trace.StackID) trace.StackID {
	if b.tab.Valid(id) {
		return id
	}
	return 0
}

// enter begins an interval.
func (b *Builder) enter(l *line, s *nest.Step) {
	start, end := b.at(s.Start), b.at(s.End)
	l.pass(b, start)
	if s.Clipped || start < l.until {
		b.Clipped++
		start = l.until
	}
	e := s.Event
	x := Segment{From: start, State: b.states.of(e), Site: trace.Site{Stack: b.valid(e.Stack), Hook: e.Hook}}
	if start < end {
		x.Wait = b.sink.Wait(e, start, end, x.State)
	}
	l.in = append(l.in, x)
}

// leave ends the latest interval. What later samples count was not used inside it.
func (b *Builder) leave(l *line, end trace.Ns) {
	l.pass(b, end)
	depth := len(l.in)
	for _, list := range [][]segment{l.settled, l.pending} {
		for i := len(list) - 1; i >= 0 && list[i].From >= l.in[depth-1].From; i-- {
			if list[i].inside >= depth {
				list[i].inside = 0
			}
		}
	}
	l.in = l.in[:depth-1]
}

func (b *Builder) emit(l *line, s *segment) {
	if s.free || s.To <= s.From || b.err != nil {
		return
	}
	b.err = b.sink.Segment(l.id, &s.Segment)
}

func (b *Builder) unplaced(l *line, at trace.Ns, cpu int64, site trace.Site, work uint32) {
	if cpu > 0 && b.err == nil {
		b.err = b.sink.Unplaced(l.id, at, site, work, cpu)
	}
}
