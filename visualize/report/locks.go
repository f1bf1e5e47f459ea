// Locks: the tables of who waited for what and who let them go on, two lines a row.

package report

import (
	"github.com/hbtrace/hbtrace/analysis/edges"
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
	n := min(o.Top, len(locks))
	lines := f.lockLines(locks[:n], o)
	t := &terminal.Table{Indent: 2}
	more(t, n, len(locks))
	out = append(out, titled(o, "Waited for, by object", append(lines, t.Lines(o.Width, o.Color)...))...)

	n = min(o.Top, len(f.edges))
	t = &terminal.Table{Indent: 2}
	more(t, n, len(f.edges))
	lines = append(f.edgeLines(f.edges[:n], o), t.Lines(o.Width, o.Color)...)
	out = append(out, titled(o, "Who let whom go on", lines)...)
	out = append(out, terminal.Wrap("", []string{"A ? marks the likeliest of several candidates."}, o.Width)...)
	out = append(out, f.chainLines(o, "What waits for locks were spent on in the end", true)...)
	out = append(out, f.inversionLines(o)...)
	return f.end(out, o)
}

// lockLines takes two lines per lock: figures and where it was waited for; who let it go and where.
func (f *facts) lockLines(locks []*lock, o Options) []string {
	t := &terminal.Table{Columns: []terminal.Column{
		{Title: "waited", Right: true}, {Title: "longest", Right: true}, {Title: "count", Right: true},
		{Title: "object", Flex: 1, Plain: true}, {Title: "waited in ◂ let go by", Flex: 1},
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

func (f *facts) edgeLines(edges []*edges.Edge, o Options) []string {
	t := &terminal.Table{Columns: []terminal.Column{
		{Title: "total", Right: true}, {Title: "longest", Right: true}, {Title: "count", Right: true}, {Title: "for"},
		{Title: "waiter ◂ let go by", Flex: 1},
	}, Indent: 2}
	waiters := make([]string, len(edges))
	for i, e := range edges {
		// Fitted below, where the room is known: a thread's name should not be cut like a function's.
		waiters[i] = f.culprit(trace.Site{Stack: e.Stack, Hook: e.Hook})
		t.Add(duration(e.Total), duration(e.Max), number.Count(e.Count), f.kind(e.Hook), f.threadName(e.Waiter)+" in "+waiters[i])
	}
	w := t.Widths(o.Width)
	for i, e := range edges {
		t.Rows[i][4] = whoWhere(f.threadName(e.Waiter), waiters[i], true, w[4])
	}
	return t.Under(o.Width, o.Color, func(i, room int) []string {
		e := edges[i]
		return append([]string{f.letGoBy(e, room)}, f.meanwhile(e, room)...)
	})
}

// letGoBy says who ended an edge's waits.
func (f *facts) letGoBy(e *edges.Edge, room int) string {
	if e.Releaser == 0 {
		switch {
		case e.TimedOut == e.Count:
			return "(timed out)"
		case e.Owner != 0:
			return "unknown; held by " + f.threadName(e.Owner)
		}
		return "unknown"
	}
	where := ""
	if e.Release != (trace.Site{}) {
		where = f.culprit(e.Release)
	}
	return whoWhere(f.threadName(e.Releaser), where, e.Certain(), room)
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
	who = terminal.Middle(who, max(8, room/2))
	return who + " in " + terminal.Shorten(where, max(8, room-terminal.Columns(who)-4))
}
