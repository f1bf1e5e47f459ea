package assemble

import (
	"testing"

	"github.com/hbtrace/hbtrace/hooks"
	"github.com/hbtrace/hbtrace/segment"
	"github.com/hbtrace/hbtrace/trace"
)

// main is a process of pid and its first thread, whose clock showed cpu when it could be recorded.
func (g *agent) main(time trace.Ns, pid uint32, cpu uint64) [][]byte {
	p := segment.RecProc{Rec: g.rec(segment.RecTypeProc, 0, time), ProcUID: g.proc, PID: pid}
	r := segment.RecThread{
		Rec: g.rec(segment.RecTypeThread, 0, time), ProcUID: g.proc, TID: pid, StartNs: uint64(time), CPUStartNs: cpu, Flags: segment.ThreadFlagMain,
	}
	return [][]byte{record(&p, segment.RecProcBytes, nil), record(&r, segment.RecThreadBytes, nil)}
}

// exec is what an agent says first.
func (g *agent) exec(time trace.Ns, cpu uint64) []byte {
	r := segment.RecSample{
		Rec: g.rec(segment.RecTypeSample, hooks.Execve, time), Kind: segment.SamplePeriodic, CPUNs: cpu, WeightNs: cpu, Stack: segment.Stack{Flags: segment.StackNone},
	}
	return record(&r, segment.RecSampleBytes, nil)
}

// TestExec: what was used from the exec to the first record is booked as the exec's, without what the image before it used, and
// the thread began so much earlier; what a clock cannot show is nobody's.
func TestExec(t *testing.T) {
	const ms = 1_000_000
	k := newKit(t, Config{})
	before, after, odd := newAgent(1, 1), newAgent(2, 2), newAgent(3, 3)
	k.put(before.main(ms, 1001, 0)...)
	k.put(before.sample(segment.SamplePeriodic, 0, 2*ms, 400_000, pcs(1, 2)))
	k.put(after.main(5*ms, 1001, 1_500_000)...)
	k.put(after.exec(5*ms, 1_500_000), after.exit(7*ms, 1_600_000))
	k.put(odd.main(8*ms, 1003, 1_000_000)...)
	k.put(odd.exec(8*ms, 9_000_000))
	k.EndPass()
	k.EndPass()
	var got []trace.Event
	for _, e := range k.of(trace.KindCPU) {
		if e.Hook == hooks.Execve {
			got = append(got, e)
		}
	}
	if len(got) != 2 || got[0].CPU != 1_100_000 || got[0].Thread != 2 || got[0].Flags&trace.FlagNoStack == 0 || got[1].CPU != 0 {
		t.Errorf("execs: %+v", got)
	}
	starts := map[trace.ThreadID]trace.Ns{}
	for _, e := range k.of(trace.KindThreadStart) {
		starts[e.Thread] = e.Time
	}
	if starts[1] != ms || starts[2] != 5*ms-1_100_000 || starts[3] != 7*ms {
		t.Errorf("threads began at %v", starts)
	}
	k.EndPass()
	if cpu := k.threads[2].CPU; cpu != 1_200_000 {
		t.Errorf("the thread behind the exec used %d", cpu)
	}
}
