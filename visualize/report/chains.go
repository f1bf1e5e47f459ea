// Chains: what waits were spent on in the end, deadlocks, and locks that are taken in contradicting orders.

package report

import (
	"fmt"
	"strings"

	"github.com/hbtrace/hbtrace/analysis/blame"
	"github.com/hbtrace/hbtrace/analysis/edges"
	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/visualize/number"
	"github.com/hbtrace/hbtrace/visualize/terminal"
)

// unfollowed counts what chains leave out.
func (f *facts) unfollowed() uint64 {
	if f.blame == nil {
		return 0
	}
	b := f.blame
	return b.IntervalsLeft + b.WaitsLeft + b.WaitsFaded + b.LinksLeft
}

// detail is what is known of an edge's holders; nil where chains were not asked for.
func (f *facts) detail(e *edges.Edge) *blame.Edge {
	if f.blame == nil {
		return nil
	}
	return f.blame.Edges[e.EdgeKey]
}

// act is what somebody did as text: "fsync in flush", "running in copy", "waiting for mutex m".
func (f *facts) act(act blame.Act, function string, o blame.Object) string {
	switch act {
	case blame.Calling:
		return function
	case blame.Waiting:
		if o.Addr != 0 {
			return "waiting for " + f.objectName(o)
		}
	case blame.Running, blame.Runnable, blame.OffCPU:
		if function == "" {
			return act.String()
		}
		return act.String() + " in " + function
	case blame.Unseen:
		if function != "" {
			return "not sampled, released in " + function
		}
		return "not sampled"
	case blame.Nobody:
		return "by nobody known"
	case blame.Handover:
		return "let go already"
	case blame.TimedOut:
		return "until the time-out"
	case blame.Cycle:
		return "waiting in a circle"
	}
	return act.String()
}

// actIn is act in at most room columns: the function's name gives way, not what was done in it.
func (f *facts) actIn(act blame.Act, function string, o blame.Object, room int) string {
	text := f.act(act, function, o)
	lead, name, ok := strings.Cut(text, " in ")
	if !ok {
		return terminal.Middle(terminal.Clean(text), room)
	}
	lead = terminal.Clean(lead) + " in "
	return lead + terminal.Shorten(name, max(8, room-terminal.Columns(lead)))
}

// meanwhileActs is how many things a holder did are named under an edge.
const meanwhileActs = 2

// meanwhile says what the holder did while it was waited for.
func (f *facts) meanwhile(e *edges.Edge, room int) []string {
	d := f.detail(e)
	if d == nil || d.HolderNs == 0 || len(d.Doing) == 0 {
		return nil
	}
	var out []string
	for _, x := range d.Doing[:min(meanwhileActs, len(d.Doing))] {
		if x.Act == blame.Nobody || x.Act == blame.TimedOut {
			continue
		}
		lead := number.Percent(float64(x.Ns), float64(e.Total)) + " "
		out = append(out, lead+f.actIn(x.Act, x.Func, x.Object, max(8, room-terminal.Columns(lead))))
	}
	return out
}

// Chains that are less than one in so many of all waiting are left out of tables.
const chainShare = 200

// chainLines is a table of the heaviest chains whose first wait is, or is not, for a lock.
func (f *facts) chainLines(o Options, heading string, lock bool) []string {
	if f.blame == nil {
		return nil
	}
	var chains []*blame.Chain
	for i := range f.blame.Chains {
		if c := &f.blame.Chains[i]; c.Lock == lock {
			chains = append(chains, c)
		}
	}
	if len(chains) == 0 {
		return nil
	}
	n := min(o.Top, len(chains))
	var all int64
	for _, c := range chains {
		all += c.Total
	}
	for n > 1 && chains[n-1].Total < all/chainShare {
		n--
	}
	t := &terminal.Table{Columns: []terminal.Column{
		{Title: "total", Right: true}, {Title: "longest", Right: true}, {Title: "count", Right: true},
		{Title: "waited in ◂ for whom ◂ … ◂ what that one did", Flex: 1},
	}, Indent: 2, Chain: true}
	for _, c := range chains[:n] {
		t.Add(duration(c.Total), duration(c.Max), number.Count(c.Count), f.linkText(&c.Links[0], o.Width))
	}
	w := t.Widths(o.Width)
	for i, c := range chains[:n] {
		t.Rows[i][3] = f.linkText(&c.Links[0], w[3])
	}
	lines := t.Under(o.Width, o.Color, func(i, room int) []string {
		c := chains[i]
		var out []string
		for j := 1; j < len(c.Links); j++ {
			out = append(out, f.linkText(&c.Links[j], room))
		}
		if c.By == 0 {
			return append(out, f.actIn(c.End, c.Func, blame.Object{}, room))
		}
		who := terminal.Middle(terminal.Clean(f.threadName(c.By)), max(8, room/2)) + ": "
		return append(out, who+f.actIn(c.End, c.Func, blame.Object{}, max(8, room-terminal.Columns(who))))
	})
	t = &terminal.Table{Indent: 2}
	more(t, n, len(chains))
	return titled(o, heading, append(lines, t.Lines(o.Width, o.Color)...))
}

// linkText is "thread in function (mutex m)" in at most room columns.
func (f *facts) linkText(l *blame.Link, room int) string {
	text := whoWhere(f.threadName(l.Thread), l.Func, true, room)
	if name := f.frames.Variable(l.Object.Addr); name != "" {
		if more := " (" + l.Kind + " " + name + ")"; terminal.Columns(text)+terminal.Columns(more) <= room {
			text += more
		}
	}
	return text
}

// deadlockLines names the deadlocks.
func (f *facts) deadlockLines(o Options) []string {
	if f.blame == nil || len(f.blame.Deadlocks) == 0 {
		return nil
	}
	var lines []string
	for _, d := range f.blame.Deadlocks {
		lines = append(lines, fmt.Sprintf("  %s, for %s, to the end:", number.Plural(uint64(len(d.Threads)), "thread"), inline(duration(int64(d.Until-d.Since)))))
		for i, h := range d.Threads {
			next := d.Threads[(i+1)%len(d.Threads)].Thread
			text := fmt.Sprintf("%s in %s waits for %s, which %s has", f.threadName(h.Thread), f.culprit(trace.Site{Stack: h.At.Stack, Hook: h.At.Hook}),
				f.objectName(h.Object), f.threadName(next))
			lines = append(lines, "    "+terminal.Middle(terminal.Clean(text), o.Width-4))
		}
	}
	out := titled(o, "Deadlock", lines)
	out[1] = terminal.Paint(o.Color, terminal.Red, "Deadlock")
	return out
}

// inversionLines names locks that are taken in contradicting orders.
func (f *facts) inversionLines(o Options) []string {
	if f.blame == nil || len(f.blame.Inversions) == 0 {
		return nil
	}
	var lines []string
	for _, inv := range f.blame.Inversions[:min(o.Top, len(f.blame.Inversions))] {
		for i, x := range inv.Orders {
			mark := "    "
			if i == 0 {
				mark = "  • "
			}
			text := fmt.Sprintf("%s in %s waited for %s while it had %s (%s)", f.threadName(x.Thread), f.culprit(trace.Site{Stack: x.At.Stack, Hook: x.At.Hook}),
				f.objectName(x.Inner), f.objectName(x.Outer), number.Plural(x.Count, "time"))
			for j, l := range terminal.Wrap("", []string{text}, o.Width-4) {
				if j > 0 {
					mark = "      "
				}
				lines = append(lines, mark+terminal.Middle(l, o.Width-terminal.Columns(mark)))
			}
		}
	}
	return titled(o, "Locks taken in contradicting orders: they can deadlock", lines)
}

type jsonEdge struct {
	Kind          string      `json:"kind"`
	Object        string      `json:"object"`
	Address       string      `json:"address"`
	Process       int         `json:"process"`
	Waiter        *jsonWho    `json:"waiter"`
	Holder        *jsonWho    `json:"holder"`
	Releaser      *jsonWho    `json:"releaser"`
	Certain       uint64      `json:"certain"`
	Expected      float64     `json:"expected"`
	Count         uint64      `json:"count"`
	TotalNs       int64       `json:"total_ns"`
	MaxNs         int64       `json:"max_ns"`
	TimedOut      uint64      `json:"timed_out"`
	Open          uint64      `json:"open"`
	WaiterStack   []string    `json:"waiter_stack"`
	HolderStack   []string    `json:"holder_stack"`
	ReleaserStack []string    `json:"releaser_stack"`
	HolderDoing   []jsonDoes  `json:"holder_doing"`
	Wakers        []jsonWakes `json:"wakers"`
}

type jsonWakes struct {
	Thread *jsonWho `json:"thread"`
	Count  uint64   `json:"count"`
}

type jsonDoes struct {
	What string `json:"what"`
	Act  string `json:"act"`
	Ns   int64  `json:"ns"`
}

type jsonChain struct {
	TotalNs int64      `json:"total_ns"`
	MaxNs   int64      `json:"max_ns"`
	Count   uint64     `json:"count"`
	Lock    bool       `json:"lock"`
	Links   []jsonLink `json:"links"`
	End     jsonEnd    `json:"end"`
}

type jsonLink struct {
	Thread   *jsonWho `json:"thread"`
	Kind     string   `json:"kind"`
	Object   string   `json:"object"`
	Address  string   `json:"address"`
	Function string   `json:"function"`
	Stack    []string `json:"stack"`
	SinceNs  *int64   `json:"since_ns,omitempty"` // deadlocks
}

type jsonEnd struct {
	Act    string   `json:"act"`
	What   string   `json:"what"`
	Thread *jsonWho `json:"thread"`
	Stack  []string `json:"stack"`
}

type jsonDeadlock struct {
	SinceNs  int64      `json:"since_ns"`
	LastedNs int64      `json:"lasted_ns"`
	Threads  []jsonLink `json:"threads"`
}

type jsonInversion struct {
	Orders []jsonOrder `json:"orders"`
}

type jsonOrder struct {
	Outer        string   `json:"outer"`
	OuterAddress string   `json:"outer_address"`
	Inner        string   `json:"inner"`
	InnerAddress string   `json:"inner_address"`
	Thread       *jsonWho `json:"thread"`
	Count        uint64   `json:"count"`
	Function     string   `json:"function"`
	Stack        []string `json:"stack"`
}

// holder is who had an edge's object when the waits began: the owner, or, for locks that do not tell, who let go.
func (f *facts) holder(e *edges.Edge) trace.ThreadID {
	if e.Owner == 0 && f.locking.Wait(e.Hook, e.Stack) {
		return e.Releaser
	}
	return e.Owner
}

func address(a uint64) string { return fmt.Sprintf("%#x", a) }

func (f *facts) jsonEdge(e *edges.Edge) jsonEdge {
	o := blame.Object{Proc: f.thread(e.Waiter).Proc, Addr: e.Object}
	out := jsonEdge{
		Kind: f.kind(e.Hook), Object: f.objectName(o), Address: address(e.Object),
		Waiter: f.who(e.Waiter), Holder: f.who(f.holder(e)), Releaser: f.who(e.Releaser),
		Certain: e.Sure, Expected: float64(e.Expected) / 1000, Count: e.Count, TotalNs: e.Total, MaxNs: e.Max, TimedOut: e.TimedOut, Open: e.Open,
		WaiterStack: f.stack(trace.Site{Stack: e.Stack, Hook: e.Hook}), HolderStack: []string{}, ReleaserStack: f.stack(e.Release),
		HolderDoing: []jsonDoes{}, Wakers: []jsonWakes{},
	}
	if out.Waiter != nil {
		out.Process = out.Waiter.PID
	}
	if d := f.detail(e); d != nil {
		out.HolderStack = f.stack(trace.Site{Stack: d.Taken.Stack, Hook: d.Taken.Hook})
		for _, x := range d.Doing {
			out.HolderDoing = append(out.HolderDoing, jsonDoes{f.act(x.Act, x.Func, x.Object), x.Act.String(), x.Ns})
		}
		for _, x := range d.Wakers {
			out.Wakers = append(out.Wakers, jsonWakes{f.who(x.Thread), x.Count})
		}
	}
	return out
}

// jsonBlame writes what --locks has beside edges; cut says how many of n there is room for.
func (f *facts) jsonBlame(j *jsonObject, cut func(n int) int) {
	if f.blame == nil {
		return
	}
	link := func(t trace.ThreadID, at trace.Site, kind string, o blame.Object) jsonLink {
		s := trace.Site{Stack: at.Stack, Hook: at.Hook}
		return jsonLink{Thread: f.who(t), Kind: kind, Object: f.objectName(o), Address: address(o.Addr), Function: f.culprit(s), Stack: f.stack(s)}
	}
	j.list("chains", cut(len(f.blame.Chains)), func(i int) any {
		c := &f.blame.Chains[i]
		x := jsonChain{TotalNs: c.Total, MaxNs: c.Max, Count: c.Count, Lock: c.Lock, Links: []jsonLink{}}
		for _, l := range c.Links {
			x.Links = append(x.Links, link(l.Thread, l.At, l.Kind, l.Object))
		}
		x.End = jsonEnd{c.End.String(), f.act(c.End, c.Func, blame.Object{}), f.who(c.By), f.stack(trace.Site{Stack: c.At.Stack, Hook: c.At.Hook})}
		return x
	})
	j.list("deadlocks", len(f.blame.Deadlocks), func(i int) any {
		d := &f.blame.Deadlocks[i]
		x := jsonDeadlock{SinceNs: int64(d.Since - f.meta.StartNs), LastedNs: int64(d.Until - d.Since), Threads: []jsonLink{}}
		for _, h := range d.Threads {
			l := link(h.Thread, h.At, h.Kind, h.Object)
			since := int64(h.Since - f.meta.StartNs)
			l.SinceNs = &since
			x.Threads = append(x.Threads, l)
		}
		return x
	})
	j.list("inversions", len(f.blame.Inversions), func(i int) any {
		x := jsonInversion{}
		for _, o := range f.blame.Inversions[i].Orders {
			s := trace.Site{Stack: o.At.Stack, Hook: o.At.Hook}
			x.Orders = append(x.Orders, jsonOrder{
				f.objectName(o.Outer), address(o.Outer.Addr), f.objectName(o.Inner), address(o.Inner.Addr), f.who(o.Thread), o.Count,
				f.culprit(s), f.stack(s),
			})
		}
		return x
	})
}
