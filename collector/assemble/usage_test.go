package assemble

import (
	"slices"
	"testing"

	"github.com/hbtrace/hbtrace/trace"
)

// TestUsages: threads that recorded something are asked about, a few at a time and in turn; events say what was added since.
func TestUsages(t *testing.T) {
	k := newKit(t, Config{})
	a, b, idle := newAgent(1, 1), newAgent(2, 1), newAgent(3, 1)
	k.put(a.procRec(10, 0, 0), a.thread(10), b.thread(20), idle.thread(30))
	k.EndPass()
	k.EndPass() // what was put comes with the second
	var asked []int
	now := map[int]Usage{101: {MinorFaults: 7, Voluntary: 2}, 102: {MajorFaults: 1, Involuntary: 3}}
	ask := func(pid, tid int) (Usage, bool) {
		if pid != 1001 {
			t.Errorf("asked about process %d, want 1001", pid)
		}
		asked = append(asked, tid)
		u, ok := now[tid]
		return u, ok
	}
	look := func(at trace.Ns, most int, want ...int) {
		t.Helper()
		asked = nil
		k.Usages(at, most, ask)
		if !slices.Equal(asked, want) {
			t.Errorf("at %d: asked about %v, want %v", at, asked, want)
		}
	}
	look(100, 2, 101, 102)
	look(110, 2, 103) // gone meanwhile, or not to be found: not asked about again until it records something
	k.put(a.sample(0, 1, 150, 0, pcs(1, 2)), b.sample(0, 1, 160, 0, pcs(1, 2)))
	k.EndPass()
	k.EndPass()
	now[101] = Usage{MinorFaults: 10, Voluntary: 2, ReadyNs: 40}
	now[102] = Usage{Involuntary: 3} // less than before: another thread's
	look(200, 1, 101)
	look(210, 1, 102)
	look(220, 9)
	want := []trace.Event{
		{Thread: 1, Start: 10, Time: 100, Size: 7, Object: 2},
		{Thread: 2, Start: 20, Time: 100, Weight: 1, Object2: 3},
		{Thread: 1, Start: 100, Time: 200, Size: 3, Debt: 40},
	}
	for i := range want {
		want[i].Kind, want[i].Flags, want[i].Count = trace.KindUsage, trace.FlagNoStack, 1
	}
	if got := k.of(trace.KindUsage); !slices.Equal(got, want) {
		t.Errorf("%+v\nwant %+v", got, want)
	}
}
