// Coarsening: what bounds the memory of a long recording's page. When there are too many pieces, those shorter than a
// resolution are added up, per thread, within stretches of that length: pieces of equal state, place and, for waits, of
// equal object, owner and releaser become one. Sums stay right to that resolution; what is lost is the order within a stretch.
// The resolution doubles until what there is fits, and what comes later is coarsened likewise. The page says which it is.
//
// Where a recording has so many places that this would leave less than two thousand stretches, places give way instead: those that
// have less than a share of a state's time in a stretch become "no place known". How much time that is, the page says too.

package page

import (
	"slices"

	"github.com/hbtrace/hbtrace/trace"
)

// What a Model keeps at most, of all threads together, where coarsening can achieve that: some 500 MB.
type most struct {
	pieces, allocs, spans int
	stretches             int64 // into which a recording is divided at least, before places give way
}

var mostKept = most{pieces: 3 << 20, allocs: 1 << 20, spans: 4 << 20, stretches: 2048}

// recent is the time, in ns, at the end of what was read in which nothing is coarsened: releases and waits that belong
// together come in any order.
const recent = int64(1e9)

// releasesKept is how much longer releases are kept, for waits that have not ended.
const releasesKept = int64(10e9)

// bound coarsens where there is too much.
func (m *Model) bound() {
	pieces, allocs := 0, 0
	for _, t := range m.threads {
		pieces += len(t.pieces)
		allocs += len(t.allocs) + len(t.ends)
	}
	if pieces > m.most.pieces {
		m.coarsen(pieces)
	}
	for allocs > m.most.allocs && m.allocRes < int64(m.to-m.from) {
		m.allocRes = max(2*m.allocRes, m.finest())
		allocs = 0
		for _, t := range m.threads {
			t.allocs, t.ends = coarseAllocs(t.allocs, m.allocRes), coarseEnds(t.ends, m.allocRes)
			allocs += len(t.allocs) + len(t.ends)
		}
	}
	for m.spanCount > m.most.spans {
		m.dropThin()
	}
}

// finest is the first resolution: what a screen cannot show of the whole recording.
func (m *Model) finest() int64 { return max(1, int64(m.to-m.from)>>16) }

// coarser takes the next step: false where there is none.
func (m *Model) coarser() bool {
	length := int64(m.to - m.from)
	switch {
	case m.res < m.finest():
		m.res = m.finest()
	case 2*m.res <= length/m.most.stretches:
		m.res *= 2
	case m.share == 0:
		m.share = 1.0 / 16
	case m.share < 1.0/4:
		m.share *= 2
	case m.res < length:
		m.res *= 2
	default:
		return false
	}
	return true
}

// coarsen makes three quarters of what may be kept of n pieces, or less. Queries are answered meanwhile.
func (m *Model) coarsen(n int) {
	before := int64(0)
	for _, t := range m.threads {
		if k := len(t.pieces); k > 0 {
			before = max(before, t.pieces[k-1].end)
		}
	}
	before -= recent
	for _, t := range m.threads {
		m.resolve(t, before)
	}
	for again := m.res == 0; n > m.most.pieces/4*3; again = true {
		if again && !m.coarser() {
			m.most.pieces = 2 * n // so many threads
			break
		}
		n = 0
		for _, t := range m.threads {
			m.doubt.Displaced += t.coarsen(m.res, before, m.share)
			n += len(t.pieces)
			m.breathe()
		}
	}
	for _, t := range m.threads {
		old := slices.IndexFunc(t.releases, func(r release) bool { return r.at >= before-releasesKept })
		if old < 0 {
			old = len(t.releases)
		}
		t.releases = slices.Clone(t.releases[old:])
	}
}

// resolve finds where the waits of a thread that ended before a time were let go: releases are not kept for ever.
func (m *Model) resolve(t *thread, before int64) {
	for i := range t.pieces {
		p := &t.pieces[i]
		if p.end > before {
			break
		}
		if p.wait == 0 {
			continue
		}
		if w := &t.waits[p.wait-1]; !w.resolved {
			w.releaseSite, w.resolved = m.letGo(p, w), true
		}
	}
}

// pieceKey is what pieces are added up by.
type pieceKey struct {
	state                                            state
	site, late, object, owner, releaser, releaseSite uint32
	certain, waited                                  bool
}

// breathe lets queries in.
func (m *Model) breathe() {
	m.naming.Unlock()
	m.mu.Unlock()
	m.mu.Lock()
	m.naming.Lock()
}

// coarsen adds up the pieces that end before a time and are shorter than res. What has less than a share of a state's time in a
// stretch loses its place; it returns how much time that is.
func (t *thread) coarsen(res, before int64, share float64) (displaced int64) {
	old, waits := t.pieces, t.waits
	t.pieces, t.waits, t.sums, t.counts = make([]piece, 0, len(old)/2), nil, nil, nil
	total, counted := t.total, t.counted
	t.total, t.counted = [states]int64{}, 0
	take := func(p piece) { // with its wait
		if p.wait != 0 {
			t.waits = append(t.waits, waits[p.wait-1])
			p.wait = uint32(len(t.waits))
		}
		t.append(p)
	}
	stretch, at := int64(-1), int64(0)
	var sums []piece // of the stretch; their waits are those of the first of each
	index := map[pieceKey]int{}
	var ofState [states]int64
	put := func() {
		if share > 0 {
			sums = displace(sums, &ofState, share, waits, &displaced)
		}
		ofState = [states]int64{}
		for _, p := range sums { // one behind the other
			p.start, p.end = at, at+p.end-p.start
			at = p.end
			take(p)
		}
		sums = sums[:0]
		clear(index)
	}
	for i, p := range old {
		if p.end > before {
			put()
			for _, p := range old[i:] {
				take(p)
			}
			break
		}
		if p.end-p.start >= res {
			put()
			stretch, at = -1, p.end
			take(p)
			continue
		}
		if s := p.start / res; s != stretch {
			put()
			stretch, at = s, p.start
		}
		ofState[p.state] += p.end - p.start
		k := pieceKey{state: p.state, site: p.site, late: p.late}
		if p.wait != 0 {
			w := &waits[p.wait-1]
			k.object, k.owner, k.releaser, k.releaseSite = w.object, w.owner, w.releaser, w.releaseSite
			k.certain, k.waited = w.flags&trace.FlagCertain != 0, true
		}
		j, ok := index[k]
		if !ok {
			index[k] = len(sums)
			sums = append(sums, p)
			continue
		}
		s := &sums[j]
		s.add(&p, waits)
	}
	put()
	t.total, t.counted = total, counted
	t.unplaced = coarseUnplaced(t.unplaced, res)
	return displaced
}

// add adds another piece to one.
func (p *piece) add(x *piece, waits []wait) {
	if p.wait != 0 && x.wait != 0 {
		w := &waits[p.wait-1]
		w.longest = max(w.longestOf(p), waits[x.wait-1].longestOf(x))
		w.release = -1
		w.flags &= trace.FlagCertain
	}
	p.end += x.end - x.start
	p.n += x.count()
}

// displace takes their places from pieces that have less than a share of their state's time, and makes those of a state one.
func displace(sums []piece, ofState *[states]int64, share float64, waits []wait, displaced *int64) []piece {
	var small [states]int // index into the result + 1
	kept := sums[:0]
	for _, p := range sums {
		ns := p.end - p.start
		if float64(ns) >= share*float64(ofState[p.state]) {
			kept = append(kept, p)
			continue
		}
		if p.site != 0 {
			*displaced += ns
		}
		p.site, p.late = 0, 0
		if p.wait != 0 {
			waits[p.wait-1] = wait{release: -1, resolved: true, longest: waits[p.wait-1].longestOf(&p)}
		}
		if i := small[p.state]; i > 0 {
			kept[i-1].add(&p, waits)
			continue
		}
		kept = append(kept, p)
		small[p.state] = len(kept)
	}
	return kept
}

// longestOf is the longest of what was added up in the piece of a wait.
func (w *wait) longestOf(p *piece) int64 {
	if w.longest == 0 {
		return p.end - p.start
	}
	return w.longest
}

// coarseAllocs adds up the allocations of a place within stretches of res.
func coarseAllocs(list []alloc, res int64) []alloc {
	var out []alloc
	stretch := int64(-1)
	index := map[uint32]int{}
	for _, a := range list {
		if s := a.at / res; s != stretch {
			stretch = s
			clear(index)
		}
		i, ok := index[a.site]
		if !ok {
			index[a.site] = len(out)
			out = append(out, a)
			continue
		}
		out[i].bytes += a.bytes
		out[i].objects += a.objects
	}
	return slices.Clip(out)
}

// coarseEnds adds up the ends of a place's allocations of one stretch of res within another.
func coarseEnds(list []end, res int64) []end {
	slices.SortStableFunc(list, func(a, b end) int { return sign(a.at - b.at) })
	var out []end
	stretch := int64(-1)
	type key struct {
		site  uint32
		freed int64
	}
	index := map[key]int{}
	for _, e := range list {
		if s := e.at / res; s != stretch {
			stretch = s
			clear(index)
		}
		k := key{e.site, e.freed / res}
		i, ok := index[k]
		if !ok {
			index[k] = len(out)
			out = append(out, e)
			continue
		}
		out[i].bytes += e.bytes
		out[i].objects += e.objects
	}
	return slices.Clip(out)
}

// coarseUnplaced adds up the CPU time of a place within stretches of res.
func coarseUnplaced(list []unplaced, res int64) []unplaced {
	var out []unplaced
	stretch := int64(-1)
	index := map[[2]uint32]int{}
	for _, u := range list {
		if s := u.at / max(res, 1); s != stretch {
			stretch = s
			clear(index)
		}
		k := [2]uint32{u.site, u.late}
		i, ok := index[k]
		if !ok {
			index[k] = len(out)
			out = append(out, u)
			continue
		}
		out[i].ns += u.ns
	}
	return out
}

// dropThin gives up the shortest calls.
func (m *Model) dropThin() {
	m.spanFloor = max(2*m.spanFloor, int64(m.to-m.from)/finestColumns, 1)
	m.spanCount = 0
	for _, t := range m.threads {
		for d, list := range t.spans.byDepth {
			n := len(list)
			list = slices.DeleteFunc(list, func(s span) bool { return s.end-s.start < m.spanFloor })
			m.doubt.ThinSpans += uint64(n - len(list))
			if cap(list) > 2*len(list) {
				list = slices.Clone(list)
			}
			t.spans.byDepth[d] = list
			m.spanCount += len(list)
		}
	}
}
