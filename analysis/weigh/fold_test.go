package weigh

import (
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/trace/tracetest"
)

// many is a recording with more of everything than fits a table whose rows are requested ahead: origins, objects, late and
// preempted samples, allocations freed by other threads.
func many() trace.Source {
	b := tracetest.New()
	b.Meta().Hooks = map[trace.HookID]trace.HookInfo{
		1: {Name: "malloc", Class: "ALLOC"}, 20: {Name: "pthread_mutex_lock", Class: "LOCK"}, 30: {Name: "sem_wait", Class: "WAIT"}, 60: {Name: "read", Class: "CALL"},
	}
	rnd := rand.New(rand.NewPCG(3, 4))
	var threads []trace.ThreadID
	for p := range 2 {
		proc := b.AddProcess(trace.Process{PID: 10 + p})
		for range 4 {
			threads = append(threads, b.AddThread(trace.Thread{Proc: proc}))
		}
	}
	letter := func(n int) string { return string(rune('a' + rnd.IntN(n))) }
	for i := range 20_000 {
		e := trace.Event{Thread: threads[rnd.IntN(len(threads))], Time: trace.Ns(i * 100), Start: trace.Ns(i * 100), Count: 1}
		if rnd.IntN(50) > 0 {
			e.Stack = b.Stack("main", letter(20), letter(20), letter(4))
		}
		switch rnd.IntN(8) {
		case 0:
			e.Kind, e.Hook, e.Object = trace.KindWait, 20, 64*uint64(1+rnd.IntN(30))
			e.Start -= 70
		case 1:
			e.Kind, e.Hook, e.Object = trace.KindWait, 30, 64*uint64(rnd.IntN(3))
			e.Start -= 50
		case 2:
			e.Kind, e.Hook = trace.KindCall, 60
			e.Start -= 30
		case 3:
			e.Kind, e.Hook, e.Object, e.Size, e.Weight = trace.KindAlloc, 1, uint64(1+rnd.IntN(2000)), 64, 1024
		case 4:
			e.Kind, e.Object = trace.KindFree, uint64(1+rnd.IntN(2000))
		case 5:
			e.Kind, e.CPU = trace.KindCPU, 10
		default:
			e.Kind, e.CPU, e.Object = trace.KindCPU, int64(rnd.IntN(40)), uint64(1+rnd.IntN(20))
			e.Flags = []trace.Flags{0, 0, trace.FlagLate, trace.FlagLate | trace.FlagPreempted}[rnd.IntN(4)]
		}
		b.Add(e)
	}
	return b.Source()
}

// Labels that are given up on the way leave what there would be without them; events that are added
// many at a time, what they leave one by one.
func TestFewerLabels(t *testing.T) {
	src := many()
	const all = ByThread | ByProcess | ByObject | ByKind
	fewer := []By{ByProcess | ByObject | ByKind, ByProcess | ByKind, 0}
	sizes := map[By]int{}
	for _, by := range append([]By{all}, fewer...) {
		c := NewCollector(src, Options{By: by})
		if err := trace.Events(src, c.Add); err != nil {
			t.Fatal(err)
		}
		rows := len(c.rows)
		coarser := map[By]*Collector{}
		for _, less := range fewer {
			if by&less == less {
				coarser[less] = c.Coarser(less)
			}
		}
		want := c.Table()
		if again := c.Table(); again != want {
			t.Errorf("by %d: a second table of the same", by)
		}
		for less, c := range coarser {
			got := c.Table()
			want, err := Collect(src, Options{By: less})
			if err != nil {
				t.Fatal(err)
			}
			if got.By != less || got.Doubt != want.Doubt || got.Total != want.Total || !reflect.DeepEqual(got.Rows, want.Rows) {
				t.Errorf("by %d, then %d: %d rows, %+v, %v; want %d, %+v, %v", by, less, len(got.Rows), got.Doubt, got.Total, len(want.Rows), want.Doubt, want.Total)
			}
		}
		sizes[by] = rows
		if len(want.Rows) < 1000 || want.Doubt.SharedCPU == 0 || want.Total[InuseSpace] == 0 || want.Total[Delay] == 0 {
			t.Fatalf("by %d: %d rows, %+v: not what this test is for", by, len(want.Rows), want.Doubt)
		}
		for _, max := range []int{0, rows} {
			o := Options{By: by}
			if max > 0 {
				o = Options{By: all, MaxRows: max, Fewer: fewer}
			}
			got, err := Collect(src, o)
			if err != nil {
				t.Fatal(err)
			}
			if got.By != by {
				t.Fatalf("at most %d rows are kept apart by %d, want %d (of %v)", max, got.By, by, sizes)
			}
			if got.Doubt != want.Doubt || got.Total != want.Total || !reflect.DeepEqual(got.Rows, want.Rows) {
				t.Errorf("by %d, at most %d rows: %d rows, %+v, %v; want %d, %+v, %v", by, max, len(got.Rows), got.Doubt, got.Total, len(want.Rows), want.Doubt, want.Total)
			}
		}
	}
	t.Log("rows:", sizes)
	if _, err := Collect(src, Options{By: all, MaxRows: 10}); err != ErrTooManyRows {
		t.Errorf("with nothing to give up: %v", err)
	}
}
