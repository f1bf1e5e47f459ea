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
// How a signal met its thread decides on what it says; arrivals.go tells. Within an origin a thread's weight goes by its own samples, where it has
// any: one that is alone on the machine is met more often than one that waits in a queue, and neither is to speak for the other.
type runs struct {
	numbers map[Origin]int32
	recent  [256]numbered // by began and thread: a map is slow for every sample
	list    []run         // by number
	// What fell on each row in runs of each origin, by open addressing.
	sums []runSum // a power of two, at most two thirds full
	used int
}

// numbered is an origin and one more than its number; 0: none.
type numbered struct {
	Origin
	number int32
}

// near is where an origin's number is, if it is one of the recent.
func (rs *runs) near(o Origin) *numbered {
	return &rs.recent[(o.Began^o.Began>>8^uint64(o.Thread)*31)%256]
}

// run is all runs of one origin.
type run struct {
	Origin
	late int64 // ns of samples that came late
}

// runSum is what fell on a row in runs of one origin.
type runSum struct {
	key uint64 // origin's number + 1, row; 0: free
	ns  int64
	Arrived
}

func (rs *runs) number(o Origin) int32 {
	r := rs.near(o)
	if r.number != 0 && r.Origin == o {
		return r.number - 1
	}
	n, ok := rs.numbers[o]
	if !ok {
		if rs.numbers == nil {
			rs.numbers = map[Origin]int32{}
		}
		n = int32(len(rs.list))
		rs.numbers[o] = n
		rs.list = append(rs.list, run{Origin: o})
	}
	r.Origin, r.number = o, n+1
	return n
}

func runKey(number, row int32) uint64 { return uint64(number+1)<<32 | uint64(uint32(row)) }

// sum finds the sum of an origin and a row. It is valid until the next call.
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
	n := rs.number(Origin{proc, e.Thread, e.Object})
	s := rs.sum(n, row)
	s.ns += max(e.CPU, 0)
	if late {
		rs.list[n].late += max(e.CPU, 0)
	}
	s.Add(e)
}

// share moves weight. The result does not depend on the order of maps.
func (rs *runs) share(c *Collector) {
	sums := slices.DeleteFunc(rs.sums, func(s runSum) bool { return s.key == 0 })
	slices.SortFunc(sums, func(a, b runSum) int { return cmp.Compare(a.key, b.key) })
	of := make([][]runSum, len(rs.list)) // by number
	for len(sums) > 0 {
		n := sums[0].key >> 32
		end := slices.IndexFunc(sums, func(s runSum) bool { return s.key>>32 != n })
		if end < 0 {
			end = len(sums)
		}
		of[n-1], sums = sums[:end], sums[end:]
	}
	origins := make([]Origin, len(rs.list))
	for i := range origins {
		origins[i] = rs.list[i].Origin
	}
	ShareOut(c.src, c.t.Frames, origins, func(i int) []PlaceArrived { return arrived(c, of[i]) }, func(i int, parts []Part) {
		rs.list[i].share(c, of[i], parts)
	})
}

// arrived is what arrived in runs of one origin.
func arrived(c *Collector, sums []runSum) []PlaceArrived {
	var out []PlaceArrived
	for i := range sums {
		if s := &sums[i]; s.Arrived != (Arrived{}) {
			row := &c.rows[uint32(s.key)]
			out = append(out, PlaceArrived{trace.Site{Stack: row.Stack, Hook: row.Hook}, s.Arrived})
		}
	}
	return out
}

// share moves the weight of one thread's runs to where samples arrived in them, or in those of other threads.
func (r *run) share(c *Collector, sums []runSum, parts []Part) {
	if len(parts) == 0 {
		return
	}
	var total int64
	for _, s := range sums {
		c.rows[uint32(s.key)].Values[CPU] -= s.ns
		total += s.ns
	}
	c.t.Doubt.LateCPU -= r.late
	c.t.Doubt.SharedCPU += r.late
	for i, ns := range Portions(total, parts) {
		if ns != 0 {
			row := c.at(Key{Stack: parts[i].At.Stack, Hook: parts[i].At.Hook}, r.Thread, &thread{proc: r.Proc}, kindCPU)
			c.rows[row].Values[CPU] += ns
		}
	}
}

// Portions divides ns in proportion to the parts' shares. They add up to ns exactly.
func Portions(ns int64, parts []Part) []int64 {
	var all float64
	for _, p := range parts {
		all += p.Share
	}
	out := make([]int64, len(parts))
	for i, p := range parts { // what is left over the shares that are left
		out[i] = ns
		if i < len(parts)-1 {
			out[i] = min(int64(float64(ns)*(p.Share/all)), ns)
		}
		ns -= out[i]
		all -= p.Share
	}
	return out
}
