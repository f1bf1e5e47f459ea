// Events one by one.

package trace

import "errors"

// Batches is the part of a [Source] that has its events.
type Batches interface {
	EventBatches(f func(events []Event, done func()) error) error
}

// Events calls f for every event of src, in stored order. The Event is reused between calls.
func Events(src Batches, f func(*Event) error) error {
	return src.EventBatches(func(events []Event, done func()) error {
		defer done()
		for i := range events {
			if err := f(&events[i]); err != nil {
				return err
			}
		}
		return nil
	})
}

const (
	inBatch = 512 // events; 70 KB: fits a core's own cache
	batches = 6   // under way at a time
)

// errEnough ends an each whose events nobody takes any more.
var errEnough = errors.New("enough events")

// InBatches is [Source.EventBatches] of a source that has its events one by one: each calls a function for every event, and
// ends with that one's error. An error of its own is returned when all events in front of it have been given to f.
func InBatches(each func(func(*Event) error) error, f func([]Event, func()) error) error {
	free := make(chan []Event, batches)
	for range batches {
		free <- make([]Event, 0, inBatch)
	}
	events := <-free
	var failed error // of f
	send := func() error {
		full := events
		failed = f(full, func() { free <- full[:0] })
		return failed
	}
	err := each(func(e *Event) error {
		if events = append(events, *e); len(events) < inBatch {
			return nil
		}
		if send() != nil {
			return errEnough
		}
		events = <-free
		return nil
	})
	if failed == nil && len(events) > 0 {
		_ = send() // failed has it
	}
	if failed != nil {
		return failed
	}
	return err
}
