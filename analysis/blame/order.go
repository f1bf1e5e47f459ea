// Orders in which locks are taken, and those that contradict each other.

package blame

import (
	"cmp"
	"slices"

	"github.com/hbtrace/hbtrace/trace"
)

type pair struct{ outer, inner Object }

// orders are the pairs of locks of which one was waited for while the other was held. They are seen where others
// wait meanwhile: a hold that nobody waited for leaves no trace.
type orders struct {
	of    map[pair]*Ordered
	waits map[orderSeen]struct{}
}

type orderSeen struct {
	pair
	wait waitID
}

func (o *orders) init() { o.of, o.waits = map[pair]*Ordered{}, map[orderSeen]struct{}{} }

// maxOrders bounds what is remembered.
const maxOrders = 1 << 16

// seen notes that thread t, while it had outer, waited for inner. The same wait is seen by everybody who waits for
// outer, and counts once.
func (o *orders) seen(outer, inner Object, t trace.ThreadID, at trace.Site, wait waitID) {
	if outer == inner || len(o.waits) >= maxOrders {
		return
	}
	p := pair{outer, inner}
	s := orderSeen{p, wait}
	if _, ok := o.waits[s]; ok {
		return
	}
	o.waits[s] = struct{}{}
	x := o.of[p]
	if x == nil {
		x = &Ordered{Outer: outer, Inner: inner, Thread: t, At: at}
		o.of[p] = x
	}
	x.Count++
}

func compareObjects(a, b Object) int {
	return cmp.Or(cmp.Compare(a.Proc, b.Proc), cmp.Compare(a.Addr, b.Addr))
}

// inversions finds, for each order, the shortest way back from its inner lock to its outer one; each cycle once.
func (o *orders) inversions() []Inversion {
	next := map[Object][]*Ordered{}
	var all []*Ordered
	for _, x := range o.of {
		all = append(all, x)
	}
	slices.SortFunc(all, func(a, b *Ordered) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), compareObjects(a.Outer, b.Outer), compareObjects(a.Inner, b.Inner))
	})
	for _, x := range all {
		next[x.Outer] = append(next[x.Outer], x)
	}
	var out []Inversion
	told := map[pair]bool{}
	for _, x := range all {
		if told[pair{x.Outer, x.Inner}] {
			continue
		}
		back := way(next, x.Inner, x.Outer)
		if back == nil {
			continue
		}
		inv := Inversion{Orders: []Ordered{*x}}
		told[pair{x.Outer, x.Inner}] = true
		for _, y := range back {
			inv.Orders = append(inv.Orders, *y)
			told[pair{y.Outer, y.Inner}] = true
		}
		out = append(out, inv)
	}
	return out
}

// way is a shortest path of orders from one lock to another; nil where there is none.
func way(next map[Object][]*Ordered, from, to Object) []*Ordered {
	came := map[Object]*Ordered{}
	queue := []Object{from}
	for len(queue) > 0 {
		at := queue[0]
		queue = queue[1:]
		for _, x := range next[at] {
			if _, ok := came[x.Inner]; ok || x.Inner == from {
				continue
			}
			came[x.Inner] = x
			if x.Inner == to {
				var path []*Ordered
				for o := to; o != from; o = came[o].Outer {
					path = append(path, came[o])
				}
				slices.Reverse(path)
				return path
			}
			queue = append(queue, x.Inner)
		}
	}
	return nil
}
