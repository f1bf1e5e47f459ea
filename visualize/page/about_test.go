package page

import (
	"testing"

	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/trace/tracetest"
)

// TestMarks: the page has a mark where hbtrace attached and where it left, none for an end that there was not.
func TestMarks(t *testing.T) {
	m := marks(&trace.Meta{Attached: []trace.Attached{{PID: 7, At: 1005, Left: 1900}, {PID: 8, At: 1010}}}, 1000)
	want := []aboutMark{{5, "hbtrace attached to process 7"}, {900, "hbtrace left process 7"}, {10, "hbtrace attached to process 8"}}
	if len(m) != len(want) {
		t.Fatalf("marks %v", m)
	}
	for i := range want {
		if m[i] != want[i] {
			t.Errorf("mark %d is %v, not %v", i, m[i], want[i])
		}
	}
}

// TestKnobMarks: the page has a mark where more or less detail is recorded from.
func TestKnobMarks(t *testing.T) {
	b := tracetest.New()
	th := b.AddThread(trace.Thread{Proc: b.AddProcess(trace.Process{PID: 1}), TID: 1})
	b.Sample(th, 5*ms, ms, "main")
	b.Add(trace.Event{Kind: trace.KindKnob, Flags: trace.FlagNoStack, Thread: th, Time: 10 * ms, Object: uint64(trace.KnobWaits), Size: 30000})
	b.Add(trace.Event{Kind: trace.KindKnob, Flags: trace.FlagNoStack, Thread: th, Time: 20 * ms, Object: uint64(trace.KnobWaits), Object2: 30000})
	b.Sample(th, 30*ms, ms, "main")
	got := read(t, b.Source()).about().Marks
	if len(got) != 2 || got[0].Text != "budget: waits from 30µs" || got[1].Text != "budget: waits as configured" || got[1].At-got[0].At != 10*ms {
		t.Errorf("marks %v", got)
	}
}
