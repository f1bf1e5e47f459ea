// Locks: the tables of who waited for what and who released it, several lines a row.

package report

import (
	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/visualize/number"
	"github.com/hbtrace/hbtrace/visualize/terminal"
)

func (f *facts) locksView(o Options) []string {
	locks := f.locks()
	out := append(f.head(o), f.deadlockLines(o)...)
	if len(locks) == 0 {
		return f.end(append(out, f.missing(o, "waits for locks", "lock")...), o)
	}
	out = append(out, f.chainLines(o, "What waits for locks led to", true)...)

	n := min(o.Top, len(locks))
	lines := f.lockLines(locks[:n], o)
	t := &terminal.Table{Indent: 2}
	more(t, n, len(locks))
	out = append(out, titled(o, "Waits by object", append(lines, t.Lines(o.Width, o.Color)...))...)

	groups := f.edgeGroups()
	n = min(o.Top, len(groups))
	t = &terminal.Table{Indent: 2}
	more(t, n, len(groups))
	lines = append(f.edgeLines(groups[:n], o), t.Lines(o.Width, o.Color)...)
	out = append(out, titled(o, "Waits by function, and who ended them", lines)...)
	out = append(out, terminal.Wrap("", []string{"A ? marks the likeliest of several candidates."}, o.Width)...)
	out = append(out, f.inversionLines(o)...)
	return f.end(out, o)
}

// lockLines takes two lines per lock: figures and where it was waited for; who released it and where.
func (f *facts) lockLines(locks []*lock, o Options) []string {
	t := &terminal.Table{Columns: []terminal.Column{
		{Title: "waited", Right: true}, {Title: "longest", Right: true}, {Title: "count", Right: true},
		{Title: "object", Flex: 1, Plain: true}, {Title: "waited in ◂ released by", Flex: 1},
	}, Indent: 2}
	for _, l := range locks {
		t.Add(duration(l.total), duration(l.max), number.Count(l.count), f.object(l.proc, l.kind, l.object), l.topWaiter())
	}
	return t.Under(o.Width, o.Color, func(i, room int) []string {
		l := locks[i]
		who, where := f.letGo(l)
		switch {
		case who == "" && l.timedOut == l.count:
			return []string{"(timed out)"}
		case who == "" && l.topOwner() != 0:
			return []string{"unknown; held by " + f.threadName(l.topOwner())}
		case who == "":
			return []string{"unknown"}
		}
		return []string{whoWhere(who, where, 2*l.certain >= l.known, room)}
	})
}

// edgeLines are the waits of all threads in a function for an object, who released it, and what the holders did meanwhile.
func (f *facts) edgeLines(groups []*edgeGroup, o Options) []string {
	t := &terminal.Table{Columns: []terminal.Column{
		{Title: "total", Right: true}, {Title: "longest", Right: true}, {Title: "count", Right: true}, {Title: "for"},
		{Title: "waiter ◂ released by", Flex: 1},
	}, Indent: 2}
	for _, g := range groups {
		// Fitted below, where the room is known: a thread's name should not be cut like a function's.
		t.Add(duration(g.total), duration(g.max), number.Count(g.count), g.kind, f.label(g.waiters)+" in "+g.waiter)
	}
	w := t.Widths(o.Width)
	for i, g := range groups {
		at := f.culpritAt(trace.Site{Stack: g.edges[0].Stack, Hook: g.edges[0].Hook})
		t.Rows[i][4] = withPlace(whoWhere(f.label(g.waiters), g.waiter, true, w[4]), fileLine(at.File, at.Line), w[4])
	}
	return t.Under(o.Width, o.Color, func(i, room int) []string {
		g := groups[i]
		out := append([]string{f.releasedBy(g, room)}, f.meanwhile(g, room)...)
		if o.Stacks {
			e := g.edges[0]
			out = append(out, f.stackLines("waits", trace.Site{Stack: e.Stack, Hook: e.Hook}, room)...)
			if d := f.detail(e); d != nil {
				out = append(out, f.stackLines("taken", d.Taken, room)...)
			}
			out = append(out, f.stackLines("released", e.Release, room)...)
		}
		return out
	})
}

// releasedBy says who ended a group's waits.
func (f *facts) releasedBy(g *edgeGroup, room int) string {
	if len(g.releasers) == 0 {
		switch {
		case g.timedOut == g.count:
			return "(timed out)"
		case len(g.owners) > 0:
			return "unknown; held by " + f.label(g.owners)
		}
		return "unknown"
	}
	text := whoWhere(f.label(g.releasers), g.release, 2*g.sure >= g.count, room)
	if r := g.edges[0].Release; r != (trace.Site{}) {
		at := f.culpritAt(r)
		text = withPlace(text, fileLine(at.File, at.Line), room)
	}
	return text
}

// whoWhere is "thread in function" in at most room columns; the thread's name takes no more than half of it.
func whoWhere(who, where string, certain bool, room int) string {
	who = terminal.Clean(who)
	if !certain {
		who = "?" + who
	}
	if where == "" {
		return terminal.Middle(who, room)
	}
	who = terminal.Thread(who, max(8, room/2))
	return who + " in " + terminal.Shorten(where, max(8, room-terminal.Columns(who)-4))
}

// stackLines is a whole stack, leaf first, under a lead that says whose it is; nothing where there is none.
func (f *facts) stackLines(lead string, at trace.Site, room int) []string {
	if at == (trace.Site{}) {
		return nil
	}
	out := []string{lead + ":"}
	for _, l := range f.framesOf(at, room-2) {
		out = append(out, "  "+l)
	}
	return out
}

// framesOf is a whole stack, leaf first, with lines where there is room.
func (f *facts) framesOf(at trace.Site, room int) []string {
	var out []string
	for _, fr := range f.stackPlaces(at) {
		out = append(out, withPlace(terminal.Shorten(fr.Func, max(8, room)), fileLine(fr.File, fr.Line), room))
	}
	return out
}
