// Package weigh turns a recording into weighted stacks: one row per distinct stack and grouping key, with the CPU
// time, blocked time, contention and allocations that fell on it. pprof, folded stacks and reports are written from
// its [Table].
//
// What counts as what:
//   - CPU time is that of periodic samples alone, plus what each thread used after its last one (kind "tail").
//     Samples taken at hooks or to fill gaps say where a hook or a gap was, not where time went: they weigh nothing.
//   - Blocked time is that of recorded waits and calls; those under the recording's thresholds are not in it.
//   - A contention is a wait for a mutex or rwlock, or for a futex that is one by the functions that wait for it, as
//     Rust's are ([Locking]). Waiting on a condition, a semaphore, a barrier or another futex is blocked time and no
//     contention: nobody need hold anything.
//   - A sampled allocation stands for Weight bytes and Weight/Size objects.
//
// Memory is bounded by the distinct rows and the sampled allocations that are live at one moment.
package weigh

import (
	"errors"
	"math"
	"slices"

	"github.com/hbtrace/hbtrace/analysis/feed"
	"github.com/hbtrace/hbtrace/analysis/frames"
	"github.com/hbtrace/hbtrace/trace"
)

// By says what rows are kept apart by, next to the stack. Combine with |.
type By uint8

// Grouping keys.
const (
	ByThread  By = 1 << iota
	ByProcess    // implied by ByThread
	ByObject     // the object waited for; waits only
	ByKind
)

// Kind says what a row's weight comes from.
type Kind string

// Kinds of weight.
const (
	KindCPU   Kind = "cpu"
	KindTail  Kind = "tail" // CPU time after a thread's last sample: placed at its start routine or last known stack
	KindWait  Kind = "wait"
	KindCall  Kind = "call"
	KindAlloc Kind = "alloc"
)

// Options selects and groups. The zero value takes every column and keeps nothing apart but stacks.
type Options struct {
	Values []Value // columns wanted; nil: all that were recorded. Rows without any of them are left out.
	By     By
	// MaxRows > 0 bounds memory, a row is some 250 bytes: where there would be more, rows are kept apart by what comes next
	// in Fewer instead. The last of these is kept to whatever comes; with none at all, Collect gives up with ErrTooManyRows.
	MaxRows int
	Fewer   []By // each a part of the one before
}

// ErrTooManyRows says that Options.MaxRows was not enough: ask for fewer grouping keys.
var ErrTooManyRows = errors.New("too many distinct stacks and labels")

// Key is what a row stands for; fields that Options.By does not name are zero.
type Key struct {
	Stack   trace.StackID
	Hook    trace.HookID // called by the leaf; 0: none, or the leaf already is that function
	Routine trace.Addr   // with Stack 0: the thread's start routine, when no stack of it is known
	Proc    trace.ProcID
	Thread  trace.ThreadID
	Object  uint64
	Kind    Kind
}

// Row is one weighted stack.
type Row struct {
	Key
	Values [NumValues]int64
}

// Table is the result. Rows come in the order in which their first event was stored, so equal recordings give
// equal tables.
type Table struct {
	Values []Value // columns recorded and wanted
	By     By      // what rows are kept apart by: Options.By, or one of Options.Fewer
	Rows   []Row
	Total  [NumValues]int64
	Doubt  Doubt
	Frames *frames.Table
}

// Doubt is how much to trust the table.
type Doubt struct {
	Stacks       uint64 // events that carry weight
	NoStack      uint64 // of them, without a stack
	Cut          uint64 // callers missing at the root end
	Guessed      uint64 // at least one frame guessed
	Omitted      uint64 // frames missing in the middle
	Unsymbolised uint64 // leaf has no function name
	Lost         uint64 // records lost, as the stream says
	TailCPU      int64  // ns of CPU time that no sample stands for
	LateCPU      int64  // ns of CPU time of samples that were taken at a call, for the work before it, and are booked there
	SharedCPU    int64  // ns of CPU time noticed so late and shared out over samples of runs of the same origin
	ThreadCPU    int64  // ns of CPU time the threads used; -1 where not known of all
	FreesUnmet   uint64 // frees of allocations that the stream does not have
}

// objects are a row's allocations, exact; rounded into its values at the end.
type objects struct{ all, inUse float64 }

// Collector makes a [Table] of events that are added one by one.
type Collector struct {
	src    trace.Source
	o      Options
	t      *Table
	rows   []Row
	objs   []objects // by row, as far as rows with allocations reach
	places placeIndex
	index  map[Key]int32 // rows of a start routine or without a stack
	object numbering     // of objects that rows are kept apart by
	thr    trace.PerThread[thread]
	tails  *Tails
	lock   *Locking
	live   heap
	runs   runs
	read   int32 // what ahead read, so that it is not left out
	ended  bool  // the table is made
	want   [NumValues]bool
}

// thread is what is known of one thread.
type thread struct {
	proc  trace.ProcID
	start trace.Addr // zero: unknown
	last  trace.StackID
}

// Collect reads src's events once. Errors are those of src, and [ErrTooManyRows].
func Collect(src trace.Source, o Options) (*Table, error) {
	c := NewCollector(src, o)
	if err := feed.Batches(src, c.AddBatch); err != nil {
		return nil, err
	}
	return c.Table(), nil
}

// NewCollector makes a Collector of src's events, which the caller adds, all and in order.
func NewCollector(src trace.Source, o Options) *Collector {
	c := &Collector{
		src: src, o: o, t: &Table{Frames: frames.New(src)},
		index: map[Key]int32{}, live: newHeap(),
	}
	for v := range NumValues {
		c.want[v] = o.Values == nil
	}
	for _, v := range o.Values {
		if v < NumValues {
			c.want[v] = true
		}
	}
	c.lock = NewLocking(src.Meta(), c.t.Frames)
	threads := src.Threads()
	for i := range threads {
		th := &threads[i]
		t := c.thread(th.ID)
		t.proc, t.start = th.Proc, th.StartRoutine
		if th.CPU < 0 || c.t.Doubt.ThreadCPU < 0 {
			c.t.Doubt.ThreadCPU = -1
		} else {
			c.t.Doubt.ThreadCPU += th.CPU
		}
	}
	c.tails = NewTails(src)
	return c
}

// thread finds a thread's state; events may name threads that the recording does not list.
func (c *Collector) thread(id trace.ThreadID) *thread {
	t := c.thr.Get(id)
	if t == nil {
		t = new(thread)
		c.thr.Put(id, t)
	}
	return t
}

// Table ends the collection. Called again, it returns the same table.
func (c *Collector) Table() *Table {
	if !c.ended {
		c.finish()
	}
	return c.t
}

// AddBatch is Add for a recording's next events. Tables of a large recording lie in no cache; what each event needs of them
// is requested beforehand, all at the same time, instead of one after the other.
func (c *Collector) AddBatch(events []trace.Event) error {
	for len(events) > maxAhead {
		if err := c.AddBatch(events[:maxAhead]); err != nil {
			return err
		}
		events = events[maxAhead:]
	}
	c.ahead(events)
	for i := range events {
		if err := c.Add(&events[i]); err != nil {
			return err
		}
	}
	return nil
}

// Add takes the recording's next event. It keeps no reference to it. The error is [ErrTooManyRows].
func (c *Collector) Add(e *trace.Event) error {
	if e.Kind.Beside() {
		return nil // next to the thread's own account: its waits and calls are what weighs
	}
	t := c.thread(e.Thread)
	if e.Stack != 0 && c.t.Frames.Valid(e.Stack) {
		t.last = e.Stack
	}
	switch e.Kind {
	case trace.KindCPU:
		row, s := c.row(e, t, kindCPU, e.Hook)
		s.samples += int64(max(e.Count, 1))
		s.cpu += max(e.CPU, 0)
		c.runs.sample(c, e, t.proc, row)
	case trace.KindThreadExit:
		if e.CPU > 0 {
			c.t.Doubt.TailCPU += e.CPU
			c.rows[c.tail(e, t)].Values[CPU] += e.CPU
		}
		t.last = 0
	case trace.KindWait:
		row, _ := c.row(e, t, kindWait, e.Hook)
		r := &c.rows[row]
		d := max(int64(e.Time-e.Start), 0)
		r.Values[Blocked] += d
		if c.lock.Wait(e.Hook, e.Stack) {
			r.Values[Contentions] += int64(max(e.Count, 1))
			r.Values[Delay] += d
		}
	case trace.KindCall:
		_, s := c.row(e, t, kindCall, e.Hook)
		s.blocked += max(int64(e.Time-e.Start), 0)
	case trace.KindAlloc:
		n, _ := c.row(e, t, kindAlloc, e.Hook)
		a := alloc{e.Time, n, float64(e.Weight) / float64(max(e.Size, 1)), int64(min(e.Weight, math.MaxInt64))}
		if n := int(a.row) + 1 - len(c.objs); n > 0 {
			c.objs = append(c.objs, make([]objects, n)...)
		}
		c.objs[a.row].all += a.objects
		c.rows[n].Values[AllocSpace] += a.bytes
		if gone, inUse := c.live.alloc(t.proc, e.Object, a); inUse {
			c.inUse(&a, 1)
			if gone.row >= 0 {
				c.inUse(&gone, -1)
			}
		}
	case trace.KindFree:
		if a, ok := c.live.free(t.proc, e.Object, e.Time); ok {
			c.inUse(&a, -1)
		}
	case trace.KindLost:
		c.t.Doubt.Lost += uint64(e.Count)
	}
	for c.o.MaxRows > 0 && len(c.rows) > c.o.MaxRows {
		if len(c.o.Fewer) == 0 {
			return ErrTooManyRows
		}
		c.fold()
	}
	return nil
}

// inUse adds an allocation to its row's memory in use, or takes it away (sign -1).
func (c *Collector) inUse(a *alloc, sign int64) {
	c.objs[a.row].inUse += float64(sign) * a.objects
	c.rows[a.row].Values[InuseSpace] += sign * a.bytes
}

// Kinds as places number them.
const (
	kindCPU = iota
	kindTail
	kindWait
	kindCall
	kindAlloc
)

var kinds = [...]Kind{KindCPU, KindTail, KindWait, KindCall, KindAlloc}

// row finds or makes e's row and counts its doubts. The slot is valid until the next one is looked for.
func (c *Collector) row(e *trace.Event, t *thread, kind uint8, hook trace.HookID) (int32, *slot) {
	d, n := &c.t.Doubt, uint64(max(e.Count, 1))
	d.Stacks += n
	if e.Flags&(trace.FlagStackCut|trace.FlagStackGuessed|trace.FlagStackOmitted) != 0 {
		if e.Flags&trace.FlagStackCut != 0 {
			d.Cut += n
		}
		if e.Flags&trace.FlagStackGuessed != 0 {
			d.Guessed += n
		}
		if e.Flags&trace.FlagStackOmitted != 0 {
			d.Omitted += n
		}
	}
	stack := e.Stack
	if !c.t.Frames.Valid(stack) {
		stack = 0
	}
	var object uint64
	if kind == kindWait && c.o.By&ByObject != 0 {
		object = e.Object
	}
	p := c.place(stack, hook, e.Thread, t, kind, object)
	s := c.places.find(p)
	if s.row == 0 {
		k := Key{Object: object}
		var doubt doubtBits
		k.Stack, k.Hook, doubt = c.judge(stack, hook)
		row := c.at(k, e.Thread, t, kind)
		if s = c.places.find(p); s.row == 0 { // at may have moved it, or filled it
			c.places.set(s, p, row, doubt)
		}
	}
	if s.doubt&doubtNoStack != 0 {
		d.NoStack += n
	}
	if s.doubt&doubtUnsymbolised != 0 {
		d.Unsymbolised += n
	}
	return s.row - 1, s
}

// judge says what a stack is, and whether the hook is a frame of its own on top of it.
func (c *Collector) judge(stack trace.StackID, hook trace.HookID) (trace.StackID, trace.HookID, doubtBits) {
	if !c.t.Frames.Valid(stack) {
		if frames.Begins(c.src.Meta(), hook) {
			return 0, hook, 0
		}
		return 0, hook, doubtNoStack
	}
	var doubt doubtBits
	at := c.t.Frames.Of(stack)
	leaf := c.t.Frames.Frame(at[len(at)-1].ID)
	if !leaf.Symbolised {
		doubt = doubtUnsymbolised
	}
	if hook != 0 {
		if name := c.src.Meta().Hooks[hook].Name; name != "" && (leaf.Name == name || leaf.Linkage == name) {
			hook = 0
		}
	}
	return stack, hook, doubt
}

// place is an event's place, by what rows are kept apart by.
func (c *Collector) place(stack trace.StackID, hook trace.HookID, id trace.ThreadID, t *thread, kind uint8, object uint64) place {
	var group uint32
	switch {
	case c.o.By&ByThread != 0:
		group = uint32(id)
	case c.o.By&ByProcess != 0:
		group = uint32(t.proc)
	}
	if c.o.By&ByKind == 0 && (kind != kindWait || c.o.By&ByObject == 0) {
		kind = kindCPU
	}
	p := placeOf(stack, hook, kind, group)
	if object != 0 {
		p.b |= uint64(c.object.of(object)) << 32
	}
	return p
}

// tail finds or makes the row for CPU time that a thread used after its last sample. Where no stack of the thread is
// known, it is that of the start routine's address.
func (c *Collector) tail(e *trace.Event, t *thread) int32 {
	k := Key{Stack: c.tails.Stack(c.t.Frames, e, t.start, t.last)}
	if k.Stack == 0 {
		k.Routine = t.start
	}
	return c.at(k, e.Thread, t, kindTail)
}

// at finds or makes the row of a key, of which it fills in what rows are kept apart by.
func (c *Collector) at(k Key, id trace.ThreadID, t *thread, kind uint8) int32 {
	if c.o.By&ByThread != 0 {
		k.Thread = id
	}
	if c.o.By&(ByThread|ByProcess) != 0 {
		k.Proc = t.proc
	}
	if c.o.By&ByKind != 0 {
		k.Kind = kinds[kind]
	}
	if k.Routine != (trace.Addr{}) || k.Stack == 0 {
		i, ok := c.index[k]
		if !ok {
			i = c.add(k)
			c.index[k] = i
		}
		return i
	}
	p := c.place(k.Stack, k.Hook, id, t, kind, k.Object)
	s := c.places.find(p)
	if s.row == 0 {
		_, _, doubt := c.judge(k.Stack, k.Hook)
		c.places.set(s, p, c.add(k), doubt)
	}
	return s.row - 1
}

func (c *Collector) add(k Key) int32 {
	c.rows = append(c.rows, Row{Key: k})
	return int32(len(c.rows) - 1)
}

// empty adds what slots hold to their rows.
func (c *Collector) empty() {
	for i := range c.places.slots {
		if s := &c.places.slots[i]; s.row != 0 {
			v := &c.rows[s.row-1].Values
			v[Samples] += s.samples
			v[CPU] += s.cpu
			v[Blocked] += s.blocked
			s.samples, s.cpu, s.blocked = 0, 0, 0
		}
	}
}

func (c *Collector) finish() {
	c.ended = true
	c.t.By, c.t.Doubt.FreesUnmet = c.o.By, c.live.unmet()
	c.empty()
	c.runs.share(c)
	for i := range c.rows {
		r := &c.rows[i]
		r.Values[Wall] = r.Values[CPU] + r.Values[Blocked]
		if i < len(c.objs) {
			r.Values[AllocObjects] = int64(math.Round(c.objs[i].all))
			r.Values[InuseObjects] = int64(math.Round(c.objs[i].inUse))
		}
		for v, x := range r.Values {
			c.t.Total[v] += x
		}
	}
	for _, v := range recorded(c.src.Meta(), &c.t.Total) {
		if c.want[v] {
			c.t.Values = append(c.t.Values, v)
		}
	}
	c.t.Rows = slices.DeleteFunc(c.rows, func(r Row) bool {
		return !slices.ContainsFunc(c.t.Values, func(v Value) bool { return r.Values[v] != 0 })
	})
	c.rows, c.objs, c.index, c.places, c.runs = nil, nil, nil, placeIndex{}, runs{}
}

// Frame is one function of a row's stack as text.
type Frame struct {
	Name       string
	Symbolised bool
}

// Stack appends the functions of a row's stack to dst, root first, the hooked function at the leaf included. A row
// with no stack gets one frame that says so: there is always at least one.
func (t *Table) Stack(src trace.Source, dst []Frame, k *Key) []Frame {
	n := len(dst)
	for _, id := range t.Frames.Path(nil, k.Stack) {
		for _, at := range t.Frames.Of(id) {
			f := t.Frames.Frame(at.ID)
			dst = append(dst, Frame{f.Name, f.Symbolised})
		}
	}
	if len(dst) == n && k.Routine != (trace.Addr{}) {
		dst = append(dst, Frame{Name: t.Frames.Address(k.Routine.Module, k.Routine.Off)})
	}
	if len(dst) == n && !frames.Begins(src.Meta(), k.Hook) {
		dst = append(dst, Frame{Name: NoStack})
	}
	if k.Hook != 0 {
		dst = append(dst, Frame{frames.HookName(src.Meta(), k.Hook), true})
	}
	return dst
}

// NoStack stands where no stack was taken.
const NoStack = frames.NoStack
