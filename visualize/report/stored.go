// Facts as bytes: what a run's own summary has found out is kept in the recording, and later tables need not read the
// events for it. Chains are a part by themselves, for the views that have them; what the self-check needs is not stored.
//
// Numbers are in the order in which they are written here. Facts that do not end where they should are found anew, as those
// of another storedVersion are. Stacks are numbered as the recording's reader does; a reader that numbers them
// otherwise needs another version.

package report

import (
	"io"

	"github.com/hbtrace/hbtrace/analysis/blame"
	"github.com/hbtrace/hbtrace/analysis/edges"
	"github.com/hbtrace/hbtrace/analysis/stored"
	"github.com/hbtrace/hbtrace/analysis/weigh"
	"github.com/hbtrace/hbtrace/trace"
)

const storedVersion = 9

// threadSums are the part of threadFacts that events tell.
type threadSums struct {
	id trace.ThreadID
	threadFacts
}

func (f *facts) code(c *stored.Coding) {
	f.codeWeights(c)
	var threads []threadSums
	if !c.Reading {
		for _, t := range f.order {
			threads = append(threads, threadSums{t.ID, *t})
		}
	}
	stored.List(c, &threads, func(t *threadSums) {
		stored.Small(c, &t.id)
		for _, v := range []*int64{&t.cpu, &t.tail, &t.unplaced, &t.ready} {
			c.Int(v)
		}
		for i := range t.states {
			c.Int(&t.states[i])
		}
		c.Uint(&t.samples)
		c.Uint(&t.lost)
		c.Fields(&t.cover)
	})
	if c.Reading {
		for i := range threads {
			t := f.thread(threads[i].id)
			known := t.Thread
			*t = threads[i].threadFacts
			t.Thread = known
			f.order = append(f.order, t)
		}
	}
	stored.List(c, &f.blocks, func(b **block) {
		if *b == nil {
			*b = &block{}
		}
		x := *b
		blame.CodeSite(c, &x.at)
		c.Bool(&x.wait)
		c.Bool(&x.lock)
		c.Uint(&x.count)
		c.Int(&x.total)
		c.Int(&x.max)
		c.Uint(&x.open)
		x.codeEndings(c)
	})
	stored.List(c, &f.edges, func(e **edges.Edge) {
		if *e == nil {
			*e = &edges.Edge{}
		}
		x := *e
		stored.Small(c, &x.Hook)
		c.Uint(&x.Object)
		stored.Small(c, &x.Waiter)
		stored.Small(c, &x.Owner)
		stored.Small(c, &x.Releaser)
		stored.Small(c, &x.Stack)
		blame.CodeSite(c, &x.Release)
		c.Uint(&x.Count)
		c.Int(&x.Total)
		c.Int(&x.Max)
		c.Uint(&x.Sure)
		c.Uint(&x.Expected)
		c.Uint(&x.TimedOut)
		c.Uint(&x.Open)
	})
	for i := range f.kinds {
		c.Uint(&f.kinds[i])
	}
	c.Uint(&f.odd)
	c.Uint(&f.folded)
	c.Int(&f.foldedN)
	c.End()
}

func (b *block) codeEndings(c *stored.Coding) {
	ended := b.endings()
	stored.List(c, &ended, func(e **ending) {
		if *e == nil {
			*e = &ending{}
		}
		x := *e
		stored.Small(c, &x.by)
		c.Uint(&x.count)
		c.Uint(&x.certain)
		c.Int(&x.total)
	})
	if !c.Reading || len(ended) == 0 {
		return
	}
	b.ended = make(map[trace.ThreadID]*ending, len(ended))
	for _, x := range ended {
		b.ended[x.by] = x
	}
}

func (f *facts) codeWeights(c *stored.Coding) {
	if c.Reading {
		f.weights = &weigh.Table{Frames: f.frames}
	}
	t := f.weights
	stored.List(c, &t.Values, func(v *weigh.Value) { stored.Small(c, v) })
	stored.List(c, &t.Rows, func(r *weigh.Row) {
		stored.Small(c, &r.Stack)
		stored.Small(c, &r.Hook)
		routine := r.Routine != (trace.Addr{})
		// Most rows have few of the values.
		has := uint64(0)
		for v, x := range r.Values {
			if x != 0 {
				has |= 2 << v
			}
		}
		if routine {
			has |= 1
		}
		c.Uint(&has)
		if has&1 != 0 {
			stored.Small(c, &r.Routine.Module)
			c.Uint(&r.Routine.Off)
		}
		for v := range r.Values {
			if has&(2<<v) != 0 {
				c.Int(&r.Values[v])
			}
		}
	})
	for v := range t.Total {
		c.Int(&t.Total[v])
	}
	c.Fields(&t.Doubt)
	for _, v := range t.Values {
		if v >= weigh.NumValues {
			c.Fail()
		}
	}
}

// Facts are what all tables but the self-check are made of.
type Facts struct {
	f      *facts        // without chains: views that have none must not differ by them
	chains *blame.Result // nil: not looked for
}

// Collect reads src's events, or what an earlier reading left in it. With chains it also finds out what the waits were
// spent on, which holds waits in memory.
func Collect(src trace.Source, chains bool) (*Facts, error) { return CollectWith(src, chains, nil) }

// CollectWith is Collect for who has another use of the events' weights: src is read whatever it holds, and its events are added to
// weights, which keep rows apart by whatever is wanted and have all values.
func CollectWith(src trace.Source, chains bool, weights *weigh.Collector) (*Facts, error) {
	f, err := collect(src, chains, false, weights)
	if err != nil {
		return nil, err
	}
	x := &Facts{f: f, chains: f.blame}
	f.blame, f.known = nil, nil
	return x, nil
}

// Write is [Write]; views that need more than Facts read the events.
func (x *Facts) Write(w io.Writer, view View, o Options) error {
	view, err := ParseView(string(view))
	if err != nil {
		return err
	}
	// A summary does without chains where they were too many to be found at the end of a run.
	if view == ViewSelfCheck || chained(view) && x.chains == nil && (o.JSON || view != ViewSummary) {
		return Write(w, x.f.src, view, o)
	}
	f := *x.f
	if chained(view) && x.chains != nil {
		f.chain(x.chains)
	}
	return f.write(w, view, o)
}

// Parts are for the recording: a source that has them is not read again for tables.
func (x *Facts) Parts() []stored.Part {
	c := &stored.Coding{}
	x.f.code(c)
	parts := []stored.Part{{Number: stored.Facts, Version: storedVersion, Bytes: c.P}}
	if x.chains != nil {
		c := &stored.Coding{}
		keys := make([]blame.EdgeKey, len(x.f.edges))
		for i, e := range x.f.edges {
			keys[i] = e.EdgeKey
		}
		x.chains.Code(c, keys)
		parts = append(parts, stored.Part{Number: stored.Chains, Version: storedVersion, Bytes: c.P})
	}
	return parts
}

// stored takes the facts that src holds, with chains where they are wanted; false where it does not hold all, or not
// of a kind that can be used.
func (f *facts) stored(chains bool) bool {
	parts := stored.Of(f.src, storedVersion, stored.Facts, stored.Chains)
	if parts[0] == nil || chains && parts[1] == nil {
		return false
	}
	got := newFacts(f.src)
	c := &stored.Coding{P: parts[0], Reading: true}
	if got.code(c); c.Err != nil {
		return false
	}
	if chains {
		c, res := &stored.Coding{P: parts[1], Reading: true}, &blame.Result{}
		res.Code(c, nil)
		if c.End(); c.Err != nil {
			return false
		}
		got.chain(res)
	}
	*f = *got
	return true
}
