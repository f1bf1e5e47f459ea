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
// A signal that found its thread preempted says where the kernel prefers to preempt, too: on a machine with more to do than
// processors one in four of them names a system call between two functions that take 98 % of the time. They are all there is
// where no other came; so they count for little, and together never for more than a few that came in time.
//
// Where rows are kept apart by thread, a thread's weight goes by the samples of all its process's threads: one that runs on
// the sampler's processor is mostly met where that preempted it, at the end of a system call.
type runs struct {
	numbers map[origin]int32
	recent  [256]numbered // by began: a map is slow for every sample
	list    []run         // by number
	// What fell on each row in runs of each origin, by open addressing.
	sums []runSum // a power of two, at most two thirds full
	used int
}

type origin struct {
	proc   trace.ProcID
	thread trace.ThreadID // 0 unless rows are kept apart by thread, and for all of a process
	began  uint64
}

// numbered is an origin and one more than its number; 0: none.
type numbered struct {
	origin
	number int32
}

// near is where an origin's number is, if it is one of the recent.
func (rs *runs) near(o origin) *numbered { return &rs.recent[(o.began^o.began>>8)%256] }

type site struct {
	stack trace.StackID
	hook  trace.HookID
}

// run is all runs of one origin.
type run struct {
	origin
	late int64 // ns of samples that came late
}

// runSum is what fell on a row in runs of one origin.
type runSum struct {
	key  uint64 // origin's number + 1, row; 0: free
	ns   int64
	hits int64 // samples that arrived in such runs in time
	late int64 // samples that arrived and found their thread preempted
}

// What a sample counts for that arrived in time; one that found its thread preempted, at most; and all of those of an origin
// together, at most. With so few of the better kind, chance makes errors as large as the bias of the other.
const (
	inTime        = 1 << 20
	preempted     = inTime / 8
	allPreempted  = 16 * inTime
	mostPreempted = allPreempted / preempted
)

// Hits is what a place's samples count for, preemptedInAll being all of its origin's that found their thread preempted.
func (a *Arrived) Hits(preemptedInAll int64) int64 {
	if preemptedInAll > mostPreempted {
		return a.InTime*inTime + a.Preempted*allPreempted/preemptedInAll
	}
	return a.InTime*inTime + a.Preempted*preempted
}

func (rs *runs) number(o origin) int32 {
	r := rs.near(o)
	if r.number != 0 && r.origin == o {
		return r.number - 1
	}
	n, ok := rs.numbers[o]
	if !ok {
		if rs.numbers == nil {
			rs.numbers = map[origin]int32{}
		}
		n = int32(len(rs.list))
		rs.numbers[o] = n
		rs.list = append(rs.list, run{origin: o})
	}
	r.origin, r.number = o, n+1
	return n
}

func runKey(number, row int32) uint64 { return uint64(number+1)<<32 | uint64(uint32(row)) }

// sum finds the sum of an origin and a row. It is valid until the next one is asked for.
func (rs *runs) sum(number, row int32) *runSum {
	if 3*(rs.used+1) > 2*len(rs.sums) {
		old := rs.sums
		rs.sums = make([]runSum, max(1024, 2*len(old)))
		for i := range old {
			if old[i].key != 0 {
				*rs.probe(old[i].key) = old[i]
			}
		}
	}
	key := runKey(number, row)
	s := rs.probe(key)
	if s.key == 0 {
		s.key = key
		rs.used++
	}
	return s
}

// runHash is where the search for a key begins, but for the table's length.
func runHash(key uint64) uint64 { return key * 0x9e3779b97f4a7c15 >> 32 }

func (rs *runs) probe(key uint64) *runSum {
	mask := uint64(len(rs.sums) - 1)
	for i := runHash(key) & mask; ; i = (i + 1) & mask {
		if s := &rs.sums[i]; s.key == 0 || s.key == key {
			return s
		}
	}
}

// sample takes up a KindCPU that was added to a row.
func (rs *runs) sample(c *Collector, e *trace.Event, proc trace.ProcID, row int32) {
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
	n := rs.number(o)
	s := rs.sum(n, row)
	s.ns += max(e.CPU, 0)
	switch count := int64(max(e.Count, 1)); {
	case !late:
		s.hits += count
	case e.Flags&trace.FlagPreempted != 0:
		s.late += count
		fallthrough
	default:
		rs.list[n].late += max(e.CPU, 0)
	}
}

// arrivals are the samples that arrived in runs of one origin, of whichever thread.
type arrivals struct {
	at   map[site]Arrived
	late int64
}

// Arrived are samples that arrived in runs of work of one origin at one place: in time, and such as found their thread
// preempted.
type Arrived struct{ InTime, Preempted int64 }

// share moves weight. The result does not depend on the order of maps.
func (rs *runs) share(c *Collector) {
	sums := slices.DeleteFunc(rs.sums, func(s runSum) bool { return s.key == 0 })
	slices.SortFunc(sums, func(a, b runSum) int { return cmp.Compare(a.key, b.key) })
	came := map[origin]*arrivals{}
	for i := range sums {
		s := &sums[i]
		if s.hits == 0 && s.late == 0 {
			continue
		}
		o := rs.list[s.key>>32-1].origin
		o.thread = 0
		a := came[o]
		if a == nil {
			a = &arrivals{at: map[site]Arrived{}}
			came[o] = a
		}
		row := &c.rows[uint32(s.key)]
		at := site{row.Stack, row.Hook}
		here := a.at[at]
		here.InTime += s.hits
		here.Preempted += s.late
		a.at[at] = here
		a.late += s.late
	}
	order := make([]int32, len(rs.list))
	of := make([][]runSum, len(rs.list))
	for i := range order {
		order[i] = int32(i)
	}
	for len(sums) > 0 {
		n := sums[0].key >> 32
		end := slices.IndexFunc(sums, func(s runSum) bool { return s.key>>32 != n })
		if end < 0 {
			end = len(sums)
		}
		of[n-1], sums = sums[:end], sums[end:]
	}
	slices.SortFunc(order, func(x, y int32) int {
		a, b := &rs.list[x].origin, &rs.list[y].origin
		return cmp.Or(cmp.Compare(a.proc, b.proc), cmp.Compare(a.thread, b.thread), cmp.Compare(a.began, b.began))
	})
	for _, n := range order {
		r := &rs.list[n]
		by := came[origin{proc: r.proc, began: r.began}]
		if by == nil {
			continue
		}
		var left int64
		for _, s := range of[n] {
			c.rows[uint32(s.key)].Values[CPU] -= s.ns
			left += s.ns
		}
		c.t.Doubt.LateCPU -= r.late
		c.t.Doubt.SharedCPU += r.late
		places := make([]site, 0, len(by.at))
		for at := range by.at {
			places = append(places, at)
		}
		slices.SortFunc(places, func(a, b site) int {
			return cmp.Or(cmp.Compare(a.stack, b.stack), cmp.Compare(a.hook, b.hook))
		})
		var hits int64
		for _, here := range by.at {
			hits += here.Hits(by.late)
		}
		for _, at := range places { // what is left over the samples that are left: sums stay exact
			here := by.at[at]
			n := here.Hits(by.late)
			if n == 0 { // one of very many
				continue
			}
			part := int64(float64(left) * (float64(n) / float64(hits)))
			left -= part
			hits -= n
			if part != 0 {
				row := c.at(Key{Stack: at.stack, Hook: at.hook}, r.thread, &thread{proc: r.proc}, kindCPU)
				c.rows[row].Values[CPU] += part
			}
		}
	}
}
