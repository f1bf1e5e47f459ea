package perfetto

import (
	"strings"
	"testing"

	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/trace/tracetest"
)

// TestKnob: where more or less detail is recorded from, the trace has an instant that says which.
func TestKnob(t *testing.T) {
	b := tracetest.New()
	th := b.AddThread(trace.Thread{Proc: b.AddProcess(trace.Process{PID: 1}), TID: 1})
	b.Sample(th, 5000, 1000, "main")
	b.Add(trace.Event{Kind: trace.KindKnob, Flags: trace.FlagNoStack, Thread: th, Time: 9000, Object: uint64(trace.KnobCPUPeriod), Size: 10_000_000})
	im, err := load(encode(t, b.Source(), Options{}))
	if err != nil {
		t.Fatal(err)
	}
	if got := im.text(0); strings.Count(got, "budget") != 1 || !strings.Contains(got, "result=100 samples/s") {
		t.Errorf("no instant of the budget:\n%s", got)
	}
}
