package perfetto

import (
	"testing"

	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/trace/tracetest"
)

// TestReadyAndLive: what the kernel says of a thread that could not run, and memory in use between samples of it.
func TestReadyAndLive(t *testing.T) {
	const ms = trace.Ns(1e6)
	b := tracetest.New()
	p := b.AddProcess(trace.Process{PID: 1, Exe: "/bin/x"})
	th := b.AddThread(trace.Thread{Proc: p, TID: 1})
	at := b.Meta().StartNs
	b.Meta().EndNs = at + 100*ms
	b.Alloc(th, at+5*ms, 0x1000, 100, 4096, "main")
	b.Add(trace.Event{Kind: trace.KindOff, Thread: th, Start: at + 10*ms, Time: at + 20*ms, Release: at + 16*ms, Result: trace.OffInterruptible, Count: 1})
	b.Add(trace.Event{Kind: trace.KindOff, Thread: th, Start: at + 30*ms, Time: at + 40*ms, Result: trace.OffRunnable, Count: 1})
	b.Add(trace.Event{Kind: trace.KindOff, Thread: th, Start: at + 50*ms, Time: at + 60*ms, Result: trace.OffInterruptible, Count: 1}) // woken at once
	b.Alloc(th, at+65*ms, 0x2000, 100, 1024, "main")
	b.Free(th, at+75*ms, 0x1000)
	b.Free(th, at+76*ms, 0x9000) // of nothing that is known
	src := b.Source()
	c := newCounters(src)
	if err := trace.Events(src, func(e *trace.Event) error { c.add(e); return nil }); err != nil {
		t.Fatal(err)
	}
	for name, s := range map[string]*series{"process": c.procs[p], "thread": c.threads[th]} {
		got := s.of(c, counterReady)
		if got[1] != float64(4*ms) || got[3] != float64(10*ms) || got[5] != 0 {
			t.Errorf("%s: ready %v", name, got)
		}
		if v := s.value(counterReady, got[3]); v != 100 {
			t.Errorf("%s: %v %%", name, v)
		}
	}
	if live := c.procs[p].of(c, counterLive); live[0] != 4096 || live[6] != 5120 || live[7] != 1024 || live[3] == live[3] {
		t.Errorf("live %v", live)
	}
}
