package spans

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/hbtrace/hbtrace/analysis/frames"
	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/trace/tracetest"
)

// history makes up what one thread does: calls that nest, samples that are stamped a little off, and blocking calls
// with samples, signal handlers and further calls inside. Intervals are stored when they have ended, as recordings do.
type history struct {
	r     *rand.Rand
	b     *tracetest.Builder
	th    trace.ThreadID
	now   trace.Ns
	stack []string
	wants []drawnAt
	next  int
}

// drawnAt is an interval that must be drawn with these times, in these functions.
type drawnAt struct {
	start, end trace.Ns
	hook       trace.HookID
}

func (h *history) pass() { h.now += trace.Ns(1 + h.r.IntN(3*ms)) }

// off is by how much the clock of a sample is off.
func (h *history) off() trace.Ns { return trace.Ns(h.r.IntN(400) - 200) }

func (h *history) call(name string, f func()) {
	h.next++
	h.stack = append(h.stack, fmt.Sprintf("%s%d", name, h.next))
	f()
	h.stack = h.stack[:len(h.stack)-1]
}

func (h *history) sample(own int) {
	kinds := []trace.Kind{trace.KindCPU, trace.KindGap, trace.KindRelease, trace.KindAlloc}
	at := h.now + h.off()
	h.b.AddJoined(trace.Event{
		Kind: kinds[h.r.IntN(len(kinds))], Thread: h.th, Time: at, Start: at, Count: 1, CPU: int64(h.r.IntN(1000)),
		Stack: h.b.Stack(h.stack[own:]...),
	})
}

func (h *history) blocking(own, deep int) {
	h.call("wait", func() {
		stack := h.b.Stack(h.stack[own:]...)
		start, hook := h.now, trace.HookID(1000+h.next)
		h.pass()
		for h.r.IntN(3) == 0 {
			h.sample(own) // of the very stack: the kernel's time in the call
			h.pass()
		}
		for deep < 3 && h.r.IntN(3) == 0 {
			from := own
			if h.r.IntN(3) == 0 {
				from = len(h.stack)
			}
			h.call("handler", func() { h.runs(from, deep+1) })
		}
		h.b.AddJoined(
			trace.Event{Kind: trace.KindCall, Hook: hook, Thread: h.th, Start: start, Time: h.now, Count: 1, Stack: stack},
		)
		h.wants = append(h.wants, drawnAt{start, h.now, hook})
	})
	h.pass()
}

func (h *history) runs(own, deep int) {
	for range 1 + h.r.IntN(4) {
		h.pass()
		switch {
		case h.r.IntN(2) == 0:
			h.sample(own)
			h.pass()
		case h.r.IntN(2) == 0:
			h.blocking(own, deep)
		case len(h.stack) < 12:
			h.call("f", func() { h.runs(own, deep) })
		}
	}
}

// TestIntervalsStayInside draws thousands of made-up histories: every interval has its own times whatever lies inside
// it, spans and intervals nest, and the coverage is what the outermost intervals took.
func TestIntervalsStayInside(t *testing.T) {
	for seed := range uint64(3000) {
		b := tracetest.New()
		h := &history{r: rand.New(rand.NewPCG(seed, 1)), b: b, th: b.AddThread(trace.Thread{TID: 1}), now: 100 * ms}
		h.call("start", func() { h.runs(0, 0) })
		b.Meta().EndNs = h.now + 10*ms
		src := b.Source()
		c := &insideChecker{t: t, seed: seed, got: map[trace.HookID]drawnAt{}}
		bl := New(src, frames.New(src), c)
		if err := trace.Events(src, bl.Add); err != nil {
			t.Fatal(err)
		}
		cov, err := bl.Close()
		if err != nil {
			t.Fatal(err)
		}
		var exact int64
		var until trace.Ns
		slices.SortFunc(h.wants, func(x, y drawnAt) int { return int(x.start - y.start) })
		for _, w := range h.wants {
			if c.got[w.hook] != w {
				t.Errorf("seed %d: interval %v is drawn as %v", seed, w, c.got[w.hook])
			}
			if w.start >= until {
				exact += int64(w.end - w.start)
				until = w.end
			}
		}
		if len(c.got) != len(h.wants) {
			t.Errorf("seed %d: %d intervals, %d are drawn", seed, len(h.wants), len(c.got))
		}
		if cov[h.th].Exact != exact {
			t.Errorf("seed %d: %d ns in intervals, %d covered", seed, exact, cov[h.th].Exact)
		}
		if len(c.open) != 0 {
			t.Errorf("seed %d: left open: %v", seed, slices.Collect(maps.Keys(c.got)))
		}
		if t.Failed() {
			return
		}
	}
}

// insideChecker holds what is drawn against the rules of a timeline.
type insideChecker struct {
	t    *testing.T
	seed uint64
	open []drawnAt // spans and intervals that are open
	at   trace.Ns
	got  map[trace.HookID]drawnAt
}

func (c *insideChecker) begin(x drawnAt) {
	if x.start < c.at {
		c.t.Errorf("seed %d: begins at %d, behind %d", c.seed, x.start, c.at)
	}
	c.at = x.start
	c.open = append(c.open, x)
}

func (c *insideChecker) end(start, at trace.Ns) {
	x := c.open[len(c.open)-1]
	if x.start != start || at < c.at || x.end != 0 && x.end != at {
		c.t.Errorf("seed %d: %v ends at %d, latest edge %d", c.seed, x, at, c.at)
	}
	for _, y := range c.open {
		if y.end != 0 && at > y.end {
			c.t.Errorf("seed %d: ends at %d, behind the interval %v around it", c.seed, at, y)
		}
	}
	c.at = at
	c.open = c.open[:len(c.open)-1]
}

func (c *insideChecker) Begin(s *Span) error {
	c.begin(drawnAt{start: s.Start})
	return nil
}

func (c *insideChecker) End(s *Span) error {
	c.end(s.Start, s.End)
	if ns := int64(s.End - s.Start); s.Inner > ns || s.Blocked > ns || s.CPU+s.Blocked > ns ||
		min(s.Inner, s.Blocked, s.CPU) < 0 {
		c.t.Errorf("seed %d: a span of %d ns: %d inside, %d blocked, %d on a CPU", c.seed, ns, s.Inner, s.Blocked, s.CPU)
	}
	return nil
}

func (c *insideChecker) Interval(iv *Interval) error {
	x := drawnAt{iv.Start, iv.End, iv.Event.Hook}
	c.begin(x)
	c.got[x.hook] = x
	return nil
}

func (c *insideChecker) Return(iv *Interval) error {
	c.end(iv.Start, iv.End)
	return nil
}

func (c *insideChecker) Point(*trace.Event, int, uint64) error { return nil }
