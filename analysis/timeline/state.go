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
	calls   map[trace.HookID]weigh.State
	waits   map[trace.Site]weigh.State
}

func newStateCache(meta *trace.Meta, tab *frames.Table) stateCache {
	return stateCache{meta, weigh.NewLocking(meta, tab), map[trace.HookID]weigh.State{}, map[trace.Site]weigh.State{}}
}

func (c *stateCache) of(e *trace.Event) weigh.State {
	if e.Kind == trace.KindCall {
		s, ok := c.calls[e.Hook]
		if !ok {
			s = weigh.StateOf(e.Kind, c.meta.Hooks[e.Hook], false)
			c.calls[e.Hook] = s
		}
		return s
	}
	k := trace.Site{Stack: e.Stack, Hook: e.Hook}
	s, ok := c.waits[k]
	if !ok {
		s = weigh.StateOf(e.Kind, c.meta.Hooks[e.Hook], c.locking.Wait(e.Hook, e.Stack))
		c.waits[k] = s
	}
	return s
}
