// Results as bytes, for the recording.

package blame

import (
	"cmp"
	"slices"

	"github.com/hbtrace/hbtrace/analysis/stored"
	"github.com/hbtrace/hbtrace/trace"
)

// Code writes a Result, or reads one into an empty Result. Of the edges only those of keys are written, and
// [Result.Accounts] are not.
func (r *Result) Code(c *stored.Coding, keys []EdgeKey) {
	type keyed struct {
		key  EdgeKey
		edge *Edge
	}
	var edges []keyed
	for _, k := range keys {
		if e := r.Edges[k]; e != nil {
			edges = append(edges, keyed{k, e})
		}
	}
	stored.List(c, &edges, func(x *keyed) {
		k := &x.key
		stored.Small(c, &k.Hook)
		c.Uint(&k.Object)
		for _, t := range []*trace.ThreadID{&k.Waiter, &k.Owner, &k.Releaser} {
			stored.Small(c, t)
		}
		stored.Small(c, &k.Stack)
		CodeSite(c, &k.Release)
		if x.edge == nil {
			x.edge = &Edge{}
		}
		x.edge.code(c)
	})
	if c.Reading {
		r.Edges = make(map[EdgeKey]*Edge, len(edges))
		for _, x := range edges {
			r.Edges[x.key] = x.edge
		}
	}
	stored.List(c, &r.Chains, func(x *Chain) { x.code(c) })
	stored.List(c, &r.Deadlocks, func(d *Deadlock) {
		stored.List(c, &d.Threads, func(h *Held) {
			stored.Small(c, &h.Thread)
			CodeSite(c, &h.At)
			c.String(&h.Kind)
			h.Object.code(c)
			c.Int((*int64)(&h.Since))
		})
		c.Int((*int64)(&d.Since))
		c.Int((*int64)(&d.Until))
	})
	stored.List(c, &r.Inversions, func(v *Inversion) {
		stored.List(c, &v.Orders, func(o *Ordered) {
			o.Outer.code(c)
			o.Inner.code(c)
			stored.Small(c, &o.Thread)
			CodeSite(c, &o.At)
			c.Uint(&o.Count)
		})
	})
	r.codeNames(c)
	for _, n := range []*uint64{&r.IntervalsLeft, &r.SamplesLeft, &r.LinksLeft, &r.WaitsFaded, &r.WaitsEstimated} {
		c.Uint(n)
	}
}

func (r *Result) codeNames(c *stored.Coding) {
	type named struct {
		object Object
		name   string
	}
	var names []named
	for o, n := range r.names {
		names = append(names, named{o, n})
	}
	slices.SortFunc(names, func(a, b named) int {
		return cmp.Or(cmp.Compare(a.object.Proc, b.object.Proc), cmp.Compare(a.object.Addr, b.object.Addr))
	})
	stored.List(c, &names, func(x *named) {
		x.object.code(c)
		c.String(&x.name)
	})
	if c.Reading {
		r.names = make(map[Object]string, len(names))
		for _, x := range names {
			r.names[x.object] = x.name
		}
	}
}

// CodeSite codes a place for what is stored.
func CodeSite(c *stored.Coding, s *trace.Site) {
	stored.Small(c, &s.Stack)
	stored.Small(c, &s.Hook)
}

func (o *Object) code(c *stored.Coding) {
	stored.Small(c, &o.Proc)
	c.Uint(&o.Addr)
}

func (e *Edge) code(c *stored.Coding) {
	c.Bool(&e.Lock)
	c.Uint(&e.Count)
	c.Int(&e.Total)
	CodeSite(c, &e.Taken)
	c.Int(&e.TakenNs)
	c.Int(&e.HolderNs)
	stored.List(c, &e.Doing, func(d *Doing) {
		stored.Small(c, &d.Act)
		CodeSite(c, &d.At)
		c.String(&d.Func)
		d.Object.code(c)
		c.Int(&d.Ns)
	})
	stored.List(c, &e.Wakers, func(w *Waker) {
		stored.Small(c, &w.Thread)
		c.Uint(&w.Count)
	})
}

func (x *Chain) code(c *stored.Coding) {
	stored.List(c, &x.Links, func(l *Link) {
		stored.Small(c, &l.Thread)
		CodeSite(c, &l.At)
		c.String(&l.Func)
		c.String(&l.Kind)
		l.Object.code(c)
	})
	if c.Reading && len(x.Links) == 0 {
		c.Fail() // the first link is the wait itself
	}
	stored.Small(c, &x.End)
	stored.Small(c, &x.By)
	CodeSite(c, &x.At)
	c.String(&x.Func)
	c.Bool(&x.Lock)
	c.Uint(&x.Count)
	c.Int(&x.Total)
	c.Int(&x.Max)
}
