// What parts of waits were spent on, for chains of a selection: package blame follows every wait of the recording once, and tells
// what each stretch of it came down to. Those stretches are kept here, and cut to a selection of time and of threads that waited.
//
// When there are too many, stretches that are shorter than a resolution are added up by edge and chain within stretches of that
// length, as pieces are (coarse.go). A selection that cuts one of those gets the share of it that its time has.

package page

import (
	"cmp"
	"context"
	"math"
	"slices"

	"github.com/hbtrace/hbtrace/analysis/blame"
	"github.com/hbtrace/hbtrace/analysis/frames"
	"github.com/hbtrace/hbtrace/trace"
)

// What is kept at most, of a recording and of a page's file.
const (
	mostParts        = 512 << 10 // 25 MB
	mostEdges        = 16 << 10  // edges told apart; waits of others only by who waited
	keptChains       = 8192      // chains told apart, the heaviest of the recording
	mostPartsInFile  = 60_000
	mostChainsInFile = 1000
)

// spending is what the waits of a recording were spent on. It does not change once it is sealed.
type spending struct {
	parts  []part
	edges  []waitEdge
	index  map[waitEdge]int32
	most   int
	res    int64 // ns; 0: nothing was added up
	length int64 // ns
	from   trace.Ns
	wait   int64 // the wait that is reported now
	edge   int32 // its edge

	chains []blame.Chain // the heaviest first; what parts name by number
}

// part is a stretch of a wait, or several short ones of one edge and chain.
type part struct {
	start, end int64 // ns since the recording's start
	ns         int64 // that were spent: end - start, unless several were added up
	longest    int64 // ns, of one wait; 0: of this one
	edge       int32
	chain      int32  // blame's number of it; once sealed the index into chains, -1 and -2 of those left out: of waits for locks, of others
	wait       uint32 // its number: a wait's parts come one after the other
	waits      uint32 // so many; 0: one
}

// Chains that are left out, in the order of chains.Rest.
const (
	restLocks  = -1
	restOthers = -2
)

// waitEdge is what waits are told apart by: all but the place of the release of [blame.EdgeKey], and where the holder had taken it.
type waitEdge struct {
	key   blame.EdgeKey
	taken trace.Site
}

func newSpending(from, to trace.Ns) *spending {
	return &spending{index: map[waitEdge]int32{}, most: mostParts, from: from, length: int64(to - from), wait: -1}
}

// add takes a part of a wait.
func (s *spending) add(x *blame.Spent) {
	rel := func(at trace.Ns) int64 { return max(0, min(int64(clamp(at)-s.from), s.length)) }
	start, end := rel(x.From), rel(x.To)
	if end <= start {
		return
	}
	if x.Wait != s.wait {
		s.wait, s.edge = x.Wait, s.edgeOf(x)
	}
	if n := len(s.parts); n > 0 {
		if p := &s.parts[n-1]; p.wait == uint32(x.Wait) && p.waits == 0 && p.chain == x.Chain && p.edge == s.edge && p.end == start {
			p.end, p.ns = end, p.ns+end-start
			return
		}
	}
	s.parts = append(s.parts, part{start: start, end: end, ns: end - start, edge: s.edge, chain: x.Chain, wait: uint32(x.Wait)})
	if len(s.parts) >= s.most {
		s.coarsen()
	}
}

func (s *spending) edgeOf(x *blame.Spent) int32 {
	e := waitEdge{x.Edge, x.Taken}
	e.key.Release = trace.Site{}
	i, ok := s.index[e]
	if !ok && len(s.edges) >= mostEdges {
		e = waitEdge{key: blame.EdgeKey{Waiter: x.Edge.Waiter}}
		i, ok = s.index[e]
	}
	if !ok {
		i = int32(len(s.edges))
		s.index[e] = i
		s.edges = append(s.edges, e)
	}
	return i
}

// coarsen makes three quarters of what may be kept, or less.
func (s *spending) coarsen() {
	for len(s.parts) > s.most/4*3 {
		if s.res >= s.length {
			s.most = 2 * len(s.parts) // so many edges and chains
			return
		}
		s.res = max(2*s.res, s.length>>16, 1)
		s.parts = s.parts[:merge(s.parts, s.res)]
	}
}

// merge adds up the parts that are shorter than res, in place. It returns how many are left.
func merge(parts []part, res int64) int {
	type key struct {
		at          int64
		edge, chain int32
	}
	at := map[key]int{}
	n := 0
	for _, p := range parts {
		if p.end-p.start >= res {
			parts[n] = p
			n++
			continue
		}
		k := key{p.start / res, p.edge, p.chain}
		i, ok := at[k]
		if !ok {
			at[k] = n
			parts[n] = p
			n++
			continue
		}
		q := &parts[i]
		longest, waits := max(q.longest, p.longest, p.ns), max(q.waits, 1)
		if q.longest == 0 {
			longest = max(longest, q.ns)
		}
		if p.waits > 0 || p.wait != q.wait {
			waits += max(p.waits, 1)
		} else if q.waits == 0 {
			longest = q.ns + p.ns // two parts of one wait
		}
		q.start, q.end, q.ns = min(q.start, p.start), max(q.end, p.end), q.ns+p.ns
		q.longest, q.waits, q.wait = longest, waits, p.wait
	}
	return n
}

// seal keeps the heaviest chains, and names parts by them.
func (s *spending) seal(all []blame.Chain) {
	s.index = nil
	s.chains = slices.Clone(all[:min(len(all), keptChains)])
	number := make(map[int32]int32, len(all))
	for i := range all {
		switch {
		case i < len(s.chains):
			number[all[i].ID()] = int32(i)
		case all[i].Lock:
			number[all[i].ID()] = restLocks
		default:
			number[all[i].ID()] = restOthers
		}
	}
	for i := range s.parts {
		s.parts[i].chain = number[s.parts[i].chain]
	}
}

// spentSum is a sum of parts.
type spentSum struct {
	ns, longest, current int64
	count                uint64
	wait                 uint32 // the latest
	edge                 int32  // of the longest part
	most                 int64  // ns of that
}

func (x *spentSum) add(p *part, ns int64) {
	x.ns += ns
	switch {
	case p.waits > 0: // several waits, some of which the selection may cut off: their share, at least one
		x.count += max(1, uint64(math.Round(float64(p.waits)*float64(ns)/float64(p.ns))))
		x.longest = max(x.longest, min(p.longest, ns))
		x.wait, x.current = p.wait, 0
	case x.count > 0 && x.wait == p.wait:
		x.current += ns
		x.longest = max(x.longest, x.current)
	default:
		x.count++
		x.wait, x.current = p.wait, ns
		x.longest = max(x.longest, ns)
	}
	if ns > x.most {
		x.most, x.edge = ns, p.edge
	}
}

// within is how much of a part lies in [from, to), ns.
func (p *part) within(from, to int64) int64 {
	a, b := max(p.start, from), min(p.end, to)
	switch {
	case b <= a:
		return 0
	case b-a == p.end-p.start:
		return p.ns
	case p.waits == 0:
		return b - a
	}
	return int64(float64(p.ns) * float64(b-a) / float64(p.end-p.start))
}

// spentIn is what waits of the selection's threads were spent on within its time: chains and holders. Deadlocks and orders of
// locks are the whole recording's. It is nil where that is not known yet.
func (m *Model) spentIn(ctx context.Context, sel selection) (*chains, error) {
	m.mu.RLock()
	s, whole := m.spending, m.chains
	m.mu.RUnlock()
	if s == nil || whole == nil || sel.threads == nil && sel.from <= 0 && sel.to >= s.length {
		return whole, nil
	}
	want := make([]bool, len(s.edges)) // edges of selected threads
	m.mu.RLock()
	selected := map[uint32]bool{}
	for _, t := range sel.threads {
		selected[uint32(t)+1] = true
	}
	for i := range s.edges {
		want[i] = sel.threads == nil || selected[m.number(s.edges[i].key.Waiter)]
	}
	m.mu.RUnlock()

	sums := make([]spentSum, len(s.chains))
	var rest [2]spentSum
	type pair struct{ edge, chain int32 }
	did := map[pair]int64{}
	edges := make([]spentSum, len(s.edges))
	for i := range s.parts {
		if i%batch == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		p := &s.parts[i]
		if !want[p.edge] {
			continue
		}
		ns := p.within(sel.from, sel.to)
		if ns <= 0 {
			continue
		}
		edges[p.edge].add(p, ns)
		if p.chain < 0 {
			rest[-1-p.chain].add(p, ns)
			continue
		}
		sums[p.chain].add(p, ns)
		did[pair{p.edge, p.chain}] += ns
	}

	m.mu.Lock() // places get numbers
	defer m.mu.Unlock()
	m.naming.Lock()
	defer m.naming.Unlock()
	out := &chains{
		Chains: []chain{}, Holding: []holding{}, Deadlocks: whole.Deadlocks, Inversions: whole.Inversions, Names: []string{},
		Unfollowed: whole.Unfollowed, Estimated: whole.Estimated, Resolution: s.res,
	}
	for i := range rest {
		out.Rest[i].Ns = rest[i].ns
	}
	for _, i := range heaviest(sums) {
		x, c := &sums[i], &s.chains[i]
		if len(out.Chains) == mostChains {
			out.leaveOut(c.Lock, x.ns)
			continue
		}
		y := m.chainOf(c)
		y.Ns, y.Longest, y.Count, y.End.Ns = x.ns, x.longest, x.count, x.ns
		// Chains are told apart by threads' names: this one's first is to be one that waited here.
		k := &s.edges[x.edge].key
		y.Links[0].Thread = m.number(k.Waiter)
		if k.Hook != 0 {
			y.Links[0].Site = m.siteOf(trace.Site{Stack: k.Stack, Hook: k.Hook})
		}
		out.Chains = append(out.Chains, y)
	}
	doings := map[int32][]activity{}
	for p, ns := range did {
		d := m.firstOf(&s.chains[p.chain])
		d.Ns = ns
		doings[p.edge] = append(doings[p.edge], d)
	}
	for _, i := range heaviest(edges) {
		e := &s.edges[i]
		if e.key.Hook == 0 {
			continue
		}
		h := m.holdingOf(e.key, e.taken, edges[i].ns, edges[i].count)
		h.Doing = doings[int32(i)]
		out.Holding = append(out.Holding, h)
	}
	out.Holding = joined(out.Holding)
	return out, nil
}

// heaviest are the indices of sums that are not empty, the heaviest first.
func heaviest(sums []spentSum) []int {
	var list []int
	for i := range sums {
		if sums[i].ns > 0 {
			list = append(list, i)
		}
	}
	slices.SortStableFunc(list, func(a, b int) int { return cmp.Compare(sums[b].ns, sums[a].ns) })
	return list
}

// firstOf is what the first thread that a chain waited for did.
func (m *Model) firstOf(c *blame.Chain) activity {
	if len(c.Links) > 1 {
		l := &c.Links[1]
		return m.activity(blame.Waiting, l.Func, l.At, 0, l.Object, 0)
	}
	return m.activity(c.End, c.Func, c.At, 0, blame.Object{}, 0)
}

// joined adds up holdings that the page does not tell apart, and what was done in them; the heaviest come first.
func joined(list []holding) []holding {
	type key struct{ thread, site, object, owner, releaser uint32 }
	at := map[key]int{}
	out := []holding{}
	for _, h := range list {
		k := key{h.Thread, h.Site, h.Object, h.Owner, h.Releaser}
		i, ok := at[k]
		if !ok {
			at[k] = len(out)
			h.takenNs = h.Ns
			out = append(out, h)
			continue
		}
		x := &out[i]
		if h.Taken != 0 && (x.Taken == 0 || h.Ns > x.takenNs) {
			x.Taken, x.takenNs = h.Taken, h.Ns
		}
		x.Ns, x.Count, x.Doing = x.Ns+h.Ns, x.Count+h.Count, append(x.Doing, h.Doing...)
	}
	for i := range out {
		out[i].Doing = doings(out[i].Doing)
	}
	slices.SortFunc(out, func(a, b holding) int {
		return cmp.Or(cmp.Compare(b.Ns, a.Ns), cmp.Compare(a.Thread, b.Thread), cmp.Compare(a.Site, b.Site), cmp.Compare(a.Object, b.Object),
			cmp.Compare(a.Owner, b.Owner), cmp.Compare(a.Releaser, b.Releaser))
	})
	return out[:min(len(out), mostHolding)]
}

// doings adds up equal ones; the heaviest few are told.
func doings(list []activity) []activity {
	type key struct {
		act, in string
		object  uint32
	}
	at := map[key]int{}
	out := []activity{}
	// places of the heaviest are the examples
	slices.SortFunc(list, func(a, b activity) int {
		return cmp.Or(cmp.Compare(b.Ns, a.Ns), cmp.Compare(a.Act, b.Act), cmp.Compare(a.In, b.In), cmp.Compare(a.Object, b.Object), cmp.Compare(a.Site, b.Site))
	})
	for _, d := range list {
		k := key{d.Act, d.In, d.Object}
		if d.Act == blame.Waiting.String() {
			k.in = "" // what for says it
		}
		if i, ok := at[k]; ok {
			out[i].Ns += d.Ns
			continue
		}
		at[k] = len(out)
		out = append(out, d)
	}
	slices.SortStableFunc(out, func(a, b activity) int { return cmp.Compare(b.Ns, a.Ns) })
	return out[:min(len(out), mostDoing)]
}

// spentTable is what an exported page finds chains of a selection in: parts, the edges and the chains that they name.
func (m *Model) spentTable(res int64) *table {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.naming.Lock()
	defer m.naming.Unlock()
	info := struct {
		Chains     []chain    `json:"chains"`
		Edges      []holding  `json:"edges"`
		First      []activity `json:"first"` // of chains
		Resolution int64      `json:"resolution"`
	}{Chains: []chain{}, Edges: []holding{}, First: []activity{}}
	var list []part
	if s := m.spending; s != nil {
		list = slices.Clone(s.parts)
		info.Resolution = s.res
		for i := range s.chains[:min(len(s.chains), mostChainsInFile)] {
			info.Chains = append(info.Chains, m.chainOf(&s.chains[i]))
			info.First = append(info.First, m.firstOf(&s.chains[i]))
		}
		for i := range list {
			if p := &list[i]; int(p.chain) >= len(info.Chains) {
				if s.chains[p.chain].Lock {
					p.chain = restLocks
				} else {
					p.chain = restOthers
				}
			}
		}
		for next := max(res, s.res, 1); len(list) > mostPartsInFile && next < 2*s.length; next *= 2 {
			list = list[:merge(list, next)]
			info.Resolution = next
		}
		for _, e := range s.edges {
			info.Edges = append(info.Edges, m.holdingOf(e.key, e.taken, 0, 0))
		}
	}
	var start, dur, ns, longest []float64
	var edge, chain, wait, waits []uint32
	for i := range list {
		p := &list[i]
		start = append(start, float64(p.start))
		dur = append(dur, float64(p.end-p.start))
		ns = append(ns, float64(p.ns))
		longest = append(longest, float64(p.longest))
		edge = append(edge, uint32(p.edge))
		chain = append(chain, uint32(int(p.chain)+2)) // 0, 1: left out
		wait = append(wait, p.wait)
		waits = append(waits, p.waits)
	}
	t := newTable(info)
	t.f64("start", start)
	t.f64("dur", dur)
	t.f64("ns", ns)
	t.f64("longest", longest)
	t.u32("edge", edge)
	t.u32("chain", chain)
	t.u32("wait", wait)
	t.u32("waits", waits)
	return t
}

// chainOf is a chain in the page's numbers. m.mu and m.naming are held.
func (m *Model) chainOf(c *blame.Chain) chain {
	x := chain{Ns: c.Total, Longest: c.Max, Count: c.Count, Lock: c.Lock, End: m.activity(c.End, c.Func, c.At, c.By, blame.Object{}, c.Total)}
	for _, l := range c.Links {
		x.Links = append(x.Links, link{m.number(l.Thread), m.siteOf(l.At), frames.Valid(l.Func), m.objectOf(l.Object), l.Kind})
	}
	return x
}

// holdingOf is an edge in the page's numbers. m.mu and m.naming are held.
func (m *Model) holdingOf(k blame.EdgeKey, taken trace.Site, ns int64, count uint64) holding {
	proc := trace.ProcID(0)
	if i, ok := m.index[k.Waiter]; ok {
		proc = m.threads[i].info.Proc
	}
	return holding{
		Thread: m.number(k.Waiter), Site: m.siteOf(trace.Site{Stack: k.Stack, Hook: k.Hook}), Object: m.objectOf(blame.Object{Proc: proc, Addr: k.Object}),
		Owner: m.number(k.Owner), Releaser: m.number(k.Releaser), Ns: ns, Count: count, Taken: m.siteOf(taken), Doing: []activity{},
	}
}
