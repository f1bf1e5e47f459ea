package feed

import (
	"errors"
	"testing"

	"github.com/hbtrace/hbtrace/internal/synthetic"
	"github.com/hbtrace/hbtrace/trace"
)

// count is a recording of n numbered events that ends in an error.
type count struct {
	*synthetic.Source
	n   int
	err error
}

func (c count) EventBatches(f func([]trace.Event, func()) error) error {
	return trace.InBatches(c.each, f)
}

func (c count) each(f func(*trace.Event) error) error {
	var e trace.Event
	for i := range c.n {
		e = trace.Event{Time: trace.Ns(i)}
		if err := f(&e); err != nil {
			return err
		}
	}
	return c.err
}

const batchEvents = 512

func TestEveryConsumerSeesEverything(t *testing.T) {
	damaged := errors.New("damaged")
	for _, n := range []int{0, 1, batchEvents - 1, batchEvents, batchEvents + 1, 20*batchEvents + 7} {
		for _, want := range []error{nil, damaged} {
			var seen [3]int
			var consumers []func(*trace.Event) error
			for i := range seen {
				consumers = append(consumers, func(e *trace.Event) error {
					if e.Time != trace.Ns(seen[i]) {
						t.Errorf("consumer %d: event %d where %d was due", i, e.Time, seen[i])
					}
					seen[i]++
					return nil
				})
			}
			if err := Events(count{n: n, err: want}, consumers...); err != want {
				t.Errorf("%d events: error %v, want %v", n, err, want)
			}
			if seen != [3]int{n, n, n} {
				t.Errorf("%d events: consumers saw %v", n, seen)
			}
		}
	}
}

func TestConsumerFails(t *testing.T) {
	for _, at := range []int{0, 5, batchEvents - 1, batchEvents, 50*batchEvents - 1} {
		enough := errors.New("enough")
		seen, other := 0, 0
		err := Events(
			count{n: 50 * batchEvents},
			func(*trace.Event) error { other++; return nil },
			func(e *trace.Event) error {
				if seen++; int(e.Time) == at {
					return enough
				}
				return nil
			},
		)
		if err != enough || seen != at+1 || other > 50*batchEvents {
			t.Errorf("at %d: error %v after %d events, the other saw %d", at, err, seen, other)
		}
	}
}
