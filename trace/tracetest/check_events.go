package tracetest

// events.go checks events one by one, in stored order, against their thread's earlier ones.

import "github.com/hbtrace/hbtrace/trace"

// threadState is what the events of one thread have said so far.
type threadState struct {
	events     uint64
	lastTime   trace.Ns
	lastHook   trace.Ns // of the events that the thread recorded itself, unasked
	lastStack  trace.StackID
	unsure     bool // records were lost since lastStack: Same refers to a stack that is not here
	started    bool
	exited     bool
	lostEvents uint64
	async      uint64 // KindCPU and KindGap samples
	cpuSampled int64
	cpuRest    int64
}

// site is an address in one process, moment what happened to it.
type site struct {
	proc trace.ProcID
	addr uint64
}

type moment struct {
	time  trace.Ns
	alloc bool
}

// Which optional fields a kind may fill; everything else must be zero.
type fields uint32

const (
	fCPU fields = 1 << iota
	fObject
	fObject2
	fSize
	fDebt
	fResult
	fOwner
	fReleaser
	fRelease
	fStart // an interval: Start is meant
	fMerge // equal neighbours may have become one
)

var allowed = map[trace.Kind]fields{
	trace.KindCPU:         fCPU | fSize | fObject | fStart | fMerge,
	trace.KindGap:         fCPU | fStart | fMerge,
	trace.KindSync:        fObject | fStart | fMerge,
	trace.KindEnter:       fObject | fStart | fMerge,
	trace.KindWait:        fSize | fObject | fObject2 | fResult | fOwner | fReleaser | fRelease | fStart,
	trace.KindCall:        fSize | fObject | fObject2 | fResult | fReleaser | fRelease | fStart,
	trace.KindRelease:     fObject | fDebt | fRelease | fResult,
	trace.KindAlloc:       fObject | fSize,
	trace.KindFree:        fObject,
	trace.KindThreadStart: 0,
	trace.KindThreadExit:  fCPU,
	trace.KindLost:        fMerge | fStart,
	trace.KindOff:         fObject | fObject2 | fSize | fResult | fReleaser | fRelease | fStart,
	trace.KindHold:        fObject | fStart,
	trace.KindUsage:       fObject | fObject2 | fSize | fDebt | fStart,
	trace.KindKnob:        fObject | fObject2 | fSize,
}

func (c *checker) event(e *trace.Event) {
	n := c.events
	c.events++
	bad := func(format string, args ...any) {
		c.addf("event %d (kind %d, thread %d, time %d): "+format, append([]any{n, e.Kind, e.Thread, e.Time}, args...)...)
	}
	may, known := allowed[e.Kind]
	if !known {
		bad("unknown kind")
		return
	}
	if e.Thread == 0 || int(e.Thread) > len(c.threads) {
		bad("there are %d threads", len(c.threads))
		return
	}
	s := &c.state[e.Thread]
	s.events++

	if e.Start > e.Time {
		bad("starts at %d, after its end", e.Start)
	}
	if may&fStart == 0 && e.Start != e.Time {
		bad("is a moment, yet starts at %d", e.Start)
	}
	if e.Time > c.meta.EndNs+clockSlackNs {
		bad("after the recording's end %d", c.meta.EndNs)
	}
	if e.Kind.Beside() {
		c.eventFields(e, may, bad)
		if e.Kind == trace.KindKnob {
			c.knob(e, bad)
		} else if e.Kind != trace.KindUsage {
			c.off(e, bad)
		} else if e.Stack != 0 || e.Object|e.Object2|e.Size|e.Weight|uint64(e.Debt) == 0 {
			bad("counts nothing, or at a place")
		}
		s.events--
		return
	}
	// A thread's events are stored in the order in which they ended. A release alone is recorded later than it is
	// dated: its time is that before the unlock, its record is written after it, and a signal may have sampled the
	// thread in between. It still cannot be older than what the thread's own hooks recorded before it.
	if e.Kind == trace.KindRelease {
		if e.Time < s.lastHook {
			bad("%d ns before the thread's previous event at a hook", s.lastHook-e.Time)
		}
	} else if e.Time < s.lastTime {
		bad("%d ns before the thread's previous event", s.lastTime-e.Time)
	}
	s.lastTime = max(s.lastTime, e.Time)
	if e.Kind != trace.KindCPU && e.Kind != trace.KindGap {
		s.lastHook = max(s.lastHook, e.Time)
	}

	c.eventFields(e, may, bad)
	c.eventStack(e, s, bad)
	c.eventLife(e, s, bad)

	switch e.Kind {
	case trace.KindCPU:
		s.cpuSampled += e.CPU
		s.async += uint64(e.Count)
	case trace.KindGap:
		s.async += uint64(e.Count)
	case trace.KindThreadExit:
		s.cpuRest += e.CPU
	case trace.KindLost:
		s.lostEvents += uint64(e.Count)
		s.unsure = true
	case trace.KindAlloc, trace.KindFree:
		k := site{c.threads[e.Thread-1].Proc, e.Object}
		c.live[k] = append(c.live[k], moment{e.Time, e.Kind == trace.KindAlloc})
	case trace.KindWait, trace.KindCall:
		c.interval(e, bad)
	}
}

func (c *checker) eventFields(e *trace.Event, may fields, bad func(string, ...any)) {
	for _, f := range []struct {
		bit  fields
		set  bool
		name string
	}{
		{fCPU, e.CPU != 0, "CPU"}, {fObject, e.Object != 0, "Object"}, {fObject2, e.Object2 != 0, "Object2"},
		{fSize, e.Size != 0 || e.Weight != 0, "Size or Weight"}, {fDebt, e.Debt != 0, "Debt"},
		{fResult, e.Result != 0, "Result"}, {fOwner, e.Owner != 0, "Owner"},
		{fReleaser, e.Releaser != 0, "Releaser"}, {fRelease, e.Release != 0, "Release"},
	} {
		if f.set && may&f.bit == 0 {
			bad("this kind does not use %s", f.name)
		}
	}
	if e.Count == 0 {
		bad("stands for 0 records")
	}
	if e.Count > 1 && may&fMerge == 0 {
		bad("%d merged, which this kind never is", e.Count)
	}
	if e.CPU < 0 || e.Debt < 0 {
		bad("CPU %d, debt %d", e.CPU, e.Debt)
	}
	if e.Hook != 0 && c.meta.Hooks != nil {
		if _, ok := c.meta.Hooks[e.Hook]; !ok {
			bad("hook %d is not in the table", e.Hook)
		}
	}
	switch e.Kind {
	case trace.KindCPU:
		if e.Hook != 0 && (e.Object != 0 || e.Flags&trace.FlagLate != 0) {
			bad("lies inside a call and in a run of work as well")
		}
		if e.Size != 0 || e.Weight != 0 && e.Weight <= 256 {
			bad("size %d, weight %d", e.Size, e.Weight)
		}
	case trace.KindAlloc:
		if e.Object == 0 {
			bad("allocated nothing")
		}
		// A sample stands for at least itself.
		if e.Weight < e.Size {
			bad("%d bytes that stand for %d", e.Size, e.Weight)
		}
	case trace.KindFree:
		if e.Object == 0 {
			bad("freed nothing")
		}
	case trace.KindRelease:
		if e.Release > e.Time {
			bad("took the lock at %d, after letting it go", e.Release)
		}
	}
}

// knob checks one change of how much is recorded against the changes of that knob before it.
func (c *checker) knob(e *trace.Event, bad func(string, ...any)) {
	k := trace.Knob(e.Object)
	switch {
	case k < trace.KnobTicks || k > trace.KnobLast:
		bad("there is no knob %d", k)
	case e.Object2 != c.knobs[k] && c.stats.Overwritten == 0 && c.meta.Dump.Why == "": // a window begins with any value
		bad("knob %d was %d, not %d", k, c.knobs[k], e.Object2)
	case e.Size == e.Object2:
		bad("knob %d stays at %d", k, e.Size)
	}
	if k <= trace.KnobLast {
		c.knobs[k] = e.Size
	}
	if k == trace.KnobCPUPeriod {
		c.longest = max(c.longest, int64(min(e.Size, 1<<62)))
	}
}

// off checks one time off a CPU.
func (c *checker) off(e *trace.Event, bad func(string, ...any)) {
	switch {
	case e.Same != 0:
		bad("%d frames are the same as in a stack of another account", e.Same)
	case e.Release != 0 && (e.Release < e.Start || e.Release > e.Time):
		bad("could run at %d, not between %d and %d", e.Release, e.Start, e.Time)
	case int(e.Releaser) > len(c.threads):
		bad("woken by thread %d of %d", e.Releaser, len(c.threads))
	case int(e.Stack) > c.nnodes:
		bad("stack %d of %d", e.Stack, c.nnodes)
	case e.Weight > trace.OffNew:
		bad("woken in way %d", e.Weight)
	}
}

func (c *checker) interval(e *trace.Event, bad func(string, ...any)) {
	if int(e.Owner) > len(c.threads) || int(e.Releaser) > len(c.threads) {
		bad("owner %d, releaser %d of %d threads", e.Owner, e.Releaser, len(c.threads))
		return
	}
	if e.Release > e.Time+clockSlackNs {
		bad("released at %d, after its end", e.Release)
	}
	if e.Releaser == 0 && e.Flags&trace.FlagCertain != 0 {
		bad("certain of nobody")
	}
	if e.Releaser == 0 && e.Release != 0 {
		bad("released at %d by nobody", e.Release)
	}
	if e.Flags&trace.FlagTimedOut != 0 && e.Releaser != 0 {
		bad("timed out and was released by thread %d", e.Releaser)
	}
	if e.Flags&trace.FlagOpen != 0 && e.Time < c.meta.EndNs-clockSlackNs && c.threads[e.Thread-1].End == 0 {
		bad("is open, yet ends before the recording's end %d", c.meta.EndNs)
	}
}

// eventStack holds the stack and Same against the thread's previous stack: those frames must be the very same
// nodes.
func (c *checker) eventStack(e *trace.Event, s *threadState, bad func(string, ...any)) {
	if e.Stack == 0 {
		if e.Same != 0 {
			bad("%d frames of no stack are the same", e.Same)
		}
		return
	}
	if int(e.Stack) > c.nnodes {
		bad("stack %d of %d", e.Stack, c.nnodes)
		return
	}
	if e.Flags&trace.FlagNoStack != 0 {
		bad("has stack %d and says that it has none", e.Stack)
	}
	d := c.depth[e.Stack]
	if e.Same > d {
		bad("%d frames are the same, of a stack of %d", e.Same, d)
		return
	}
	if !s.unsure && c.stats.Overwritten == 0 {
		prev := c.depth[s.lastStack]
		switch {
		case e.Same > prev:
			bad("%d frames are the same as in a stack of %d", e.Same, prev)
		case c.ancestor(e.Stack, e.Same) != c.ancestor(s.lastStack, e.Same):
			bad("%d frames are said to be those of stack %d, and stack %d has others", e.Same, s.lastStack, e.Stack)
		case e.Flags&trace.FlagSameCall != 0 && (e.Same >= d || e.Same >= prev):
			bad("the frame at depth %d is said to go on, of stacks of %d and %d", e.Same, prev, d)
		}
	}
	s.lastStack = e.Stack
	s.unsure = false
}

// ancestor is the node of stack id at the given depth, 0 for depth 0.
func (c *checker) ancestor(id trace.StackID, depth uint32) trace.StackID {
	for c.depth[id] > depth {
		id = c.src.Node(id).Parent
	}
	return id
}

func (c *checker) eventLife(e *trace.Event, s *threadState, bad func(string, ...any)) {
	if s.exited {
		bad("after the thread's exit")
	}
	switch e.Kind {
	case trace.KindThreadStart:
		if s.started {
			bad("started twice")
		} else if s.events > 1 && c.stats.Overwritten == 0 && s.lostEvents == 0 {
			bad("started after %d events", s.events-1)
		}
		s.started = true
	case trace.KindThreadExit:
		s.exited = true
	}
}
