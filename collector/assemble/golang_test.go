package assemble

import (
	"testing"

	"github.com/hbtrace/hbtrace/segment"
	"github.com/hbtrace/hbtrace/trace"
)

// The scheduler's records are by all threads of a Go program that run no goroutine: each reads the clock and then draws its number.
func TestSchedulerTime(t *testing.T) {
	k, g := newKit(t, Config{}), newAgent(3, 1)
	k.put(g.thread(10), g.procRec(10, 0, segment.ProcFlagGo),
		g.sample(segment.SamplePeriodic, 0, 200, 2000, pcs(1)), g.sample(segment.SamplePeriodic, 0, 190, 4000, pcs(2)),
		g.sample(segment.SamplePeriodic, 0, 300, 6000, pcs(3)))
	k.Flush()
	var at []trace.Ns
	for _, e := range k.of(trace.KindCPU) {
		at = append(at, e.Time)
	}
	if len(at) != 3 || at[0] != 200 || at[1] != 200 || at[2] != 300 {
		t.Errorf("samples at %v", at)
	}
}
