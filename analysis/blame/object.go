// What objects are called: a lock on the heap has no name of its own, so it goes by where it is waited for and taken.

package blame

import (
	"strings"

	"github.com/hbtrace/hbtrace/analysis/names"
	"github.com/hbtrace/hbtrace/analysis/weigh"
	"github.com/hbtrace/hbtrace/trace"
)

// uses counts what is done with an object, by the place it is done at.
type uses struct {
	kind   string
	places []placeID
	counts []uint32
}

// maxPlaces bounds the places that are counted of one object; the first ones are.
const maxPlaces = 64

// signals tells calls that let others go on, and had to wait for that.
func (a *Analyser) signals(h trace.HookID) bool { return a.src.Meta().Hooks[h].Class == trace.HookWake }

// kind is the kind of object that a hook waits for, for reading or writing.
func (a *Analyser) kind(h trace.HookID) string {
	k := weigh.ObjectKind(a.src.Meta().Hooks[h])
	if strings.HasPrefix(k, "rwlock") {
		return "rwlock"
	}
	return k
}

// use counts a wait for an object, or, with no kind, that it was taken where others waited for it.
func (a *Analyser) use(e *trace.Event, kind string) {
	o := Object{a.procOf[e.Thread], e.Object}
	u := a.used[o]
	if u == nil {
		if len(a.used) >= a.o.MaxIntervals {
			return
		}
		u = &uses{}
		a.used[o] = u
	}
	if u.kind == "" {
		u.kind = kind
	}
	if e.Stack == 0 {
		return // waits that are open may have none
	}
	at := a.places.of(trace.Site{Stack: e.Stack, Hook: e.Hook})
	for i, p := range u.places {
		if p == at {
			u.counts[i]++
			return
		}
	}
	if len(u.places) < maxPlaces {
		u.places, u.counts = append(u.places, at), append(u.counts, 1)
	}
}

// nameObjects gives objects their names: a variable's, or the kind and the function that most uses of it are in. Of functions
// that use it nearly as often (half as often, at least) the first by name is taken: which one is ahead, or comes first, is
// chance, and the same lock shall have the same name in the next recording.
func (a *Analyser) nameObjects() {
	for o, u := range a.used {
		if u.kind == "" {
			continue // was taken, but no wait for it is known
		}
		if u.kind == weigh.GIL {
			a.res.names[o] = weigh.GIL
			continue
		}
		if n := a.tab.Variable(o.Addr); n != "" {
			a.res.names[o] = n
			continue
		}
		var most uint32
		for _, n := range u.counts {
			most = max(most, n)
		}
		best := ""
		for i, n := range u.counts {
			if name := names.Bare(a.places.text(u.places[i])); 2*n >= most && (best == "" || name < best) {
				best = name
			}
		}
		a.res.names[o] = strings.TrimSuffix(u.kind+" of "+best, " of ")
	}
	a.used = nil
}
