// Late samples: CPU time that was noticed at the end of a run of work, where the stack says who makes the next call and not
// where the time went.
//
// Package weigh tells why, and where such time belongs: to the places at which samples arrived in runs of work that began after
// the same call, in proportion to their number. Profiles add that up; here every piece of time has one place. So the
// late pieces of an origin go to these places in turn, each place as often as makes the sums right: what samples stand
// for that were not late stays where it is and is counted in. What a sample counts for is weigh's to say.

package page

import (
	"cmp"
	"slices"

	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/visualize/weigh"
)

// origin is what runs of work have in common: the call that they began after.
type origin struct {
	proc  trace.ProcID
	began uint64
}

// place is one at which samples arrived.
type place struct {
	site uint32
	weigh.Arrived
	ns int64 // that those in time stand for
	// While late pieces are handed out: its share of them, and what it is owed.
	share, owed float64
}

// work is all runs of one origin.
type work struct {
	places    []place
	late      int64 // ns
	preempted int64 // samples that found their thread preempted
}

// late gathers origins while a recording is read.
type late struct {
	ids  map[origin]uint32
	work []work             // by id; 0 is none
	at   map[workSite]int32 // of a work's places
}

type workSite struct{ work, site uint32 }

func newLate() late { return late{map[origin]uint32{}, make([]work, 1), map[workSite]int32{}} }

// sample takes up a KindCPU at a site, and returns the number of its origin if it is late.
func (l *late) sample(e *trace.Event, proc trace.ProcID, site uint32, cpu int64) uint32 {
	if e.Kind != trace.KindCPU || e.Object == 0 || e.Hook != 0 {
		return 0
	}
	o := origin{proc, e.Object}
	id, ok := l.ids[o]
	if !ok {
		id = uint32(len(l.work))
		l.ids[o] = id
		l.work = append(l.work, work{})
	}
	w := &l.work[id]
	late := e.Flags&trace.FlagLate != 0
	if late {
		w.late += cpu
		if e.Flags&trace.FlagPreempted == 0 {
			return id
		}
	}
	i, ok := l.at[workSite{id, site}]
	if !ok {
		i = int32(len(w.places))
		l.at[workSite{id, site}] = i
		w.places = append(w.places, place{site: site})
	}
	if n := int64(max(e.Count, 1)); late {
		w.places[i].Preempted += n
		w.preempted += n
		return id
	} else {
		w.places[i].InTime += n
	}
	w.places[i].ns += cpu
	return 0
}

// share gives late pieces their places. It returns how much time got one.
func (l *late) share(threads []*thread) (ns int64) {
	for i := range l.work {
		l.work[i].weigh()
	}
	for _, t := range threads {
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

// weigh finds out which part of the late time each place is to get.
func (w *work) weigh() {
	all, hits := float64(w.late), int64(0)
	for i := range w.places {
		all += float64(w.places[i].ns)
		hits += w.places[i].Hits(w.preempted)
	}
	sum := 0.0
	for i := range w.places {
		p := &w.places[i]
		p.share = max(0, all*float64(p.Hits(w.preempted))/float64(hits)-float64(p.ns))
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
