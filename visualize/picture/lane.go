// Lanes: what is drawn of one thread, gathered while its events stream by, in columns a pixel or a few wide.

package picture

import (
	"fmt"
	"strings"

	"github.com/hbtrace/hbtrace/analysis/frames"
	"github.com/hbtrace/hbtrace/analysis/spans"
	"github.com/hbtrace/hbtrace/trace"
)

// lane of a thread.
type lane struct {
	thread *trace.Thread
	proc   *trace.Process
	total  totals

	share [states][]float32 // ns in each state, by column
	marks []mark            // intervals wide enough for a tooltip

	skip  int         // outer frames that all its stacks share: not drawn
	under []frames.ID // those frames
	boxes []box       // spans that have a pixel or more
	small [][]vote    // by level and column: the function that most of the thinner spans are of
	depth int         // levels in use

	y, spansY, height float64 // where it is drawn
}

// totals of a thread within the drawn time, in ns.
type totals struct {
	by      [states]int64
	count   [states]uint64
	longest [states]int64
	score   int64
}

func (t *totals) blocked() int64 {
	var ns int64
	for s := locked; s < ready; s++ {
		ns += t.by[s]
	}
	return ns
}

// exact is the time in each state in ns, for programs.
func (t *totals) exact() string {
	var parts []string
	for _, st := range stacked {
		if ns := t.by[st]; ns > 0 {
			parts = append(parts, fmt.Sprintf("%s:%d", st.Label(), ns))
		}
	}
	return strings.Join(parts, " ")
}

// mark is an interval with a tooltip of its own.
type mark struct {
	state      state
	start, end trace.Ns // cut to the drawn time
	took       int64    // ns, all of it
	hook       trace.HookID
	stack      trace.StackID
	object     uint64
	flags      trace.Flags
	releaser   trace.ThreadID
	owner      trace.ThreadID
}

// box is a span as drawn.
type box struct {
	frame      frames.ID
	level      int
	start, end trace.Ns
	stacks     uint64
}

// vote is Boyer and Moore's majority vote over the thin spans of a column, weighted by time.
type vote struct {
	frame  frames.ID
	lead   float32 // ns by which frame leads
	ns     float32 // ns of all of them
	number uint32
}

// scale maps time to columns.
type scale struct {
	from, to trace.Ns
	cols     int
}

func (s scale) col(t trace.Ns) float64 {
	if s.to <= s.from {
		return 0
	}
	return float64(t-s.from) / float64(s.to-s.from) * float64(s.cols)
}

// each calls f for every column that [a, b) touches, with the ns of it in that column.
func (s scale) each(a, b trace.Ns, f func(col int, ns float32)) {
	a, b = max(a, s.from), min(b, s.to)
	if a >= b {
		return
	}
	per := float64(s.to-s.from) / float64(s.cols)
	x, y := s.col(a), s.col(b)
	first, last := int(x), min(int(y), s.cols-1)
	for c := first; c <= last; c++ {
		width := min(y, float64(c+1)) - max(x, float64(c))
		if width > 0 {
			f(c, float32(width*per))
		}
	}
}

// add accounts [a, b) to a state.
func (l *lane) add(s scale, st state, a, b trace.Ns) {
	if l.share[st] == nil {
		l.share[st] = make([]float32, s.cols)
	}
	s.each(a, b, func(c int, ns float32) { l.share[st][c] += ns })
}

// mark keeps an interval that is wide enough for a tooltip.
func (l *lane) mark(s scale, m mark) {
	if s.col(min(m.end, s.to))-s.col(max(m.start, s.from)) >= 3 && m.end > s.from && m.start < s.to {
		m.start, m.end = max(m.start, s.from), min(m.end, s.to)
		l.marks = append(l.marks, m)
	}
}

// span takes a span that has ended.
func (l *lane) span(s scale, sp *spans.Span, levels int) {
	level := sp.Depth - l.skip
	if level < 0 || level >= levels || sp.End <= s.from || sp.Start >= s.to {
		return
	}
	start, end := max(sp.Start, s.from), min(sp.End, s.to)
	l.depth = max(l.depth, level+1)
	if s.col(end)-s.col(start) >= 1.5 {
		l.boxes = append(l.boxes, box{sp.Frame, level, start, end, sp.Stacks})
		return
	}
	l.thin(s, level, sp.Frame, start, end)
}

// thin adds a span to the votes of its columns.
func (l *lane) thin(s scale, level int, frame frames.ID, start, end trace.Ns) {
	for len(l.small) <= level {
		l.small = append(l.small, nil)
	}
	if l.small[level] == nil {
		l.small[level] = make([]vote, s.cols)
	}
	counted := false
	s.each(start, end, func(c int, ns float32) {
		v := &l.small[level][c]
		v.ns += ns
		if !counted {
			v.number++
			counted = true
		}
		switch {
		case v.frame == frame:
			v.lead += ns
		case v.lead >= ns:
			v.lead -= ns
		default:
			v.frame, v.lead = frame, ns-v.lead
		}
	})
}
