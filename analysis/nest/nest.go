// Package nest gives the events of each thread in the order in which they began. A recording stores an interval when it
// has ended, behind what happened inside it: the CPU sample that was taken when a long call returned, what a signal
// handler did. Consumers of a Nest see the interval first, then what lies inside it, then its end; nothing that lies
// inside shortens it.
//
// A Nest holds back the latest events of each thread, because an interval that contains them may still come. What is
// held is bounded: an interval that contains more than that begins where the events that were given away end, and is
// marked as clipped.
package nest

import (
	"slices"

	"github.com/hbtrace/hbtrace/trace"
)

// Step is one event of a thread, or the beginning or end of an interval.
type Step struct {
	Phase      Phase
	Tag        uint64        // what was given to Add with the event
	Event      *trace.Event  // as stored, but for Same and FlagSameCall: they compare with the stack of the step before
	Start, End trace.Ns      // Event.Start and Event.Time in an order that contradicts no other step of the thread
	Clipped    bool          // Start and End are not those of the event, which overlaps what happened before it
	Own        bool          // inside an interval that its stack does not show: a signal handler on a stack of its own
	Last       trace.StackID // of a KindThreadExit: the valid stack that was stored last of the thread; 0 none
}

// Phase tells the beginning of an interval from its end.
type Phase uint8

// Phases.
const (
	At    Phase = iota // everything but an interval
	Enter              // an interval begins
	Leave              // it ends: everything since its Enter lies inside it
)

// Stacks is what a Nest asks about stacks; frames.Table has it.
type Stacks interface {
	Valid(trace.StackID) bool
	Parent(trace.StackID) trace.StackID
	Depth(trace.StackID) int
}

// Limits of what is held.
const (
	mostHeld   = 256     // events of one thread
	leastHeld  = 16      // events of each thread when there are many threads
	budgetHeld = 1 << 17 // events of all threads
)

// Nest orders the events of one recording. It is not safe for concurrent use.
type Nest struct {
	stacks Stacks
	to     []func(*Step) error
	held   trace.PerThread[queue]
	free   []*queue
	one    Step // of an event that is not held
}

// New makes a Nest that gives each step to functions, in turn. A Step and its Event are valid during that call only.
func New(stacks Stacks, to ...func(*Step) error) *Nest {
	return &Nest{stacks: stacks, to: to}
}

// queue holds the latest events of a thread, in the order of their steps.
type queue struct {
	id    trace.ThreadID
	list  []entry
	head  int           // what was given away of list
	last  trace.StackID // that was stored last
	given trace.Ns      // end of what was given away
	end   trace.Ns      // end of everything
}

type entry struct {
	e          trace.Event
	tag        uint64
	start, end trace.Ns
	inside     int // entries behind it that lie inside it
	clipped    bool
	own        bool // as Step.Own
}

func (x *entry) interval() bool { return x.e.Kind == trace.KindWait || x.e.Kind == trace.KindCall }

// Add takes the next stored event, and a number that its steps carry. It keeps no reference to the event.
func (n *Nest) Add(e *trace.Event, tag uint64) error {
	if e.Kind.Beside() { // out of the order of the thread's own events, and not held
		n.one = Step{Event: e, Tag: tag, Start: min(e.Start, e.Time), End: e.Time}
		return n.step(&n.one)
	}
	q := n.queue(e.Thread)
	if e.Stack != 0 && n.stacks.Valid(e.Stack) {
		q.last = e.Stack
	}
	switch e.Kind {
	case trace.KindThreadStart, trace.KindThreadExit, trace.KindLost:
		if err := n.give(q, 0); err != nil {
			return err
		}
		q.given = max(q.given, q.end)
		if e.Kind == trace.KindThreadExit {
			n.forget(q)
		}
		n.one = Step{Event: e, Tag: tag, Start: e.Time, End: e.Time, Last: q.last}
		return n.step(&n.one)
	}
	x := q.push()
	x.e, x.tag, x.start, x.end = *e, tag, e.Start, e.Time
	x.inside, x.clipped, x.own = 0, false, false
	if x.start == 0 || x.start > x.end {
		x.start = x.end
	}
	switch {
	case x.start >= q.end:
		q.end = x.end
	case x.interval():
		y := *x
		q.list = q.list[:len(q.list)-1]
		n.insert(q, &y)
		q.end = max(q.end, y.end)
	default:
		x.clipped = x.end < q.end
		x.start, x.end = q.end, max(x.end, q.end)
		q.end = x.end
	}
	if most := n.most(); len(q.list)-q.head > most {
		return n.give(q, most/2)
	}
	return nil
}

// push makes an entry behind the others, to be filled.
func (q *queue) push() *entry {
	if len(q.list) == cap(q.list) && q.head > 0 {
		q.list = q.list[:copy(q.list, q.list[q.head:])]
		q.head = 0
	}
	if len(q.list) < cap(q.list) {
		q.list = q.list[:len(q.list)+1]
	} else {
		q.list = append(q.list, entry{})
	}
	return &q.list[len(q.list)-1]
}

func (n *Nest) step(s *Step) error {
	for _, to := range n.to {
		if err := to(s); err != nil {
			return err
		}
	}
	return nil
}

// Close gives away what is held.
func (n *Nest) Close() error {
	for _, q := range n.held.All() {
		if err := n.give(q, 0); err != nil {
			return err
		}
		n.forget(q)
	}
	return nil
}

// most is how many events of a thread are held.
func (n *Nest) most() int { return min(max(budgetHeld/n.held.Len(), leastHeld), mostHeld) }

func (n *Nest) queue(id trace.ThreadID) *queue {
	q := n.held.Get(id)
	if q == nil {
		if last := len(n.free) - 1; last >= 0 {
			q, n.free = n.free[last], n.free[:last]
			*q = queue{list: q.list[:0]}
		} else {
			q = &queue{}
		}
		q.id = id
		n.held.Put(id, q)
	}
	return q
}

// mostFree bounds the queues that are kept for threads to come.
const mostFree = 64

func (n *Nest) forget(q *queue) {
	n.held.Delete(q.id)
	if len(n.free) < mostFree {
		n.free = append(n.free, q)
	}
}

// insert puts an interval that began before the end of what is held in front of what lies inside it.
func (n *Nest) insert(q *queue, x *entry) {
	began := x.start
	x.start = max(x.start, q.given)
	at := q.head
	for at < len(q.list) {
		y := &q.list[at]
		if y.start > x.start || y.start == x.start && y.interval() {
			break
		}
		if y.end > x.start {
			if y.interval() { // neither lies in the other: each happened when the other had not ended
				x.start = y.end
			} else { // a run of samples that goes on inside
				y.end = x.start
			}
		}
		at += 1 + y.inside
	}
	if x.end <= x.start { // nothing is left of it
		x.start, x.end, x.clipped = q.end, q.end, true
		q.list = append(q.list, *x)
		return
	}
	// A sample of the same stack base that does not show the call was taken before it, whatever the clock says.
	for at < len(q.list) && !q.list[at].interval() && q.list[at].start < x.end && n.before(&q.list[at], x) {
		q.list[at].start, q.list[at].end = x.start, x.start
		at++
	}
	next := at
	for next < len(q.list) && q.list[next].start < x.end { // what began when it had ended was only stored before it
		y := &q.list[next]
		y.own = n.known(&y.e) && !n.extends(y.e.Stack, n.stack(&x.e))
		next += 1 + y.inside
	}
	x.inside = next - at
	n.compare(x, q.list[at:])
	for i := at; i < next; i++ {
		q.list[i].end = min(q.list[i].end, x.end)
	}
	x.clipped = x.start != began
	q.list = slices.Insert(q.list, at, *x)
}

// compare corrects Same where an interval comes before events that were stored before it: what two of them share is
// what all steps between them shared.
func (n *Nest) compare(x *entry, behind []entry) {
	shared := x.e.Same // by the interval's stack and that of the first event behind
	var first *trace.Event
	for i := len(behind) - 1; i >= 0; i-- {
		y := &behind[i].e
		if !n.known(y) {
			continue
		}
		if first != nil {
			shared = min(shared, first.Same)
		}
		first = y
	}
	if first == nil {
		return
	}
	before := min(shared, first.Same)
	x.e.Flags &^= trace.FlagSameCall
	if first.Same < shared {
		x.e.Flags |= first.Flags & trace.FlagSameCall // its frame at that depth is the interval's, too
	}
	if first.Same <= shared {
		first.Flags &^= trace.FlagSameCall
	}
	x.e.Same, first.Same = before, shared
}

// before says that a sample was taken before an interval began: both have stacks with one base, and the sample's does
// not lead through the interval's call.
func (n *Nest) before(y, x *entry) bool {
	a, b := n.stack(&y.e), n.stack(&x.e)
	if a == 0 || b == 0 {
		return false
	}
	deep, depth := n.stacks.Depth(a), n.stacks.Depth(b)
	for ; deep > depth; deep-- {
		a = n.stacks.Parent(a)
	}
	if a == b {
		return false
	}
	for ; depth > deep; depth-- {
		b = n.stacks.Parent(b)
	}
	for a != b { // to where both come from, or past their roots
		a, b = n.stacks.Parent(a), n.stacks.Parent(b)
	}
	return a != 0
}

// extends says that stack leads through of, or is it.
func (n *Nest) extends(stack, of trace.StackID) bool {
	for more := n.stacks.Depth(stack) - n.stacks.Depth(of); more > 0; more-- {
		stack = n.stacks.Parent(stack)
	}
	return stack == of || of == 0
}

func (n *Nest) known(e *trace.Event) bool { return n.stack(e) != 0 }

func (n *Nest) stack(e *trace.Event) trace.StackID {
	if e.Flags&trace.FlagNoStack != 0 || !n.stacks.Valid(e.Stack) {
		return 0
	}
	return e.Stack
}

// give gives away the oldest, until no more than most are held.
func (n *Nest) give(q *queue, most int) error {
	from := q.head
	for q.head < len(q.list) && len(q.list)-q.head > most {
		q.given = max(q.given, q.list[q.head].end)
		q.head += 1 + q.list[q.head].inside
	}
	if err := n.steps(q.list[from:q.head]); err != nil {
		return err
	}
	if q.head == len(q.list) {
		q.list, q.head = q.list[:0], 0
	}
	return nil
}

// steps gives away a list of entries, each with what lies inside it.
func (n *Nest) steps(list []entry) error {
	var s Step
	for i := 0; i < len(list); {
		x := &list[i]
		s = Step{Event: &x.e, Tag: x.tag, Start: x.start, End: x.end, Clipped: x.clipped, Own: x.own}
		next := i + 1 + x.inside
		if x.interval() {
			s.Phase = Enter
		}
		if err := n.step(&s); err != nil {
			return err
		}
		if x.inside > 0 {
			if err := n.steps(list[i+1 : next]); err != nil {
				return err
			}
		}
		if x.interval() {
			s.Phase = Leave
			if err := n.step(&s); err != nil {
				return err
			}
		}
		i = next
	}
	return nil
}
