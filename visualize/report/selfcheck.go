// The self-check: what was recorded in the process, held against the kernel's own account of the same threads.

package report

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/hbtrace/hbtrace/analysis/edges"
	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/visualize/number"
	"github.com/hbtrace/hbtrace/visualize/terminal"
)

// checkFrom is the length from which a time blocked must be in the recording: hooks have thresholds, and a call that
// sleeps for less costs more in waking up than in waiting.
const checkFrom = trace.Ns(50e3)

// maxChecked bounds memory: 48 bytes each.
const maxChecked = 4 << 20

// ownInterval is a wait or a call as the process's own hooks recorded it.
type ownInterval struct {
	start, end trace.Ns
	object     uint64
	releaser   trace.ThreadID
	hook       trace.HookID
	flags      trace.Flags
	wait       bool
	claims     float64 // how likely the releaser is the one, as recorded
}

// offTime is a time off a CPU as the kernel saw it.
type offTime struct {
	start, wake, end trace.Ns
	stack            trace.StackID
	waker            trace.ThreadID
	irq, blocked     bool
}

// checkInput is what the self-check needs, by thread.
type checkInput struct {
	own  map[trace.ThreadID][]ownInterval
	offs map[trace.ThreadID][]offTime
	n    int
	left uint64
}

func (c *checkInput) add(e *trace.Event) {
	switch e.Kind {
	case trace.KindWait, trace.KindCall, trace.KindOff:
	default:
		return
	}
	if c.n++; c.n > maxChecked {
		c.left++
		return
	}
	if e.Kind != trace.KindOff {
		c.own[e.Thread] = append(c.own[e.Thread], ownInterval{e.Start, e.Time, e.Object, e.Releaser, e.Hook, e.Flags, e.Kind == trace.KindWait, edges.Claim(e)})
		return
	}
	if e.Weight == trace.OffNew {
		return
	}
	c.offs[e.Thread] = append(c.offs[e.Thread], offTime{
		e.Start, e.Release, e.Time, e.Stack, e.Releaser, e.Weight == trace.OffByInterrupt, e.Result != trace.OffRunnable,
	})
}

// selfCheck is the result.
type selfCheck struct {
	FromNs int64 `json:"from_ns"` // shorter ones are ignored
	// Times blocked that the kernel saw, and those of them that lie in a recorded wait or call.
	Blocked       uint64        `json:"blocked"`
	BlockedNs     int64         `json:"blocked_ns"`
	Recorded      uint64        `json:"recorded"`
	RecordedNs    int64         `json:"recorded_ns"`
	Recall        share         `json:"recall"`
	RecallNs      share         `json:"recall_by_time"`
	FutexWaits    uint64        `json:"futex_waits"` // of them, in the kernel's futex code and woken by a thread of the recording, but for those that the end of their process or a cancellation woke
	FutexEdges    uint64        `json:"futex_edges"` // of those, with a wait or call that names a releaser
	FutexRecall   share         `json:"futex_edge_recall"`
	FutexMissing  []checkNoEdge `json:"futex_missing"` // why the others have none
	Intervals     uint64        `json:"intervals"`     // recorded waits and calls, and those in which the kernel saw the thread off its CPU
	Slept         uint64        `json:"intervals_off_cpu"`
	Precision     share         `json:"precision"`
	StartMedianNs int64         `json:"start_median_ns"` // from an interval's start to the switch away, where there is one switch
	StartP99Ns    int64         `json:"start_p99_ns"`
	EndMedianNs   int64         `json:"end_median_ns"` // from being switched to, to the interval's end
	EndP99Ns      int64         `json:"end_p99_ns"`
	RunQueueNs    int64         `json:"run_queue_ns"`
	RunQueueMaxNs int64         `json:"run_queue_max_ns"`
	LeftOut       uint64        `json:"left_out"`

	Edges   []checkEdges   `json:"edges"`
	Threads []checkThread  `json:"threads"`
	Missing []checkMissing `json:"missing"`
}

// share is a part of a whole; -1 of nothing.
type share float64

func shareOf(part, whole float64) share {
	if whole <= 0 {
		return -1
	}
	return share(part / whole)
}

func (s share) String() string {
	if s < 0 {
		return "–"
	}
	return number.Percent(float64(s), 1)
}

// checkEdges compares who let waits of one kind go on with whom the kernel saw waking.
type checkEdges struct {
	Kind      string `json:"kind"` // signaller: one that slept in pthread_cond_signal
	Certain   bool   `json:"certain"`
	Waits     uint64 `json:"waits"`
	Same      uint64 `json:"same"`      // the releaser is the kernel's waker
	Other     uint64 `json:"other"`     // another thread of the recording woke it
	Outside   uint64 `json:"outside"`   // a thread outside the recording, or an interrupt
	Unwoken   uint64 `json:"unwoken"`   // the kernel saw no wake-up: it did not sleep
	Unknown   uint64 `json:"unknown"`   // no releaser was recorded, the kernel knows the waker
	Agreement share  `json:"agreement"` // same of those where both name a thread
	Claimed   share  `json:"claimed"`   // what it should be: how likely the recording says that the releaser is the one, on average
	claimed   float64
}

type checkThread struct {
	Thread     *jsonWho `json:"thread"`
	BlockedNs  int64    `json:"blocked_ns"`
	MissingNs  int64    `json:"missing_ns"` // blocked outside every recorded wait and call
	RunQueueNs int64    `json:"run_queue_ns"`
	id         trace.ThreadID
}

// checkMissing is a place in which threads were blocked outside every recorded wait and call.
type checkMissing struct {
	Kernel   string   `json:"kernel"` // the kernel's innermost function that says why
	Function string   `json:"function"`
	Count    uint64   `json:"count"`
	TotalNs  int64    `json:"total_ns"`
	Stack    []string `json:"stack"`
}

// scheduling are functions of the kernel that say only that a thread slept. Names are the kernel's.
var scheduling = map[string]bool{
	"__schedule": true, "schedule": true, "schedule_timeout": true, "io_schedule": true, "io_schedule_timeout": true, "schedule_hrtimeout_range": true,
	"schedule_hrtimeout_range_clock": true, "preempt_schedule": true, "preempt_schedule_common": true, "preempt_schedule_irq": true, "wait_woken": true,
	"schedule_preempt_disabled": true, "bit_wait_io": true, "bit_wait": true, "__wait_on_bit": true, "out_of_line_wait_on_bit": true, "schedule_idle": true,
	"schedule_timeout_interruptible": true, "schedule_timeout_uninterruptible": true, "wait_for_completion": true, "__wait_for_common": true,
}

// kernelReason is the innermost function of the kernel's part of a stack that says why the thread slept, and the
// function of the program to name.
func (f *facts) kernelReason(stack trace.StackID) (reason, function string, futex bool) {
	path := f.frames.Path(nil, stack)
	user := trace.StackID(0)
	for i := len(path) - 1; i >= 0; i-- {
		for _, at := range f.frames.Of(path[i]) {
			fr := f.frames.Frame(at.ID)
			if m := f.frames.Module(fr.Module); m == nil || m.Kind != trace.ModuleKernel {
				user = max(user, path[i])
				continue
			}
			if reason == "" && !scheduling[fr.Name] && fr.Symbolised && !isTraceFrame(fr.Name) {
				reason = fr.Name
			}
			futex = futex || fr.Name == "futex_wait" || fr.Name == "do_futex" || fr.Name == "__x64_sys_futex" || fr.Name == "__arm64_sys_futex"
		}
		if user != 0 {
			break
		}
	}
	if user != 0 {
		function = f.frames.Culprit(user, "")
	}
	return reason, function, futex
}

// isTraceFrame finds our own program on top of the kernel's stack.
func isTraceFrame(name string) bool {
	return len(name) > 4 && (name[:4] == "bpf_" || name[:4] == "__bp") || name == "__traceiter_sched_switch"
}

// checkNoEdge is futex wake-ups by a thread that no recorded wait names a releaser of.
type checkNoEdge struct {
	Why      string `json:"why"`
	Function string `json:"function"`
	Count    uint64 `json:"count"`
}

// noEdge says why a time on a futex has no releaser.
func noEdge(in *ownInterval) string {
	switch {
	case in == nil:
		return "no wait was recorded"
	case in.flags&trace.FlagInterrupted != 0:
		return "woken by a signal"
	case in.flags&trace.FlagTimedOut != 0:
		return "timed out"
	case in.flags&trace.FlagFailed != 0:
		return "failed"
	}
	return "nobody was seen to let go"
}

// check compares the two accounts.
func (f *facts) check(in *checkInput) *selfCheck {
	c := &selfCheck{FromNs: int64(checkFrom), LeftOut: in.left, Edges: []checkEdges{}, Threads: []checkThread{}, Missing: []checkMissing{}, FutexMissing: []checkNoEdge{}}
	edges := map[checkEdges]*checkEdges{}
	missing := map[[2]string]*checkMissing{}
	noEdges := map[[2]string]uint64{}
	var starts, ends []int64
	for _, t := range f.order {
		offs, own := in.offs[t.ID], in.own[t.ID]
		if len(offs) == 0 {
			continue
		}
		byStart := func(x, y offTime) int { return cmp.Compare(x.start, y.start) }
		slices.SortFunc(offs, byStart)
		slices.SortFunc(own, func(x, y ownInterval) int {
			return cmp.Or(cmp.Compare(x.start, y.start), cmp.Compare(y.end, x.end))
		})
		th := checkThread{Thread: f.who(t.ID), id: t.ID}
		at := 0
		for i := range offs {
			o := &offs[i]
			runnable := o.start
			if o.blocked {
				runnable = o.end
				if o.wake != 0 {
					runnable = o.wake
				}
			}
			th.RunQueueNs += int64(o.end - runnable)
			c.RunQueueMaxNs = max(c.RunQueueMaxNs, int64(o.end-runnable))
			if !o.blocked || runnable-o.start < checkFrom {
				continue
			}
			for at < len(own) && own[at].end <= o.start && own[at].end < o.end {
				at++
			}
			ns := int64(runnable - o.start)
			c.Blocked++
			c.BlockedNs += ns
			th.BlockedNs += ns
			covered := int64(0)
			var in *ownInterval
			for j := max(at-2, 0); j < len(own) && own[j].start < runnable; j++ {
				if x := int64(min(own[j].end, runnable) - max(own[j].start, o.start)); x > covered {
					covered, in = x, &own[j]
				}
			}
			reason, function, futex := f.kernelReason(o.stack)
			if in != nil && covered*10 >= ns*9 {
				c.Recorded++
				c.RecordedNs += covered
			} else {
				th.MissingNs += ns - covered
				k := [2]string{reason, function}
				m := missing[k]
				if m == nil {
					m = &checkMissing{Kernel: reason, Function: function, Stack: f.stack(trace.Site{Stack: o.stack, Hook: 0})}
					missing[k] = m
				}
				m.Count++
				m.TotalNs += ns - covered
			}
			ended := in == nil || in.flags&(trace.FlagOpen|trace.FlagUnwound) == 0 // not by a signal: its process ended, or it was cancelled
			if futex && o.waker != 0 && !o.irq && ended {
				c.FutexWaits++
				if in != nil && in.releaser != 0 {
					c.FutexEdges++
				} else {
					noEdges[[2]string{noEdge(in), function}]++
				}
			}
		}
		c.RunQueueNs += th.RunQueueNs
		c.Threads = append(c.Threads, th)
		for i := range own {
			iv := &own[i]
			if iv.end-iv.start < checkFrom || iv.flags&trace.FlagOpen != 0 {
				continue
			}
			c.Intervals++
			lo, _ := slices.BinarySearchFunc(offs, iv.start, func(o offTime, s trace.Ns) int { return cmp.Compare(o.end, s) })
			var last *offTime
			n, signalled := 0, false
			for j := lo; j < len(offs) && offs[j].start < iv.end; j++ {
				n++
				if offs[j].blocked {
					last = &offs[j]
					signalled = signalled || !last.irq && iv.releaser != 0 && last.waker == iv.releaser
				}
			}
			if n > 0 {
				c.Slept++
			}
			if n == 1 && last != nil && last.start >= iv.start && last.end <= iv.end {
				starts = append(starts, int64(last.start-iv.start))
				ends = append(ends, int64(iv.end-last.end))
			}
			signals := f.meta.Hooks[iv.hook].Class == trace.HookWake
			if (iv.wait || signals) && iv.flags&(trace.FlagTimedOut|trace.FlagInterrupted|trace.FlagFailed|trace.FlagUnwound) == 0 {
				k := checkEdges{Kind: f.kind(iv.hook), Certain: iv.flags&trace.FlagCertain != 0}
				if signals {
					k.Kind = "signaller"
				}
				e := edges[k]
				if e == nil {
					e = &checkEdges{Kind: k.Kind, Certain: k.Certain}
					edges[k] = e
				}
				e.Waits++
				switch {
				case last == nil || last.wake == 0:
					e.Unwoken++
				case last.waker == 0 || last.irq:
					e.Outside++
				case iv.releaser == 0:
					e.Unknown++
				case iv.releaser == last.waker, signalled && k.Kind == "condvar": // after its signal it may wait for the mutex
					e.Same++
					e.claimed += iv.claims
				default:
					e.Other++
					e.claimed += iv.claims
				}
			}
		}
	}
	c.Recall, c.RecallNs = shareOf(float64(c.Recorded), float64(c.Blocked)), shareOf(float64(c.RecordedNs), float64(c.BlockedNs))
	c.FutexRecall, c.Precision = shareOf(float64(c.FutexEdges), float64(c.FutexWaits)), shareOf(float64(c.Slept), float64(c.Intervals))
	c.StartMedianNs, c.StartP99Ns = quantiles(starts)
	c.EndMedianNs, c.EndP99Ns = quantiles(ends)
	for _, e := range edges {
		e.Agreement = shareOf(float64(e.Same), float64(e.Same+e.Other))
		e.Claimed = shareOf(e.claimed, float64(e.Same+e.Other))
		c.Edges = append(c.Edges, *e)
	}
	slices.SortFunc(c.Edges, func(x, y checkEdges) int {
		return cmp.Or(cmp.Compare(y.Waits, x.Waits), cmp.Compare(x.Kind, y.Kind), compareBool(x.Certain, y.Certain))
	})
	slices.SortFunc(c.Threads, func(x, y checkThread) int {
		return cmp.Or(cmp.Compare(y.MissingNs, x.MissingNs), cmp.Compare(y.BlockedNs, x.BlockedNs), cmp.Compare(x.id, y.id))
	})
	for k, n := range noEdges {
		c.FutexMissing = append(c.FutexMissing, checkNoEdge{k[0], k[1], n})
	}
	slices.SortFunc(c.FutexMissing, func(x, y checkNoEdge) int {
		return cmp.Or(cmp.Compare(y.Count, x.Count), cmp.Compare(x.Why, y.Why), cmp.Compare(x.Function, y.Function))
	})
	for _, m := range missing {
		c.Missing = append(c.Missing, *m)
	}
	slices.SortFunc(c.Missing, func(x, y checkMissing) int {
		return cmp.Or(cmp.Compare(y.TotalNs, x.TotalNs), cmp.Compare(x.Kernel, y.Kernel), cmp.Compare(x.Function, y.Function))
	})
	return c
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// quantiles are the median and the 99th percentile; 0 of nothing.
func quantiles(ns []int64) (median, p99 int64) {
	if len(ns) == 0 {
		return 0, 0
	}
	slices.Sort(ns)
	return ns[len(ns)/2], ns[len(ns)*99/100]
}

func (f *facts) selfCheckView(o Options) []string {
	out := f.head(o)
	c := f.checked
	if c == nil || c.Blocked == 0 && c.RunQueueNs == 0 {
		out = append(out, "")
		return f.end(append(out, terminal.Wrap("", []string{"the kernel's own account is not in this recording: record with --kernel on, which needs root or CAP_BPF and CAP_PERFMON"}, o.Width)...), o)
	}
	from := inline(duration(c.FromNs))
	t := &terminal.Table{Columns: []terminal.Column{{Flex: 1, Plain: true}, {Right: true}, {Right: true}, {Right: true}}, Indent: 2}
	t.Add("blocked "+from+" or longer, by the kernel", number.Count(c.Blocked), duration(c.BlockedNs), "")
	t.Add("  of it in a recorded wait or call", number.Count(c.Recorded), duration(c.RecordedNs), c.RecallNs.String())
	t.Add("  of it on a futex, woken by a thread", number.Count(c.FutexWaits), "", "")
	t.Add("    with a recorded releaser", number.Count(c.FutexEdges), "", c.FutexRecall.String())
	for _, m := range c.FutexMissing[:min(o.Top, len(c.FutexMissing))] {
		t.Add("    without: "+m.Why+", in "+m.Function, number.Count(m.Count), "", "")
	}
	t.Add("recorded waits and calls of "+from, number.Count(c.Intervals), "", "")
	t.Add("  in which the thread left its CPU", number.Count(c.Slept), "", c.Precision.String())
	t.Add("from a wait's start to leaving the CPU", "median", duration(c.StartMedianNs), "")
	t.Add("", "p99", duration(c.StartP99Ns), "")
	t.Add("from coming back to the wait's end", "median", duration(c.EndMedianNs), "")
	t.Add("", "p99", duration(c.EndP99Ns), "")
	t.Add("runnable without a CPU", "longest "+inline(duration(c.RunQueueMaxNs)), duration(c.RunQueueNs), "")
	out = append(out, titled(o, "Recorded in the process, held against the kernel", t.Lines(o.Width, o.Color))...)

	if len(c.Edges) > 0 {
		t = &terminal.Table{Columns: []terminal.Column{
			{Title: "for"}, {Title: "edge"}, {Title: "waits", Right: true}, {Title: "same", Right: true}, {Title: "other", Right: true},
			{Title: "outside", Right: true}, {Title: "awake", Right: true}, {Title: "unknown", Right: true}, {Title: "agree", Right: true}, {Title: "claim", Right: true},
		}, Indent: 2}
		for _, e := range c.Edges {
			sure := "likely"
			if e.Certain {
				sure = "certain"
			}
			t.Add(e.Kind, sure, number.Count(e.Waits), number.Count(e.Same), number.Count(e.Other), number.Count(e.Outside), number.Count(e.Unwoken), number.Count(e.Unknown), e.Agreement.String(), e.Claimed.String())
		}
		out = append(out, titled(o, "Who let go, and whom the kernel saw waking", t.Lines(o.Width, o.Color))...)
		out = append(out, terminal.Wrap("", []string{"A lock's releaser is who had it last; its waker may be an earlier one, from whom somebody else took it in between. claim: how often the releaser should be the one, by what the recording says."}, o.Width)...)
	}
	n := min(o.Top, len(c.Missing))
	if n > 0 {
		t = &terminal.Table{Columns: []terminal.Column{
			{Title: "total", Right: true}, {Title: "count", Right: true}, {Title: "in the kernel", Flex: 1, Plain: true}, {Title: "called in", Flex: 1},
		}, Indent: 2}
		for _, m := range c.Missing[:n] {
			t.Add(duration(m.TotalNs), number.Count(m.Count), cmp.Or(m.Kernel, "?"), m.Function)
		}
		more(t, n, len(c.Missing))
		out = append(out, titled(o, "Blocked outside every recorded wait and call", t.Lines(o.Width, o.Color))...)
	}
	t = &terminal.Table{Columns: []terminal.Column{
		{Title: "blocked", Right: true}, {Title: "not recorded", Right: true}, {Right: true}, {Title: "no CPU", Right: true}, {Title: "thread", Flex: 1, Plain: true},
	}, Indent: 2}
	n = min(o.Top, len(c.Threads))
	for _, th := range c.Threads[:n] {
		t.Add(duration(th.BlockedNs), duration(th.MissingNs), number.Percent(float64(th.MissingNs), float64(th.BlockedNs)), duration(th.RunQueueNs), f.threadName(th.id))
	}
	more(t, n, len(c.Threads))
	out = append(out, titled(o, "Threads", t.Lines(o.Width, o.Color))...)
	if c.LeftOut > 0 {
		out = append(out, terminal.Wrap("", []string{fmt.Sprintf("%s intervals were left out.", number.Count(c.LeftOut))}, o.Width)...)
	}
	return f.end(out, o)
}
