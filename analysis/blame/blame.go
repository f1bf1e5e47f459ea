// Package blame answers for every wait of a recording: who kept it waiting, what were they doing meanwhile, and,
// where they were waiting themselves, for whom. A waits for B, which waits for C in fsync: each nanosecond of A's wait
// is blamed on the end of its chain at that instant, C's fsync.
//
// # How
//
// A wait is split where the object changed hands (holds.go): who had it is known from the wait's own owner and
// releaser, from the other waits for the object, each of which ends in an acquisition, and from the recorded releases.
// For each piece the holder's own timeline is read (timeline.go): in a call, it is the end of the chain; on a CPU
// by its samples, likewise; waiting itself, the same question is put about that wait at that instant (walk.go). For
// what is signalled and not held (condition, semaphore, barrier, join, other futexes) the thread that let go in the
// end stands for the holder: the waiter could not go on until that thread came by.
//
// # What is not known stays unknown
//
//   - between a release and the end of the wait, the lock was nobody's: [Handover]
//   - a holder that was neither in a recorded interval nor sampled nearby was running, runnable, or in something too
//     short to be recorded: [Unseen]. Its place is where it released, where that is recorded. Where the kernel's own
//     account is in the recording it tells these apart: [Running], [Runnable], [OffCPU]
//   - where several threads may have held the object, nobody is blamed: [Nobody]
//
// Two threads that wait for each other are a [Deadlock] where neither wait ended, and a [Cycle] otherwise. An object
// that was waited for while another was held gives their order; [Inversion] lists orders that contradict each other.
//
// Time: a wait overlaps as many turns of its lock as there are threads that queue up for it. What that takes is bounded
// for each wait, and waits that take more are estimated (budget.go).
//
// Memory: up to Options.MaxIntervals and MaxSamples are kept at a time, some 100 and 32 bytes each. What comes later is counted, or,
// with Options.Whole, takes the place of what was followed (window.go).
package blame

import (
	"errors"
	"fmt"
	"math"

	"github.com/hbtrace/hbtrace/analysis/frames"
	"github.com/hbtrace/hbtrace/analysis/weigh"
	"github.com/hbtrace/hbtrace/trace"
)

// Options bound the work. Zero values take the defaults.
type Options struct {
	MaxIntervals int // waits, calls and releases kept; 1 Mi
	MaxSamples   int // 2 Mi
	MaxSteps     int // pieces of chains that are followed exactly, of each window; 4 Mi (budget.go)
	MaxLinks     int // distinct links of chains kept; 256 Ki
	// Whole looks at all of a recording, window after window, for the summary. [Result.Accounts] are not kept then.
	Whole bool // a window is half as large, since what is sorted is there twice
	// Spent, where it is set, gets every part of every wait as it is followed: what is summed up in [Result.Chains], for sums over
	// parts of a recording. The parts of one wait come one after the other, and not in the order of time. It must not keep what it gets.
	Spent func(*Spent)
}

// Spent is a part of a wait that was spent on one end.
type Spent struct {
	Wait     int64 // its number
	Edge     EdgeKey
	Taken    trace.Site // where the holder had taken what was waited for; zero not known
	Chain    int32      // [Chain.ID]
	From, To trace.Ns   // of waits that are estimated, the time that one instant stands for
}

// Export is what an export may spend next to its own work: a quarter of the memory, and half of the steps.
func Export() Options {
	return Options{MaxIntervals: 1 << 18, MaxSamples: 1 << 19, MaxSteps: 2 << 20, MaxLinks: 64 << 10}
}

func (o *Options) fill() {
	half := 0
	if o.Whole {
		half = 1
	}
	for _, x := range []struct {
		v *int
		d int
	}{{&o.MaxIntervals, 1 << 20 >> half}, {&o.MaxSamples, 2 << 20 >> half}, {&o.MaxSteps, 4 << 20}, {&o.MaxLinks, 256 << 10}} {
		if *x.v <= 0 {
			*x.v = x.d
		}
	}
}

// Object is something waited for. Addresses mean what they mean in one process only.
type Object struct {
	Proc trace.ProcID
	Addr uint64
}

// Act is what somebody did while others waited for it.
type Act uint8

// Acts. Waiting is a link of a chain; all others are ends.
const (
	Waiting    Act = iota + 1 // for another object
	Running                   // on a CPU, by samples nearby
	Calling                   // in a blocking call
	Runnable                  // ready to run without a CPU, as the kernel saw it
	OffCPU                    // blocked outside any recorded call, as the kernel saw it
	Unseen                    // in no recorded interval, and not sampled nearby
	Handover                  // released already: the waiter was on its way
	TimedOut                  // nobody was to come: the wait ended by its time-out
	Nobody                    // who held it, or who would have come, is not known
	Cycle                     // waiting for somebody who waited for the first
	Unfollowed                // deeper or more than is followed
)

var actNames = [...]string{
	"", "waiting", "running", "call", "runnable", "off-cpu", "unseen", "hand-over", "timed-out", "unknown", "cycle", "not-followed",
}

// String is the act's name as in JSON.
func (a Act) String() string {
	if int(a) < len(actNames) {
		return actNames[a]
	}
	return fmt.Sprintf("act(%d)", uint8(a))
}

// EdgeKey is what makes waits one edge.
type EdgeKey struct {
	Hook     trace.HookID
	Object   uint64
	Waiter   trace.ThreadID
	Owner    trace.ThreadID
	Releaser trace.ThreadID
	Stack    trace.StackID // where the waiter waited
	Release  trace.Site    // where the releaser let go; zero where no recorded release matches
}

// Edge is what the holders did during all waits of one [EdgeKey].
type Edge struct {
	Lock     bool // the object is a lock: somebody held it
	Count    uint64
	Total    int64      // ns
	Taken    trace.Site // where the holder had taken the object; zero unknown
	TakenNs  int64      // ns of the waits that Taken is known for; the heaviest place counts
	Doing    []Doing
	taken    map[trace.Site]int64
	doing    map[doingKey]int64
	wakers   map[trace.ThreadID]int // indices into Wakers
	HolderNs int64                  // ns during which the holder is known
	// Wakers are third threads that the kernel saw waking the waiter from its last sleep, neither its owner nor its releaser: those
	// from whom another took the lock before it. Most first. Known only where the kernel's account was recorded.
	Wakers []Waker
}

// Waker is a thread that woke Count waits of an edge.
type Waker struct {
	Thread trace.ThreadID
	Count  uint64
}

// Doing is one thing that a holder did, Ns long.
type Doing struct {
	Act    Act
	At     trace.Site // an example
	Func   string
	Object Object // Waiting: for what
	Ns     int64
}

type doingKey struct {
	act    Act
	place  placeID
	object Object
}

// Link is one step of a chain: a thread, and what it waited for.
type Link struct {
	Thread trace.ThreadID // an example: chains are told apart by threads' names
	At     trace.Site     // where it waited
	Func   string         // the function of At to name
	Kind   string         // of object
	Object Object
}

// Chain is all time that waits spent because of one end.
type Chain struct {
	id    int32
	Links []Link // the first is the wait itself
	End   Act
	By    trace.ThreadID // who was the end; 0 nobody
	At    trace.Site     // where; zero unknown
	Func  string
	Lock  bool   // the first wait was for a lock
	Count uint64 // waits that it was part of
	Total int64  // ns
	Max   int64  // ns of the wait that it was the largest part of
}

// ID is what [Spent.Chain] names it by: 0 in results that were stored.
func (c *Chain) ID() int32 { return c.id }

// Held is a thread that takes part in a deadlock: it waits for Object, which the next one holds.
type Held struct {
	Thread trace.ThreadID
	At     trace.Site
	Kind   string
	Object Object
	Since  trace.Ns
}

// Deadlock is a cycle of waits none of which had ended when the recording did, or its process.
type Deadlock struct {
	Threads []Held // each waits for what the next one holds; the last for what the first holds
	Since   trace.Ns
	Until   trace.Ns
}

// Ordered is one order in which two locks were taken: Inner was waited for while Outer was held.
type Ordered struct {
	Outer, Inner Object
	Thread       trace.ThreadID // an example
	At           trace.Site     // where Inner was waited for
	Count        uint64
}

// Inversion is a cycle of such orders: each one's Inner is the next one's Outer. Threads that do this at the wrong
// moment deadlock.
type Inversion struct{ Orders []Ordered }

// Result is all that is found. Lists come heaviest first.
type Result struct {
	Chains     []Chain
	Edges      map[EdgeKey]*Edge
	Deadlocks  []Deadlock
	Inversions []Inversion
	names      map[Object]string
	ends       Accounts

	// What was left out, because there was too much of it.
	IntervalsLeft, SamplesLeft, LinksLeft uint64
	// Waits that were followed at some of their instants only, because they would have taken too many steps: budget.go.
	WaitsEstimated uint64
	// Waits that began before what was still in memory when they were followed.
	WaitsFaded uint64
}

type waitID struct {
	thread trace.ThreadID
	end    trace.Ns
}

type end struct {
	taken trace.Site
	waker trace.ThreadID
	act   Act
	by    trace.ThreadID
	name  string
	ns    int64
}

// Analyser takes a recording's events; then Finish answers. It is not safe for concurrent use.
type Analyser struct {
	o       Options
	src     trace.Source
	tab     *frames.Table
	locking *weigh.Locking
	res     *Result
	line    timeline
	holds   map[Object]*holds
	names   map[trace.ThreadID]string
	procOf  map[trace.ThreadID]trace.ProcID
	places  places
	used    map[Object]*uses
	walk    *walker
	gone    map[goneKey]trace.Ns
	stuck   bool
}

// New makes an Analyser of src, whose frames tab names.
func New(src trace.Source, tab *frames.Table, o Options) *Analyser {
	o.fill()
	a := &Analyser{
		o: o, src: src, tab: tab, locking: weigh.NewLocking(src.Meta(), tab),
		res:   &Result{Edges: map[EdgeKey]*Edge{}, names: map[Object]string{}, ends: Accounts{}},
		gone:  map[goneKey]trace.Ns{},
		holds: map[Object]*holds{}, names: map[trace.ThreadID]string{}, procOf: map[trace.ThreadID]trace.ProcID{}, used: map[Object]*uses{},
	}
	a.places.init(src.Meta(), tab)
	a.walk = newWalker(a)
	threads := src.Threads()
	for i := range threads {
		a.names[threads[i].ID] = threads[i].Name
		a.procOf[threads[i].ID] = threads[i].Proc
	}
	return a
}

// Analyse is New, Add for the events that matter, and Finish. When there is room for no more intervals, what happens later
// is of no use to those that there are, but for releases by threads that held a lock then: reading ends releasesMatter
// behind the last one, so that counts of what was left out are those of what was read.
func Analyse(src trace.Source, tab *frames.Table, o Options) (*Result, error) {
	a := New(src, tab, o)
	full, last := errors.New("full"), trace.Ns(0)
	err := trace.Events(src, func(e *trace.Event) error {
		a.Add(e)
		switch {
		case a.o.Whole, len(a.line.intervals) < a.o.MaxIntervals:
			last = max(last, e.Time)
		case e.Time > last+releasesMatter:
			return full
		}
		return nil
	})
	if err != nil && err != full {
		return nil, fmt.Errorf("reading the recording's events: %w", err)
	}
	return a.Finish(), nil
}

// releasesMatter is longer than locks are held.
const releasesMatter = trace.Ns(10e9)

// Finish looks at every wait.
func (a *Analyser) Finish() *Result {
	a.look(math.MaxInt64)
	a.nameObjects()
	a.walk.finish()
	a.deadlocks()
	a.res.Inversions = a.walk.orders.inversions()
	return a.res
}

// Account is what became of one wait.
type Account struct {
	What  string         // what most of it was spent on in the end, as a line of text; "" not known
	By    trace.ThreadID // who did that; 0 nobody
	Taken trace.Site     // where the holder had taken what was waited for; zero not known
	Waker trace.ThreadID // the third thread that the kernel saw waking it: see [Edge]; 0 none, or not known
}

// Accounts are those of single waits. They are little of what there is in a [Result], and stay when that is let go.
type Accounts map[waitID]end

// Accounts are what became of single waits; none with Options.Whole.
func (r *Result) Accounts() Accounts { return r.ends }

// Of is the account of a wait of a thread that ended at a time.
func (a Accounts) Of(thread trace.ThreadID, at trace.Ns) Account {
	e := a[waitID{thread, at}]
	return Account{e.name, e.by, e.taken, e.waker}
}

// Name is what an object is called: its variable, or where it is mostly used. The same lock has the same name
// in every recording of a program, as far as that can be.
func (r *Result) Name(o Object) string { return r.names[o] }

// ObjectName is the object's name: the variable's, or what it was found to be used for, or its address. It is the same for
// the same lock in every recording, as far as that is possible.
func (r *Result) ObjectName(tab *frames.Table, o Object) string {
	if n := r.names[o]; n != "" {
		return n
	}
	return tab.Object(o.Addr)
}
