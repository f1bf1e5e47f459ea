package spans

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/hbtrace/hbtrace/analysis/frames"
	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/trace/tracetest"
)

const ms = 1_000_000

// recorder writes what it is told as text, and checks that it is told it in order.
type recorder struct {
	t     *testing.T
	tab   *frames.Table
	lines []string
	edge  map[trace.ThreadID]trace.Ns
	open  map[trace.ThreadID]int
	in    map[trace.ThreadID][]interval
}

type interval struct {
	start, end trace.Ns
	open       int // spans, when it began
}

func (r *recorder) at(th trace.ThreadID, ns trace.Ns, what string) {
	if ns < r.edge[th] {
		r.t.Errorf("thread %d: %s at %d, behind an edge at %d", th, what, ns, r.edge[th])
	}
	r.edge[th] = ns
}

func (r *recorder) Begin(s *Span) error {
	r.at(s.Thread, s.Start, "begin")
	if s.Depth != r.open[s.Thread] {
		r.t.Errorf("thread %d: begins at depth %d, %d are open", s.Thread, s.Depth, r.open[s.Thread])
	}
	r.open[s.Thread]++
	return nil
}

func ns(n trace.Ns) string { return strings.TrimSuffix(fmt.Sprintf("%.3f", float64(n)/ms), ".000") }

func (r *recorder) End(s *Span) error {
	r.at(s.Thread, s.End, "end")
	r.open[s.Thread]--
	if s.Depth != r.open[s.Thread] {
		r.t.Errorf("thread %d: ends at depth %d, %d are open", s.Thread, s.Depth, r.open[s.Thread])
	}
	e := map[Edge]string{EdgeMiddle: "~", EdgeSeen: "|"}
	r.lines = append(r.lines, fmt.Sprintf("%d %s%s %s%s..%s%s x%d", s.Thread, strings.Repeat(">", s.Depth),
		r.tab.Frame(s.Frame).Name, e[s.StartEdge], ns(s.Start), ns(s.End), e[s.EndEdge], s.Stacks))
	return nil
}

func (r *recorder) Interval(iv *Interval) error {
	th := iv.Event.Thread
	r.at(th, iv.Start, "interval")
	if iv.Depth > r.open[th] {
		r.t.Errorf("thread %d: an interval at depth %d, %d are open", th, iv.Depth, r.open[th])
	}
	r.in[th] = append(r.in[th], interval{iv.Start, iv.End, r.open[th]})
	return nil
}

func (r *recorder) Return(iv *Interval) error {
	th := iv.Event.Thread
	r.at(th, iv.End, "interval's end")
	in := r.in[th]
	if x := in[len(in)-1]; x != (interval{iv.Start, iv.End, r.open[th]}) {
		r.t.Errorf("thread %d: interval %v ended at %d with %d spans open", th, x, iv.End, r.open[th])
	}
	r.in[th] = in[:len(in)-1]
	s := fmt.Sprintf("%d %s(%d) %s..%s", th, strings.Repeat(">", iv.Depth), iv.Event.Hook, ns(iv.Start), ns(iv.End))
	if iv.Clipped {
		s += " clipped"
	}
	r.lines = append(r.lines, s)
	return nil
}

func (r *recorder) Point(e *trace.Event, depth int, _ uint64) error {
	r.at(e.Thread, max(e.Time, r.edge[e.Thread]), "point")
	r.lines = append(r.lines, fmt.Sprintf("%d %spoint %d at %s", e.Thread, strings.Repeat(">", depth), e.Kind, ns(e.Time)))
	return nil
}

type maker struct {
	*tracetest.Builder
	th trace.ThreadID
}

// seen adds a sample at a time given in ms.
func (m maker) seen(kind trace.Kind, at float64, flags trace.Flags, same int, fs ...string) {
	e := trace.Event{
		Kind:   kind,
		Thread: m.th,
		Time:   trace.Ns(at * ms),
		Start:  trace.Ns(at * ms),
		Count:  1,
		Flags:  flags,
		Stack:  m.Stack(fs...),
	}
	if same < 0 {
		m.AddJoined(e)
		return
	}
	e.Same = uint32(same)
	m.Add(e)
}

func (m maker) call(from, to float64, fs ...string) {
	m.Call(m.th, trace.Ns(from*ms), trace.Ns(to*ms), 60, 3, 0, fs...)
}

func TestDiff(t *testing.T) {
	const gap = trace.KindGap
	tests := []struct {
		name string
		make func(m maker)
		want string
		cov  Coverage // thread's life is 0..100 ms
	}{
		{
			name: "close stacks meet in the middle",
			make: func(m maker) {
				m.seen(gap, 10, 0, -1, "start", "f", "g")
				m.seen(gap, 11, 0, -1, "start", "f", "g")
				m.seen(gap, 12, 0, -1, "start", "f", "h")
				m.seen(gap, 14, 0, -1, "start")
			},
			want: "1 >>g |10..11.500~ x2\n1 >>h ~11.500..13~ x1\n1 >f |10..13~ x3\n1 start |10..14| x4",
			cov:  Coverage{Sampled: 4 * ms, Unknown: 96 * ms, Stacks: 4},
		},
		{
			name: "nothing is stretched over time that nobody saw, but what is proven to run on runs on",
			make: func(m maker) {
				m.seen(gap, 10, 0, -1, "start", "f", "g")
				m.seen(gap, 13, 0, -1, "start", "f", "h")
			},
			want: "1 >>g |10..10| x1\n1 >>h |13..13| x1\n1 >f |10..13| x2\n1 start |10..13| x2",
			cov:  Coverage{Unknown: 100 * ms, Stacks: 2},
		},
		{
			name: "two calls of one function are two spans",
			make: func(m maker) {
				m.seen(gap, 10, 0, -1, "start", "f")
				m.seen(gap, 11, 0, 1, "start", "f")
			},
			want: "1 >f |10..10.500~ x1\n1 >f ~10.500..11| x1\n1 start |10..11| x2",
			cov:  Coverage{Sampled: ms, Unknown: 99 * ms, Stacks: 2},
		},
		{
			name: "one call seen at two of its instructions is one span",
			make: func(m maker) {
				m.seen(gap, 10, 0, -1, "start", "f", "g")
				m.seen(gap, 11, trace.FlagSameCall, -1, "start", "f@2", "g")
				m.seen(gap, 12, 0, -1, "start", "f@3", "g")
			},
			want: "1 >>g |10..10.500~ x1\n1 >>g ~10.500..11.500~ x1\n1 >f |10..11.500~ x2\n1 >>g ~11.500..12| x1\n1 >f ~11.500..12| x1\n1 start |10..12| x3",
			cov:  Coverage{Sampled: 2 * ms, Unknown: 98 * ms, Stacks: 3},
		},
		{
			name: "the same call, but not in the same function any more: a tail call",
			make: func(m maker) {
				m.seen(gap, 10, 0, -1, "start", "f")
				m.seen(gap, 11, trace.FlagSameCall, -1, "start", "g")
			},
			want: "1 >f |10..10.500~ x1\n1 >g ~10.500..11| x1\n1 start |10..11| x2",
			cov:  Coverage{Sampled: ms, Unknown: 99 * ms, Stacks: 2},
		},
		{
			name: "inlined functions are frames of their own",
			make: func(m maker) {
				m.seen(gap, 10, 0, -1, "start", "f|g|h")
				m.seen(gap, 11, trace.FlagSameCall, -1, "start", "f|g|i")
				m.seen(gap, 12, trace.FlagSameCall, -1, "start", "f|g@5") // another call of g: f is at another line
				m.seen(gap, 13, trace.FlagSameCall, -1, "start", "f@5")
			},
			want: "1 >>>h |10..10.500~ x1\n1 >>>i ~10.500..11.500~ x1\n1 >>g |10..11.500~ x2\n1 >>g ~11.500..12.500~ x1\n1 >f |10..13| x4\n1 start |10..13| x4",
			cov:  Coverage{Sampled: 3 * ms, Unknown: 97 * ms, Stacks: 4},
		},
		{
			name: "a call without a symbol stays under its first address",
			make: func(m maker) {
				m.seen(gap, 10, 0, -1, "start", "x.so!?@1")
				m.seen(gap, 11, trace.FlagSameCall, -1, "start", "x.so!?@2")
			},
			want: "1 >x.so+0x100f |10..11| x2\n1 start |10..11| x2",
			cov:  Coverage{Sampled: ms, Unknown: 99 * ms, Stacks: 2},
		},
		{
			name: "a merged run supports its stack over its whole length",
			make: func(m maker) {
				m.AddJoined(
					trace.Event{Kind: gap, Thread: m.th, Start: 10 * ms, Time: 40 * ms, Count: 31, Stack: m.Stack("start", "f")},
				)
				m.seen(gap, 41, 0, -1, "start")
			},
			want: "1 >f |10..40.500~ x31\n1 start |10..41| x32",
			cov:  Coverage{Sampled: 31 * ms, Unknown: 69 * ms, Stacks: 32},
		},
		{
			name: "one stack of the same calls seen twice, far apart, is as good as a merged run",
			make: func(m maker) {
				m.seen(gap, 10, 0, -1, "start", "f")
				m.seen(gap, 50, 0, -1, "start", "f")
			},
			want: "1 >f |10..50| x2\n1 start |10..50| x2",
			cov:  Coverage{Sampled: 40 * ms, Unknown: 60 * ms, Stacks: 2},
		},
		{
			name: "intervals are exact",
			make: func(m maker) {
				m.seen(gap, 10, 0, -1, "start", "f")
				m.call(11, 60, "start", "g")
				m.seen(gap, 61, 0, -1, "start")
			},
			want: "1 >f |10..10.500~ x1\n1 >>(60) 11..60\n1 >g ~10.500..60.500~ x1\n1 start |10..61| x3",
			cov:  Coverage{Exact: 49 * ms, Sampled: 2 * ms, Unknown: 49 * ms, Stacks: 3},
		},
		{
			name: "an entry seen a little after the interval's clock was read does not cut it",
			make: func(m maker) {
				m.AddJoined(
					trace.Event{Kind: trace.KindEnter, Thread: m.th, Hook: 60, Time: 10*ms + 500_000, Stack: m.Stack("start", "f")},
				)
				m.call(10, 60, "start", "f")
			},
			want: "1 >>(60) 10..60\n1 >f |10..60| x2\n1 start |10..60| x2",
			cov:  Coverage{Exact: 50 * ms, Unknown: 50 * ms, Stacks: 2},
		},
		{
			name: "an entry with nothing behind it proves nothing of the time after it",
			make: func(m maker) {
				m.AddJoined(trace.Event{Kind: trace.KindEnter, Thread: m.th, Hook: 60, Time: 10 * ms, Stack: m.Stack("start", "f")})
				m.seen(gap, 50, 0, 0, "start", "f")
			},
			want: "1 >f |10..10| x1\n1 start |10..10| x1\n1 >f |50..50| x1\n1 start |50..50| x1",
			cov:  Coverage{Unknown: 100 * ms, Stacks: 2},
		},
		{
			name: "a signal handler inside a call",
			make: func(m maker) {
				m.AddJoined(trace.Event{Kind: trace.KindEnter, Thread: m.th, Hook: 60, Time: 10 * ms, Stack: m.Stack("start", "f")})
				m.seen(gap, 11, 0, -1, "start", "f", "handler")
				m.seen(gap, 12, 0, -1, "start", "f", "handler", "x")
				m.call(10, 20, "start", "f")
			},
			want: "1 >>>x ~11.500..12| x1\n1 >>handler |11..12| x2\n1 >>(60) 10..20\n1 >f |10..20| x4\n1 start |10..20| x4",
			cov:  Coverage{Exact: 10 * ms, Unknown: 90 * ms, Stacks: 4},
		},
		{
			name: "a signal handler inside a call whose entry was not seen, on a stack of its own",
			make: func(m maker) {
				m.Add(trace.Event{Kind: trace.KindThreadStart, Thread: m.th, Time: 0})
				m.seen(gap, 10, 0, 0, "handler")
				m.seen(gap, 11, 0, -1, "handler", "x")
				m.Add(
					trace.Event{
						Kind:   trace.KindCall,
						Hook:   60,
						Thread: m.th,
						Start:  1 * ms,
						Time:   20 * ms,
						Stack:  m.Stack("start", "f"),
					},
				)
				m.seen(gap, 21, 0, 1, "start")
			},
			want: "1 >>>x ~10.500..11| x1\n1 >>handler |10..11| x2\n1 >>(60) 1..20\n1 >f ~0.500..20.500~ x3\n1 start ~0.500..21| x4",
			cov:  Coverage{Exact: 19 * ms, Sampled: 2 * ms, Unknown: 79 * ms, Stacks: 4},
		},
		{
			name: "a thread of which nothing but start and exit was seen",
			make: func(m maker) {
				m.Add(trace.Event{Kind: trace.KindThreadStart, Thread: m.th, Time: 0})
				m.Add(trace.Event{Kind: trace.KindThreadExit, Thread: m.th, Time: ms})
			},
			cov: Coverage{Unknown: 100 * ms},
		},
		{
			name: "a sample inside a call does not shorten it",
			make: func(m maker) {
				m.seen(gap, 1, 0, -1, "start")
				m.seen(trace.KindCPU, 1199.9, trace.FlagSyscallEnd, -1, "start", "wait")
				m.call(20, 1200, "start", "wait")
				m.seen(gap, 1201, 0, -1, "start")
			},
			want: "1 >>(60) 20..1200\n1 >wait |20..1200.500~ x2\n1 start |1..1201| x4",
			cov:  Coverage{Exact: 1180 * ms, Sampled: ms, Stacks: 4},
		},
		{
			name: "a run of samples that goes on inside a call does not shorten it",
			make: func(m maker) {
				m.AddJoined(
					trace.Event{
						Kind:   trace.KindCPU,
						Thread: m.th,
						Start:  10 * ms,
						Time:   40 * ms,
						Count:  3,
						Stack:  m.Stack("start", "f"),
					},
				)
				m.call(20, 50, "start", "f")
			},
			want: "1 >>(60) 20..50\n1 >f |10..50| x4\n1 start |10..50| x4",
			cov:  Coverage{Exact: 30 * ms, Sampled: 10 * ms, Unknown: 60 * ms, Stacks: 4},
		},
		{
			name: "a sample of another call is not inside, whatever its clock says",
			make: func(m maker) {
				m.seen(gap, 10.1, 0, -1, "start", "g")
				m.call(10, 20, "start", "f")
			},
			want: "1 >g |10..10~ x1\n1 >>(60) 10..20\n1 >f ~10..20| x1\n1 start |10..20| x2",
			cov:  Coverage{Exact: 10 * ms, Unknown: 90 * ms, Stacks: 2},
		},
		{
			name: "a run of samples that was stamped when a wait had ended ends with it",
			make: func(m maker) {
				m.AddJoined(
					trace.Event{
						Kind:   trace.KindCPU,
						Thread: m.th,
						Start:  19 * ms,
						Time:   20*ms + 100,
						Count:  2,
						Stack:  m.Stack("start", "f"),
					},
				)
				m.call(10, 20, "start", "f")
			},
			want: "1 >>(60) 10..20\n1 >f |10..20| x3\n1 start |10..20| x3",
			cov:  Coverage{Exact: 10 * ms, Unknown: 90 * ms, Stacks: 3},
		},
		{
			name: "what begins when a call has ended lies behind it, though it was stored before",
			make: func(m maker) {
				m.seen(gap, 13, 0, -1, "start", "f")
				m.seen(gap, 14, 0, -1, "start", "f")
				m.call(10, 12, "start", "g")
			},
			want: "1 >>(60) 10..12\n1 >g |10..12.500~ x1\n1 >f ~12.500..14| x2\n1 start |10..14| x3",
			cov:  Coverage{Exact: 2 * ms, Sampled: 2 * ms, Unknown: 96 * ms, Stacks: 3},
		},
		{
			name: "a wait in a signal handler in a call",
			make: func(m maker) {
				m.seen(gap, 9, 0, -1, "start")
				m.call(12, 14, "start", "f", "handler", "g")
				m.seen(gap, 15, 0, -1, "start", "f", "handler")
				m.call(10, 20, "start", "f")
			},
			want: "1 >>>>(60) 12..14\n1 >>>g |12..14.500~ x1\n1 >>handler |12..15| x2\n1 >>(60) 10..20\n1 >f ~9.500..20| x3\n1 start |9..20| x4",
			cov:  Coverage{Exact: 10 * ms, Sampled: ms, Unknown: 89 * ms, Stacks: 4},
		},
		{
			name: "of two calls that overlap the second is clipped",
			make: func(m maker) {
				m.call(10, 20, "start", "f")
				m.call(15, 30, "start", "g")
			},
			want: "1 >>(60) 10..20\n1 >f |10..20~ x1\n1 >>(60) 20..30 clipped\n1 >g ~20..30| x1\n1 start |10..30| x2",
			cov:  Coverage{Exact: 20 * ms, Unknown: 80 * ms, Stacks: 2, Clipped: 1},
		},
		{
			name: "loss ends everything where it was last seen",
			make: func(m maker) {
				m.seen(gap, 10, 0, -1, "start", "f")
				m.Add(trace.Event{Kind: trace.KindLost, Thread: m.th, Time: 11 * ms, Count: 3})
				m.seen(gap, 11, 0, 0, "start", "f")
			},
			want: "1 >f |10..10| x1\n1 start |10..10| x1\n1 point 12 at 11\n1 >f |11..11| x1\n1 start |11..11| x1",
			cov:  Coverage{Unknown: 100 * ms, Stacks: 2},
		},
		{
			name: "a thread's start and exit are sightings of an empty stack",
			make: func(m maker) {
				m.Add(trace.Event{Kind: trace.KindThreadStart, Thread: m.th, Time: 0})
				m.seen(gap, 1, 0, -1, "start")
				m.Add(trace.Event{Kind: trace.KindThreadExit, Thread: m.th, Time: 2 * ms, Stack: m.Stack("start")})
			},
			want: "1 start ~0.500..1.500~ x1",
			cov:  Coverage{Sampled: 2 * ms, Unknown: 98 * ms, Stacks: 1},
		},
		{
			name: "an interval without a stack lies at the bottom; samples without one say nothing",
			make: func(m maker) {
				m.seen(gap, 10, 0, -1, "start", "f")
				m.Add(
					trace.Event{
						Kind:   trace.KindCPU,
						Thread: m.th,
						Time:   10*ms + 1,
						Start:  10*ms + 1,
						Count:  1,
						Flags:  trace.FlagNoStack,
					},
				)
				m.Add(
					trace.Event{
						Kind:   trace.KindCall,
						Hook:   60,
						Thread: m.th,
						Start:  11 * ms,
						Time:   20 * ms,
						Flags:  trace.FlagNoStack,
						Count:  1,
					},
				)
				m.seen(gap, 21, 0, 2, "start", "f")
			},
			want: "1 >f |10..10.500~ x1\n1 start |10..10.500~ x1\n1 (60) 11..20\n1 >f ~20.500..21| x1\n1 start ~20.500..21| x1",
			cov:  Coverage{Exact: 9 * ms, Sampled: 2 * ms, Unknown: 89 * ms, Stacks: 2},
		},
		{
			name: "a release is a point on its stack",
			make: func(m maker) {
				m.AddJoined(
					trace.Event{Kind: trace.KindRelease, Hook: 24, Thread: m.th, Time: 10 * ms, Stack: m.Stack("start", "unlock")},
				)
			},
			want: "1 >>point 7 at 10\n1 >unlock |10..10| x1\n1 start |10..10| x1",
			cov:  Coverage{Unknown: 100 * ms, Stacks: 1},
		},
		{
			name: "times that go back and a Same that is a lie do no harm",
			make: func(m maker) {
				m.seen(gap, 10, 0, 0, "start", "f")
				m.seen(gap, 5, 0, 9, "start", "g", "h")
				m.Add(
					trace.Event{
						Kind:   trace.KindCall,
						Hook:   60,
						Thread: m.th,
						Start:  9 * ms,
						Time:   8 * ms,
						Same:   77,
						Stack:  m.Stack("other"),
					},
				)
				m.Add(trace.Event{Kind: gap, Thread: m.th, Time: 12 * ms, Start: 12 * ms, Stack: 999_999})
			},
			want: "1 >f |10..10~ x1\n1 >>h ~10..10~ x1\n1 >g ~10..10~ x1\n1 start |10..10~ x2\n1 >(60) 10..10 clipped\n1 other ~10..10| x1",
			cov:  Coverage{Unknown: 100 * ms, Stacks: 3, Clipped: 2},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := tracetest.New()
			b.Meta().EndNs = 100 * ms
			m := maker{b, b.AddThread(trace.Thread{TID: 1})}
			tt.make(m)
			src := b.Source()
			r := &recorder{
				t:    t,
				tab:  frames.New(src),
				edge: map[trace.ThreadID]trace.Ns{},
				open: map[trace.ThreadID]int{},
				in:   map[trace.ThreadID][]interval{},
			}
			bl := New(src, r.tab, r)
			if err := trace.Events(src, bl.Add); err != nil {
				t.Fatal(err)
			}
			cov, err := bl.Close()
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(r.lines, "\n"); got != tt.want {
				t.Errorf("got\n%s\nwant\n%s", got, tt.want)
			}
			if cov[1] != tt.cov {
				t.Errorf("coverage %+v, want %+v", cov[1], tt.cov)
			}
			if r.open[1] != 0 {
				t.Errorf("%d spans were left open", r.open[1])
			}
		})
	}
}

func TestThreadsAreKeptApartAndForgotten(t *testing.T) {
	b := tracetest.New()
	var ids []trace.ThreadID
	for i := range 5 {
		ids = append(ids, b.AddThread(trace.Thread{TID: i + 1}))
	}
	for i := range 10 {
		for _, id := range ids {
			b.Sample(id, trace.Ns(i*ms), 1, "start", fmt.Sprint("f", id))
		}
	}
	for _, id := range ids[:4] {
		b.Add(trace.Event{Kind: trace.KindThreadExit, Thread: id, Time: 10 * ms})
	}
	src := b.Source()
	r := &recorder{
		t:    t,
		tab:  frames.New(src),
		edge: map[trace.ThreadID]trace.Ns{},
		open: map[trace.ThreadID]int{},
		in:   map[trace.ThreadID][]interval{},
	}
	bl := New(src, r.tab, r)
	if err := trace.Events(src, bl.Add); err != nil {
		t.Fatal(err)
	}
	if bl.live.Len() > 1 {
		t.Errorf("%d threads kept, 1 lives", bl.live.Len())
	}
	if _, err := bl.Close(); err != nil {
		t.Fatal(err)
	}
	if len(r.lines) != 10 || !slices.Contains(r.lines, "4 >f4 |0..9.500~ x10") {
		t.Errorf("spans\n%s", strings.Join(r.lines, "\n"))
	}
}
