// The state machine of one thread.

package timeline

import (
	"cmp"
	"slices"

	"github.com/hbtrace/hbtrace/analysis/weigh"
	"github.com/hbtrace/hbtrace/trace"
)

// line is one thread.
type line struct {
	id      trace.ThreadID
	proc    trace.ProcID
	routine trace.Addr
	last    trace.StackID // the latest that was seen

	until   trace.Ns  // end of what was seen
	seen    trace.Ns  // latest sample that counted no time
	held    []sample  // may lie in an interval that has not been added yet
	pending []segment // since the latest sample that counted time, in order
	settled []segment // between the two samples before that: what is still free was spent off the CPU, unless the next one says it ran
	offs    []segment // since the latest sample: time off the CPU by the kernel's word, in order of ends
}

// segment is one that may still change.
type segment struct {
	Segment
	free bool // no interval covers it: the next sample says how much of it ran
}

// sample is CPU time, in ns, that was counted by the time at.
type sample struct {
	at   trace.Ns
	cpu  int64
	site trace.Site
	work uint32
}

// Bounds of what is kept of a thread until the next sample. Of more than maxPending segments the oldest free time is in no
// segment; more than maxHeld samples do not lie in one interval.
const (
	maxPending = 4096
	maxHeld    = 16
)

// pass says that no interval covers the time up to at.
func (l *line) pass(b *Builder, at trace.Ns) {
	if at > l.until {
		l.pend(b, segment{Segment{From: l.until, To: at}, true})
		l.until = at
	}
}

func (l *line) pend(b *Builder, s segment) {
	if len(l.pending) >= maxPending {
		l.settle(b)
		for i := range l.pending[:maxPending/2] {
			b.emit(l, l.idle(&l.pending[i]))
		}
		l.pending = l.pending[:copy(l.pending, l.pending[maxPending/2:])]
	}
	l.pending = append(l.pending, s)
}

// sample takes CPU time. An interval that began before the sample may still be to come, because intervals are added when
// they end (a sample is taken where a thread comes out of a call): it waits until the thread's next interval, or maxHeld
// further samples.
func (b *Builder) sample(l *line, e *trace.Event, site trace.Site) {
	if len(l.held) == maxHeld {
		b.release(l, 1, b.to)
	}
	l.held = append(l.held, sample{b.at(e.Time), max(0, min(e.CPU, MaxNs)), site, b.sink.Work(e, site)})
}

// release places the oldest n held samples, those from `before` onwards as if they had been taken then.
func (b *Builder) release(l *line, n int, before trace.Ns) {
	for i := range l.held[:n] {
		s := &l.held[i]
		at := min(s.at, max(before, l.until))
		if s.cpu == 0 {
			// Less than a period was used since the sample before: where, the next one that counts says.
			l.seen = max(l.seen, at)
			continue
		}
		b.unplaced(l, s, l.ran(b, at, s))
	}
	l.held = l.held[:copy(l.held, l.held[n:])]
}

// ran places a sample's CPU time. It returns what found no place.
func (l *line) ran(b *Builder, at trace.Ns, s *sample) int64 {
	l.pass(b, at)
	l.split()
	cpu := s.cpu
	l.pending, cpu = run(l.pending, cpu, s)
	if before := min(cpu, b.period); before > 0 {
		cpu -= before
		l.settled, before = run(l.settled, before, s)
		cpu += before
	}
	l.settle(b)
	l.settled, l.pending = l.pending, l.settled
	return cpu
}

// run makes the youngest cpu ns of the free time in list running. It returns what there was no room for.
func run(list []segment, cpu int64, s *sample) ([]segment, int64) {
	for i := len(list) - 1; i >= 0 && cpu > 0; i-- {
		p := &list[i]
		if !p.free {
			continue
		}
		n := min(cpu, int64(p.To-p.From))
		cpu -= n
		ran := segment{Segment{From: p.To - trace.Ns(n), To: p.To, State: weigh.Running, Site: s.site, Work: s.work}, false}
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

// offCPU takes time off the CPU, of which the thread could have run from `could` on. Where intervals cover it, they say
// more: it is put only into time that turns out to be free.
func (l *line) offCPU(start, could, end trace.Ns) {
	if len(l.offs) == maxPending {
		l.offs = l.offs[:copy(l.offs, l.offs[maxPending/2:])]
	}
	could = max(start, min(could, end))
	l.offs = append(l.offs, segment{Segment{From: start, To: could, State: weigh.Off}, false},
		segment{Segment{From: could, To: end, State: weigh.Ready}, false})
}

// split takes the time off the CPU out of the pending free time.
func (l *line) split() {
	if len(l.offs) == 0 {
		return
	}
	slices.SortStableFunc(l.offs, func(a, b segment) int { return cmp.Compare(a.From, b.From) })
	var out []segment
	next := 0
	for _, p := range l.pending {
		if !p.free {
			out = append(out, p)
			continue
		}
		for next < len(l.offs) && l.offs[next].To <= p.From {
			next++
		}
		at := p.From
		for i := next; i < len(l.offs) && l.offs[i].From < p.To; i++ {
			o := l.offs[i]
			o.From, o.To = max(o.From, at), min(o.To, p.To)
			if o.To <= o.From {
				continue
			}
			if o.From > at {
				out = append(out, segment{Segment{From: at, To: o.From}, true})
			}
			out = append(out, o)
			at = o.To
		}
		if at < p.To {
			out = append(out, segment{Segment{From: at, To: p.To}, true})
		}
	}
	l.pending, l.offs = out, l.offs[:0]
}

// flush gives up waiting for a sample: free time is in no segment, unless a sample said that none of it was used.
func (b *Builder) flush(l *line) {
	b.release(l, len(l.held), b.to)
	l.pass(b, l.seen)
	l.split()
	l.settle(b)
	for i := range l.pending {
		b.emit(l, l.idle(&l.pending[i]))
	}
	l.pending = l.pending[:0]
}
