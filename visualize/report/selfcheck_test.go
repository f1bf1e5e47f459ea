package report

import (
	"strings"
	"testing"

	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/trace/tracetest"
)

// checked is a recording of two threads with the kernel's account of them.
func checked() *tracetest.Builder {
	b := tracetest.New()
	b.AddModule(trace.Module{Path: "[kernel]", Kind: trace.ModuleKernel, Lo: 1 << 63, Hi: 1<<64 - 1})
	p := b.AddProcess(trace.Process{PID: 1, Exe: "/bin/app"})
	x := b.AddThread(trace.Thread{Proc: p, TID: 1, Name: "x"})
	y := b.AddThread(trace.Thread{Proc: p, TID: 2, Name: "y"})
	off := func(t trace.ThreadID, start, wake, end trace.Ns, state int64, waker trace.ThreadID, how uint64, stack ...string) {
		b.Add(trace.Event{Kind: trace.KindOff, Thread: t, Start: start, Release: wake, Time: end, Result: state, Releaser: waker, Weight: how, Count: 1, Stack: b.Stack(stack...)})
	}
	futex := []string{"main", "f", "[kernel]!do_futex", "[kernel]!futex_wait", "[kernel]!schedule"}
	// A mutex whose releaser woke x, and one where somebody else did.
	b.Wait(x, 10*ms, 20*ms, b.Hook("pthread_mutex_lock"), 0x10, y, "main", "f")
	off(x, 10*ms+4000, 19*ms, 20*ms-6000, trace.OffInterruptible, y, trace.OffByThread, futex...)
	b.Wait(x, 30*ms, 40*ms, b.Hook("pthread_mutex_lock"), 0x10, x, "main", "f")
	off(x, 30*ms+4000, 39*ms, 40*ms-6000, trace.OffInterruptible, y, trace.OffByThread, futex...)
	// A call that a timer ends, one in which nobody slept, and a page fault that no hook sees.
	b.Call(y, 50*ms, 60*ms, b.Hook("read"), 3, 1, "main", "g")
	off(y, 51*ms, 59*ms, 60*ms, trace.OffInterruptible, 0, trace.OffByInterrupt, "main", "g", "[kernel]!do_nanosleep")
	b.Call(y, 70*ms, 71*ms, b.Hook("read"), 3, 1, "main", "g")
	off(y, 80*ms, 84*ms, 85*ms, trace.OffUninterruptible, 0, trace.OffByInterrupt, "main", "h", "[kernel]!asm_exc_page_fault", "[kernel]!folio_wait_bit_common", "[kernel]!io_schedule", "[kernel]!__schedule")
	// Preempted.
	off(y, 90*ms, 0, 93*ms, trace.OffRunnable, 0, 0, "main", "g")
	return b
}

func TestSelfCheck(t *testing.T) {
	f, err := collect(checked().Source(), false, true, nil)
	if err != nil {
		t.Fatal(err)
	}
	c := f.checked
	if c.Blocked != 4 || c.Recorded != 3 || c.BlockedNs != 2*8_996_000+8_000_000+4_000_000 || c.Recall != 0.75 {
		t.Errorf("blocked %d (%d ns), recorded %d, recall %v", c.Blocked, c.BlockedNs, c.Recorded, c.Recall)
	}
	if c.FutexWaits != 2 || c.FutexEdges != 2 || c.Intervals != 4 || c.Slept != 3 {
		t.Errorf("futex %d of %d, intervals %d of %d", c.FutexEdges, c.FutexWaits, c.Slept, c.Intervals)
	}
	if len(c.Edges) != 1 || c.Edges[0].Same != 1 || c.Edges[0].Other != 1 || c.Edges[0].Agreement != 0.5 || !c.Edges[0].Certain {
		t.Errorf("edges %+v", c.Edges)
	}
	if len(c.Missing) != 1 || c.Missing[0].Kernel != "folio_wait_bit_common" || c.Missing[0].Function != "h" || c.Missing[0].TotalNs != 4*ms {
		t.Errorf("missing %+v", c.Missing)
	}
	if c.RunQueueMaxNs != 3*ms || c.RunQueueNs != 2*994_000+ms+ms+3*ms || c.StartMedianNs != 4000 {
		t.Errorf("run queue %d, longest %d; start %d", c.RunQueueNs, c.RunQueueMaxNs, c.StartMedianNs)
	}
	text := render(t, checked().Source(), ViewSelfCheck, Options{})
	for _, want := range []string{"75.0 %", "folio_wait_bit_common", "mutex"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}
