// The timeline: which threads are drawn, and what is gathered of them in two passes over the events.

package picture

import (
	"cmp"
	"fmt"
	"io"
	"slices"

	"github.com/hbtrace/hbtrace/analysis/frames"
	"github.com/hbtrace/hbtrace/analysis/spans"
	segments "github.com/hbtrace/hbtrace/analysis/timeline"
	"github.com/hbtrace/hbtrace/trace"
)

// Options of [Timeline]. The zero value draws the whole recording.
type Options struct {
	From, To   trace.Ns // CLOCK_MONOTONIC; both 0: from the first instant to the last
	MaxThreads int      // lanes; 0: 16, at most 1000. The most active threads get them, the picture says how many did not
	Width      int      // CSS pixels, 640 to 8192; 0: 1200
}

const (
	defaultLanes = 16
	mostLanes    = 1000
	defaultWidth = 1200
	leastWidth   = 640
	mostWidth    = 8192
	farNs        = trace.Ns(1) << 61 // times beyond are nonsense, and would overflow
)

// levelsFor is how many levels of spans a lane has room for when there are n lanes.
func levelsFor(n int) int {
	for _, x := range []struct{ lanes, levels int }{{3, 9}, {6, 6}, {10, 4}, {16, 3}, {24, 2}} {
		if n <= x.lanes {
			return x.levels
		}
	}
	return 0
}

// timeline is everything that is drawn.
type timeline struct {
	src    trace.Source
	tab    *frames.Table
	o      Options
	scale  scale
	wide   float64 // pixels per column
	lanes  []*lane // in order from the top
	byID   trace.PerThread[lane]
	levels int
	hidden int   // threads without a lane
	hidCPU int64 // ns of CPU time of theirs
	arrows []arrow
	module map[trace.ModuleID]hsl
	lost   uint64
}

// arrow goes from who let go to who waited.
type arrow struct {
	mark
	waiter  trace.ThreadID
	release trace.Ns
	end     trace.Ns
}

// Timeline draws threads as lanes over time: what each was doing, its calls below, and arrows from the thread
// that let go of a lock to the one that waited for it. The picture is SVG, needs no script and stays below
// 2 MB. It reads src twice.
func Timeline(w io.Writer, src trace.Source, o Options) error {
	if o.MaxThreads <= 0 {
		o.MaxThreads = defaultLanes
	}
	o.MaxThreads = min(o.MaxThreads, mostLanes)
	if o.Width <= 0 {
		o.Width = defaultWidth
	}
	o.Width = max(leastWidth, min(o.Width, mostWidth))
	tab := frames.New(src)
	t := &timeline{src: src, tab: tab, o: o}
	if err := t.choose(); err != nil {
		return fmt.Errorf("choosing threads for the timeline: %w", err)
	}
	if err := t.gather(); err != nil {
		return fmt.Errorf("reading events for the timeline: %w", err)
	}
	return t.draw(w)
}

func clamp(at trace.Ns) trace.Ns { return max(-farNs, min(farNs, at)) }

// window is the drawn time. Recordings without a span of their own get that of their events.
func (t *timeline) window(first, last trace.Ns) {
	from, to := t.o.From, t.o.To
	if from == 0 {
		from = t.src.Meta().StartNs
	}
	if to == 0 {
		to = t.src.Meta().EndNs
	}
	if to <= from {
		from, to = first, last
	}
	from, to = clamp(from), clamp(to)
	if to <= from {
		to = from + 1
	}
	t.scale.from, t.scale.to = from, to
}

// candidate is a thread as the first pass sees it.
type candidate struct {
	thread *trace.Thread
	lane   *lane
	stacks map[trace.StackID]*int64 // what they weigh: ns
	events uint64
}

// maxStacks bounds the stacks read per thread to find its common outer frames.
const maxStacks = 1024

// choose reads the events once, to find the most active threads within the window and what their stacks share.
func (t *timeline) choose() error {
	first, last := trace.Ns(farNs), -trace.Ns(farNs)
	if m := t.src.Meta(); t.o.From == 0 && t.o.To == 0 && m.EndNs <= m.StartNs {
		err := trace.Events(t.src, func(e *trace.Event) error {
			first, last = min(first, clamp(min(e.Start, e.Time))), max(last, clamp(e.Time))
			return nil
		})
		if err != nil {
			return err
		}
	}
	t.window(first, last)
	by := &trace.PerThread[candidate]{}
	threads := t.src.Threads()
	for i := range threads {
		th := &threads[i]
		by.Put(th.ID, &candidate{thread: th, lane: &lane{thread: th}, stacks: map[trace.StackID]*int64{}})
	}
	sums := chooser{t: t, by: by, caused: map[trace.ThreadID]int64{}}
	line := segments.New(t.src, t.tab, &sums)
	err := trace.Events(t.src, func(e *trace.Event) error {
		if e.Kind == trace.KindLost {
			t.lost += uint64(e.Count)
		}
		c := by.Get(e.Thread)
		if c == nil {
			th := &trace.Thread{ID: e.Thread, CPU: -1}
			c = &candidate{thread: th, lane: &lane{thread: th}, stacks: map[trace.StackID]*int64{}}
			by.Put(e.Thread, c)
		}
		if err := line.Add(e); err != nil {
			return err
		}
		start, end := clamp(min(e.Start, e.Time)), clamp(e.Time)
		if end < t.scale.from || start > t.scale.to {
			return nil
		}
		c.events++
		weight := int64(1)
		switch e.Kind {
		case trace.KindCPU, trace.KindThreadExit:
			weight += max(0, min(e.CPU, 1<<40))
		case trace.KindWait, trace.KindCall:
			weight += int64(min(end, t.scale.to) - max(start, t.scale.from))
		}
		if e.Stack != 0 && e.Flags&trace.FlagStackCut == 0 {
			sum := c.stacks[e.Stack]
			if sum == nil && len(c.stacks) < maxStacks {
				sum = new(int64)
				c.stacks[e.Stack] = sum
			}
			if sum != nil {
				*sum += weight
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := line.Close(); err != nil {
		return err
	}
	t.pick(by, sums.caused)
	return nil
}

// chooser adds up what threads did within the window.
type chooser struct {
	segments.Discard
	t      *timeline
	by     *trace.PerThread[candidate]
	caused map[trace.ThreadID]int64 // ns that others waited for a lock that this thread had
}

// Wait implements [segments.Sink].
func (c *chooser) Wait(e *trace.Event, from, to trace.Ns, st state) uint32 {
	if ns := c.t.within(from, to); ns > 0 {
		tot := &c.by.Get(e.Thread).lane.total
		tot.count[st]++
		tot.longest[st] = max(tot.longest[st], int64(to-from))
		if st == locked && e.Releaser != 0 {
			c.caused[e.Releaser] += ns
		}
	}
	return 0
}

// Segment implements [segments.Sink].
func (c *chooser) Segment(id trace.ThreadID, s *segments.Segment) error {
	c.by.Get(id).lane.total.by[s.State] += c.t.within(s.From, s.To)
	return nil
}

// within is how much of [from, to) is drawn, in ns.
func (t *timeline) within(from, to trace.Ns) int64 {
	return max(0, int64(min(to, t.scale.to)-max(from, t.scale.from)))
}

// pick gives lanes to the most active threads, grouped by process. Who holds up others is active too.
func (t *timeline) pick(by *trace.PerThread[candidate], caused map[trace.ThreadID]int64) {
	var all []*candidate
	for id, c := range by.All() {
		tot := &c.lane.total
		tot.score = tot.by[running] + tot.by[locked] + tot.by[inout]/2 + caused[id]
		if c.events > 0 || c.thread.TID != 0 {
			all = append(all, c)
		}
	}
	slices.SortFunc(all, func(a, b *candidate) int {
		return cmp.Or(cmp.Compare(b.lane.total.score, a.lane.total.score), cmp.Compare(b.events, a.events),
			cmp.Compare(a.thread.ID, b.thread.ID))
	})
	n := min(len(all), t.o.MaxThreads)
	for _, c := range all[n:] {
		t.hidden++
		t.hidCPU += c.lane.total.by[running]
	}
	t.levels = levelsFor(n)
	procs := map[trace.ProcID]*trace.Process{}
	list := t.src.Processes()
	for i := range list {
		procs[list[i].ID] = &list[i]
	}
	rank := map[trace.ProcID]int{} // of a process: that of its most active thread
	for i, c := range all[:n] {
		l := c.lane
		l.proc = procs[l.thread.Proc]
		if _, ok := rank[l.thread.Proc]; !ok {
			rank[l.thread.Proc] = i
		}
		l.skip, l.under = t.shared(c.stacks)
		t.lanes = append(t.lanes, l)
		t.byID.Put(l.thread.ID, l)
	}
	slices.SortStableFunc(t.lanes, func(a, b *lane) int {
		return cmp.Compare(rank[a.thread.Proc], rank[b.thread.Proc])
	})
	plot := float64(t.o.Width) - gutter - margin
	t.wide = 1
	for float64(n)*plot/t.wide > 200*1200 { // bounds memory: coarser columns for more lanes
		t.wide *= 2
	}
	t.scale.cols = max(1, int(plot/t.wide))
}

// shared finds the outer frames that (nearly) all of a thread's stacks begin with, so that the levels drawn are
// those that tell something. It leaves as many frames as there is room for.
func (t *timeline) shared(stacks map[trace.StackID]*int64) (skip int, under []frames.ID) {
	const nearly = 0.97
	type walk struct {
		ids    []frames.ID
		weight int64
	}
	var walks []walk
	var all float64
	deepest := 0
	ids := make([]trace.StackID, 0, len(stacks))
	for id := range stacks {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for _, id := range ids {
		w := walk{weight: *stacks[id]}
		for _, node := range t.tab.Path(nil, id) {
			for _, at := range t.tab.Of(node) {
				w.ids = append(w.ids, at.ID)
			}
		}
		deepest = max(deepest, len(w.ids))
		all += float64(w.weight)
		walks = append(walks, w)
	}
	for len(under) < deepest-t.levels {
		level := len(under)
		by := map[frames.ID]float64{}
		for _, w := range walks {
			if level < len(w.ids) {
				by[w.ids[level]] += float64(w.weight)
			}
		}
		var most frames.ID
		for id, weight := range by {
			if weight > by[most] || weight == by[most] && id < most {
				most = id
			}
		}
		if most == 0 || by[most] < nearly*all {
			break
		}
		under = append(under, most)
		walks = slices.DeleteFunc(walks, func(w walk) bool { return level >= len(w.ids) || w.ids[level] != most })
	}
	return len(under), under
}

// gather reads the events again, and fills the lanes.
func (t *timeline) gather() error {
	line := segments.New(t.src, t.tab, sink{t: t})
	b := spans.New(t.src, t.tab, sink{t: t}, line.Step)
	err := trace.Events(t.src, func(e *trace.Event) error {
		l := t.byID.Get(e.Thread)
		if l == nil {
			return nil
		}
		if t.levels == 0 {
			return line.Add(e)
		}
		ev := *e
		ev.Start, ev.Time = clamp(e.Start), clamp(e.Time)
		return b.Add(&ev)
	})
	if err != nil {
		return err
	}
	if _, err := b.Close(); err != nil {
		return err
	}
	if err := line.Close(); err != nil {
		return err
	}
	t.longest(maxArrows * 4)
	return nil
}

const maxArrows = 24

// arrow keeps a wait whose releaser has a lane.
func (t *timeline) arrow(e *trace.Event, m mark) {
	if e.Kind != trace.KindWait || e.Releaser == 0 || e.Releaser == e.Thread || t.byID.Get(e.Releaser) == nil {
		return
	}
	if m.end > t.scale.to || m.end < t.scale.from {
		return
	}
	release := clamp(e.Release)
	if release < m.start || release > m.end { // unknown, or not of this wait: it ended when the wait did
		release = m.end
	}
	t.arrows = append(t.arrows, arrow{m, e.Thread, release, m.end})
	if len(t.arrows) > 4096 {
		t.longest(maxArrows * 4)
	}
}

// longest keeps the n arrows of the longest waits; waits for a lock come before waits for a signal.
func (t *timeline) longest(n int) {
	slices.SortFunc(t.arrows, func(a, b arrow) int {
		return cmp.Or(cmp.Compare(a.state, b.state), cmp.Compare(b.took, a.took), cmp.Compare(a.end, b.end),
			cmp.Compare(a.waiter, b.waiter))
	})
	t.arrows = t.arrows[:min(n, len(t.arrows))]
}

// sink takes segments and, as they end, spans.
type sink struct {
	segments.Discard
	t *timeline
}

// Wait implements [segments.Sink].
func (s sink) Wait(e *trace.Event, from, to trace.Ns, st state) uint32 {
	m := mark{st, from, to, int64(to - from), e.Hook, e.Stack, e.Object, e.Flags, e.Releaser, e.Owner}
	s.t.arrow(e, m)
	s.t.byID.Get(e.Thread).mark(s.t.scale, m)
	return 0
}

// Segment implements [segments.Sink].
func (s sink) Segment(id trace.ThreadID, x *segments.Segment) error {
	s.t.byID.Get(id).add(s.t.scale, x.State, x.From, x.To)
	return nil
}

func (s sink) Begin(*spans.Span) error { return nil }

func (s sink) End(sp *spans.Span) error {
	if l := s.t.byID.Get(sp.Thread); l != nil {
		l.span(s.t.scale, sp, s.t.levels)
	}
	return nil
}

func (sink) Interval(*spans.Interval) error        { return nil }
func (sink) Return(*spans.Interval) error          { return nil }
func (sink) Point(*trace.Event, int, uint64) error { return nil }
