package timeline

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hbtrace/hbtrace/analysis/frames"
	"github.com/hbtrace/hbtrace/analysis/weigh"
	"github.com/hbtrace/hbtrace/internal/synthetic"
	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/trace/tracetest"
)

const ms = 1_000_000

// log is a sink that keeps everything, and fails the test where segments break the package's promises.
type log struct {
	t        *testing.T
	src      trace.Source
	of       map[trace.ThreadID][]Segment
	waits    []trace.StackID // by number - 1
	unplaced map[trace.ThreadID]int64
}

func (l *log) Wait(e *trace.Event, from, to trace.Ns, _ weigh.State) uint32 {
	if from < e.Start || to > e.Time || to <= from {
		l.t.Errorf("wait [%d, %d) of [%d, %d)", from, to, e.Start, e.Time)
	}
	l.waits = append(l.waits, e.Stack)
	return uint32(len(l.waits))
}

func (l *log) Work(*trace.Event, trace.Site) uint32 { return 0 }

func (l *log) Segment(id trace.ThreadID, s *Segment) error {
	list := l.of[id]
	if n := len(list); s.To <= s.From || n > 0 && s.From < list[n-1].To {
		l.t.Errorf("thread %d: segment %+v after %+v", id, *s, list[max(0, n-1):])
	}
	if isWait := s.State >= weigh.Locked && s.State <= weigh.Sleeping; isWait != (s.Wait != 0) ||
		isWait && l.waits[s.Wait-1] != s.Site.Stack {
		l.t.Errorf("thread %d: segment %+v", id, *s)
	}
	l.of[id] = append(list, *s)
	return nil
}

func (l *log) Unplaced(id trace.ThreadID, _ trace.Ns, _ trace.Site, _ uint32, cpu int64) error {
	l.unplaced[id] += cpu
	return nil
}

// segmentsOf makes the segments of a recording. Running and unplaced time add up to that of its samples.
func segmentsOf(t *testing.T, src trace.Source) *log {
	t.Helper()
	l := &log{t: t, src: src, of: map[trace.ThreadID][]Segment{}, unplaced: map[trace.ThreadID]int64{}}
	b := New(src, frames.New(src), l)
	sampled := map[trace.ThreadID]int64{}
	err := trace.Events(src, func(e *trace.Event) error {
		if e.Kind == trace.KindCPU || e.Kind == trace.KindThreadExit {
			sampled[e.Thread] += max(0, e.CPU)
		}
		return b.Add(e)
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	for id, want := range sampled {
		got := l.unplaced[id]
		for _, s := range l.of[id] {
			if s.State == weigh.Running {
				got += int64(s.To - s.From)
			}
		}
		if got != want {
			t.Errorf("thread %d: %d ns running or without a place, its samples say %d", id, got, want)
		}
	}
	return l
}

func (l *log) text(id trace.ThreadID) string {
	var parts []string
	for _, s := range l.of[id] {
		at := func(n trace.Ns) string { return strings.TrimSuffix(time.Duration(n).String(), "ms") }
		parts = append(parts, s.State.Label()+":"+at(s.From)+"-"+at(s.To))
	}
	return strings.Join(parts, " ")
}

func TestSegments(t *testing.T) {
	tests := []struct {
		name     string
		make     func(b *tracetest.Builder, th trace.ThreadID)
		want     string
		unplaced int64
	}{
		{
			name: "CPU time is put up against its sample, the rest was off the CPU",
			make: func(b *tracetest.Builder, th trace.ThreadID) {
				b.Sample(th, 10*ms, 4*ms, "main")
			},
			want: "off:0s-6 running:6-10",
		},
		{name: "samples that overlap", make: func(b *tracetest.Builder, th trace.ThreadID) {
			b.Sample(th, 1*ms, 1*ms, "main")
			b.Sample(th, 3*ms, 3*ms, "main")
			b.Sample(th, 4*ms, 1*ms, "main")
		}, want: "running:0s-1 running:1-3 running:3-4", unplaced: 1 * ms},
		{name: "around an interval", make: func(b *tracetest.Builder, th trace.ThreadID) {
			b.Call(th, 2*ms, 8*ms, b.Hook("read"), 3, 1, "main")
			b.Sample(th, 10*ms, 3*ms, "main")
		}, want: "off:0s-1 running:1-2 io:2-8 running:8-10"},
		{name: "what no sample follows is in no segment", make: func(b *tracetest.Builder, th trace.ThreadID) {
			b.Sample(th, 10*ms, 10*ms, "main")
			b.Call(th, 20*ms, 30*ms, b.Hook("read"), 3, 1, "main")
		}, want: "running:0s-10 io:20-30"},
		{name: "the rest of the CPU time comes with the exit", make: func(b *tracetest.Builder, th trace.ThreadID) {
			b.Sample(th, 10*ms, 10*ms, "main")
			b.Add(trace.Event{Kind: trace.KindThreadExit, Thread: th, Time: 14 * ms, CPU: 3 * ms})
			b.Call(th, 15*ms, 16*ms, b.Hook("read"), 3, 1, "main") // of nobody any more
		}, want: "running:0s-10 off:10-11 running:11-14"},
		{name: "after a loss nothing is known", make: func(b *tracetest.Builder, th trace.ThreadID) {
			b.Sample(th, 10*ms, 10*ms, "main")
			b.Add(trace.Event{Kind: trace.KindLost, Thread: th, Time: 20 * ms, Count: 3})
			b.Sample(th, 30*ms, 2*ms, "main")
		}, want: "running:0s-10 off:20-28 running:28-30"},
		{
			name: "intervals that overlap are cut, and never the clock's fault",
			make: func(b *tracetest.Builder, th trace.ThreadID) {
				b.Call(th, 2*ms, 8*ms, b.Hook("read"), 3, 1, "main")
				b.Call(th, 4*ms, 9*ms, b.Hook("read"), 3, 1, "main")
				b.Call(th, 3*ms, 4*ms, b.Hook("read"), 3, 1, "main")
				b.Sample(th, 7*ms, ms, "main")
			},
			want: "off:0s-1 running:1-2 io:2-8 io:8-9",
		},
		{name: "a signal handler that runs and waits inside a wait", make: func(b *tracetest.Builder, th trace.ThreadID) {
			b.Sample(th, 10*ms, 5*ms, "main", "work")
			for at := range trace.Ns(50) { // more than a sampling period, and more samples than are merged
				b.Sample(th, (20+at)*ms, ms, "main", "handler")
			}
			b.Wait(th, 70*ms, 80*ms, b.Hook("pthread_mutex_lock"), 0x10, 0, "main", "handler")
			b.Sample(th, 90*ms, 5*ms, "main", "handler")
			b.Call(th, 12*ms, 100*ms, b.Hook("read"), 3, 1, "main")
			b.Sample(th, 110*ms, 4*ms, "main", "work")
		}, want: "off:0s-5 running:5-10 off:10-12 io:12-19 " + each(19, 69, "running") + "io:69-70 lock:70-80 io:80-85 running:85-90 io:90-100 off:100-106 running:106-110"},
		{
			name: "a sample where the thread came out of a call is of work before it, however deep",
			make: func(b *tracetest.Builder, th trace.ThreadID) {
				b.Sample(th, 4*ms, 4*ms, "main")
				b.Add(
					trace.Event{
						Kind:   trace.KindCPU,
						Flags:  trace.FlagSyscallEnd,
						Thread: th,
						Time:   30 * ms,
						Start:  30 * ms,
						Count:  1,
						CPU:    2 * ms,
						Stack:  b.Stack("main", "read"),
					},
				)
				b.Call(th, 6*ms, 31*ms, b.Hook("read"), 3, 1, "main")
			},
			want: "running:0s-4 running:4-6 io:6-31",
		},
		{name: "a long call into which samples fall", make: func(b *tracetest.Builder, th trace.ThreadID) {
			b.Sample(th, 1*ms, 1*ms, "main")
			for at := range trace.Ns(200) {
				b.Sample(th, (100+at)*ms, ms, "main")
			}
			b.Call(th, 1*ms, 1200*ms, b.Hook("read"), 3, 1, "main")
		}, want: "running:0s-1 io:1-1.2s", unplaced: 200 * ms},
		{name: "the kernel says when it could have run", make: func(b *tracetest.Builder, th trace.ThreadID) {
			b.Add(
				trace.Event{
					Kind:    trace.KindOff,
					Thread:  th,
					Start:   1 * ms,
					Time:    3 * ms,
					Result:  trace.OffInterruptible,
					Release: 2 * ms,
				},
			)
			b.Add(
				trace.Event{
					Kind:    trace.KindOff,
					Thread:  th,
					Start:   5 * ms,
					Time:    7 * ms,
					Result:  trace.OffInterruptible,
					Release: 6 * ms,
				},
			)
			b.Call(th, 4*ms, 8*ms, b.Hook("read"), 3, 1, "main")
			b.Add(trace.Event{Kind: trace.KindOff, Thread: th, Start: 9 * ms, Time: 11 * ms, Result: trace.OffRunnable})
			b.Sample(th, 12*ms, 4*ms, "main")
		}, want: "running:0s-1 off:1-2 ready:2-3 running:3-4 io:4-8 running:8-9 ready:9-11 running:11-12"},
		{name: "more CPU time than there is room for", make: func(b *tracetest.Builder, th trace.ThreadID) {
			b.Sample(th, 5*ms, 50*ms, "main")
		}, want: "running:0s-5", unplaced: 45 * ms},
		{
			name: "a sample within an interval that is added later leaves it whole",
			make: func(b *tracetest.Builder, th trace.ThreadID) {
				b.Sample(th, 2*ms, ms, "main")
				b.Sample(th, 5*ms, ms, "main") // where it came out of the call
				b.Call(th, 4*ms, 6*ms, b.Hook("read"), 3, 1, "main")
				b.Sample(th, 8*ms, ms, "main")
			},
			want: "off:0s-1 running:1-2 off:2-3 running:3-4 io:4-6 off:6-7 running:7-8",
		},
		{
			name: "a sample that counts no time leaves it to the next one to say what ran",
			make: func(b *tracetest.Builder, th trace.ThreadID) {
				b.Sample(th, 3*ms, 0, "main")
				b.Sample(th, 5*ms, 4*ms, "main")
				b.Sample(th, 9*ms, 0, "main")
			},
			want: "off:0s-1 running:1-5 off:5-9",
		},
		{
			name: "CPU time of up to a period may be from before the previous sample",
			make: func(b *tracetest.Builder, th trace.ThreadID) {
				b.Sample(th, 10*ms, 2*ms, "main")
				b.Call(th, 11*ms, 20*ms, b.Hook("read"), 3, 1, "main")
				b.Sample(th, 20*ms, 3*ms, "main")
				b.Sample(th, 21*ms, 1*ms, "main")
			},
			want: "off:0s-6 running:6-8 running:8-10 running:10-11 io:11-20 running:20-21",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := tracetest.New()
			th := b.AddThread(trace.Thread{Proc: b.AddProcess(trace.Process{PID: 1}), TID: 1, Name: "main"})
			tt.make(b, th)
			b.Meta().Freq = 100
			l := segmentsOf(t, b.Source())
			if got := l.text(th); got != tt.want || l.unplaced[th] != tt.unplaced {
				t.Errorf("segments %s, %d ns without a place\nwant     %s, %d", got, l.unplaced[th], tt.want, tt.unplaced)
			}
		})
	}
}

// each is the text of segments of 1 ms.
func each(from, to int, state string) (text string) {
	for at := from; at < to; at++ {
		text += fmt.Sprintf("%s:%d-%d ", state, at, at+1)
	}
	return text
}

// TestPromises: whatever the events are, segments are in order and without overlap, and no CPU time is made up or lost.
func TestPromises(t *testing.T) {
	for name, src := range map[string]trace.Source{"demo": synthetic.Demo(), "synthetic": synthetic.New(20_000, 3)} {
		t.Run(name, func(t *testing.T) { segmentsOf(t, src) })
	}
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		b := tracetest.New()
		ids := []trace.ThreadID{
			b.AddThread(trace.Thread{TID: 1, Name: "a"}),
			b.AddThread(trace.Thread{TID: 2, Name: "b"}),
			1<<16 + 7,
		}
		for range 60 {
			th, at, long := ids[r.IntN(len(ids))], trace.Ns(r.IntN(100))*ms, trace.Ns(r.IntN(20))*ms
			switch r.IntN(8) {
			case 0, 1, 2:
				b.Sample(th, at, int64(long), "main", "f")
			case 3:
				b.Call(th, at, at+long, b.Hook("read"), 3, 1, "main", "g")
			case 4:
				b.Wait(th, at, at+long, b.Hook("pthread_mutex_lock"), 0x10, 0, "main", "h")
			case 5:
				b.Add(
					trace.Event{
						Kind:    trace.KindOff,
						Thread:  th,
						Start:   at,
						Time:    at + long,
						Release: at + long/2,
						Result:  trace.OffInterruptible,
					},
				)
			case 6:
				b.Add(trace.Event{Kind: trace.KindLost, Thread: th, Time: at, Count: 1})
			case 7:
				if r.IntN(30) == 0 {
					b.Add(trace.Event{Kind: trace.KindThreadExit, Thread: th, Time: at, CPU: int64(long)})
					ids[slices.Index(ids, th)] = b.AddThread(trace.Thread{TID: 9, Name: "c"})
				}
			}
		}
		segmentsOf(t, b.Source())
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}
