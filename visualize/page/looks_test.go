package page

import (
	"context"
	"testing"

	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/trace/tracetest"
)

// counted is a recording of 4 s of two threads whose kernel's count was read for each second but the last: one was ready to
// run for 300 ms of the first second and 1 s of the second, the other never.
func counted(kernel bool) trace.Source {
	b := tracetest.New()
	proc := b.AddProcess(trace.Process{PID: 1, Exe: "/bin/counted"})
	at := trace.Ns(1e9)
	b.Meta().StartNs = at
	b.Meta().EndNs = at + 4000*ms
	for i, name := range []string{"pushed", "alone"} {
		id := b.AddThread(trace.Thread{Proc: proc, TID: 10 + i, Name: name, Start: at, CPU: 400 * ms})
		for s := range trace.Ns(4) {
			b.Sample(id, at+s*1000*ms+900*ms, 100*ms, "main", "work")
		}
		for s := range trace.Ns(3) {
			e := trace.Event{Kind: trace.KindUsage, Flags: trace.FlagNoStack, Thread: id, Start: at + s*1000*ms, Time: at + (s+1)*1000*ms, Count: 1, Object: 1}
			if i == 0 {
				e.Debt = []int64{300 * ms, 1000 * ms, 0}[s]
			}
			b.AddJoined(e)
		}
		if kernel {
			b.AddJoined(trace.Event{Kind: trace.KindOff, Thread: id, Start: at + 100*ms, Time: at + 150*ms, Result: trace.OffRunnable, Count: 1})
		}
	}
	return b.Source()
}

// TestReady: of a selection the page knows for how long threads were runnable without a CPU at least, and at most.
func TestReady(t *testing.T) {
	m := read(t, counted(false))
	for _, c := range []struct{ from, to, least, most int64 }{
		{0, 1000, 300, 300}, {0, 2000, 1300, 1300}, {0, 500, 0, 300}, {0, 900, 200, 300}, {100, 900, 100, 300}, {500, 2500, 1000, 1300},
		{1200, 1300, 100, 100}, {2000, 3000, 0, 0}, {2000, 4000, 0, 1000}, {1999, 3500, 1, 501},
	} {
		least, most, ok := m.threads[0].within(c.from*ms, c.to*ms, int64(m.to-m.from))
		if least != c.least*ms || most != c.most*ms || !ok {
			t.Errorf("from %d to %d ms: ready for %d to %d ns (%v), want %d to %d ms", c.from, c.to, least, most, ok, c.least, c.most)
		}
	}
	if _, _, ok := m.threads[0].within(3200*ms, 4000*ms, int64(m.to-m.from)); ok {
		t.Error("after the last look something is known")
	}
	if a := m.about(); a.Threads[0].Ready != 1300*ms || a.Threads[1].Ready != 0 {
		t.Errorf("threads were ready for %d and %d ns, want 1.3 s and 0", a.Threads[0].Ready, a.Threads[1].Ready)
	}
	rows := func(m *Model) int {
		tab, err := m.ready(context.Background(), selection{from: 0, to: int64(m.to - m.from)})
		if err != nil {
			t.Fatal(err)
		}
		return tab.columns[0].Rows
	}
	if n := rows(m); n != 2 {
		t.Errorf("%d threads' runnable time is reported, want 2", n)
	}
	// The kernel's account of each switch says more.
	m = read(t, counted(true))
	if n := rows(m); n != 0 || m.threads[0].total[ready] != 50*ms {
		t.Errorf("%d threads' counts are told although pieces are ready for %d ns, want 50 ms", n, m.threads[0].total[ready])
	}
	// Where the kernel counts nothing, nothing is known.
	if m = read(t, chained()); m.about().Threads[0].Ready != -1 || rows(m) != 0 {
		t.Errorf("without looks threads are ready for %d ns", m.about().Threads[0].Ready)
	}
}

// TestLooksAreBounded: adding looks up keeps their sums, and bounds grow wider only.
func TestLooksAreBounded(t *testing.T) {
	m := read(t, counted(false))
	th := m.threads[0]
	was := [][2]int64{}
	for from := int64(0); from < 3000*ms; from += 250 * ms {
		least, most, _ := th.within(from, from+700*ms, 4000*ms)
		was = append(was, [2]int64{least, most})
	}
	th.looks = halved(th.looks)
	if len(th.looks) != 2 {
		t.Fatalf("%d looks, want 2", len(th.looks))
	}
	for i, w := range was {
		from := int64(i) * 250 * ms
		if least, most, _ := th.within(from, from+700*ms, 4000*ms); least > w[0] || most < w[1] {
			t.Errorf("from %d ms: %d to %d ns, before %v", i*250, least, most, w)
		}
	}
	if least, most, _ := th.within(0, 3000*ms, 3000*ms); least != 1300*ms || most != 1300*ms {
		t.Errorf("together %d to %d ns, want 1.3 s", least, most)
	}
}
