// Places by the function to name, numbered: chains through one function are one, whatever its line.

package blame

import (
	"github.com/hbtrace/hbtrace/analysis/frames"
	"github.com/hbtrace/hbtrace/trace"
)

type placeID uint32

type places struct {
	meta  *trace.Meta
	tab   *frames.Table
	sites map[trace.Site]placeID
	calls map[trace.Site]placeID // of calls, by where they are made: see endPlace
	ids   map[string]placeID
	names []string
}

func (p *places) init(meta *trace.Meta, tab *frames.Table) {
	*p = places{meta: meta, tab: tab, sites: map[trace.Site]placeID{}, calls: map[trace.Site]placeID{}, ids: map[string]placeID{"": 0}, names: []string{""}}
}

// of is the place of a site; 0 for none.
func (p *places) of(at trace.Site) placeID {
	if at == (trace.Site{}) {
		return 0
	}
	id, ok := p.sites[at]
	if !ok {
		id = p.named(p.tab.Culprit(at.Stack, frames.HookName(p.meta, at.Hook)))
		p.sites[at] = id
	}
	return id
}

// called is the place of a hooked function's call, with where it was called from.
func (p *places) named(name string) placeID {
	id, ok := p.ids[name]
	if !ok {
		id = placeID(len(p.names))
		p.ids[name] = id
		p.names = append(p.names, name)
	}
	return id
}

func (p *places) text(id placeID) string { return p.names[id] }
