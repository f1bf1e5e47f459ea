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
	return b.IntervalsLeft + b.WaitsFaded + b.LinksLeft
}

// estimated counts the waits whose chains are estimates.
func (f *facts) estimated() uint64 {
	if f.blame == nil {
		return 0
	}
	return f.blame.WaitsEstimated
}

// detail is what is known of an edge's holders; nil where chains were not computed.
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
		return "holder unknown"
	case blame.Handover:
		return "released already, waiter not yet running"
	case blame.TimedOut:
		return "until the time-out"
	case blame.Cycle:
		return "waiting in a cycle"
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

// meanwhile says what the holders did while they were waited for.
func (f *facts) meanwhile(g *edgeGroup, room int) []string {
	doing := f.doing(g)
	var out []string
	for _, x := range doing[:min(meanwhileActs, len(doing))] {
		if x.Act == blame.Nobody || x.Act == blame.TimedOut {
			continue
		}
		lead := number.Percent(float64(x.Ns), float64(g.total)) + " "
		text := f.actIn(x.Act, x.Func, x.Object, max(8, room-terminal.Columns(lead)))
		if x.At != (trace.Site{}) {
			at := f.culpritAt(x.At)
			text = withPlace(text, fileLine(at.File, at.Line), room-terminal.Columns(lead))
		}
		out = append(out, lead+text)
	}
	return out
}

// Chains that are less than one in so many of all waiting are left out of tables.
const chainShare = 200

// chainLines is a table of the heaviest chains whose first wait is, or is not, for a lock.
func (f *facts) chainLines(o Options, heading string, lock bool) []string {
	groups := f.chainGroups(func(c *blame.Chain) bool { return c.Lock == lock })
	if len(groups) == 0 {
		return nil
	}
	n := min(o.Top, len(groups))
	var all int64
	for _, g := range groups {
		all += g.total
	}
	for n > 1 && groups[n-1].total < all/chainShare {
		n--
	}
	lines := f.chainTable(groups[:n], o)
	t := &terminal.Table{Indent: 2}
	more(t, n, len(groups))
	lines = append(lines, t.Lines(o.Width, o.Color)...)
	if n := f.estimated(); n > 0 {
		lines = append(lines, terminal.Wrap("  ", []string{
			"Estimated: the chains of " + number.Plural(n, "wait") + " are followed at some instants only", "each stands for the time around it",
		}, o.Width)...)
	}
	return titled(o, heading, lines)
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

// jsonEdgeGroup is edges of all threads, by function.
type jsonEdgeGroup struct {
	Kind        string     `json:"kind"`
	Object      string     `json:"object"`
	Function    string     `json:"function"`
	ReleasedIn  string     `json:"released_in"`
	Count       uint64     `json:"count"`
	Certain     uint64     `json:"certain"`
	TotalNs     int64      `json:"total_ns"`
	MaxNs       int64      `json:"max_ns"`
	Waiters     []jsonWho  `json:"waiters"`
	Releasers   []jsonWho  `json:"releasers"`
	HolderDoing []jsonDoes `json:"holder_doing"`
	Edges       int        `json:"edges"`
}

// jsonChainGroup is chains of all threads, by function; Text is a line for each link, and one for the end.
type jsonChainGroup struct {
	TotalNs int64    `json:"total_ns"`
	MaxNs   int64    `json:"max_ns"`
	Count   uint64   `json:"count"`
	Lock    bool     `json:"lock"`
	Text    []string `json:"text"`
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

// inOrder are the threads of a sum, the one of the most time first.
func (f *facts) inOrder(t threadSum) []jsonWho {
	out := []jsonWho{}
	for _, id := range t.ids() {
		out = append(out, f.identity(id))
	}
	return out
}

func (f *facts) jsonEdgeGroup(g *edgeGroup) jsonEdgeGroup {
	x := jsonEdgeGroup{
		g.kind, g.object, g.waiter, g.release, g.count, g.sure, g.total, g.max, f.inOrder(g.waiters), f.inOrder(g.releasers), []jsonDoes{},
		len(g.edges),
	}
	for _, d := range f.doing(g) {
		x.HolderDoing = append(x.HolderDoing, jsonDoes{f.act(d.Act, d.Func, d.Object), d.Act.String(), d.Ns})
	}
	return x
}

func (f *facts) jsonChainGroup(g *chainGroup) jsonChainGroup {
	x := jsonChainGroup{g.total, g.max, g.count, g.Lock, []string{}}
	const wide = 4096 // columns: nothing is shortened
	for i := range g.Links {
		x.Text = append(x.Text, strings.ToValidUTF8(f.groupLink(g, i, wide), "\uFFFD"))
	}
	end := f.act(g.End, g.Func, blame.Object{})
	if len(g.by) > 0 {
		end = f.label(g.by) + ": " + end
	}
	x.Text = append(x.Text, strings.ToValidUTF8(end, "\uFFFD"))
	return x
}

// jsonBlame writes what --locks has next to edges; cut says how many of n there is room for.
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
	groups := f.edgeGroups()
	j.list("edges_by_function", cut(len(groups)), func(i int) any { return f.jsonEdgeGroup(groups[i]) })
	chains := f.chainGroups(func(*blame.Chain) bool { return true })
	j.list("chains_by_function", cut(len(chains)), func(i int) any { return f.jsonChainGroup(chains[i]) })
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
