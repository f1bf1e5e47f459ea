// Queries: pieces and sums of pieces within a selection, at a given resolution.

package page

import (
	"context"
	"math"
	"slices"
	"sort"

	"github.com/hbtrace/hbtrace/analysis/frames"
	"github.com/hbtrace/hbtrace/analysis/timeline"
	"github.com/hbtrace/hbtrace/analysis/weigh"
	"github.com/hbtrace/hbtrace/trace"
)

// selection of time and threads. Nil threads are all of them.
type selection struct {
	threads  []int
	from, to int64
}

// rows is an answer of pieces or of sums of them: columns of equal length.
type rows struct {
	thread, site, count, object, owner, releaser, releaseSite []uint32
	state                                                     []uint8
	flags                                                     []uint16
	start, value, release                                     []float64
}

// row is one line of rows. value is ns, or bytes where state is allocated.
type row struct {
	thread, site, count, object, owner, releaser, releaseSite uint32
	state                                                     state
	flags                                                     trace.Flags
	start, value                                              int64
	release                                                   int64
}

// States of rows whose value is bytes and whose count is allocations.
const (
	allocated = states     // allocations
	inUse     = states + 1 // in sums: those of the selection that were not freed by its end
	freed     = states + 1 // in what an exported page holds: how much of earlier allocations was freed at row.release
)

func (r *rows) add(x row) {
	r.thread = append(r.thread, x.thread)
	r.site = append(r.site, x.site)
	r.count = append(r.count, x.count)
	r.object = append(r.object, x.object)
	r.owner = append(r.owner, x.owner)
	r.releaser = append(r.releaser, x.releaser)
	r.releaseSite = append(r.releaseSite, x.releaseSite)
	r.state = append(r.state, uint8(x.state))
	r.flags = append(r.flags, uint16(x.flags))
	r.start = append(r.start, float64(x.start))
	r.value = append(r.value, float64(x.value))
	r.release = append(r.release, float64(x.release))
}

func (r *rows) columns(t *table) *table {
	t.u32("thread", r.thread)
	t.f64("start", r.start)
	t.f64("value", r.value)
	t.u8("state", r.state)
	t.u32("count", r.count)
	t.u32("site", r.site)
	t.u32("object", r.object)
	t.u32("owner", r.owner)
	t.u32("releaser", r.releaser)
	t.f64("release", r.release)
	t.u32("releaseSite", r.releaseSite)
	t.u16("flags", r.flags)
	return t
}

// each calls f for the threads of a selection, until ctx ends. m.mu is held for reading.
func (m *Model) each(ctx context.Context, s selection, f func(i int, t *thread)) error {
	if s.threads == nil {
		for i, t := range m.threads {
			if err := ctx.Err(); err != nil {
				return err
			}
			f(i, t)
		}
		return nil
	}
	for _, i := range s.threads {
		if err := ctx.Err(); err != nil {
			return err
		}
		if i >= 0 && i < len(m.threads) {
			f(i, m.threads[i])
		}
	}
	return nil
}

// full is a row of one piece with all that its interval knows.
func (m *Model) full(i int, t *thread, p piece) row {
	x := row{thread: uint32(i), site: p.site, count: p.count(), state: p.state, start: p.start, value: p.end - p.start, release: -1}
	if p.wait != 0 {
		w := &t.waits[p.wait-1]
		x.object, x.owner, x.releaser, x.release, x.flags = w.object, w.owner, w.releaser, w.release, w.flags
		x.releaseSite = m.letGo(&p, w)
	}
	return x
}

// letGo is the place where the thread that kept a wait waiting released the object: for a lock its holder when the wait began, where that
// is known, otherwise the releaser. Another thread may have had the lock between the two.
func (m *Model) letGo(p *piece, w *wait) uint32 {
	if w.resolved {
		return w.releaseSite
	}
	if p.state == locked && w.owner != 0 {
		return m.threads[w.owner-1].letGo(w.object, p.start, p.end)
	}
	if w.releaser != 0 && w.release >= 0 {
		return m.threads[w.releaser-1].letGo(w.object, w.release, w.release)
	}
	return 0
}

// lanes gives the pieces of the selection's threads: those as long as res ns one by one and whole, the others
// added up by state in runs no longer than res (a run's states one after the other, which is not how they came).
func (m *Model) lanes(ctx context.Context, s selection, res int64) (*rows, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	out := &rows{}
	err := m.each(ctx, s, func(i int, t *thread) {
		for at := t.first(s.from); at < len(t.pieces) && t.pieces[at].start < s.to; {
			if p := t.pieces[at]; p.end-p.start >= res {
				out.add(m.full(i, t, p))
				at++
				continue
			}
			at = t.thin(at, res, s.to, func(st state, start, ns int64, n uint32) {
				out.add(row{thread: uint32(i), state: st, start: start, value: ns, count: n, release: -1})
			})
		}
	})
	return out, err
}

// thin adds up the pieces from `at` on that are shorter than res and end within res of its start. It returns the
// index behind them.
func (t *thread) thin(at int, res, to int64, f func(st state, start, ns int64, n uint32)) int {
	begin := t.pieces[at].start
	limit := min(begin+res, to)
	// What follows the last piece that starts before the limit does not matter; it may itself be long or reach
	// over the limit, all before it cannot.
	rest := t.pieces[at:]
	last := at + sort.Search(len(rest), func(i int) bool { return rest[i].start >= limit })
	if last-at > 1 {
		if p := t.pieces[last-1]; p.end-p.start >= res || p.end > begin+res {
			last--
		}
	}
	var sum [states]int64
	if last-at > 2*stride {
		a, b := t.before(at), t.before(last)
		for st := range sum {
			sum[st] = b[st] - a[st]
		}
	} else {
		for _, p := range t.pieces[at:last] {
			sum[p.state] += p.end - p.start
		}
	}
	n := uint32(t.countBefore(last) - t.countBefore(at))
	start := begin
	for st, ns := range sum {
		if ns > 0 {
			f(state(st), start, ns, n)
			start += ns
		}
	}
	return last
}

// sumKey is what pieces are added up by.
type sumKey struct {
	thread, site, object, owner, releaser, releaseSite uint32
	state                                              state
	certain                                            bool
}

const allThreads = 1<<32 - 1

// sums adds up the selection's pieces by place and state, cut to its time. byThread keeps threads apart; edges keeps
// apart what was waited for and who let go. A row's start is the first time that it was seen in the selection.
// Allocations come along with state allocated.
func (m *Model) sums(ctx context.Context, s selection, byThread, edges bool) (*rows, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	index := map[sumKey]int{}
	var list []row
	find := func(k sumKey, at int64) int {
		i, ok := index[k]
		if !ok {
			i = len(list)
			index[k] = i
			list = append(list, row{
				thread: k.thread, site: k.site, object: k.object, owner: k.owner, releaser: k.releaser,
				releaseSite: k.releaseSite, state: k.state, start: at, release: -1,
			})
			if k.certain {
				list[i].flags = trace.FlagCertain
			}
		}
		list[i].start = min(list[i].start, at)
		return i
	}
	err := m.each(ctx, s, func(i int, t *thread) {
		id := uint32(allThreads)
		if byThread || edges {
			id = uint32(i)
		}
		var was sumKey
		cur := -1
		for at := t.first(s.from); at < len(t.pieces) && t.pieces[at].start < s.to; at++ {
			p := t.pieces[at]
			k := sumKey{thread: id, site: p.site, state: p.state}
			if edges && p.wait != 0 {
				f := m.full(i, t, p)
				k.object, k.owner, k.releaser, k.releaseSite = f.object, f.owner, f.releaser, f.releaseSite
				k.certain = f.flags&trace.FlagCertain != 0
			}
			start, end := max(p.start, s.from), min(p.end, s.to)
			if cur < 0 || k != was {
				cur, was = find(k, start), k
			}
			x := &list[cur]
			x.value += end - start
			x.count += p.count()
			if edges && p.wait != 0 {
				x.release = max(x.release, t.waits[p.wait-1].longestOf(&p))
			}
		}
		if !edges {
			t.allocated(s, func(a alloc, objects uint32) {
				x := &list[find(sumKey{thread: id, site: a.site, state: allocated}, a.at)]
				x.value += int64(a.bytes)
				x.count += objects
			})
			t.inUse(s, func(site uint32, at, bytes int64, objects uint32) {
				x := &list[find(sumKey{thread: id, site: site, state: inUse}, at)]
				x.value += bytes
				x.count += objects
			})
			first := sort.Search(len(t.unplaced), func(i int) bool { return t.unplaced[i].at >= s.from })
			for i := first; i < len(t.unplaced) && t.unplaced[i].at < s.to; i++ {
				u := t.unplaced[i]
				list[find(sumKey{thread: id, site: u.site, state: running}, u.at)].value += u.ns
			}
		}
	})
	out := &rows{}
	for _, x := range list {
		out.add(x)
	}
	return out, err
}

// allocated calls f for the selection's allocations, with the whole number of them that each stands for: what
// rounding leaves over is carried to the next.
func (t *thread) allocated(s selection, f func(a alloc, objects uint32)) {
	at := sort.Search(len(t.allocs), func(i int) bool { return t.allocs[i].at >= s.from })
	over := 0.5
	for ; at < len(t.allocs) && t.allocs[at].at < s.to; at++ {
		over += t.allocs[at].objects
		n := min(math.Floor(over), 1<<31)
		over -= n
		f(t.allocs[at], uint32(n))
	}
}

// inUse calls f for each place with what its allocations in the selection hold at the selection's end.
func (t *thread) inUse(s selection, f func(site uint32, at, bytes int64, objects uint32)) {
	type held struct {
		at             int64
		bytes, objects float64
	}
	by := map[uint32]*held{}
	add := func(a *alloc, sign float64) {
		h := by[a.site]
		if h == nil {
			h = &held{at: a.at}
			by[a.site] = h
		}
		h.bytes += sign * a.bytes
		h.objects += sign * a.objects
	}
	for i := sort.Search(len(t.allocs), func(i int) bool { return t.allocs[i].at >= s.from }); i < len(t.allocs) && t.allocs[i].at < s.to; i++ {
		add(&t.allocs[i], 1)
	}
	for i := range t.ends {
		if e := &t.ends[i]; e.at >= s.from && e.at < s.to && e.freed <= s.to {
			add(&e.alloc, -1)
		}
	}
	for site, h := range by {
		if bytes := int64(h.bytes); bytes > 0 {
			f(site, h.at, bytes, uint32(max(1, min(math.Round(h.objects), 1<<31))))
		}
	}
}

// chart is the load of the recording in equal parts of the selection's time: of all threads, or of those selected.
func (m *Model) chart(ctx context.Context, s selection, cols int) (*table, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	out := newTable(nil)
	sum := [loadKinds][]float64{}
	if s.threads == nil {
		for k := range loadKinds {
			sum[k] = m.load.between(k, s.from, s.to, cols)
		}
	} else {
		for k := range sum {
			sum[k] = make([]float64, cols)
		}
		if err := m.each(ctx, s, func(_ int, t *thread) { t.chart(s, cols, &sum) }); err != nil {
			return nil, err
		}
	}
	if n := m.src.Meta().CPUs; n > 0 {
		timeline.Level(sum[loadCPU], float64(s.to-s.from)/float64(cols)*float64(n))
	}
	for k, name := range [loadKinds]string{"cpu", "off", "lock", "blocked", "alloc"} {
		out.f64(name, sum[k])
	}
	return out, nil
}

// loadOf says which curve a state's time belongs to.
var loadOf = [states]loadKind{
	running: loadCPU, off: loadOff, ready: loadOff, locked: loadLock,
	weigh.Signaled: loadBlocked, weigh.InOut: loadBlocked, weigh.Polling: loadBlocked, weigh.Other: loadBlocked, sleeping: loadBlocked,
}

// chart adds a thread's time and allocations to the columns.
func (t *thread) chart(s selection, cols int, sum *[loadKinds][]float64) {
	per := float64(s.to-s.from) / float64(cols)
	edge := func(c int) int64 { return s.from + int64(float64(c)*per) }
	col := func(at int64) int { return max(0, min(cols-1, int(float64(at-s.from)/per))) }
	for at := t.first(s.from); at < len(t.pieces) && t.pieces[at].start < s.to; {
		p := t.pieces[at]
		c := col(max(p.start, s.from))
		if p.end > edge(c+1) || p.start < s.from { // over an edge: by itself
			for ; c < cols && edge(c) < p.end; c++ {
				if ns := min(p.end, edge(c+1)) - max(p.start, edge(c)); ns > 0 {
					sum[loadOf[p.state]][c] += float64(ns)
				}
			}
			at++
			continue
		}
		rest := t.pieces[at:]
		limit := edge(c + 1)
		last := at + max(1, sort.Search(len(rest), func(i int) bool { return rest[i].end > limit }))
		a, b := t.before(at), t.before(last)
		for st := range a {
			sum[loadOf[st]][c] += float64(b[st] - a[st])
		}
		at = last
	}
	at := sort.Search(len(t.allocs), func(i int) bool { return t.allocs[i].at >= s.from })
	for ; at < len(t.allocs) && t.allocs[at].at < s.to; at++ {
		sum[loadAlloc][col(t.allocs[at].at)] += t.allocs[at].bytes
	}
}

// stretch is one candidate of a search for slow things.
type stretch struct {
	thread     int
	start, end int64
}

// slowest gives the n longest within the selection: calls of a function (turns false), or turns,
// the time from one return of a hooked function to the next time that it is called (only recorded calls are seen:
// those that waited longer than the recording's threshold).
func (m *Model) slowest(ctx context.Context, s selection, name string, turns bool, n int) (*table, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	m.naming.Lock()
	defer m.naming.Unlock()
	var list []stretch
	seen := 0
	keep := func(x stretch) {
		seen++
		if x.end > x.start {
			list = append(list, x)
		}
		if len(list) >= 4*n+1024 {
			list = longest(list, n)
		}
	}
	var want []bool // sites or frames, by number
	if turns {
		m.place()
		want = make([]bool, len(m.tree.sites))
		for i, node := range m.tree.sites {
			want[i] = m.tree.names[m.tree.frames[node]].Name == name
		}
	}
	err := m.each(ctx, s, func(i int, t *thread) {
		if turns {
			t.turns(i, s, want, keep)
			return
		}
		for depth, calls := range t.spans.byDepth {
			at := sort.Search(len(calls), func(i int) bool { return calls[i].end > s.from })
			for ; at < len(calls) && calls[at].start < s.to; at++ {
				sp := calls[at]
				for int(sp.frame) >= len(want) {
					want = append(want, m.tab.Frame(frames.ID(len(want))).Name == name)
				}
				if want[sp.frame] && sp.start >= s.from && sp.end <= s.to && !t.inside(depth, sp, want) {
					keep(stretch{i, sp.start, sp.end})
				}
			}
		}
	})
	if err != nil {
		return nil, err
	}
	list = longest(list, n)
	var thread []uint32
	var start, dur []float64
	for _, x := range list {
		thread = append(thread, uint32(x.thread))
		start = append(start, float64(x.start))
		dur = append(dur, float64(x.end-x.start))
	}
	out := newTable(map[string]int{"seen": seen})
	out.u32("thread", thread)
	out.f64("start", start)
	out.f64("dur", dur)
	return out, nil
}

// inside says whether a call lies in another one of a wanted function: recursion counts once, by its outermost call.
func (t *thread) inside(depth int, sp span, want []bool) bool {
	for d := range depth {
		calls := t.spans.byDepth[d]
		i := sort.Search(len(calls), func(i int) bool { return calls[i].end >= sp.end })
		if i < len(calls) && calls[i].start <= sp.start && int(calls[i].frame) < len(want) && want[calls[i].frame] {
			return true
		}
	}
	return false
}

// turns finds the time between recorded calls at wanted sites.
func (t *thread) turns(i int, s selection, want []bool, keep func(stretch)) {
	back := int64(-1) // when the latest one returned
	for at := t.first(s.from); at < len(t.pieces) && t.pieces[at].start < s.to; at++ {
		p := t.pieces[at]
		if p.wait == 0 || int(p.site) >= len(want) || !want[p.site] {
			continue
		}
		if back >= s.from && p.start <= s.to {
			keep(stretch{i, back, p.start})
		}
		back = p.end
	}
}

func longest(list []stretch, n int) []stretch {
	slices.SortFunc(list, func(a, b stretch) int {
		if d := (b.end - b.start) - (a.end - a.start); d != 0 {
			return sign(d)
		}
		return sign((a.start - b.start) + int64(a.thread-b.thread))
	})
	return list[:min(n, len(list))]
}

func sign(d int64) int {
	switch {
	case d < 0:
		return -1
	case d > 0:
		return 1
	}
	return 0
}
