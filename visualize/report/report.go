// Package report is what a person reads on the terminal: the summary at the end of a run, and tables of one
// aspect each, which are also written as JSON for programs. Every number says what it is of, every output what
// was lost or is in doubt.
//
// CPU time is that of periodic samples and of what threads used after their last one; blocked time is that of
// recorded waits and calls, those below the recording's thresholds not included. A stack is shown by one
// function, the innermost that is not of a run-time library (libc, std::); JSON has the whole of it.
//
// # JSON
//
// With Options.JSON every view is one object. Times are in ns, names ending in _ns; sizes in bytes, names ending
// in _bytes; stacks are leaf first, and the leaf is the hooked function where one was called. Lists come heaviest
// first. Fields are only ever added. All views have
//
//	{"view":"cpu","command":["./app"],"duration_ns":1,"started":"RFC 3339","exit_status":0,"exit_signal":0,
//	 "cpu":{"used_ns":1,"accounted_ns":1,"unsampled_ns":1},
//	 "doubt":{"samples":1,"stacks":1,"no_stack":0,"cut":0,"guessed":0,"omitted":0,"unsymbolised":0,
//	          "lost":0,"overwritten":0,"broken":0,"gaps":0,"threads_unrecorded":0,"processes_unrecorded":0,
//	          "processes_refused":0,"signals_sent":0,"signals_failed":0,"ticks":0,"ticks_missed":0,
//	          "waits_folded":0,"exact_ns":0,"sampled_ns":0,"unknown_ns":0,"complete":true,"notes":["…"],
//	          "unrecorded_programs":[{"program","reason","processes","cpu_ns"}]},   below the command, as far as they were seen
//	 "cost":{"collector_ns":1,"sampler_ns":1,"agent_ns":1},
//	 …}
//
// and, by view:
//
//	cpu      "functions":[{"function","module","self_ns","cumulative_ns","symbolised","file","line"}]   line: that of most of its time
//	blocked  "places":[{"function","call","kind","total_ns","max_ns","count","open","stack","file","line",
//	         "ended_by":[{"thread":{…},"count","certain","total_ns"}]}]   one per stack; ended_by: calls that waited for what a
//	         thread of the recording wrote, by that thread; locks' are in edges
//	locks    "edges", "chains", "deadlocks", "inversions", as below
//	tree     "value":"cpu","unit":"nanoseconds","tree":{"function","total","self","file","line","children":[…]}   callers above callees
//	alloc    "sites":[{"function","objects","alloc_bytes","inuse_objects","inuse_bytes","stack","file","line"}]   one per stack
//	threads  "threads":[{"thread","pid","tid","name","cpu_ns","sampled_cpu_ns","ready_ns","lock_ns","wait_ns","call_ns",
//	         "states_ns":{"running":1,…},"unplaced_cpu_ns","samples","alloc_objects","alloc_bytes","lost","exact_ns","sampled_ns",
//	         "unknown_ns","parent":{…},"start_ns"}]   cpu_ns is -1 where unknown; states_ns is the time in each state, as the page,
//	         the Perfetto trace and the picture show it; unplaced_cpu_ns is CPU time for which the thread's time has no room;
//	         parent created it, null where that is not known; start_ns counts from the recording's start
//	storage  "storage":{"records","record_bytes","events","event_bytes","nodes","kinds":{"cpu":1,…},"samples",
//	         "sample_events","sample_bytes","nodes_cap","node_bytes","nodes_collected","history_bytes","history_ns"}
//	         bytes are those before compression; samples became sample_events by merging
//	self-check "self_check":{…}   what was recorded in the process against the kernel's account; fields as in selfcheck.go
//	summary  all of these but tree and self-check
//
// and --locks, where a thread is {"thread","pid","tid","name"}, or null where it is not known:
//
//	"edges":[{"kind":"mutex","object":"cache_lock","address":"0x55…","process":4100,"waiter":{…},"holder":{…},"releaser":{…},
//	          "certain":9,"expected":15.2,"count":18,"total_ns":1,"max_ns":1,"timed_out":0,"open":0,
//	          "waiter_stack":["leaf",…],"holder_stack":[…],"releaser_stack":[…],
//	          "holder_doing":[{"what":"fsync in flush","act":"call","ns":1}],"wakers":[{"thread":{…},"count":1}]}]
//	"chains":[{"total_ns":1,"max_ns":1,"count":1,"lock":true,
//	          "links":[{"thread":{…},"kind":"mutex","object":"cache_lock","address":"0x55…","function":"get","stack":[…]}],
//	          "end":{"act":"call","what":"fsync in flush","thread":{…},"stack":[…]}}]
//	"edges_by_function":[{"kind":"mutex","object":"cache_lock","function":"get","released_in":"put","count":18,"certain":9,"total_ns":1,
//	          "max_ns":1,"waiters":[{…}],"releasers":[{…}],"holder_doing":[…],"edges":2}]   edges of all threads added up
//	"chains_by_function":[{"total_ns":1,"max_ns":1,"count":1,"lock":true,"text":["worker-* (2) in get for mutex cache_lock",…]}]
//	"deadlocks":[{"since_ns":1,"lasted_ns":1,"threads":[{"thread":{…},"kind","object","address","function","stack","since_ns"}]}]
//	"inversions":[{"orders":[{"outer","outer_address","inner","inner_address","thread":{…},"count","function","stack"}]}]
//
// An edge is all waits of one thread at one place for one object that the same threads held and let go. object is a
// variable's name, or says where the object is mostly used; it is the same in other recordings of the program,
// address is not. holder had the object when the wait began, releaser let go of it last before the wait ended; of
// count waits, so many were certain to be ended by it, and so many are expected to have been, by how likely it is for each. holder_stack is where the holder took the object, where that is
// recorded. wakers are third threads that the kernel, where its account was recorded, saw
// waking the waiter: neither holder nor releaser, since another took the object in between. holder_doing is what the holders did during the waits; its ns may sum up to less than total_ns only where
// waits were left out, which doubt counts. The first link of a chain is the wait itself, each next one what the thread
// that it waited for waited for in turn; act is one of running, call, runnable, off-cpu, unseen (in no recorded
// interval and not sampled nearby), hand-over (released already), timed-out, unknown, cycle, not-followed. Over all
// chains total_ns sums up to the time of all waits. A deadlock's since_ns counts from the recording's start.
package report

import (
	"bytes"
	"fmt"
	"io"
	"strings"

	"github.com/hbtrace/hbtrace/trace"
)

// Options say how to write. The zero value is a table of 80 columns.
type Options struct {
	Width int  // columns of the terminal; 0: 80. Less than 60 is taken as 60
	Color bool // emphasise with SGR sequences
	JSON  bool
	Top   int      // rows of a table; 0: 20 in a table, all in JSON
	Files []string // summary: files that were written
	// Recording is the file as a shell takes it: the summary ends with the command to type next, chosen by what was found. "": no such line.
	Recording string
	Next      string // the command of that line, where the caller knows a better one
	Sort      Sort   // of the CPU view
	Stacks    bool   // a whole stack below each row
	Verbose   bool   // all statistics of the recording, not only the first line and what was lost
	Value     string // of the tree: a name of package weigh; "": cpu
}

// Sort orders the CPU view.
type Sort uint8

// Orders of the CPU view.
const (
	SortSelf       Sort = iota // by what fell on a function itself
	SortCumulative             // with what it called
)

// View is what a report shows.
type View string

// The views.
const (
	ViewSummary View = "summary"
	ViewCPU     View = "cpu"
	ViewBlocked View = "blocked"
	ViewLocks   View = "locks"
	ViewAlloc   View = "alloc"
	ViewThreads View = "threads"
	ViewTree    View = "tree"
	ViewStorage View = "storage"
	// ViewSelfCheck needs a recording with the kernel's own account.
	ViewSelfCheck View = "self-check"
)

// Views are all of them, in the order of documentation.
var Views = []View{ViewSummary, ViewCPU, ViewBlocked, ViewLocks, ViewAlloc, ViewThreads, ViewTree, ViewStorage, ViewSelfCheck}

// ParseView is a view by name; "" is the summary.
func ParseView(name string) (View, error) {
	if name == "" {
		return ViewSummary, nil
	}
	var names []string
	for _, v := range Views {
		if string(v) == name {
			return v, nil
		}
		names = append(names, string(v))
	}
	return "", fmt.Errorf("unknown view %q: use one of %s", name, strings.Join(names, ", "))
}

// Summary writes what a run ends with: at most 40 lines of at most o.Width columns.
func Summary(w io.Writer, src trace.Source, o Options) error { return Write(w, src, ViewSummary, o) }

// Write writes one view of src.
func Write(w io.Writer, src trace.Source, view View, o Options) error {
	view, err := ParseView(string(view))
	if err != nil {
		return err
	}
	if _, err := o.value(); err != nil {
		return err
	}
	f, err := collect(src, chained(view), view == ViewSelfCheck, nil)
	if err != nil {
		return err
	}
	return f.write(w, view, o)
}

// chained says whether a view has chains.
func chained(view View) bool {
	return view == ViewLocks || view == ViewBlocked || view == ViewSummary
}

func (f *facts) write(w io.Writer, view View, o Options) (err error) {
	if o.Width <= 0 {
		o.Width = 80
	}
	o.Width = max(o.Width, 60)
	if o.JSON {
		err = f.writeJSON(w, view, o)
	} else {
		if o.Top <= 0 {
			o.Top = 20
		}
		var b bytes.Buffer
		for _, line := range f.lines(view, o) {
			b.WriteString(line)
			b.WriteByte('\n')
		}
		_, err = w.Write(b.Bytes())
	}
	if err != nil {
		return fmt.Errorf("writing the %s report: %w", view, err)
	}
	return nil
}

func (f *facts) lines(view View, o Options) []string {
	switch view {
	case ViewCPU:
		return f.cpuView(o)
	case ViewBlocked:
		return f.blockedView(o)
	case ViewLocks:
		return f.locksView(o)
	case ViewAlloc:
		return f.allocView(o)
	case ViewThreads:
		return f.threadsView(o)
	case ViewTree:
		return f.treeView(o)
	case ViewStorage:
		return f.storageView(o)
	case ViewSelfCheck:
		return f.selfCheckView(o)
	}
	return f.summary(o)
}
