// What a reader keeps of each thread.

package trace

import (
	"iter"
	"maps"
	"slices"
)

// PerThread keeps a T of each thread that has one. A recording's ids count up from 1: those below fewThreads are found in
// a slice, because a reader looks one up for every event. The zero value is empty. It is not safe for concurrent use.
type PerThread[T any] struct {
	few  []*T
	many map[ThreadID]*T
	n    int
}

const fewThreads = 1 << 16

// Get returns a thread's T, or nil.
func (p *PerThread[T]) Get(id ThreadID) *T {
	if int64(id) < int64(len(p.few)) {
		return p.few[id]
	}
	if id < fewThreads {
		return nil
	}
	return p.many[id]
}

// Put sets a thread's T. It must not be nil.
func (p *PerThread[T]) Put(id ThreadID, t *T) {
	if p.Get(id) == nil {
		p.n++
	}
	if id >= fewThreads {
		if p.many == nil {
			p.many = map[ThreadID]*T{}
		}
		p.many[id] = t
		return
	}
	if n := int(id) + 1 - len(p.few); n > 0 {
		p.few = append(p.few, make([]*T, n)...)
	}
	p.few[id] = t
}

// Delete forgets a thread's T.
func (p *PerThread[T]) Delete(id ThreadID) {
	if p.Get(id) == nil {
		return
	}
	p.n--
	if id < fewThreads {
		p.few[id] = nil
	} else {
		delete(p.many, id)
	}
}

// Len is how many threads have a T.
func (p *PerThread[T]) Len() int { return p.n }

// All gives the threads in the order of their ids. What has come may be deleted meanwhile.
func (p *PerThread[T]) All() iter.Seq2[ThreadID, *T] {
	return func(yield func(ThreadID, *T) bool) {
		for id, t := range p.few {
			if t != nil && !yield(ThreadID(id), t) {
				return
			}
		}
		for _, id := range slices.Sorted(maps.Keys(p.many)) {
			if !yield(id, p.many[id]) {
				return
			}
		}
	}
}
