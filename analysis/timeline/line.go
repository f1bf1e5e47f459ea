// The state machine of one thread.

package timeline

import (
	"cmp"
	"slices"

	"github.com/hbtrace/hbtrace/analysis/nest"
	"github.com/hbtrace/hbtrace/analysis/weigh"
	"github.com/hbtrace/hbtrace/trace"
)

// line is one thread.
type line struct {
	id      trace.ThreadID
	proc    trace.ProcID
	routine trace.Addr

	until trace.Ns // end of what was seen
	seen  trace.Ns // latest sample that counted no time
	// intervals that have begun and not ended, outermost first: where, and what their segments have in common
	in      []Segment
	pending []segment // since the latest sample that counted time, in order
	// between the two samples before that: what is still free was spent off the CPU, unless the next one says it ran
	settled []segment
	offs    []off // time off the CPU by the kernel's word that pending does not show, in order of ends
}

// segment is one that may still change.
type segment struct {
	Segment
	free   bool // no interval covers it: the next sample says how much of it ran
	inside int  // how many intervals that have not ended cover it: samples inside all of them may say that some of it ran
}

// off is time off the CPU, of which the thread could have run from could on.
type off struct{ from, could, to trace.Ns }

// Bounds of what is kept of a thread until the next sample. Of more than maxPending segments the oldest free time is in
// no segment; of more than maxOffs times off the CPU the oldest are as if the kernel had not told.
const (
	maxPending = 4096
	maxOffs    = 8192
)

// pass says that nothing but the intervals that have begun covers the time up to at.
func (l *line) pass(b *Builder, at trace.Ns) {
	if at <= l.until {
		return
	}
	s := segment{Segment: Segment{From: l.until, To: at}, free: true}
	if n := len(l.in); n > 0 {
		x := l.in[n-1]
		x.From, x.To = l.until, at
		s = segment{Segment: x, inside: n}
	}
	l.until = at
	if len(l.pending) >= maxPending {
		l.settle(b)
		for i := range l.pending[:maxPending/2] {
			b.emit(l, l.idle(&l.pending[i]))
		}
		l.pending = l.pending[:copy(l.pending, l.pending[maxPending/2:])]
	}
	l.pending = append(l.pending, s)
}

// sample places CPU time.
func (b *Builder) sample(l *line, s *nest.Step, site trace.Site) {
	e := s.Event
	cpu, work := max(0, min(e.CPU, MaxNs)), b.sink.Work(e, site)
	inside := len(l.in)
	if inside > 0 && !b.shows(s, l.in[inside-1].Site.Stack) {
		inside = 0 // it was taken where the thread came out of the call, of work before
	}
	at := b.at(s.End)
	if inside == 0 && len(l.in) > 0 {
		at = min(at, l.until)
	}
	if cpu == 0 {
		// Less than a period was used since the sample before: where, the next one that counts says.
		l.seen = max(l.seen, at)
		return
	}
	l.pass(b, at)
	ran := Segment{State: weigh.Running, Site: site, Work: work}
	l.split()
	var rest int64
	l.pending, rest = run(l.pending, cpu, inside, ran)
	if before := min(rest, b.period); before > 0 {
		rest -= before
		l.settled, before = run(l.settled, before, inside, ran)
		rest += before
	}
	l.settle(b)
	l.settled, l.pending = l.pending, l.settled
	b.unplaced(l, b.at(s.End), rest, site, work)
}

// shows says that a sample inside an interval was taken of what ran inside it: a signal handler, on top of the
// interval's stack or on a stack of its own.
func (b *Builder) shows(s *nest.Step, interval trace.StackID) bool {
	const elsewhere = trace.FlagLate | trace.FlagPreempted | trace.FlagSyscallEnd
	if s.Event.Flags&elsewhere != 0 {
		return false
	}
	return s.Own || b.tab.Depth(b.valid(s.Event.Stack)) > b.tab.Depth(interval)
}

// run makes the youngest cpu ns of the time in list running that is free, or covered by intervals that the sample lies
// inside. It returns what there was no room for.
func run(list []segment, cpu int64, inside int, with Segment) ([]segment, int64) {
	for i := len(list) - 1; i >= 0 && cpu > 0; i-- {
		p := &list[i]
		if !p.free && (p.inside == 0 || p.inside > inside) {
			continue
		}
		n := min(cpu, int64(p.To-p.From))
		cpu -= n
		ran := segment{Segment: with}
		ran.From, ran.To = p.To-trace.Ns(n), p.To
		if p.To -= trace.Ns(n); p.To > p.From {
			list = slices.Insert(list, i+1, ran)
		} else {
			*p = ran
		}
	}
	return list, cpu
}

// settle emits what the sample before the latest one left: no later one says anything about it.
func (l *line) settle(b *Builder) {
	for i := range l.settled {
		s := &l.settled[i]
		if s.free {
			s.State, s.free = weigh.Off, false
		}
		b.emit(l, s)
	}
	l.settled = l.settled[:0]
}

// idle makes free time in front of a sample that counted none time off the CPU.
func (l *line) idle(s *segment) *segment {
	if s.free && s.To <= l.seen {
		s.State, s.free = weigh.Off, false
	}
	return s
}

// offCPU takes time off the CPU by the kernel's word. Where intervals cover it, they say more: it is put only into time
// that turns out to be free.
func (l *line) offCPU(b *Builder, e *trace.Event) {
	could, _ := e.Runnable()
	if could == 0 {
		could = e.Time
	}
	if len(l.offs) == maxOffs {
		l.offs = l.offs[:copy(l.offs, l.offs[maxOffs/2:])]
	}
	x := off{from: b.at(e.Start), to: b.at(e.Time)}
	x.could = max(x.from, min(b.at(could), x.to))
	l.offs = append(l.offs, x)
}

// split takes the time off the CPU out of the pending free time.
func (l *line) split() {
	if len(l.offs) == 0 {
		return
	}
	slices.SortStableFunc(l.offs, func(a, b off) int { return cmp.Compare(a.from, b.from) })
	var out []segment
	next := 0
	for _, p := range l.pending {
		if !p.free {
			out = append(out, p)
			continue
		}
		for next < len(l.offs) && l.offs[next].to <= p.From {
			next++
		}
		at := p.From
		put := func(from, to trace.Ns, state weigh.State) {
			if from, to = max(from, at), min(to, p.To); from >= to {
				return
			}
			if from > at {
				out = append(out, segment{Segment: Segment{From: at, To: from}, free: true})
			}
			out = append(out, segment{Segment: Segment{From: from, To: to, State: state}})
			at = to
		}
		for i := next; i < len(l.offs) && l.offs[i].from < p.To; i++ {
			put(l.offs[i].from, l.offs[i].could, weigh.Off)
			put(l.offs[i].could, l.offs[i].to, weigh.Ready)
		}
		if at < p.To {
			out = append(out, segment{Segment: Segment{From: at, To: p.To}, free: true})
		}
	}
	l.pending = out
	l.offs = slices.DeleteFunc(l.offs, func(x off) bool { return x.to <= l.until })
}

// flush gives up waiting for a sample: free time is in no segment, unless a sample said that none of it was used.
func (b *Builder) flush(l *line) {
	l.pass(b, l.seen)
	l.split()
	l.settle(b)
	for i := range l.pending {
		b.emit(l, l.idle(&l.pending[i]))
	}
	l.pending = l.pending[:0]
}
