// The walk along chains: what each nanosecond of a wait was spent on in the end.

package blame

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/hbtrace/hbtrace/analysis/frames"
	"github.com/hbtrace/hbtrace/analysis/weigh"
	"github.com/hbtrace/hbtrace/trace"
)

// maxChain is how many waits a chain is followed through; maxEdges bounds what is kept of them, somewhat more than a report tells of.
const (
	maxChain = 16
	maxEdges = 160 << 10
)

// node is a link or an end of chains that begin alike: a tree, whose leaves are the ends. Node 0 is its root.
type node struct {
	parent  int32
	key     nodeKey
	thread  trace.ThreadID
	at      trace.Site
	lock    bool
	total   int64
	max     int64
	count   uint64
	current int64 // of the wait that is followed now
	wait    int64 // its number
}

type nodeKey struct {
	parent int32
	act    Act
	who    string
	place  placeID
	object Object
	kind   string
}

type walker struct {
	a       *Analyser
	nodes   []node
	byKey   map[nodeKey]int32
	steps   int
	until   int      // steps at which the wait goes on by instants (budget.go)
	reached trace.Ns // the time up to which the wait has been spent
	stands  trace.Ns // what the instant at stands for; 0: the wait is followed exactly
	at      trace.Ns
	wait    int64 // number of the wait whose chains are followed
	edge    *Edge
	part    Spent // of that wait, for Options.Spent
	touched []int32
	path    []trace.ThreadID // of the chain, from the first that waited
	hands   []bool           // whether the call that each of them waits in lets others go on itself
	scratch [][]piece        // one per depth
	orders  orders
	kinds   map[trace.HookID]string
}

func newWalker(a *Analyser) *walker {
	w := &walker{
		a: a, nodes: make([]node, 1), byKey: map[nodeKey]int32{}, scratch: make([][]piece, maxChain+2),
		kinds: map[trace.HookID]string{},
	}
	w.orders.init()
	return w
}

func (w *walker) kind(h trace.HookID) string {
	k, ok := w.kinds[h]
	if !ok {
		k = weigh.ObjectKind(w.a.src.Meta().Hooks[h])
		w.kinds[h] = k
	}
	return k
}

// all follows every wait that ended until a time, those for locks first: they are fewer than threads' idling, and matter more.
func (w *walker) all(until trace.Ns) {
	ivs := w.a.line.intervals
	left := 0
	for i := range ivs {
		if iv := &ivs[i]; iv.wait && !iv.followed && iv.end <= until {
			left++
		}
	}
	for _, lock := range []bool{true, false} {
		for i := range ivs {
			if iv := &ivs[i]; iv.wait && iv.lock == lock && !iv.followed && iv.end <= until {
				iv.followed = true
				w.follow(iv, left)
				left--
			}
		}
	}
}

// follow spends one wait, the first of left.
func (w *walker) follow(iv *interval, left int) {
	var taken trace.Site
	w.wait++
	w.edge, w.part.Edge, taken = w.edgeOf(iv)
	w.part.Wait, w.part.Taken = w.wait, taken
	if iv.start < w.a.line.forgotten {
		w.a.res.WaitsFaded++
	}
	waker := w.a.line.third(iv)
	w.edge.woken(waker)
	w.touched = w.touched[:0]
	w.spread(iv, left)
	best := int32(0)
	for _, n := range w.touched {
		x := &w.nodes[n]
		x.max = max(x.max, x.current)
		if best == 0 || x.current > w.nodes[best].current {
			best = n
		}
	}
	if best != 0 && !w.a.o.Whole {
		x := &w.nodes[best]
		w.a.res.ends[waitID{iv.thread, iv.end}] = end{taken, waker, x.key.act, x.thread, w.a.endText(x.key.act, x.key.place, x.at), x.current}
	}
}

// woken counts who woke one of an edge's waits.
func (e *Edge) woken(by trace.ThreadID) {
	if by == 0 {
		return
	}
	i, ok := e.wakers[by]
	if !ok {
		if e.wakers == nil {
			e.wakers = map[trace.ThreadID]int{}
		}
		i, e.wakers[by] = len(e.Wakers), len(e.Wakers)
		e.Wakers = append(e.Wakers, Waker{Thread: by})
	}
	e.Wakers[i].Count++
}

// edgeOf finds a wait's edge, and notes where its holder had taken the object. Beyond maxEdges it is one that nobody will see.
func (w *walker) edgeOf(iv *interval) (e *Edge, k EdgeKey, taken trace.Site) {
	k = EdgeKey{iv.hook, iv.object, iv.thread, iv.owner, iv.releaser, iv.stack, w.a.line.release(iv)}
	e = w.a.res.Edges[k]
	if e == nil {
		e = &Edge{Lock: iv.lock, taken: map[trace.Site]int64{}, doing: map[doingKey]int64{}}
		if len(w.a.res.Edges) < maxEdges {
			w.a.res.Edges[k] = e
		}
	}
	e.Count++
	e.Total += int64(iv.end - iv.start)
	if iv.lock {
		holder, at := iv.owner, iv.start
		if holder == 0 {
			holder, at = iv.releaser, iv.release
		}
		if holder != 0 {
			taken = w.a.holds[Object{w.a.procOf[iv.thread], iv.object}].takenBy(holder, at)
			if taken != (trace.Site{}) {
				e.taken[taken] += int64(iv.end - iv.start)
			}
		}
	}
	return e, k, taken
}

// waited spreads [from, to) of a wait below the node parent.
func (w *walker) waited(parent int32, iv *interval, from, to trace.Ns, depth int) {
	o := Object{w.a.procOf[iv.thread], iv.object}
	site := trace.Site{Stack: iv.stack, Hook: iv.hook}
	kind := "channel" // a call that waited for what another thread wrote
	if iv.wait || w.a.signals(iv.hook) {
		kind = w.kind(iv.hook)
	}
	n := w.link(parent, nodeKey{act: Waiting, who: w.a.names[iv.thread], place: w.a.places.of(site), object: o, kind: kind}, iv.thread, site)
	if n == 0 {
		w.spend(parent, Unfollowed, 0, trace.Site{}, from, to, depth)
		return
	}
	if parent == 0 {
		w.nodes[n].lock = iv.lock
	}
	w.hands = append(w.hands, !iv.wait && w.a.signals(iv.hook))
	defer func() { w.hands = w.hands[:len(w.hands)-1] }()
	w.scratch[depth] = w.a.pieces(w.scratch[depth][:0], iv, w.first(from), w.last(to), w.until-w.steps)
	for _, p := range w.scratch[depth] {
		lo, hi := max(p.from, from), min(p.to, to)
		if hi <= lo || w.skips(lo, hi) {
			continue
		}
		if w.steps++; w.over() {
			return
		}
		switch {
		case p.holder == 0:
			w.spend(n, p.act, 0, trace.Site{}, lo, hi, depth)
		case slices.Contains(w.path, p.holder):
			// Who signals a condition waits until the one that is woken has left it: that is no circle, but the hand-over.
			if slices.Contains(w.hands[slices.Index(w.path, p.holder):], true) {
				w.spend(n, Handover, 0, trace.Site{}, lo, hi, depth)
				break
			}
			w.spend(n, Cycle, p.holder, trace.Site{}, lo, hi, depth)
		default:
			w.did(n, iv, p, lo, hi, depth)
			if depth == 0 {
				w.edge.HolderNs += w.weight(lo, min(hi, w.reached))
			}
		}
	}
}

// did spreads [from, to) over what the holder of p did then, while iv waited for it.
func (w *walker) did(n int32, iv *interval, p piece, from, to trace.Ns, depth int) {
	t := p.holder
	w.path = append(w.path, t)
	defer func() { w.path = w.path[:len(w.path)-1] }()
	at := from
	i, hi, before := w.a.line.from(t, w.first(from))
	if w.stands != 0 {
		at = max(from, before)
	}
	for ; i < hi && at < to; i++ {
		x := &w.a.line.intervals[i]
		if w.steps++; w.over() {
			return
		}
		if x.start >= to || at > w.last(to) {
			break
		}
		if x.end <= at {
			continue
		}
		if x.start > at {
			if !w.skips(at, x.start) {
				w.between(n, iv, t, at, x.start, depth)
			}
			at = x.start
		}
		end := min(x.end, to)
		if w.skips(at, end) {
			at = end
			continue
		}
		switch {
		case !x.wait && x.releaser == 0:
			w.spend(n, Calling, t, trace.Site{Stack: x.stack, Hook: x.hook}, at, end, depth)
		case depth+1 >= maxChain:
			w.spend(n, Unfollowed, t, trace.Site{Stack: x.stack, Hook: x.hook}, at, end, depth)
		default:
			if iv.lock && x.lock && p.seen {
				w.orders.seen(Object{w.a.procOf[iv.thread], iv.object}, Object{w.a.procOf[t], x.object}, t, trace.Site{Stack: x.stack, Hook: x.hook}, waitID{t, x.end})
			}
			w.waited(n, x, at, end, depth+1)
			if depth == 0 {
				w.doing(Waiting, trace.Site{Stack: x.stack, Hook: x.hook}, Object{w.a.procOf[t], x.object}, w.weight(at, min(end, w.reached)))
			}
		}
		at = end
	}
	if at < to && !w.over() && !w.skips(at, to) {
		w.between(n, iv, t, at, to, depth)
	}
}

// between spreads time of a thread outside its intervals: what the kernel saw of it first.
func (w *walker) between(n int32, iv *interval, t trace.ThreadID, from, to trace.Ns, depth int) {
	at := from
	i, hi, before := w.a.line.offFrom(t, w.first(from))
	if w.stands != 0 {
		at = max(from, before)
	}
	for ; i < hi && at < to; i++ {
		o := &w.a.line.offs[i]
		if w.steps++; w.over() {
			return
		}
		if o.start >= to || at > w.last(to) {
			break
		}
		if o.end <= at {
			continue
		}
		if o.start > at {
			if !w.skips(at, o.start) {
				w.ran(n, iv, t, at, o.start, depth)
			}
			at = o.start
		}
		if wake := min(o.wake, to); wake > at {
			if !w.skips(at, wake) {
				w.spend(n, OffCPU, t, trace.Site{Stack: o.stack}, at, wake, depth)
			}
			at = wake
		}
		if end := min(o.end, to); end > at {
			if !w.skips(at, end) {
				w.spend(n, Runnable, t, trace.Site{Stack: o.stack}, at, end, depth)
			}
			at = end
		}
	}
	if at < to && !w.over() && !w.skips(at, to) {
		w.ran(n, iv, t, at, to, depth)
	}
}

// ran spreads time of a thread that was, as far as is known, on a CPU.
func (w *walker) ran(n int32, iv *interval, t trace.ThreadID, from, to trace.Ns, depth int) {
	act := Unseen
	if _, known := w.a.line.offsOf[t]; known {
		act = Running
	}
	w.a.line.seen(t, from, to, w.first(from), func(stack trace.StackID, lo, hi trace.Ns) bool {
		if w.skips(lo, hi) {
			return lo <= w.at
		}
		if w.steps++; w.over() {
			return false
		}
		if stack != 0 {
			w.spend(n, Running, t, trace.Site{Stack: stack}, lo, hi, depth)
			return true
		}
		at := trace.Site{}
		if t == iv.releaser {
			at = w.a.line.release(iv)
		}
		w.spend(n, act, t, at, lo, hi, depth)
		return true
	})
}

// spend counts an end. Ends come in the order of time, without gaps.
func (w *walker) spend(parent int32, act Act, t trace.ThreadID, at trace.Site, from, to trace.Ns, depth int) {
	w.reached = to
	ns := w.weight(from, to)
	if depth == 0 {
		w.doing(act, at, Object{}, ns)
	}
	n := w.link(parent, nodeKey{act: act, who: w.a.names[t], place: w.a.endPlace(act, at)}, t, at)
	if n == 0 {
		w.a.res.LinksLeft++
		return
	}
	x := &w.nodes[n]
	if x.wait != w.wait {
		x.wait, x.current = w.wait, 0
		x.count++
		w.touched = append(w.touched, n)
	}
	x.current += ns
	x.total += ns
	if w.a.o.Spent != nil {
		w.part.Chain = n
		if w.stands == 0 {
			w.part.From, w.part.To = from, to
		}
		w.a.o.Spent(&w.part)
	}
}

// doing adds to what the holders of an edge did.
func (w *walker) doing(act Act, at trace.Site, o Object, ns int64) {
	k := doingKey{act, w.a.endPlace(act, at), o}
	if _, ok := w.edge.doing[k]; !ok {
		w.edge.Doing = append(w.edge.Doing, Doing{Act: act, At: at, Func: w.a.places.text(k.place), Object: o})
	}
	w.edge.doing[k] += ns
}

// link finds or makes a node; 0 when there are too many.
func (w *walker) link(parent int32, k nodeKey, t trace.ThreadID, at trace.Site) int32 {
	k.parent = parent
	if n, ok := w.byKey[k]; ok {
		return n
	}
	if len(w.nodes) > w.a.o.MaxLinks {
		return 0
	}
	n := int32(len(w.nodes))
	w.nodes = append(w.nodes, node{parent: parent, key: k, thread: t, at: at})
	w.byKey[k] = n
	return n
}

// endPlace is what tells ends apart: a call by itself and its caller, the rest by the function to name.
func (a *Analyser) endPlace(act Act, at trace.Site) placeID {
	id := a.places.of(at)
	if act != Calling && act != Waiting || at.Hook == 0 {
		return id
	}
	end, ok := a.places.calls[at]
	if !ok {
		end = id
		if call, caller := frames.HookName(a.src.Meta(), at.Hook), a.places.text(id); call != caller {
			end = a.places.named(call + " in " + caller)
		}
		a.places.calls[at] = end
	}
	return end
}

// endText is an end as one line.
func (a *Analyser) endText(act Act, place placeID, at trace.Site) string {
	name := a.places.text(place)
	switch {
	case act == Calling:
		return name
	case name == "":
		return act.String()
	}
	return fmt.Sprintf("%s in %s", act, name)
}

// finish turns the tree into chains, and sorts all lists.
func (w *walker) finish() {
	res := w.a.res
	for i := 1; i < len(w.nodes); i++ {
		x := &w.nodes[i]
		if x.total == 0 {
			continue
		}
		c := Chain{id: int32(i), End: x.key.act, By: x.thread, At: x.at, Func: w.a.places.text(x.key.place), Count: x.count, Total: x.total, Max: x.max}
		for n := x.parent; n != 0; n = w.nodes[n].parent {
			y := &w.nodes[n]
			c.Links = append(c.Links, Link{y.thread, y.at, w.a.places.text(y.key.place), y.key.kind, y.key.object})
			c.Lock = y.lock
		}
		slices.Reverse(c.Links)
		res.Chains = append(res.Chains, c)
	}
	slices.SortStableFunc(res.Chains, func(x, y Chain) int { return cmp.Compare(y.Total, x.Total) })
	for _, e := range res.Edges {
		for i := range e.Doing {
			d := &e.Doing[i]
			d.Ns = e.doing[doingKey{d.Act, w.a.endPlace(d.Act, d.At), d.Object}]
		}
		slices.SortStableFunc(e.Doing, func(x, y Doing) int { return cmp.Compare(y.Ns, x.Ns) })
		slices.SortStableFunc(e.Wakers, func(x, y Waker) int {
			return cmp.Or(cmp.Compare(y.Count, x.Count), cmp.Compare(x.Thread, y.Thread))
		})
		for s, ns := range e.taken {
			if ns > e.TakenNs || ns == e.TakenNs && s.Stack < e.Taken.Stack {
				e.Taken, e.TakenNs = s, ns
			}
		}
		e.taken, e.doing, e.wakers = nil, nil, nil
	}
}
