// Facts as bytes: what a run's own summary has found out is kept in the recording, and later tables need not read the
// events for it. What chains and the self-check need is not in it.
//
// Numbers are varints, signed ones zigzag, in the order in which they are written here. The first is storedVersion: facts of
// another one are worth nothing and are found anew, as those are that do not end where they should. Stacks are
// numbered as the recording's reader does; a reader that numbers them otherwise needs another version.

package report

import (
	"encoding/binary"
	"errors"
	"io"
	"reflect"

	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/visualize/weigh"
)

const storedVersion = 2

// summarised is a recording with facts in it: [tracefile.Reader] is one.
type summarised interface {
	// Summary is what was stored, nil where nothing was or where it is not to be trusted.
	Summary() []byte
}

var errStored = errors.New("facts do not decode")

// coding writes numbers to p, or takes them from it: one list of fields does for both.
type coding struct {
	p       []byte
	reading bool
	err     error
}

func (c *coding) uint(v *uint64) {
	if !c.reading {
		c.p = binary.AppendUvarint(c.p, *v)
		return
	}
	x, n := binary.Uvarint(c.p)
	if n <= 0 {
		c.p, c.err = nil, errStored
		*v = 0
		return
	}
	*v, c.p = x, c.p[n:]
}

func (c *coding) int(v *int64) {
	u := uint64(*v)<<1 ^ uint64(*v>>63)
	c.uint(&u)
	*v = int64(u>>1) ^ -int64(u&1)
}

// small codes a number of a narrow type.
func small[T ~uint8 | ~uint16 | ~uint32](c *coding, v *T) {
	u := uint64(*v)
	c.uint(&u)
	if *v = T(u); uint64(*v) != u {
		c.p, c.err = nil, errStored
	}
}

func (c *coding) bool(v *bool) {
	u := uint8(0)
	if *v {
		u = 1
	}
	small(c, &u)
	*v = u != 0
}

// fields codes a struct of integers.
func (c *coding) fields(v any) {
	s := reflect.ValueOf(v).Elem()
	for i := range s.NumField() {
		f := s.Field(i)
		if f.CanUint() {
			u := f.Uint()
			c.uint(&u)
			f.SetUint(u)
			continue
		}
		n := f.Int()
		c.int(&n)
		f.SetInt(n)
	}
}

// list codes a list's elements. One takes at least a byte, so that no more of them are made than there are.
func list[T any](c *coding, l *[]T, each func(*T)) {
	n := uint64(len(*l))
	c.uint(&n)
	if c.reading {
		if n > uint64(len(c.p)) {
			c.p, c.err = nil, errStored
			n = 0
		}
		*l = make([]T, n)
	}
	for i := range *l {
		each(&(*l)[i])
	}
}

// threadSums are the part of threadFacts that events tell.
type threadSums struct {
	id trace.ThreadID
	threadFacts
}

func (f *facts) code(c *coding) {
	version := uint64(storedVersion)
	if c.uint(&version); version != storedVersion {
		c.p, c.err = nil, errStored
		return
	}
	f.codeWeights(c)
	var threads []threadSums
	if !c.reading {
		for _, t := range f.order {
			threads = append(threads, threadSums{t.ID, *t})
		}
	}
	list(c, &threads, func(t *threadSums) {
		small(c, &t.id)
		for _, v := range []*int64{&t.cpu, &t.tail, &t.locked, &t.waited, &t.called} {
			c.int(v)
		}
		c.uint(&t.samples)
		c.uint(&t.lost)
		c.fields(&t.cover)
	})
	if c.reading {
		for i := range threads {
			t := f.thread(threads[i].id)
			known := t.Thread
			*t = threads[i].threadFacts
			t.Thread = known
			f.order = append(f.order, t)
		}
	}
	list(c, &f.blocks, func(b **block) {
		if *b == nil {
			*b = &block{}
		}
		x := *b
		codeSite(c, &x.at)
		c.bool(&x.wait)
		c.bool(&x.lock)
		c.uint(&x.count)
		c.int(&x.total)
		c.int(&x.max)
		c.uint(&x.open)
	})
	list(c, &f.edges, func(e **edge) {
		if *e == nil {
			*e = &edge{}
		}
		x := *e
		small(c, &x.hook)
		c.uint(&x.object)
		small(c, &x.waiter)
		small(c, &x.owner)
		small(c, &x.releaser)
		small(c, &x.stack)
		codeSite(c, &x.release)
		c.uint(&x.count)
		c.int(&x.total)
		c.int(&x.max)
		c.uint(&x.sure)
		c.uint(&x.expected)
		c.uint(&x.timedOut)
		c.uint(&x.open)
	})
	for i := range f.kinds {
		c.uint(&f.kinds[i])
	}
	c.uint(&f.odd)
	c.uint(&f.folded)
	c.int(&f.foldedN)
	if c.reading && len(c.p) > 0 {
		c.err = errStored
	}
}

func codeSite(c *coding, s *site) {
	small(c, &s.stack)
	small(c, &s.hook)
}

func (f *facts) codeWeights(c *coding) {
	if c.reading {
		f.weights = &weigh.Table{Frames: f.frames}
	}
	t := f.weights
	list(c, &t.Values, func(v *weigh.Value) { small(c, v) })
	list(c, &t.Rows, func(r *weigh.Row) {
		small(c, &r.Stack)
		small(c, &r.Hook)
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
		c.uint(&has)
		if has&1 != 0 {
			small(c, &r.Routine.Module)
			c.uint(&r.Routine.Off)
		}
		for v := range r.Values {
			if has&(2<<v) != 0 {
				c.int(&r.Values[v])
			}
		}
	})
	for v := range t.Total {
		c.int(&t.Total[v])
	}
	c.fields(&t.Doubt)
	for _, v := range t.Values {
		if v >= weigh.NumValues {
			c.p, c.err = nil, errStored
		}
	}
}

// Facts are what all tables but those with chains and the self-check are made of.
type Facts struct{ f *facts }

// Collect reads src's events, or what an earlier reading left in it.
func Collect(src trace.Source) (*Facts, error) {
	f, err := collect(src, false, false)
	if err != nil {
		return nil, err
	}
	return &Facts{f}, nil
}

// Write is [Write]; views that need more than Facts read the events.
func (x *Facts) Write(w io.Writer, view View, o Options) error {
	view, err := ParseView(string(view))
	if err != nil {
		return err
	}
	if chained(view, o) || view == ViewSelfCheck {
		return Write(w, x.f.src, view, o)
	}
	return x.f.write(w, view, o)
}

// Encode is for the recording: a source whose Summary returns it is not read again for tables.
func (x *Facts) Encode() []byte {
	c := &coding{}
	x.f.code(c)
	return c.p
}

// stored takes the facts that src holds; false where it holds none that can be used.
func (f *facts) stored() bool {
	s, ok := f.src.(summarised)
	if !ok {
		return false
	}
	p := s.Summary()
	if p == nil {
		return false
	}
	got := newFacts(f.src)
	c := &coding{p: p, reading: true}
	if got.code(c); c.err != nil {
		return false
	}
	*f = *got
	return true
}
