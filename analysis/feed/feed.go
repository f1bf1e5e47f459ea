// Package feed reads a recording's events once for several consumers, each in a goroutine of its own: reading and
// decoding go on while what was read is worked on.
package feed

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/hbtrace/hbtrace/trace"
)

const batches = 6 // under way at a time

// errStopped ends a source's EventBatches when a consumer has failed.
var errStopped = errors.New("a consumer has failed")

type batch struct {
	events []trace.Event
	users  atomic.Int32 // consumers that have not been through it
	done   func()
}

// Events calls every consumer for every event of src, in stored order. Consumers run at the same time as each other and
// as src.EventBatches, but each is called from one goroutine, and all have returned when Events does. They must not
// change the event, nor keep a reference to it.
//
// A consumer's error ends it all, at some later event, and is returned as it is: that of the first consumer that has
// one. An error of src is returned when all events in front of it have been through the consumers.
func Events(src trace.Source, consumers ...func(*trace.Event) error) error {
	all := make([]func([]trace.Event) error, len(consumers))
	for i, f := range consumers {
		all[i] = func(events []trace.Event) error {
			for j := range events {
				if err := f(&events[j]); err != nil {
					return err
				}
			}
			return nil
		}
	}
	return Batches(src, all...)
}

// Batches is Events for consumers that take many at a time.
func Batches(src trace.Source, consumers ...func([]trace.Event) error) error {
	var failed atomic.Bool
	var wg sync.WaitGroup
	errs := make([]error, len(consumers))
	inputs := make([]chan *batch, len(consumers))
	for i, f := range consumers {
		inputs[i] = make(chan *batch, batches)
		wg.Add(1)
		go func() {
			defer wg.Done()
			for b := range inputs[i] {
				if !failed.Load() {
					if errs[i] = f(b.events); errs[i] != nil {
						failed.Store(true)
					}
				}
				if b.users.Add(-1) == 0 {
					b.done()
				}
			}
		}()
	}
	err := src.EventBatches(func(events []trace.Event, done func()) error {
		b := &batch{events: events, done: done}
		b.users.Store(int32(len(inputs)))
		for _, in := range inputs {
			in <- b
		}
		if failed.Load() {
			return errStopped
		}
		return nil
	})
	for _, in := range inputs {
		close(in)
	}
	wg.Wait()
	for _, e := range errs {
		if e != nil {
			return e
		}
	}
	return err
}
