// Groups: waits and chains of all threads that did the same, by function. A pool of eight workers at one lock is one row.

package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hbtrace/hbtrace/analysis/blame"
	"github.com/hbtrace/hbtrace/analysis/edges"
	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/visualize/number"
	"github.com/hbtrace/hbtrace/visualize/terminal"
)

// threadSum is time by thread.
type threadSum map[trace.ThreadID]int64

func (t threadSum) add(id trace.ThreadID, ns int64) {
	if id != 0 {
		t[id] += ns
	}
}

// ids are the threads, the one of the most time first.
func (t threadSum) ids() []trace.ThreadID {
	return slices.SortedFunc(maps.Keys(t), func(a, b trace.ThreadID) int { return cmp.Or(cmp.Compare(t[b], t[a]), cmp.Compare(a, b)) })
}

// label names threads in a few words: one by its name, several by what their names have in common, and how many they are.
func (f *facts) label(t threadSum) string {
	ids := t.ids()
	switch len(ids) {
	case 0:
		return "?"
	case 1:
		return f.threadName(ids[0])
	}
	common, equal := "", true
	for i, id := range ids {
		name := ""
		if x := f.threads.Get(id); x != nil && x.Thread != nil {
			name = x.Name
		}
		stem := strings.TrimRight(name, "0123456789")
		switch {
		case i == 0:
			common, equal = name, true
		case name != common:
			equal = false
		}
		if !equal && stem != strings.TrimRight(common, "0123456789") {
			return fmt.Sprintf("%s and %d more", f.threadName(ids[0]), len(ids)-1)
		}
	}
	if !equal {
		common = strings.TrimRight(common, "0123456789") + "*"
	}
	if common == "" || common == "*" {
		return number.Plural(uint64(len(ids)), "thread")
	}
	return fmt.Sprintf("%s (%d)", common, len(ids))
}

// chainGroup is all chains that lead from waits in the same functions, for objects of the same names, to the same end.
type chainGroup struct {
	*blame.Chain             // the heaviest of them
	count        uint64      // waits
	total, max   int64       // ns
	threads      []threadSum // of each link
	by           threadSum   // of the end
}

// chainGroups are the groups of the chains that pass keep, the heaviest first.
func (f *facts) chainGroups(keep func(*blame.Chain) bool) []*chainGroup {
	if f.blame == nil {
		return nil
	}
	by := map[string]*chainGroup{}
	var out []*chainGroup
	var key strings.Builder
	for i := range f.blame.Chains {
		c := &f.blame.Chains[i]
		if len(c.Links) == 0 || !keep(c) {
			continue
		}
		key.Reset()
		fmt.Fprintf(&key, "%t\x00%d\x00%s", c.Lock, c.End, c.Func)
		for j := range c.Links {
			l := &c.Links[j]
			fmt.Fprintf(&key, "\x00%s\x00%s\x00%s", l.Func, l.Kind, f.objectName(l.Object))
		}
		g := by[key.String()]
		if g == nil {
			g = &chainGroup{Chain: c, by: threadSum{}}
			for range c.Links {
				g.threads = append(g.threads, threadSum{})
			}
			by[key.String()] = g
			out = append(out, g)
		}
		g.count += c.Count
		g.total += c.Total
		g.max = max(g.max, c.Max)
		for j := range c.Links {
			g.threads[j].add(c.Links[j].Thread, c.Total)
		}
		g.by.add(c.By, c.Total)
	}
	slices.SortStableFunc(out, func(a, b *chainGroup) int { return cmp.Compare(b.total, a.total) })
	return out
}

// chainTable lays groups of chains out: the wait, and below it for whom and what that one did.
func (f *facts) chainTable(groups []*chainGroup, o Options) []string {
	t := &terminal.Table{Columns: []terminal.Column{
		{Title: "total", Right: true}, {Title: "longest", Right: true}, {Title: "count", Right: true},
		{Title: "waiter ◂ waited for ◂ …: what that thread did", Flex: 1},
	}, Indent: 2, Chain: true}
	for _, g := range groups {
		t.Add(duration(g.total), duration(g.max), number.Count(g.count), f.groupLink(g, 0, o.Width))
	}
	w := t.Widths(o.Width)
	for i, g := range groups {
		t.Rows[i][3] = f.groupLink(g, 0, w[3])
	}
	holding := f.holding(groups)
	return t.Under(o.Width, o.Color, func(i, room int) []string {
		g := groups[i]
		var out []string
		for j := 1; j < len(g.Links); j++ {
			out = append(out, f.groupLink(g, j, room))
		}
		end := f.actAt(g.Chain, room)
		if len(g.by) > 0 {
			who := terminal.Thread(terminal.Clean(f.label(g.by)), max(8, room/3))
			if in := holding[i]; in != "" && !strings.HasSuffix(f.act(g.End, g.Func, blame.Object{}), in) {
				who += " in " + terminal.Shorten(in, max(8, room/3))
			}
			who += ": "
			end = who + f.actAt(g.Chain, max(8, room-terminal.Columns(who)))
		}
		out = append(out, end)
		if o.Stacks {
			out = append(out, f.stackLines("waits", g.Links[0].At, room)...)
			out = append(out, f.stackLines("meanwhile", g.At, room)...)
		}
		return out
	})
}

// holding is, for each group, the function in which the last object that was waited for had been taken, or else was released; "" where
// that is not recorded, and where nothing is held.
func (f *facts) holding(groups []*chainGroup) []string {
	type key struct{ waiter, kind, object string }
	in := map[key]tally[string]{}
	for _, g := range f.edgeGroups() {
		k := key{g.waiter, g.kind, g.object}
		for _, e := range g.edges {
			if !f.locking.Wait(e.Hook, e.Stack) {
				continue
			}
			at := e.Release
			if d := f.detail(e); d != nil && d.Taken != (trace.Site{}) {
				at = d.Taken
			}
			if at == (trace.Site{}) {
				continue
			}
			if in[k] == nil {
				in[k] = tally[string]{}
			}
			in[k][f.culprit(at)] += e.Total
		}
	}
	out := make([]string, len(groups))
	for i, g := range groups {
		l := &g.Links[len(g.Links)-1]
		out[i], _ = in[key{l.Func, l.Kind, f.objectName(l.Object)}].top(func(a, b string) bool { return a < b })
	}
	return out
}

// actAt is what a chain's end did, and at which line where there is room for it.
func (f *facts) actAt(c *blame.Chain, room int) string {
	text := f.actIn(c.End, c.Func, blame.Object{}, room)
	if c.At != (trace.Site{}) {
		at := f.culpritAt(c.At)
		return withPlace(text, fileLine(at.File, at.Line), room)
	}
	return text
}

// withPlace adds a place in the source to a text where there is room for both.
func withPlace(text, place string, room int) string {
	if place != "" && terminal.Columns(text)+terminal.Columns(place)+3 <= room {
		return text + " (" + place + ")"
	}
	return text
}

// groupLink is "threads in function for mutex m (file:line)" in at most room columns. The line gives way first, then the function's name.
func (f *facts) groupLink(g *chainGroup, i, room int) string {
	l := &g.Links[i]
	object := ""
	if l.Kind != "" {
		object = " for " + l.Kind
		if name := f.frames.Variable(l.Object.Addr); name != "" {
			object += " " + name
		}
		object = terminal.Middle(terminal.Clean(object), max(8, room/2))
	}
	text := whoWhere(f.label(g.threads[i]), l.Func, true, max(8, room-terminal.Columns(object))) + object
	at := f.culpritAt(l.At)
	return withPlace(text, fileLine(at.File, at.Line), room)
}

// edgeGroup is all edges with the same kind and name of object, waiting function and releasing function.
type edgeGroup struct {
	kind, object, waiter, release string
	edges                         []*edges.Edge // the heaviest first
	count, sure, timedOut         uint64
	total, max                    int64
	waiters, releasers, owners    threadSum
}

// edgeGroups are the groups of all edges, the heaviest first.
func (f *facts) edgeGroups() []*edgeGroup {
	type key struct {
		kind, object, waiter, release string
		known                         bool
	}
	by := map[key]*edgeGroup{}
	var out []*edgeGroup
	for _, e := range f.edges {
		k := key{
			kind: f.kind(e.Hook), object: f.objectName(blame.Object{Proc: f.thread(e.Waiter).Proc, Addr: e.Object}),
			waiter: f.culprit(trace.Site{Stack: e.Stack, Hook: e.Hook}), known: e.Releaser != 0,
		}
		if e.Release != (trace.Site{}) {
			k.release = f.culprit(e.Release)
		}
		g := by[k]
		if g == nil {
			g = &edgeGroup{
				kind: k.kind, object: k.object, waiter: k.waiter, release: k.release,
				waiters: threadSum{}, releasers: threadSum{}, owners: threadSum{},
			}
			by[k] = g
			out = append(out, g)
		}
		g.edges = append(g.edges, e)
		g.count += e.Count
		g.sure += e.Sure
		g.timedOut += e.TimedOut
		g.total += e.Total
		g.max = max(g.max, e.Max)
		g.waiters.add(e.Waiter, e.Total)
		g.releasers.add(e.Releaser, e.Total)
		g.owners.add(e.Owner, e.Total)
	}
	slices.SortStableFunc(out, func(a, b *edgeGroup) int { return cmp.Compare(b.total, a.total) })
	return out
}

// doing sums up what the holders did during the waits of a group, the longest first.
func (f *facts) doing(g *edgeGroup) []blame.Doing {
	type key struct {
		act    blame.Act
		name   string
		object string
	}
	by := map[key]int{}
	var out []blame.Doing
	for _, e := range g.edges {
		d := f.detail(e)
		if d == nil || d.HolderNs == 0 {
			continue
		}
		for _, x := range d.Doing {
			k := key{x.Act, x.Func, ""}
			if x.Act == blame.Waiting {
				k.object = f.objectName(x.Object)
			}
			if i, ok := by[k]; ok {
				out[i].Ns += x.Ns
				continue
			}
			by[k] = len(out)
			out = append(out, x)
		}
	}
	slices.SortStableFunc(out, func(a, b blame.Doing) int { return cmp.Compare(b.Ns, a.Ns) })
	return out
}
