// Coarsening: what bounds the memory of a long recording's page. When there are too many pieces, those shorter than a
// resolution are added up, per thread, within stretches of that length: pieces of equal state, place and, for waits, of
// equal object, owner and releaser become one. Sums stay right to that resolution; what is lost is the order within a stretch.
// The resolution doubles until what there is fits, and what comes later is coarsened likewise. The page says which it is.

package page

import (
	"slices"

	"github.com/hbtrace/hbtrace/trace"
)

// What a Model keeps at most, of all threads together, where coarsening can achieve that: some 500 MB.
type most struct{ pieces, allocs, spans int }

var mostKept = most{pieces: 3 << 20, allocs: 1 << 20, spans: 4 << 20}

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
		allocs += len(t.allocs)
	}
	if pieces > m.most.pieces {
		m.coarsen(pieces)
	}
	for allocs > m.most.allocs && m.allocRes < int64(m.to-m.from) {
		m.allocRes = max(2*m.allocRes, m.finest())
		allocs = 0
		for _, t := range m.threads {
			t.allocs = coarseAllocs(t.allocs, m.allocRes)
			allocs += len(t.allocs)
		}
	}
	for m.spanCount > m.most.spans {
		m.dropThin()
	}
}

// finest is the first resolution: what a screen cannot show of the whole recording.
func (m *Model) finest() int64 { return max(1, int64(m.to-m.from)>>16) }

// coarsen makes three quarters of what may be kept of n pieces, or less.
func (m *Model) coarsen(n int) {
	before := int64(0)
	for _, t := range m.threads {
		if k := len(t.pieces); k > 0 {
			before = max(before, t.pieces[k-1].end)
		}
	}
	before -= recent
	for n > m.most.pieces/4*3 {
		if m.res > 0 && m.coarsened == m.res {
			if m.res >= int64(m.to-m.from) {
				m.most.pieces = 2 * n // places, not time, are what there is too much of
				break
			}
			m.res *= 2
		}
		m.res = max(m.res, m.finest())
		for _, t := range m.threads {
			m.resolve(t, before)
		}
		n = 0
		for _, t := range m.threads {
			t.coarsen(m.res, before)
			n += len(t.pieces)
		}
		m.coarsened = m.res
	}
	m.coarsened = 0 // what comes now is fine again
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

// coarsen adds up the pieces that end before a time and are shorter than res.
func (t *thread) coarsen(res, before int64) {
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
	put := func() {
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
		if p.wait != 0 {
			w := &waits[s.wait-1]
			w.longest = max(w.longestOf(s), waits[p.wait-1].longestOf(&p))
			w.release = -1
			w.flags &= trace.FlagCertain
		}
		s.end += p.end - p.start
		s.n += p.n + 1
	}
	put()
	t.total, t.counted = total, counted
	for _, list := range [][]piece{t.pending, t.settled} {
		for i := range list {
			if p := &list[i]; p.wait != 0 {
				t.waits = append(t.waits, waits[p.wait-1])
				p.wait = uint32(len(t.waits))
			}
		}
	}
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
