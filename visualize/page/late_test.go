package page

import (
	"context"
	"testing"

	"github.com/hbtrace/hbtrace/analysis/weigh"
	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/trace/tracetest"
)

// TestLateTimeIsShared: the page's sums by function are those of the profile, within one piece, and what was not late stays.
func TestLateTimeIsShared(t *testing.T) {
	const ms = trace.Ns(1e6)
	b := tracetest.New()
	proc := b.AddProcess(trace.Process{PID: 10})
	th := b.AddThread(trace.Thread{Proc: proc, TID: 10})
	second := b.AddThread(trace.Thread{Proc: proc, TID: 11})
	at := b.Meta().StartNs
	b.Meta().EndNs = at + 10_000*ms
	preempted := trace.Flags(0)
	cpu := func(ns int64, began uint64, late bool, stack ...string) {
		at += 10 * ms
		e := trace.Event{Kind: trace.KindCPU, Thread: th, Time: at, Start: at, Count: 1, CPU: ns, Object: began, Stack: b.Stack(stack...)}
		if late {
			e.Flags = trace.FlagLate | preempted
		}
		b.Add(e)
	}
	for range 50 { // of runs that began at 0x100 samples arrived twice as often in f as in g
		cpu(int64(ms), 0x100, false, "main", "f")
		for range 3 {
			cpu(int64(ms), 0x100, true, "main", "call")
		}
		cpu(int64(ms), 0x100, false, "main", "f")
		cpu(int64(ms), 0x100, false, "main", "g")
		cpu(int64(ms), 0x200, true, "main", "other") // nothing arrived in these
	}
	preempted = trace.FlagPreempted
	for i := range 90 { // these hardly count where they differ from those in time, but all there is counts where none is
		if i%30 == 0 {
			cpu(int64(ms), 0x300, false, "main", "h")
		}
		cpu(int64(ms), 0x300, true, "main", "system call")
		cpu(int64(ms), 0x400, true, "main", []string{"i", "j", "i"}[i%3])
	}
	preempted, th, at = 0, second, b.Meta().StartNs
	for range 20 { // a thread whose samples arrived elsewhere than the first one's, and one origin in which none of its own did
		cpu(int64(ms), 0x100, false, "main", "k")
		cpu(int64(ms), 0x100, true, "main", "call")
		cpu(int64(ms), 0x300, true, "main", "call")
	}
	src := b.Source()
	table, err := weigh.Collect(src, weigh.Options{})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]int64{}
	for _, r := range table.Rows {
		f := table.Frames.Of(r.Stack)
		want[table.Frames.Frame(f[len(f)-1].ID).Name] += r.Values[weigh.CPU]
	}
	m := read(t, src)
	check(t, m)
	rows, err := m.sums(context.Background(), selection{from: 0, to: int64(m.to - m.from)}, false, false)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int64{}
	for i, st := range rows.state {
		if state(st) == running {
			f := m.tab.Of(m.sites.keys[rows.site[i]].Stack)
			got[m.tab.Frame(f[len(f)-1].ID).Name] += int64(rows.value[i])
		}
	}
	for name, ns := range want {
		if got[name] != ns {
			t.Errorf("%s has %d ns, the profile %d", name, got[name], ns)
		}
	}
	if want["f"] != 200e6 || got["call"] != 0 || want["h"] < 100e6 || want["h"] >= 113e6 || want["k"] != 40e6 || m.doubt.SharedNs != 370e6 || m.doubt.LateNs != 50e6 {
		t.Errorf("want %v, got %v, %+v", want, got, m.doubt)
	}
	// what was sampled in time is where it was: the first piece
	if p := m.threads[0].pieces; len(p) == 0 || p[0].late != 0 && p[1].late != 0 {
		t.Errorf("%+v", p[:2])
	}
}
