package tracetest

import (
	"errors"
	"strings"
	"testing"

	"github.com/hbtrace/hbtrace/trace"
)

const ms = 1_000_000

// recording builds a small recording that keeps every invariant; change edits it before it is checked.
func recording(change func(b *Builder, r *editable)) trace.Source {
	b := New()
	p := b.AddProcess(trace.Process{PID: 100, Start: 1 * ms, Exe: "/bin/app"})
	b.AddThread(trace.Thread{Proc: p, TID: 100, Name: "app", Main: true, Start: 1 * ms, CPU: 30 * ms, Samples: 5})
	b.AddThread(
		trace.Thread{Proc: p, TID: 101, Parent: 1, Name: "worker", Start: 2 * ms, End: 90 * ms, CPU: 12 * ms, Samples: 5},
	)
	for t, at := range map[trace.ThreadID]trace.Ns{1: 1 * ms, 2: 2 * ms} {
		b.AddJoined(trace.Event{Kind: trace.KindThreadStart, Thread: t, Time: at, Flags: trace.FlagNoStack})
	}
	b.Sample(1, 10*ms, 10*ms, "main", "f", "g")
	b.Sample(1, 20*ms, 10*ms, "main", "f", "h")
	b.Sample(2, 20*ms, 10*ms, "start", "work")
	b.Wait(2, 30*ms, 50*ms, b.Hook("pthread_mutex_lock"), 0x7000, 1, "start", "work", "lock")
	b.Call(1, 40*ms, 60*ms, b.Hook("read"), 3, -11, "main", "f", "r")
	b.Alloc(2, 60*ms, 0x9000, 100, 512<<10, "start", "work", "alloc")
	b.Free(1, 70*ms, 0x9000)
	b.Alloc(2, 70*ms, 0x9000, 10, 512<<10, "start", "work", "alloc")
	b.AddJoined(trace.Event{Kind: trace.KindThreadExit, Thread: 2, Time: 90 * ms, CPU: 2 * ms, Flags: trace.FlagNoStack})
	b.Meta().StartNs, b.Meta().EndNs, b.Meta().ExitStatus = 0, 100*ms, 0
	r := &editable{}
	if change != nil {
		change(b, r)
	}
	r.Source = b.Source()
	return r
}

// editable is a source whose tables a test can falsify after the builder made them consistent.
type editable struct {
	*Source
	procs   func([]trace.Process) []trace.Process
	threads func([]trace.Thread) []trace.Thread
	modules func([]trace.Module) []trace.Module
	node    func(trace.StackID, trace.Node) trace.Node
	nodes   int
	event   func(n int, e *trace.Event)
	symbols []trace.SymFrame
	stats   func(*trace.Stats)
	fail    error
}

func (s *editable) Processes() []trace.Process { return apply(s.procs, s.Source.Processes()) }
func (s *editable) Threads() []trace.Thread    { return apply(s.threads, s.Source.Threads()) }
func (s *editable) Modules() []trace.Module    { return apply(s.modules, s.Source.Modules()) }

func apply[T any](f func([]T) []T, in []T) []T {
	in = append([]T(nil), in...)
	if f != nil {
		return f(in)
	}
	return in
}

func (s *editable) Stats() *trace.Stats {
	st := *s.Source.Stats()
	if s.stats != nil {
		s.stats(&st)
	}
	return &st
}

func (s *editable) Node(id trace.StackID) trace.Node {
	n := s.Source.Node(id)
	if s.node != nil {
		return s.node(id, n)
	}
	return n
}

func (s *editable) Symbols(id trace.StackID) []trace.SymFrame {
	if s.symbols != nil {
		return s.symbols
	}
	return s.Source.Symbols(id)
}

func (s *editable) EventBatches(f func([]trace.Event, func()) error) error {
	return trace.InBatches(s.each, f)
}

func (s *editable) each(f func(*trace.Event) error) error {
	n := 0
	err := trace.Events(s.Source, func(e *trace.Event) error {
		if s.event != nil {
			s.event(n, e)
		}
		n++
		return f(e)
	})
	return errors.Join(err, s.fail)
}

func TestGoodRecording(t *testing.T) {
	if err := Validate(recording(nil)); err != nil {
		t.Fatal(err)
	}
}

// TestEachInvariant breaks one thing at a time: each must be found, and named.
func TestEachInvariant(t *testing.T) {
	proc := func(f func(*trace.Process)) func(*Builder, *editable) {
		return func(_ *Builder, r *editable) {
			r.procs = func(p []trace.Process) []trace.Process { f(&p[0]); return p }
		}
	}
	thread := func(f func(*trace.Thread)) func(*Builder, *editable) {
		return func(_ *Builder, r *editable) {
			r.threads = func(t []trace.Thread) []trace.Thread { f(&t[1]); return t }
		}
	}
	module := func(f func(*trace.Module)) func(*Builder, *editable) {
		return func(_ *Builder, r *editable) {
			r.modules = func(m []trace.Module) []trace.Module { f(&m[0]); return m }
		}
	}
	node := func(f func(*trace.Node)) func(*Builder, *editable) {
		return func(_ *Builder, r *editable) {
			r.node = func(id trace.StackID, n trace.Node) trace.Node {
				if id == 2 {
					f(&n)
				}
				return n
			}
		}
	}
	// event changes every event of a kind.
	event := func(k trace.Kind, f func(*trace.Event)) func(*Builder, *editable) {
		return func(_ *Builder, r *editable) {
			r.event = func(_ int, e *trace.Event) {
				if e.Kind == k {
					f(e)
				}
			}
		}
	}
	add := func(e trace.Event) func(*Builder, *editable) {
		return func(b *Builder, _ *editable) {
			if e.Count == 0 {
				e.Count = 1
			}
			b.Add(e)
		}
	}
	stats := func(f func(*trace.Stats)) func(*Builder, *editable) {
		return func(_ *Builder, r *editable) { r.stats = f }
	}
	meta := func(f func(*trace.Meta)) func(*Builder, *editable) {
		return func(b *Builder, _ *editable) { f(b.Meta()) }
	}
	symbols := func(s ...trace.SymFrame) func(*Builder, *editable) {
		return func(_ *Builder, r *editable) { r.symbols = s }
	}

	for _, c := range []struct {
		name   string
		change func(*Builder, *editable)
		want   string
	}{
		{"meta end", meta(func(m *trace.Meta) { m.StartNs = 200 * ms }), "before its start"},
		{"meta CPUs", meta(func(m *trace.Meta) { m.CPUs = 0 }), "0 CPUs"},
		{"meta tick", meta(func(m *trace.Meta) { m.TickNs = 0 }), "tick of 0"},
		{"meta freq", meta(func(m *trace.Meta) { m.Freq = -1 }), "frequency -1"},
		{"meta status", meta(func(m *trace.Meta) { m.ExitStatus = 256 }), "exit status 256"},
		{"meta signal", meta(func(m *trace.Meta) { m.ExitSignal = 65 }), "exit signal 65"},
		{"meta version", meta(func(m *trace.Meta) { m.Version = "" }), "version"},
		{"meta hook", meta(func(m *trace.Meta) { m.Hooks[99] = trace.HookInfo{} }), "hook 99"},

		{"process id", proc(func(p *trace.Process) { p.ID = 7 }), "process 7 stands at place 1"},
		{"process parent", proc(func(p *trace.Process) { p.Parent = 2 }), "parent 2 of 1"},
		{"process its own parent", proc(func(p *trace.Process) { p.Parent = 1 }), "parent 1 of 1"},
		{"process forked", proc(func(p *trace.Process) { p.Forked = true }), "forked by nobody"},
		{"process pid", proc(func(p *trace.Process) { p.PID = 0 }), "pid 0"},
		{"process end", proc(func(p *trace.Process) { p.End = 1 }), "before its start"},
		{"process late", proc(func(p *trace.Process) { p.Start = 200 * ms }), "after the recording's end"},

		{"thread id", thread(func(x *trace.Thread) { x.ID = 1 }), "stands at place 2"},
		{"thread process", thread(func(x *trace.Thread) { x.Proc = 9 }), "process 9 of 1"},
		{"thread parent", thread(func(x *trace.Thread) { x.Parent = 3 }), "parent 3 of 2"},
		{"thread main", thread(func(x *trace.Thread) { x.Main = true }), "both the main thread"},
		{"thread tid", thread(func(x *trace.Thread) { x.TID = 0 }), "tid 0"},
		{"thread end", thread(func(x *trace.Thread) { x.End = 1 }), "before its start"},
		{"thread slow calls", thread(func(x *trace.Thread) { x.CallsSlow = 1 }), "1 slow calls of 0"},
		{"thread waits", thread(func(x *trace.Thread) { x.WaitNs = 5 }), "5 ns in 0 waits"},
		{"thread bytes", thread(func(x *trace.Thread) { x.AllocBytes = 5 }), "5 bytes in no object"},
		{"thread routine", thread(func(x *trace.Thread) { x.StartRoutine.Module = 9 }), "module 9"},
		{"thread CPU", thread(func(x *trace.Thread) { x.CPU = -2 }), "-2 ns of CPU"},
		{"thread ended open", thread(func(x *trace.Thread) { x.End = 0 }), "exit event and no end"},
		{"thread samples", thread(func(x *trace.Thread) { x.Samples = 0 }), "took 0 samples, 1 are stored"},

		{"module id", module(func(m *trace.Module) { m.ID = 2 }), "module 2 stands at place 1"},
		{"module path", module(func(m *trace.Module) { m.Path = "" }), "no path"},
		{"module range", module(func(m *trace.Module) { m.Hi = 1 }), "covers"},
		{"module build id", module(func(m *trace.Module) { m.BuildID = "AB" }), "build id"},
		{"module variable", module(func(m *trace.Module) { m.Variables = map[uint64]trace.Variable{1: {Name: "far", Off: 2}} }), "a variable \"far\""},
		{"module kind", module(func(m *trace.Module) { m.Kind = 9 }), "kind 9"},

		{"node parent", node(func(n *trace.Node) { n.Parent = 2 }), "parents come first"},
		{"node module", node(func(n *trace.Node) { n.Addr.Module = 9 }), "module 9"},
		{"node how", node(func(n *trace.Node) { n.How = 0 }), "found in way 0"},
		{"node mark", node(func(n *trace.Node) { n.How = trace.HowMark }), "want a number of frames"},
		{"node zero", func(_ *Builder, r *editable) {
			r.node = func(id trace.StackID, n trace.Node) trace.Node {
				if id == 0 {
					n.Addr.Off = 1
				}
				return n
			}
		}, "want the zero node"},
		{"symbol name", symbols(trace.SymFrame{}), "has no name"},
		{"symbol inlined last", symbols(trace.SymFrame{Func: "f", Inlined: true}), "inlined=true"},
		{"symbol not inlined", symbols(trace.SymFrame{Func: "f"}, trace.SymFrame{Func: "g"}), "inlined=false"},
		{"symbol line", symbols(trace.SymFrame{Func: "f", Line: 3}), "line 3"},

		{"event kind", event(trace.KindCPU, func(e *trace.Event) { e.Kind = 99 }), "unknown kind"},
		{"event thread", event(trace.KindCPU, func(e *trace.Event) { e.Thread = 9 }), "there are 2 threads"},
		{"event start", event(trace.KindWait, func(e *trace.Event) { e.Start = e.Time + 1 }), "after its end"},
		{"event moment", event(trace.KindFree, func(e *trace.Event) { e.Start-- }), "is a moment"},
		{"event late", event(trace.KindFree, func(e *trace.Event) { e.Time, e.Start = 300*ms, 300*ms }), "after the recording's end"},
		{"event back in time", event(trace.KindFree, func(e *trace.Event) { e.Time, e.Start = 5*ms, 5*ms }), "before the thread's previous event"},
		{"event field", event(trace.KindCPU, func(e *trace.Event) { e.Debt = 4 }), "does not use Debt"},
		{"event count", event(trace.KindWait, func(e *trace.Event) { e.Count = 0 }), "stands for 0"},
		{"event merged", event(trace.KindWait, func(e *trace.Event) { e.Count = 2 }), "never is"},
		{"event CPU", event(trace.KindCPU, func(e *trace.Event) { e.CPU = -1 }), "CPU -1"},
		{"event hook", event(trace.KindWait, func(e *trace.Event) { e.Hook = 999 }), "not in the table"},
		{"event stack", event(trace.KindCPU, func(e *trace.Event) { e.Stack = 999 }), "stack 999"},
		{"event no stack", event(trace.KindCPU, func(e *trace.Event) { e.Flags |= trace.FlagNoStack }), "says that it has none"},
		{"event same without a stack", event(trace.KindFree, func(e *trace.Event) { e.Same = 1 }), "of no stack"},
		{"event same too deep", event(trace.KindWait, func(e *trace.Event) { e.Same = 9 }), "of a stack of 3"},
		{"event same of other frames", event(trace.KindCall, func(e *trace.Event) { e.Same = 3 }), "has others"},
		{"event same of a shorter stack", event(trace.KindWait, func(e *trace.Event) { e.Same = 3 }), "as in a stack of 2"},
		{"event same call", event(trace.KindWait, func(e *trace.Event) { e.Flags |= trace.FlagSameCall }), "said to go on"},
		{"event owner", event(trace.KindWait, func(e *trace.Event) { e.Owner = 9 }), "owner 9"},
		{"event release", event(trace.KindWait, func(e *trace.Event) { e.Release = 90 * ms }), "released at"},
		{"event certain", event(trace.KindWait, func(e *trace.Event) { e.Releaser, e.Release = 0, 0 }), "certain of nobody"},
		{"event released by nobody", event(trace.KindWait, func(e *trace.Event) { e.Releaser, e.Flags = 0, 0 }), "by nobody"},
		{"event timed out", event(trace.KindWait, func(e *trace.Event) { e.Flags |= trace.FlagTimedOut }), "timed out and was released"},
		{"event open", event(trace.KindCall, func(e *trace.Event) { e.Flags |= trace.FlagOpen }), "is open"},
		{"alloc of nothing", event(trace.KindAlloc, func(e *trace.Event) { e.Object = 0 }), "allocated nothing"},
		{"alloc weight", event(trace.KindAlloc, func(e *trace.Event) { e.Weight = 1 }), "that stand for 1"},
		{"free of nothing", event(trace.KindFree, func(e *trace.Event) { e.Object = 0 }), "freed nothing"},
		{"free of another", event(trace.KindFree, func(e *trace.Event) { e.Object = 0x123 }), "when it was not allocated"},
		{"alloc twice", event(trace.KindFree, func(e *trace.Event) { e.Time, e.Start = 80*ms, 80*ms }), "allocated twice"},
		{"release taken later", add(trace.Event{Kind: trace.KindRelease, Thread: 1, Time: 80 * ms, Start: 80 * ms, Release: 81 * ms}), "after letting it go"},
		{"release older than a hook's event", add(trace.Event{Kind: trace.KindRelease, Thread: 1, Time: 65 * ms, Start: 65 * ms}), "previous event at a hook"},
		{"release older than a sample", func(b *Builder, _ *editable) {
			b.Sample(1, 90*ms, 0, "main")
			b.Add(trace.Event{Kind: trace.KindRelease, Thread: 1, Time: 85 * ms, Start: 85 * ms, Count: 1})
		}, ""},
		{"after exit", add(trace.Event{Kind: trace.KindLost, Thread: 2, Time: 95 * ms, Start: 95 * ms}), "after the thread's exit"},
		{"start twice", add(trace.Event{Kind: trace.KindThreadStart, Thread: 1, Time: 95 * ms, Start: 95 * ms}), "started twice"},
		{"start late", func(_ *Builder, r *editable) {
			r.event = func(n int, e *trace.Event) {
				if e.Kind == trace.KindThreadStart && e.Thread == 2 {
					*e = trace.Event{Kind: trace.KindSync, Thread: 2, Time: e.Time, Start: e.Start, Count: 1}
				} else if e.Kind == trace.KindAlloc {
					*e = trace.Event{Kind: trace.KindThreadStart, Thread: 2, Time: e.Time, Start: e.Start, Count: 1}
				}
			}
		}, "started after 3 events"},
		{"start missing", event(trace.KindThreadStart, func(e *trace.Event) { e.Kind = trace.KindSync }), "none is its start"},
		{"events fail", func(_ *Builder, r *editable) { r.fail = errors.New("disk on fire") }, "disk on fire"},

		{"CPU beyond life", event(trace.KindCPU, func(e *trace.Event) { e.CPU = 150 * ms }), "in a life of"},
		{"CPU beyond the machine", func(b *Builder, r *editable) { b.Meta().CPUs = 1; b.Sample(1, 99*ms, 100*ms, "main") }, "on 1 CPUs"},
		{"CPU beyond the thread's", thread(func(x *trace.Thread) { x.CPU = -1 + 1 }), "" /* 12 ms within slack of 0 */},
		{"CPU unaccounted", thread(func(x *trace.Thread) { x.CPU = 80 * ms }), "only 12000000 ns"},
		{"CPU too much", event(trace.KindThreadExit, func(e *trace.Event) { e.CPU = 60 * ms }), "it used 12000000"},

		{"stats events", stats(func(s *trace.Stats) { s.Events++ }), "statistics say 12 events"},
		{"stats nodes", stats(func(s *trace.Stats) { s.Nodes++ }), "nodes, there are"},
		{"stats lost", thread(func(x *trace.Thread) { x.Lost = 3 }), "lost 3 records"},
		{"stats time", stats(func(s *trace.Stats) { s.SamplerCPU = -1 }), "CPU times"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := Validate(recording(c.change))
			switch {
			case c.want == "" && err != nil:
				t.Errorf("want no complaint, got %v", err)
			case c.want != "" && err == nil:
				t.Errorf("want %q, got no complaint", c.want)
			case c.want != "" && !strings.Contains(err.Error(), c.want):
				t.Errorf("want %q in\n%v", c.want, err)
			}
		})
	}
}

func TestLossExcusesWhatItExplains(t *testing.T) {
	for name, change := range map[string]func(*Builder, *editable){
		"same after a loss": func(b *Builder, _ *editable) {
			b.Add(trace.Event{Kind: trace.KindLost, Thread: 1, Time: 80 * ms, Start: 80 * ms, Count: 4})
			b.Add(trace.Event{Kind: trace.KindSync, Thread: 1, Time: 81 * ms, Start: 81 * ms, Count: 1, Stack: b.Stack("main", "x", "y", "z"), Same: 4})
		},
		"free after a loss": func(b *Builder, _ *editable) {
			b.Stats().Lost = 1
			b.Free(1, 80*ms, 0x555)
		},
		"no start after overwriting": func(b *Builder, r *editable) {
			b.Stats().Overwritten = 5
			r.event = func(_ int, e *trace.Event) {
				if e.Kind == trace.KindThreadStart {
					e.Kind = trace.KindSync
				}
			}
		},
		"free in a fork child": func(b *Builder, _ *editable) {
			p := b.AddProcess(trace.Process{PID: 200, Start: 80 * ms, Parent: 1, Forked: true})
			th := b.AddThread(trace.Thread{Proc: p, TID: 200, Main: true, Start: 80 * ms, CPU: -1})
			b.AddJoined(trace.Event{Kind: trace.KindThreadStart, Thread: th, Time: 80 * ms})
			b.Free(th, 81*ms, 0x9000)
		},
	} {
		if err := Validate(recording(change)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestUnfinishedExcusesOnlyTheLiving: a recorder that was killed leaves threads as it last stored them, and what it
// stored of those that had ended is final.
func TestUnfinishedExcusesOnlyTheLiving(t *testing.T) {
	for _, ended := range []bool{true, false} {
		err := Validate(recording(func(b *Builder, r *editable) {
			r.stats = func(s *trace.Stats) { s.Complete = false }
			r.threads = func(threads []trace.Thread) []trace.Thread {
				threads[1].CPU = 80 * ms
				if !ended {
					threads[1].End = 0
				}
				return threads
			}
			r.event = func(_ int, e *trace.Event) {
				if !ended && e.Kind == trace.KindThreadExit {
					e.Kind, e.CPU = trace.KindSync, 0
				}
			}
		}))
		if got := err != nil && strings.Contains(err.Error(), "only 12000000 ns"); got != ended || !ended && err != nil {
			t.Errorf("ended %v: %v", ended, err)
		}
	}
}

func TestManyProblemsAreCounted(t *testing.T) {
	err := Validate(recording(func(b *Builder, _ *editable) {
		for range 50 {
			b.Free(1, 90*ms, 0x1)
		}
	}))
	if err == nil || !strings.Contains(err.Error(), "validate: 50 problems") ||
		!strings.Contains(err.Error(), "and 30 more") {
		t.Errorf("got %v", err)
	}
}
