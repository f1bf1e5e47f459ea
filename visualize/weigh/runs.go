// runs.go shares out CPU time that was noticed too late to say where it went.
package weigh

import (
	"cmp"
	"slices"

	"github.com/hbtrace/hbtrace/trace"
)

// A run of work is what a thread does between two calls that can sleep. A sampling point inside it that no signal
// reached is noticed at its end only, where the stack says who makes the next call, not where the time went; and one that
// a signal did notice lies before it. But signals are sent at random moments, and those that arrive in runs of
// the same origin (the call after which they began) say where such runs spend their time. So all weight of an
// origin is shared out over them, in proportion to their number. (Leaving each with the points passed since the one
// before favours the end of short runs: nothing can lie behind it.) Where none arrived, because runs are shorter
// than a signal takes, the weight stays where the next call is made.
//
// A signal that found its thread preempted says where the kernel prefers to preempt, too. On a machine with more to do than
// processors that is nearly all of them; so they count, for little.
//
// Where rows are kept apart by thread, a thread's weight goes by the samples of all its process's threads: one that runs on
// the sampler's processor is mostly met where that preempted it, at the end of a system call.
type runs map[origin]*run

type origin struct {
	proc   trace.ProcID
	thread trace.ThreadID // 0 unless rows are kept apart by thread, and for all of a process
	began  uint64
}

type site struct {
	stack trace.StackID
	hook  trace.HookID
}

type run struct {
	ns   map[int32]int64 // by row
	late int64           // of it
	hits map[site]int64  // samples that arrived in such runs, times what they count for
	all  int64           // sum of them
}

// What a sample counts for that arrived in time, and one that found its thread preempted.
const (
	inTime    = 8
	preempted = 1
)

func (rs runs) at(o origin) *run {
	r := rs[o]
	if r == nil {
		r = &run{ns: map[int32]int64{}, hits: map[site]int64{}}
		rs[o] = r
	}
	return r
}

// sample takes up a KindCPU that was added to a row.
func (rs runs) sample(c *Collector, e *trace.Event, proc trace.ProcID, row int32) {
	late := e.Flags&trace.FlagLate != 0
	if late {
		c.t.Doubt.LateCPU += max(e.CPU, 0)
	}
	if e.Object == 0 || e.Hook != 0 {
		return
	}
	o := origin{proc: proc, began: e.Object}
	if c.o.By&ByThread != 0 {
		o.thread = e.Thread
	}
	r := rs.at(o)
	r.ns[row] += max(e.CPU, 0)
	counts := int64(inTime)
	if late {
		r.late += max(e.CPU, 0)
		if counts = preempted; e.Flags&trace.FlagPreempted == 0 {
			return
		}
	}
	at, n := site{c.rows[row].Stack, c.rows[row].Hook}, counts*int64(max(e.Count, 1))
	r.hits[at] += n
	r.all += n
	if o.thread != 0 {
		o.thread = 0
		whole := rs.at(o)
		whole.hits[at] += n
		whole.all += n
	}
}

// share moves weight. The result does not depend on the order of maps.
func (rs runs) share(c *Collector) {
	origins := make([]origin, 0, len(rs))
	for o := range rs {
		origins = append(origins, o)
	}
	slices.SortFunc(origins, func(a, b origin) int {
		return cmp.Or(cmp.Compare(a.proc, b.proc), cmp.Compare(a.thread, b.thread), cmp.Compare(a.began, b.began))
	})
	for _, o := range origins {
		r, by := rs[o], rs[origin{proc: o.proc, began: o.began}]
		if by == nil || by.all == 0 || len(r.ns) == 0 {
			continue
		}
		var left int64
		for row, ns := range r.ns {
			c.rows[row].Values[CPU] -= ns
			left += ns
		}
		c.t.Doubt.LateCPU -= r.late
		c.t.Doubt.SharedCPU += r.late
		places := make([]site, 0, len(by.hits))
		for at := range by.hits {
			places = append(places, at)
		}
		slices.SortFunc(places, func(a, b site) int {
			return cmp.Or(cmp.Compare(a.stack, b.stack), cmp.Compare(a.hook, b.hook))
		})
		hits := by.all
		for _, at := range places { // what is left over the samples that are left: sums stay exact
			n := by.hits[at]
			part := int64(float64(left) * (float64(n) / float64(hits)))
			left -= part
			hits -= n
			if part != 0 {
				row := c.at(Key{Stack: at.stack, Hook: at.hook}, o.thread, &thread{proc: o.proc}, kindCPU)
				c.rows[row].Values[CPU] += part
			}
		}
	}
}
