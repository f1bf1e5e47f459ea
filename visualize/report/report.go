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
//	          "waits_folded":0,"exact_ns":0,"sampled_ns":0,"unknown_ns":0,"complete":true,"notes":["…"]},
//	 "cost":{"collector_ns":1,"sampler_ns":1},
//	 …}
//
// and, by view:
//
//	cpu      "functions":[{"function","module","self_ns","cumulative_ns","symbolised"}]
//	blocked  "places":[{"function","call","kind","total_ns","max_ns","count","open","stack"}]   one per stack
//	locks    "edges":[{"kind","object","process","waiter":{"thread","pid","tid","name"},"owner":{…},"releaser":{…},
//	         "certain","count","total_ns","max_ns","timed_out","open","waiter_stack","releaser_stack"}]
//	         owner and releaser are null where unknown; releaser_stack is [] where none was recorded
//	alloc    "sites":[{"function","objects","alloc_bytes","inuse_objects","inuse_bytes","stack"}]   one per stack
//	threads  "threads":[{"thread","pid","tid","name","cpu_ns","sampled_cpu_ns","lock_ns","wait_ns","call_ns","samples",
//	         "alloc_objects","alloc_bytes","lost","exact_ns","sampled_ns","unknown_ns"}]   cpu_ns is -1 where unknown
//	storage  "storage":{"records","record_bytes","events","event_bytes","nodes","kinds":{"cpu":1,…}}
//	summary  all of these
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
	Next  string   // summary: the command to type next
}

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
	ViewStorage View = "storage"
)

// Views are all of them, in the order of documentation.
var Views = []View{ViewSummary, ViewCPU, ViewBlocked, ViewLocks, ViewAlloc, ViewThreads, ViewStorage}

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
	if o.Width <= 0 {
		o.Width = 80
	}
	o.Width = max(o.Width, 60)
	f, err := collect(src)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	if o.JSON {
		err = f.writeJSON(&b, view, o)
	} else {
		if o.Top <= 0 {
			o.Top = 20
		}
		for _, line := range f.lines(view, o) {
			b.WriteString(line)
			b.WriteByte('\n')
		}
	}
	if err != nil {
		return fmt.Errorf("writing the %s report: %w", view, err)
	}
	if _, err = w.Write(b.Bytes()); err != nil {
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
	case ViewStorage:
		return f.storageView(o)
	}
	return f.summary(o)
}
