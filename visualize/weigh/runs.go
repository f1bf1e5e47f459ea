// runs.go shares out CPU time that was noticed too late to say where it went.
package weigh

import (
	"cmp"
	"slices"

	"github.com/hbtrace/hbtrace/trace"
)

// A run of work is what a thread does between two calls that can sleep. A sampling point inside it that no signal
// reached is noticed at its end only, where the stack says who makes the next call, not where the time went. But
// signals are sent at random moments, and those that arrive in runs of the same origin (the call after which they
// began) say where such runs spend their time. So the late weight of an origin is shared out over them, in
// proportion to their number. Where none arrived, because runs are shorter than a signal takes, it stays where
// the next call is made.
type runs map[origin]*run

type origin struct {
	proc   trace.ProcID
	thread trace.ThreadID // 0 unless rows are kept apart by thread
	began  uint64
}

type run struct {
	late   map[int32]int64 // by row, ns
	inTime map[int32]int64 // by row, samples
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
	at := origin{proc: proc, began: e.Object}
	if c.o.By&ByThread != 0 {
		at.thread = e.Thread
	}
	r := rs[at]
	if r == nil {
		r = &run{late: map[int32]int64{}, inTime: map[int32]int64{}}
		rs[at] = r
	}
	if late {
		r.late[row] += max(e.CPU, 0)
	} else {
		r.inTime[row] += int64(max(e.Count, 1))
	}
}

// share moves late weight. The result does not depend on the order of maps.
func (rs runs) share(c *Collector) {
	origins := make([]origin, 0, len(rs))
	for at := range rs {
		origins = append(origins, at)
	}
	slices.SortFunc(origins, func(a, b origin) int {
		return cmp.Or(cmp.Compare(a.proc, b.proc), cmp.Compare(a.thread, b.thread), cmp.Compare(a.began, b.began))
	})
	for _, at := range origins {
		r := rs[at]
		if len(r.inTime) == 0 {
			continue
		}
		var left, samples int64
		for row, ns := range r.late {
			c.rows[row].Values[CPU] -= ns
			left += ns
		}
		c.t.Doubt.LateCPU -= left
		c.t.Doubt.SharedCPU += left
		rows := make([]int32, 0, len(r.inTime))
		for row, n := range r.inTime {
			rows = append(rows, row)
			samples += n
		}
		slices.Sort(rows)
		for _, row := range rows { // what is left over the samples that are left: sums stay exact
			n := r.inTime[row]
			part := int64(float64(left) * (float64(n) / float64(samples)))
			c.rows[row].Values[CPU] += part
			left -= part
			samples -= n
		}
	}
}
