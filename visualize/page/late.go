// Late samples: CPU time that was noticed at the end of a run of work, where the stack says who makes the next call and not
// where the time went.
//
// Package weigh tells why, and where such time belongs: to the places at which samples arrived in runs of work that began after
// the same call, in proportion to their number and to what they are worth. Profiles add that up; here every piece of time has one place. So the
// late pieces of a thread's runs of an origin go to these places in turn, each place as often as makes the sums right: what samples stand
// for that were not late stays where it is and is counted in. (Where samples at the ends of system calls have more than weigh leaves them, the
// sums here keep the difference.) What a sample is worth is weigh's to say.

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
	ns int64 // that those in time stand for
	// While late pieces are handed out: its share of them, and what it is owed.
	share, owed float64
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
	weigh.ShareOut(m.src, m.tab, origins, func(i int) []weigh.PlaceArrived { return l.work[i+1].arrived(m) }, func(i int, parts []weigh.Part) {
		l.work[i+1].weigh(m, l, uint32(i+1), parts)
	})
	for _, t := range m.threads {
		for i := range t.pieces {
			p := &t.pieces[i]
			if p.late == 0 {
				continue
			}
			if w := &l.work[p.late]; len(w.places) > 0 {
				p.site = w.next(p.end - p.start)
				ns += p.end - p.start
			}
		}
	}
	return ns
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

// weigh finds out which part of the late time each place is to get: what makes all of its time, with that which is not late, weigh's part.
func (w *work) weigh(m *Model, l *late, id uint32, parts []weigh.Part) {
	if len(parts) == 0 {
		w.places = nil
		return
	}
	all, shares := float64(w.late), 0.0
	for i := range w.places {
		all += float64(w.places[i].ns)
	}
	for _, p := range parts {
		w.place(l, id, m.sites.id(p.At.Stack, p.At.Hook)).share += p.Share
		shares += p.Share
	}
	sum := 0.0
	for i := range w.places {
		p := &w.places[i]
		p.share = max(0, all*p.share/shares-float64(p.ns))
		sum += p.share
	}
	for i := range w.places {
		if sum > 0 {
			w.places[i].share /= sum
		} else {
			w.places[i].share = 1 / float64(len(w.places))
		}
	}
	slices.SortFunc(w.places, func(a, b place) int { return cmp.Compare(a.site, b.site) })
}

// next is the place of a piece of ns: the one that is owed most.
func (w *work) next(ns int64) uint32 {
	most := 0
	for i := range w.places {
		p := &w.places[i]
		p.owed += p.share * float64(ns)
		if p.owed > w.places[most].owed {
			most = i
		}
	}
	w.places[most].owed -= float64(ns)
	return w.places[most].site
}
