package trace

import (
	"errors"
	"slices"
	"testing"
)

// numbered is a source of n events that ends in an error.
type numbered struct {
	n   int
	err error
}

func (s numbered) each(f func(*Event) error) error {
	for i := range s.n {
		if err := f(&Event{Time: Ns(i)}); err != nil {
			return err
		}
	}
	return s.err
}

func (s numbered) EventBatches(f func([]Event, func()) error) error { return InBatches(s.each, f) }

// TestInBatches: all events come, once and in order, and then the source's error; a consumer's error ends it.
func TestInBatches(t *testing.T) {
	damaged, enough := errors.New("damaged"), errors.New("enough")
	for _, n := range []int{0, 1, inBatch - 1, inBatch, inBatch + 1, 20*inBatch + 7} {
		for _, want := range []error{nil, damaged} {
			var got []Ns
			err := Events(numbered{n, want}, func(e *Event) error {
				got = append(got, e.Time)
				return nil
			})
			if err != want || len(got) != n || !slices.IsSorted(got) {
				t.Errorf("%d events: %d came, error %v, want %v", n, len(got), err, want)
			}
		}
		seen := 0
		err := Events(numbered{n, damaged}, func(e *Event) error {
			if seen++; seen == n/2+1 {
				return enough
			}
			return nil
		})
		if n > 0 && (err != enough || seen != n/2+1) {
			t.Errorf("%d events: error %v after %d, want %v", n, err, seen, enough)
		}
	}
}
