package page

import (
	"testing"

	"github.com/hbtrace/hbtrace/analysis/weigh"
	"github.com/hbtrace/hbtrace/internal/synthetic"
	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/trace/tracetest"
)

// heldAt is the bytes in use that sums of a selection have.
func heldAt(t *testing.T, m *Model, from, to int64) int64 {
	t.Helper()
	rows, err := m.sums(t.Context(), selection{from: from, to: to}, false, false)
	if err != nil {
		t.Fatal(err)
	}
	var n float64
	for i, s := range rows.state {
		if state(s) == inUse {
			n += rows.value[i]
		}
	}
	return int64(n)
}

// TestInUse: of the whole recording the page says as every other output how much memory is in use, and of a selection how much of what was
// allocated in it is so at its end.
func TestInUse(t *testing.T) {
	for name, src := range map[string]trace.Source{"demo": synthetic.Demo(), "synthetic": synthetic.New(20_000, 6)} {
		w, err := weigh.Collect(src, weigh.Options{})
		if err != nil {
			t.Fatal(err)
		}
		var want int64
		for i := range w.Rows {
			want += w.Rows[i].Values[weigh.InuseSpace]
		}
		m := read(t, src)
		if got := heldAt(t, m, 0, int64(m.to-m.from)); got != want || want == 0 {
			t.Errorf("%s: %d bytes in use, want %d", name, got, want)
		}
	}
	b := tracetest.New()
	b.Meta().EndNs = b.Meta().StartNs + 100*ms
	p := b.AddProcess(trace.Process{PID: 1})
	one, two := b.AddThread(trace.Thread{Proc: p, TID: 1}), b.AddThread(trace.Thread{Proc: p, TID: 2})
	at := func(n int) trace.Ns { return b.Meta().StartNs + trace.Ns(n)*ms }
	b.Alloc(one, at(10), 0xa, 1000, 1000, "main", "grow")
	b.Alloc(one, at(20), 0xb, 200, 200, "main", "grow")
	b.Free(two, at(30), 0xa)
	b.Alloc(one, at(40), 0xb, 30, 30, "main", "again") // the free of the one before was not seen
	m := read(t, b.Source())
	for _, x := range []struct{ from, to, want int64 }{{0, 100, 30}, {0, 15, 1000}, {0, 25, 1200}, {0, 35, 200}, {15, 35, 200}, {0, 41, 30}, {15, 100, 30}, {30, 39, 0}} {
		if got := heldAt(t, m, x.from*int64(ms), x.to*int64(ms)); got != x.want {
			t.Errorf("from %d to %d ms: %d bytes in use, want %d", x.from, x.to, got, x.want)
		}
	}
}
