// Late samples: CPU time that was noticed at the end of a run of work, where the stack says who makes the next call and not
// where the time went.
//
// Package weigh tells why, and where such time belongs: to the places at which samples arrived in runs of work that began after
// the same call, in proportion to their number and to what they are worth. Profiles add that up; here every piece of time has one
// place. So the pieces of a thread's late samples get these places in turn. Where more time was sampled in time at a place than
// weigh leaves it, pieces of the difference get other places too. Pieces are cut where a place has all that it is due: a thread's
// sums by place are those of weigh, to the nanosecond.

package page

import (
	"cmp"
	"slices"

	"github.com/hbtrace/hbtrace/analysis/weigh"
	"github.com/hbtrace/hbtrace/trace"
)

// place is one at which samples arrived, in this thread's runs or others'.
type place struct {
	site uint32
	weigh.Arrived
	ns   int64   // that those in time stand for
	due  int64   // that pieces are still to bring
	over int64   // that pieces are still to give away
	rate float64 // its share of what is given away
	owed float64
	next *work // another work of the thread whose samples in time at this place stand for too much
}

// work is all runs of one origin.
type work struct {
	weigh.Origin
	places []place
	late   int64 // ns
}

// late gathers origins while a recording is read.
type late struct {
	ids  map[weigh.Origin]uint32
	work []work             // by id; 0 is none
	at   map[workSite]int32 // of a work's places
}

type workSite struct{ work, site uint32 }

func newLate() late { return late{map[weigh.Origin]uint32{}, make([]work, 1), map[workSite]int32{}} }

// sample takes up a KindCPU at a site, and returns the number of its origin if it is late.
func (l *late) sample(e *trace.Event, proc trace.ProcID, site uint32, cpu int64) uint32 {
	if e.Kind != trace.KindCPU || e.Object == 0 || e.Hook != 0 {
		return 0
	}
	o := weigh.Origin{Proc: proc, Thread: e.Thread, Began: e.Object}
	id, ok := l.ids[o]
	if !ok {
		id = uint32(len(l.work))
		l.ids[o] = id
		l.work = append(l.work, work{Origin: o})
	}
	w := &l.work[id]
	late := e.Flags&trace.FlagLate != 0
	if late {
		w.late += cpu
		if e.Flags&trace.FlagPreempted == 0 {
			return id
		}
	}
	p := w.place(l, id, site)
	p.Add(e)
	if late {
		return id
	}
	p.ns += cpu
	return 0
}

func (w *work) place(l *late, id, site uint32) *place {
	i, ok := l.at[workSite{id, site}]
	if !ok {
		i = int32(len(w.places))
		l.at[workSite{id, site}] = i
		w.places = append(w.places, place{site: site})
	}
	return &w.places[i]
}

// share gives late pieces their places. It returns how much time got one.
func (l *late) share(m *Model) (ns int64) {
	origins := make([]weigh.Origin, len(l.work)-1)
	for i := range origins {
		origins[i] = l.work[i+1].Origin
	}
	give := map[threadSite]*work{} // places that have too much
	weigh.ShareOut(m.src, m.tab, origins, func(i int) []weigh.PlaceArrived { return l.work[i+1].arrived(m) }, func(i int, parts []weigh.Part) {
		w := &l.work[i+1]
		if w.weigh(m, l, uint32(i+1), parts); len(w.places) == 0 {
			return
		}
		ns += w.late
		for j := range w.places {
			if p := &w.places[j]; p.over > 0 {
				k := threadSite{w.Thread, p.site}
				p.next, give[k] = give[k], w
			}
		}
	})
	for _, t := range m.threads {
		t.place(l, give)
	}
	return ns
}

// threadSite is a place of a thread.
type threadSite struct {
	thread trace.ThreadID
	site   uint32
}

func (w *work) arrived(m *Model) []weigh.PlaceArrived {
	var out []weigh.PlaceArrived
	for i := range w.places {
		p := &w.places[i]
		k := m.sites.keys[p.site]
		out = append(out, weigh.PlaceArrived{At: k, Arrived: p.Arrived})
	}
	return out
}

// weigh finds out how much time each place is to get, and to give away.
func (w *work) weigh(m *Model, l *late, id uint32, parts []weigh.Part) {
	if len(parts) == 0 {
		w.places = nil
		return
	}
	all := w.late
	for i := range w.places {
		all += w.places[i].ns
	}
	for i, ns := range weigh.Portions(all, parts) {
		w.place(l, id, m.sites.id(parts[i].At.Stack, parts[i].At.Hook)).due += ns
	}
	sum := int64(0)
	for i := range w.places {
		p := &w.places[i]
		p.over, p.due = max(0, p.ns-p.due), max(0, p.due-p.ns)
		sum += p.due
	}
	for i := range w.places {
		w.places[i].rate = float64(w.places[i].due) / float64(max(1, sum))
	}
	slices.SortFunc(w.places, func(a, b place) int { return cmp.Compare(a.site, b.site) })
}

// next is the place of a piece of up to ns, and how much of that it takes: the place that is owed most of those that are due something.
func (w *work) next(ns int64) (site uint32, takes int64) {
	most := -1
	for i := range w.places {
		p := &w.places[i]
		if p.due == 0 {
			continue
		}
		p.owed += p.rate * float64(ns)
		if most < 0 || p.owed > w.places[most].owed {
			most = i
		}
	}
	if most < 0 {
		return 0, 0
	}
	p := &w.places[most]
	takes = min(ns, p.due)
	p.due -= takes
	p.owed -= float64(takes)
	return p.site, takes
}

// place gives the thread's pieces their places.
func (t *thread) place(l *late, give map[threadSite]*work) {
	moves := func(site, late uint32, state state) bool {
		return late != 0 || len(give) > 0 && state == running && give[threadSite{t.info.ID, site}] != nil
	}
	if slices.ContainsFunc(t.pieces, func(p piece) bool { return moves(p.site, p.late, p.state) }) {
		old := t.pieces
		t.pieces, t.sums, t.counts, t.total, t.counted = make([]piece, 0, len(old)), nil, nil, [states]int64{}, 0
		for _, p := range old {
			l.hand(t, give, p.site, p.late, p.end-p.start, moves(p.site, p.late, p.state), func(site uint32, ns int64) {
				q := p
				q.site, q.end = site, p.start+ns
				if p.start = q.end; p.start < p.end {
					q.n = 0 // the last part has what was added up
				}
				t.append(q)
			})
		}
	}
	old := t.unplaced
	t.unplaced = make([]unplaced, 0, len(old))
	for _, u := range old {
		l.hand(t, give, u.site, u.late, u.ns, moves(u.site, u.late, running), func(site uint32, ns int64) {
			t.unplaced = append(t.unplaced, unplaced{u.at, site, u.late, ns})
		})
	}
}

// hand calls put for the parts of ns at a place, each with the place that it gets.
func (l *late) hand(t *thread, give map[threadSite]*work, site, late uint32, ns int64, moves bool, put func(site uint32, ns int64)) {
	for moves && ns > 0 {
		w, most, over := &l.work[late], ns, (*int64)(nil)
		if late == 0 {
			if w = give[threadSite{t.info.ID, site}]; w == nil {
				break
			}
			i, _ := slices.BinarySearchFunc(w.places, site, func(p place, site uint32) int { return cmp.Compare(p.site, site) })
			p := &w.places[i]
			if over = &p.over; *over == 0 {
				give[threadSite{t.info.ID, site}] = p.next
				continue
			}
			most = min(ns, *over)
		}
		to, takes := w.next(most)
		if takes == 0 {
			break
		}
		if over != nil {
			*over -= takes
		}
		put(to, takes)
		ns -= takes
	}
	if ns > 0 {
		put(site, ns)
	}
}
