package nest

import (
	"testing"

	"github.com/hbtrace/hbtrace/trace"
)

// chain is a stack table in which each stack is the one before it with a frame more.
type chain struct{}

func (chain) Valid(id trace.StackID) bool           { return id != 0 }
func (chain) Parent(id trace.StackID) trace.StackID { return id - 1 }
func (chain) Depth(id trace.StackID) int            { return int(id) }

// TestBounded: an interval that contains more events than are held begins where those end that were given away; what is
// held of many threads is bounded; every event comes out once, in an order that contradicts no other.
func TestBounded(t *testing.T) {
	const threads, inside = 100, 1000
	at, open, events, clipped := map[trace.ThreadID]trace.Ns{}, map[trace.ThreadID]int{}, 0, 0
	n := New(chain{}, func(s *Step) error {
		th := s.Event.Thread
		edge := s.Start
		switch s.Phase {
		case Enter:
			open[th]++
			if s.Clipped {
				clipped++
			}
		case Leave:
			open[th]--
			edge = s.End
		}
		if edge < at[th] || s.End < s.Start {
			t.Fatalf("thread %d: %v at %d, behind %d", th, s.Phase, edge, at[th])
		}
		at[th] = edge
		if s.Phase != Leave {
			events++
		}
		return nil
	})
	for i := range trace.Ns(inside) {
		for th := range trace.ThreadID(threads) {
			e := trace.Event{
				Kind:   trace.KindGap,
				Thread: th + 1,
				Time:   10 + i,
				Start:  10 + i,
				Stack:  trace.StackID(3 + i%3),
				Same:   3,
			}
			if err := n.Add(&e, 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	held := 0
	for _, q := range n.held.All() {
		held += len(q.list) - q.head
	}
	if held > threads*mostHeld {
		t.Errorf("%d events are held", held)
	}
	for th := range trace.ThreadID(threads) {
		e := trace.Event{Kind: trace.KindCall, Thread: th + 1, Start: 5, Time: 2000, Stack: 3, Same: 3}
		if err := n.Add(&e, 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	if events != threads*(inside+1) || clipped != threads {
		t.Errorf("%d events came out, %d intervals clipped; want %d and %d", events, clipped, threads*(inside+1), threads)
	}
	for th, k := range open {
		if k != 0 {
			t.Errorf("thread %d: %d intervals are open", th, k)
		}
	}
}
