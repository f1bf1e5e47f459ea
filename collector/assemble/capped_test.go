package assemble

import (
	"testing"

	"github.com/hbtrace/hbtrace/segment"
	"github.com/hbtrace/hbtrace/trace"
)

// TestTinyRun: a run that is shorter than a sampling period gets no more CPU time than its clock shows.
func TestTinyRun(t *testing.T) {
	const period = 2_000_000
	sample := func(g *agent, at trace.Ns, cpu, weight uint64) []byte {
		s, tail := g.delta(pcs(1), noLimit)
		r := segment.RecSample{Rec: g.rec(segment.RecTypeSample, 0, at), Kind: segment.SamplePeriodic, CPUNs: cpu, WeightNs: weight, Stack: s}
		return record(&r, segment.RecSampleBytes, tail)
	}
	given := func(k *kit) (ns int64) {
		k.Flush()
		for _, e := range k.of(trace.KindCPU, trace.KindThreadExit) {
			ns += e.CPU
		}
		return ns
	}
	const base = 1000 // of the agents' clocks in newAgent
	k := newKit(t, Config{})
	k.cpuPeriod = period
	g := newAgent(1, 1)
	k.put(g.procRec(1, 0, 0), g.thread(10), sample(g, 20, base+500_000, period), g.exit(30, base+800_000))
	if ns := given(k); ns > 800_000 || ns < 500_000 {
		t.Errorf("%d ns are given to a run that used 800,000", ns)
	}

	// A long run's samples stand for whole periods, also when they run ahead of its clock.
	k = newKit(t, Config{})
	k.cpuPeriod = period
	g = newAgent(1, 1)
	k.put(g.procRec(1, 0, 0), g.thread(10))
	for i := range uint64(100) {
		k.put(sample(g, trace.Ns(20+i), base+i*period+period/2, period))
	}
	if ns := given(k); ns < 99*period || ns > 100*period {
		t.Errorf("%d ns are given to a run of 100 periods", ns)
	}
}
