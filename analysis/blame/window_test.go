package blame

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/hbtrace/hbtrace/analysis/frames"
	"github.com/hbtrace/hbtrace/trace"
)

// busy is a second in which four threads wait for each other at three locks, with samples, calls and recorded releases.
func busy(w *world) {
	threads := []trace.ThreadID{w.a, w.b, w.c, w.d}
	for i := range 4000 {
		at := trace.Ns(i) * ms / 4
		x, y, z := threads[i%4], threads[(i*7+1)%4], threads[(i*3+2)%4]
		took := trace.Ns(rand.IntN(900)) * ms / 1000
		object := uint64(0x10 * (i % 3))
		switch i % 5 {
		case 0:
			w.Call(x, at, at+took, 79, 3, 0, "main", "flush")
		case 1:
			w.Sample(x, at, 1e6, "main", "copy")
		case 2:
			w.unlock(z, at+took, at, object, "u")
		}
		w.lock(x, at, at+ms, object, y, z, at+took, 0, "f", []string{"g", "h", "i"}[i%3])
	}
}

// TestWindows: a recording read in windows gives what it gives in one piece, where no wait is longer than what is kept around it.
func TestWindows(t *testing.T) {
	w := newWorld()
	busy(w)
	whole, want := w.analyse(t)
	src := w.Source()
	a := New(src, frames.New(src), Options{MaxIntervals: 400, Whole: true})
	rolled := 0
	if err := trace.Events(src, func(e *trace.Event) error {
		before := a.line.forgotten
		a.Add(e)
		if a.line.forgotten != before {
			rolled++
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	r := a.Finish()
	if rolled < 10 {
		t.Errorf("%d windows", rolled)
	}
	if r.IntervalsLeft|r.WaitsEstimated|r.LinksLeft|r.WaitsFaded != 0 {
		t.Errorf("left out: %d intervals, %d links; %d waits estimated, %d faded", r.IntervalsLeft, r.LinksLeft, r.WaitsEstimated, r.WaitsFaded)
	}
	got := text(r, func(id trace.ThreadID) string { return string(rune('a' + id - w.a)) })
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		for i := range min(len(got), len(want)) {
			if got[i] != want[i] {
				t.Fatalf("%d and %d chains; the first to differ:\n%s\n%s", len(got), len(want), got[i], want[i])
			}
		}
		t.Fatalf("%d and %d chains", len(got), len(want))
	}
	if len(r.Edges) != len(whole.Edges) {
		t.Errorf("%d edges, in one piece %d", len(r.Edges), len(whole.Edges))
	}
	for k, e := range whole.Edges {
		x := r.Edges[k]
		if x == nil || x.Count != e.Count || x.Total != e.Total || x.HolderNs != e.HolderNs || x.Taken != e.Taken || x.TakenNs != e.TakenNs {
			t.Fatalf("edge %+v is %+v, in one piece %+v", k, x, e)
		}
	}
}

// TestWindowsLongWaits: a wait that is longer than what is remembered spends its time all the same, and is counted; a lock that
// was let go in a forgotten window makes no deadlock.
func TestWindowsLongWaits(t *testing.T) {
	w := newWorld()
	end := 1100 * ms
	w.unlock(w.b, 20*ms, 5*ms, 0x77, "u") // so it is not b that holds it at the end
	busy(w)
	w.lock(w.a, 2*ms, end, 0x77, w.b, 0, 0, trace.FlagOpen, "f")
	w.lock(w.b, 3*ms, end, 0x88, w.a, 0, 0, trace.FlagOpen, "f")
	src := w.Source()
	analyse := func() *Result {
		r, err := Analyse(src, frames.New(src), Options{MaxIntervals: 400, Whole: true})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	r := analyse()
	var spent int64
	for _, c := range r.Chains {
		spent += c.Total
	}
	var waited int64
	trace.Events(src, func(e *trace.Event) error {
		if e.Kind == trace.KindWait {
			waited += int64(e.Time - e.Start)
		}
		return nil
	})
	if spent != waited {
		t.Errorf("chains spend %d ns of %d waited", spent, waited)
	}
	if r.WaitsFaded != 2 {
		t.Errorf("%d waits began before what was remembered, want 2", r.WaitsFaded)
	}
	if len(r.Deadlocks) != 0 {
		t.Errorf("deadlocks %+v with a lock that was let go", r.Deadlocks)
	}
}
