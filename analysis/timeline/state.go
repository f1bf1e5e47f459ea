// The state that a wait or call is, remembered by what it follows from.

package timeline

import (
	"github.com/hbtrace/hbtrace/analysis/frames"
	"github.com/hbtrace/hbtrace/analysis/weigh"
	"github.com/hbtrace/hbtrace/trace"
)

type stateCache struct {
	meta    *trace.Meta
	locking *weigh.Locking
	states  [3][]weigh.State // of calls, other waits and waits for locks, by hook; Unknown: not asked yet
}

func newStateCache(meta *trace.Meta, tab *frames.Table) stateCache {
	return stateCache{meta: meta, locking: weigh.NewLocking(meta, tab)}
}

func (c *stateCache) of(e *trace.Event) weigh.State {
	kind, lock := 0, false
	if e.Kind == trace.KindWait {
		kind = 1
		if lock = c.locking.Wait(e.Hook, e.Stack); lock {
			kind = 2
		}
	}
	by := &c.states[kind]
	if n := int(e.Hook) + 1 - len(*by); n > 0 {
		*by = append(*by, make([]weigh.State, n)...)
	}
	s := &(*by)[e.Hook]
	if *s == weigh.Unknown {
		*s = weigh.StateOf(e.Kind, c.meta.Hooks[e.Hook], lock)
	}
	return *s
}
