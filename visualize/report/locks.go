// Locks: the tables of who waited for what and who let them go on, two lines a row.

package report

import (
	"strings"
)

func (f *facts) locksView(o Options) []string {
	locks := f.locks()
	out := append(f.head(o), f.deadlockLines(o)...)
	if len(locks) == 0 {
		return f.end(append(out, f.missing(o, "waits for locks", "lock")...), o)
	}
	n := min(o.Top, len(locks))
	lines := f.lockLines(locks[:n], o)
	t := &table{indent: 2}
	t.more(n, len(locks))
	out = append(out, titled(o, "Waited for, by object", append(lines, t.lines(o)...))...)

	n = min(o.Top, len(f.edges))
	t = &table{indent: 2}
	t.more(n, len(f.edges))
	lines = append(f.edgeLines(f.edges[:n], o), t.lines(o)...)
	out = append(out, titled(o, "Who let whom go on", lines)...)
	out = append(out, wrap("", []string{"A ? marks the likeliest of several candidates."}, o.Width)...)
	out = append(out, f.chainLines(o, "What waits for locks were spent on in the end", true)...)
	out = append(out, f.inversionLines(o)...)
	return f.end(out, o)
}

// lockLines takes two lines per lock: figures and where it was waited for; who let it go and where.
func (f *facts) lockLines(locks []*lock, o Options) []string {
	t := &table{columns: []column{
		{title: "waited", right: true}, {title: "longest", right: true}, {title: "count", right: true},
		{title: "object", flex: 1, plain: true}, {title: "waited in ◂ let go by", flex: 1},
	}, indent: 2}
	for _, l := range locks {
		t.add(duration(l.total), duration(l.max), group(l.count), f.object(l.proc, l.kind, l.object), l.topWaiter())
	}
	return t.under(o, func(i, room int) []string {
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

func (f *facts) edgeLines(edges []*edge, o Options) []string {
	t := &table{columns: []column{
		{title: "total", right: true}, {title: "longest", right: true}, {title: "count", right: true}, {title: "for"},
		{title: "waiter ◂ let go by", flex: 1},
	}, indent: 2}
	waiters := make([]string, len(edges))
	for i, e := range edges {
		// Fitted below, where the room is known: a thread's name should not be cut like a function's.
		waiters[i] = f.culprit(site{e.stack, e.hook})
		t.add(duration(e.total), duration(e.max), group(e.count), f.kind(e.hook), f.threadName(e.waiter)+" in "+waiters[i])
	}
	w := t.widths(o.Width)
	for i, e := range edges {
		t.rows[i][4] = whoWhere(f.threadName(e.waiter), waiters[i], true, w[4])
	}
	return t.under(o, func(i, room int) []string {
		e := edges[i]
		return append([]string{f.letGoBy(e, room)}, f.meanwhile(e, room)...)
	})
}

// letGoBy says who ended an edge's waits.
func (f *facts) letGoBy(e *edge, room int) string {
	if e.releaser == 0 {
		switch {
		case e.timedOut == e.count:
			return "(timed out)"
		case e.owner != 0:
			return "unknown; held by " + f.threadName(e.owner)
		}
		return "unknown"
	}
	where := ""
	if e.release != (site{}) {
		where = f.culprit(e.release)
	}
	return whoWhere(f.threadName(e.releaser), where, e.certain(), room)
}

// under writes lines below each row, under its last column: the first after the arrow that says from whom.
func (t *table) under(o Options, more func(row, room int) []string) []string {
	w := t.widths(o.Width)
	at := t.indent
	for _, x := range w[:len(w)-1] {
		at += x + gap
	}
	lines := t.lines(o)
	out := lines[:1:1]
	for i := range t.rows {
		out = append(out, lines[i+1])
		room := o.Width - at - 2
		for j, text := range more(i, room) {
			mark := "◂ "
			if j > 0 && !t.chain {
				mark = "  "
			}
			text = strings.TrimRight(middle(clean(text), room), " ")
			out = append(out, strings.Repeat(" ", at)+paint(o.Color, dim, mark)+text)
		}
	}
	return out
}

// whoWhere is "thread in function" in at most room columns; the thread's name takes no more than half of it.
func whoWhere(who, where string, certain bool, room int) string {
	who = clean(who)
	if !certain {
		who = "?" + who
	}
	if where == "" {
		return middle(who, room)
	}
	who = middle(who, max(8, room/2))
	return who + " in " + shorten(where, max(8, room-columns(who)-4))
}
