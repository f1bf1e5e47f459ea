// Functions: sums by function, and which function of a stack to name where there is room for one.

package report

import (
	"cmp"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/hbtrace/hbtrace/analysis/edges"
	"github.com/hbtrace/hbtrace/analysis/frames"
	"github.com/hbtrace/hbtrace/analysis/weigh"
	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/visualize/terminal"
)

// sum of one function: what fell on itself, and on it and what it called.
type sum struct {
	name       string
	module     trace.ModuleID
	ids        []frames.ID // of its parts; none: no frame
	symbolised bool
	self, cum  int64
	row        int    // one more than the number of the row that it was last met in
	file       string // set by locate: where most of its time was; "" unknown
	line       int
}

// byFunction sums one column of the weights by function, the largest self first. A function that recurses
// counts once per stack. Parts that a compiler made of one function, which differ by their symbols alone, are one.
func (f *facts) byFunction(v weigh.Value) []*sum {
	type function struct {
		name   string
		module trace.ModuleID
	}
	var byID []*sum // grows as IDs are met
	by := map[function]*sum{}
	var sums []*sum
	of := func(name string, module trace.ModuleID, symbolised bool) *sum {
		s := by[function{name, module}]
		if s == nil {
			s = &sum{name: name, module: module, symbolised: symbolised}
			by[function{name, module}] = s
			sums = append(sums, s)
		}
		return s
	}
	var path []trace.StackID
	for i := range f.weights.Rows {
		r := &f.weights.Rows[i]
		w := r.Values[v]
		if w == 0 {
			continue
		}
		var leaf *sum
		add := func(s *sum) {
			if s.row != i+1 {
				s.row = i + 1
				s.cum += w
			}
			leaf = s
		}
		path = f.frames.Path(path[:0], r.Stack)
		for _, node := range path {
			for _, at := range f.frames.Of(node) {
				if n := f.frames.Len() - len(byID); int(at.ID) >= len(byID) {
					byID = append(byID, make([]*sum, n)...)
				}
				if byID[at.ID] == nil {
					fr := f.frames.Frame(at.ID)
					if fr.Mark {
						continue
					}
					s := of(fr.Name, fr.Module, fr.Symbolised)
					s.ids = append(s.ids, at.ID)
					byID[at.ID] = s
				}
				add(byID[at.ID])
			}
		}
		if leaf == nil { // a start routine, or no stack
			named := f.weights.Stack(f.src, nil, &r.Key)[0]
			add(of(named.Name, r.Routine.Module, named.Symbolised))
		}
		if name := f.hook(r.Hook); r.Hook != 0 && name != leaf.name { // the hooked function that the leaf called
			add(of(name, 0, true))
		}
		leaf.self += w
	}
	slices.SortFunc(sums, func(a, b *sum) int {
		return cmp.Or(cmp.Compare(b.self, a.self), cmp.Compare(b.cum, a.cum), cmp.Compare(a.name, b.name),
			cmp.Compare(a.module, b.module))
	})
	return sums
}

// byCumulative sorts sums by what fell on functions and what they called.
func byCumulative(sums []*sum) {
	slices.SortStableFunc(sums, func(a, b *sum) int {
		return cmp.Or(cmp.Compare(b.cum, a.cum), cmp.Compare(b.self, a.self), cmp.Compare(a.name, b.name), cmp.Compare(a.module, b.module))
	})
}

// locate finds the line of each function that most of its share of v fell on.
func (f *facts) locate(sums []*sum, v weigh.Value) {
	of := make([]*sum, f.frames.Len()) // by ID
	for _, s := range sums {
		for _, id := range s.ids {
			of[id] = s
		}
	}
	type at struct {
		s    *sum
		id   frames.ID
		line int32
	}
	on := map[at]int64{}
	var path []trace.StackID
	for i := range f.weights.Rows {
		r := &f.weights.Rows[i]
		if r.Values[v] == 0 {
			continue
		}
		path = f.frames.Path(path[:0], r.Stack)
		for _, node := range path {
			for _, x := range f.frames.Of(node) {
				if x.Line > 0 && int(x.ID) < len(of) && of[x.ID] != nil {
					on[at{of[x.ID], x.ID, x.Line}] += r.Values[v]
				}
			}
		}
	}
	most := map[*sum]at{}
	for k, ns := range on {
		if m, ok := most[k.s]; !ok || ns > on[m] || ns == on[m] && k.line < m.line {
			most[k.s] = k
		}
	}
	for s, m := range most {
		s.file, s.line = f.frames.Frame(m.id).File, int(m.line)
	}
}

// stack is a site's functions, leaf first, the hooked function included.
func (f *facts) stack(at trace.Site) []string {
	names := []string{}
	if at.Stack == 0 && at.Hook == 0 {
		return names
	}
	for _, node := range f.frames.Path(nil, at.Stack) {
		for _, a := range f.frames.Of(node) {
			names = append(names, f.frames.Frame(a.ID).Name)
		}
	}
	if hook := f.hook(at.Hook); hook != "" && (len(names) == 0 || names[len(names)-1] != hook) {
		names = append(names, hook)
	}
	slices.Reverse(names)
	return names
}

// stackPlaces is a site's functions with their lines, leaf first, the hooked function included.
func (f *facts) stackPlaces(at trace.Site) []frames.Place {
	var list []frames.Place
	for _, node := range f.frames.Path(nil, at.Stack) {
		for _, a := range f.frames.Of(node) {
			fr := f.frames.Frame(a.ID)
			list = append(list, frames.Place{Func: fr.Name, File: fr.File, Line: int(a.Line)})
		}
	}
	if hook := f.hook(at.Hook); hook != "" && (len(list) == 0 || list[len(list)-1].Func != hook) {
		list = append(list, frames.Place{Func: hook})
	}
	slices.Reverse(list)
	return list
}

// culprit names the function of a stack that a reader can do something about.
func (f *facts) culprit(at trace.Site) string { return f.frames.Culprit(at.Stack, f.hook(at.Hook)) }

// culpritAt is culprit with its place in the source.
func (f *facts) culpritAt(at trace.Site) frames.Place {
	return f.frames.CulpritAt(at.Stack, f.hook(at.Hook))
}

// fileLine is a place in the source as tables show it; "" where it is not known.
func fileLine(file string, line int) string {
	if file == "" {
		return ""
	}
	text := filepath.Base(file)
	if line > 0 {
		text += ":" + strconv.Itoa(line)
	}
	const most = 20 // columns: a function's name says more
	return terminal.Middle(terminal.Clean(text), most)
}

// place is all blocks with the same culprit and the same call.
type place struct {
	function, call string
	wait           bool
	count, open    uint64
	total, max     int64
	longest        *block // the block that the longest one belongs to
	heaviest       *block // the block of the most time
}

// places groups blocks for reading, the heaviest first.
func (f *facts) places() []*place {
	type key struct{ function, call string }
	by := map[key]*place{}
	var out []*place
	for _, b := range f.blocks {
		k := key{f.culprit(b.at), f.hook(b.at.Hook)}
		p := by[k]
		if p == nil {
			p = &place{function: k.function, call: k.call, wait: b.wait}
			by[k] = p
			out = append(out, p)
		}
		p.count += b.count
		p.open += b.open
		p.total += b.total
		if b.max > p.max || p.longest == nil {
			p.max, p.longest = b.max, b
		}
		if p.heaviest == nil || b.total > p.heaviest.total {
			p.heaviest = b
		}
	}
	slices.SortStableFunc(out, func(a, b *place) int { return cmp.Compare(b.total, a.total) })
	return out
}

// allocSite is all sampled allocations with the same culprit.
type allocSite struct {
	function                    string
	objects, space, live, inuse int64
	heaviest                    *weigh.Row // the stack of the most bytes
}

// allocSites groups allocations for reading, the most bytes first.
func (f *facts) allocSites() []*allocSite {
	by := map[string]*allocSite{}
	var out []*allocSite
	for i := range f.weights.Rows {
		r := &f.weights.Rows[i]
		if r.Values[weigh.AllocObjects] == 0 && r.Values[weigh.AllocSpace] == 0 && r.Values[weigh.InuseSpace] == 0 {
			continue
		}
		name := f.culprit(trace.Site{Stack: r.Stack, Hook: r.Hook})
		a := by[name]
		if a == nil {
			a = &allocSite{function: name}
			by[name] = a
			out = append(out, a)
		}
		a.objects += r.Values[weigh.AllocObjects]
		a.space += r.Values[weigh.AllocSpace]
		a.live += r.Values[weigh.InuseObjects]
		a.inuse += r.Values[weigh.InuseSpace]
		if a.heaviest == nil || r.Values[weigh.AllocSpace] > a.heaviest.Values[weigh.AllocSpace] {
			a.heaviest = r
		}
	}
	slices.SortStableFunc(out, func(a, b *allocSite) int {
		return cmp.Or(cmp.Compare(b.space, a.space), cmp.Compare(a.function, b.function))
	})
	return out
}

// lock is all waits for one object.
type lock struct {
	proc       trace.ProcID
	kind       string
	object     uint64
	exclusive  bool // a lock, not a condition or the like
	count      uint64
	total, max int64
	timedOut   uint64
	certain    int64 // ns of waits whose releaser is certain
	known      int64 // ns of waits whose releaser is known
	waiters    tally[string]
	releasers  tally[releaser]
	owners     tally[trace.ThreadID]
	edges      []*edges.Edge
}

type releaser struct {
	thread   trace.ThreadID
	function string // "" where its stack is not recorded
}

// tally sums ns by key.
type tally[K comparable] map[K]int64

// top returns the key with the most, false where there is none. less breaks ties.
func (t tally[K]) top(less func(a, b K) bool) (best K, ok bool) {
	for k, ns := range t {
		if !ok || ns > t[best] || ns == t[best] && less(k, best) {
			best, ok = k, true
		}
	}
	return best, ok
}

// locks groups edges by object, the heaviest first.
func (f *facts) locks() []*lock {
	type key struct {
		proc   trace.ProcID
		kind   string
		object uint64
	}
	by := map[key]*lock{}
	var out []*lock
	for _, e := range f.edges {
		kind, _, _ := strings.Cut(f.kind(e.Hook), "-") // an rwlock is one object, read or written
		k := key{f.thread(e.Waiter).Proc, kind, e.Object}
		l := by[k]
		if l == nil {
			l = &lock{
				proc: k.proc, kind: k.kind, object: k.object,
				waiters: tally[string]{}, releasers: tally[releaser]{}, owners: tally[trace.ThreadID]{},
			}
			by[k] = l
			out = append(out, l)
		}
		l.exclusive = l.exclusive || f.locking.Wait(e.Hook, e.Stack)
		l.count += e.Count
		l.total += e.Total
		l.max = max(l.max, e.Max)
		l.timedOut += e.TimedOut
		l.waiters[f.culprit(trace.Site{Stack: e.Stack, Hook: e.Hook})] += e.Total
		if e.Releaser != 0 {
			r := releaser{thread: e.Releaser}
			if e.Release != (trace.Site{}) {
				r.function = f.culprit(e.Release)
			}
			l.releasers[r] += e.Total
			l.known += e.Total
			l.certain += int64(float64(e.Total) * float64(e.Sure) / float64(max(e.Count, 1)))
		}
		if e.Owner != 0 {
			l.owners[e.Owner] += e.Total
		}
		l.edges = append(l.edges, e)
	}
	slices.SortStableFunc(out, func(a, b *lock) int { return cmp.Compare(b.total, a.total) })
	return out
}

// contended are the locks among them, without the conditions that threads idle at.
func contended(locks []*lock) []*lock {
	var out []*lock
	for _, l := range locks {
		if l.exclusive {
			out = append(out, l)
		}
	}
	return out
}

// letGo says who let go of a lock most of the time it was waited for, and where.
func (f *facts) letGo(l *lock) (who, where string) {
	r, ok := l.releasers.top(func(a, b releaser) bool {
		return cmp.Or(cmp.Compare(a.thread, b.thread), cmp.Compare(a.function, b.function)) < 0
	})
	if ok {
		return f.threadName(r.thread), r.function
	}
	return "", ""
}

// topWaiter is the function that waited longest for a lock.
func (l *lock) topWaiter() string {
	w, _ := l.waiters.top(func(a, b string) bool { return a < b })
	return w
}

// topOwner is the thread that had the lock longest while others waited; 0 unknown.
func (l *lock) topOwner() trace.ThreadID {
	o, _ := l.owners.top(func(a, b trace.ThreadID) bool { return a < b })
	return o
}
