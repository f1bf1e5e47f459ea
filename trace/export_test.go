package trace

import "testing"

// Numbers of goroutines are those of threads too, and every program's first goroutine is number 1.
func TestExportTID(t *testing.T) {
	seen := map[int]bool{}
	for _, th := range []Thread{
		{ID: 1, TID: 1, Goroutine: true}, {ID: 2, TID: 1, Goroutine: true}, {ID: 3, TID: 1}, {ID: 4, TID: 1<<22 - 1}, {ID: 5, TID: 5, Goroutine: true},
	} {
		n := th.ExportTID()
		if seen[n] || n >= 1<<31 || !th.Goroutine && n != th.TID {
			t.Errorf("%+v: %d", th, n)
		}
		seen[n] = true
	}
	if g := (&Thread{Name: "main.work", TID: 7, Goroutine: true}).ExportName(); g != "main.work/7" {
		t.Error(g)
	}
}
