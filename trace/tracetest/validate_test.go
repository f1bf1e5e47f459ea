package tracetest

import (
	"strings"
	"testing"

	"github.com/hbtrace/hbtrace/trace"
)

// valid is a recording that breaks no rule, and its thread.
func valid() (*Builder, trace.ThreadID) {
	b := New()
	p := b.AddProcess(trace.Process{PID: 10})
	th := b.AddThread(trace.Thread{Proc: p, TID: 10})
	b.Add(trace.Event{Kind: trace.KindThreadStart, Thread: th, Time: 50, Start: 50})
	b.Sample(th, 100, 5, "main", "f", "g")
	b.Wait(th, 150, 200, b.Hook("pthread_mutex_lock"), 1, th, "main", "f")
	b.Alloc(th, 250, 0x1000, 10, 100, "main", "f", "…3")
	b.Free(th, 260, 0x1000)
	return b, th
}

func TestValidate(t *testing.T) {
	for _, c := range []struct {
		name, want string
		change     func(b *Builder, th trace.ThreadID)
	}{
		{"valid", "", func(*Builder, trace.ThreadID) {}},
		{"after a loss", "", func(b *Builder, th trace.ThreadID) {
			b.Add(trace.Event{Kind: trace.KindLost, Thread: th, Time: 270, Start: 270, Count: 4})
			b.Add(trace.Event{Kind: trace.KindSync, Thread: th, Time: 280, Start: 280, Stack: b.Stack("main")})
		}},
		{"same after a loss", "stack that was lost", func(b *Builder, th trace.ThreadID) {
			b.Add(trace.Event{Kind: trace.KindLost, Thread: th, Time: 270, Start: 270, Count: 4})
			b.Sample(th, 280, 1, "main")
		}},
		{"other frames", "not those of the stack before", func(b *Builder, th trace.ThreadID) {
			b.Add(trace.Event{Kind: trace.KindSync, Thread: th, Time: 280, Start: 280, Stack: b.Stack("x", "y"), Same: 1})
		}},
		{"too many same", "3 frames of 1 are the same", func(b *Builder, th trace.ThreadID) {
			b.Add(trace.Event{Kind: trace.KindSync, Thread: th, Time: 280, Start: 280, Stack: b.Stack("main"), Same: 3})
		}},
		{"more than before", "which has 3", func(b *Builder, th trace.ThreadID) {
			b.Add(trace.Event{Kind: trace.KindSync, Thread: th, Time: 280, Start: 280, Stack: b.Stack("main", "f", "g", "h"), Same: 4})
		}},
		{"back in time", "event before it is at 260", func(b *Builder, th trace.ThreadID) { b.Free(th, 255, 1) }},
		{"negative length", "after its end", func(b *Builder, th trace.ThreadID) { b.Wait(th, 300, 290, 20, 1, 0, "main") }},
		{"after the end", "the recording is from 0 to 265", func(b *Builder, th trace.ThreadID) {
			b.Meta().EndNs = 265
			b.Free(th, 270, 1)
		}},
		{"no thread", "no such thread", func(b *Builder, th trace.ThreadID) { b.Free(9, 270, 1) }},
		{"no stack", "no stack 900", func(b *Builder, th trace.ThreadID) {
			b.events = append(b.events, trace.Event{Kind: trace.KindSync, Thread: th, Time: 280, Start: 280, Stack: 900})
		}},
		{"no hook", "no hook 999", func(b *Builder, th trace.ThreadID) { b.Call(th, 270, 280, 999, 1, 0, "main") }},
		{"no releaser", "releaser 9", func(b *Builder, th trace.ThreadID) { b.Wait(th, 270, 280, 20, 1, 9, "main") }},
		{"start not first", "not the thread's first", func(b *Builder, th trace.ThreadID) {
			b.Add(trace.Event{Kind: trace.KindThreadStart, Thread: th, Time: 280, Start: 280})
		}},
		{"after exit", "has ended before", func(b *Builder, th trace.ThreadID) {
			b.Add(trace.Event{Kind: trace.KindThreadExit, Thread: th, Time: 280, Start: 280, CPU: 3})
			b.Free(th, 290, 1)
		}},
		{"CPU of a wait", "ns of CPU time", func(b *Builder, th trace.ThreadID) {
			b.Add(trace.Event{Kind: trace.KindSync, Thread: th, Time: 280, Start: 280, CPU: 1})
		}},
		{"weight", "fewer than its own 64", func(b *Builder, th trace.ThreadID) { b.Alloc(th, 280, 1, 64, 1, "main") }},
		{"events miscounted", "stats: 3 events", func(b *Builder, th trace.ThreadID) { b.Stats().Events = 3 }},
		{"no process", "no process 8", func(b *Builder, th trace.ThreadID) { b.AddThread(trace.Thread{Proc: 8}) }},
		{"twice", "there twice", func(b *Builder, th trace.ThreadID) { b.AddThread(trace.Thread{ID: th, Proc: 1}) }},
		{"no module", "no module 77", func(b *Builder, th trace.ThreadID) {
			b.Node(trace.Node{Addr: trace.Addr{Module: 77}, How: trace.HowFP})
		}},
		{"endless stack", "does not come first", func(b *Builder, th trace.ThreadID) {
			b.Node(trace.Node{Parent: trace.StackID(len(b.nodes) + 1), How: trace.HowFP})
		}},
	} {
		b, th := valid()
		c.change(b, th)
		err := Validate(b.Source())
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: error %v, want %q", c.name, err, c.want)
		}
	}
}

func TestValidateGivesUp(t *testing.T) {
	b, _ := valid()
	for range 1000 {
		b.Free(9, 270, 1)
	}
	if n := strings.Count(Validate(b.Source()).Error(), "\n"); n != maxProblems {
		t.Errorf("%d problems reported, want %d and a last line", n, maxProblems)
	}
}
