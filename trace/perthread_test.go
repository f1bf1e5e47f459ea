package trace

import (
	"math/rand/v2"
	"testing"
)

// TestPerThread: it does what a map does, and gives its threads in the order of their ids.
func TestPerThread(t *testing.T) {
	var p PerThread[int]
	want := map[ThreadID]int{}
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 10_000 {
		id := ThreadID(r.Uint32N(300))
		if r.IntN(2) == 0 {
			id += fewThreads - 150
		}
		if r.IntN(100) == 0 {
			id = ThreadID(r.Uint32())
		}
		switch r.IntN(3) {
		case 0:
			p.Delete(id)
			delete(want, id)
		default:
			p.Put(id, &i)
			want[id] = i
		}
		got, ok := p.Get(id), false
		if _, ok = want[id]; ok != (got != nil) || ok && *got != want[id] {
			t.Fatalf("step %d: thread %d has %v, want %d, %v", i, id, got, want[id], ok)
		}
		if p.Len() != len(want) {
			t.Fatalf("step %d: %d threads, want %d", i, p.Len(), len(want))
		}
	}
	last, n := ThreadID(0), 0
	for id, x := range p.All() {
		if n > 0 && id <= last || *x != want[id] {
			t.Errorf("thread %d, %d came after %d", id, *x, last)
		}
		last = id
		n++
	}
	if n != len(want) {
		t.Errorf("%d threads came, want %d", n, len(want))
	}
}
