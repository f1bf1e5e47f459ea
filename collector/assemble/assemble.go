// Package assemble turns the raw records of the ring into trace.Events.
//
// assemble.go owns the passes: records come in by Record, are put in order by order.go; what they mean is in
// events.go, their stacks in stacks.go and frames.go, whose they are in identity.go, the addresses in modules.go, who woke
// whom in wake.go, and the merging of equal neighbours in merge.go.
//
// # Order
//
// Records of one thread carry consecutive numbers but may lie in different sub-buffers, between which there is
// no order. A pass over the ring delivers everything that was published before it began. So a record of pass
// k is interpreted when pass k+1 has ended: by then all its predecessors have come, except those that were
// dropped, and a missing number is a loss. The same delay brings in what other threads published before a
// wait ended, so that the wait can be joined with its releases, and the modules that an address may lie in.
// What is known about identity (PROC, MODULE, THREAD) and about releases and exits is taken up on arrival.
//
// Within what one EndPass interprets, events go to the sink ordered by time across threads, and by number
// within a thread. A merged run is delivered when it ends.
//
// # Trust
//
// Records are written by the recorded programs. Every field is checked before use; what makes no sense is
// counted in Stats.Broken and skipped. Everything that grows with what a target writes is bounded.
//
// An Assembler belongs to one goroutine.
package assemble

import (
	"math"
	"time"

	"github.com/hbtrace/hbtrace/segment"
	"github.com/hbtrace/hbtrace/trace"
)

// Stacks is where stacks get their ids: stacktable.Table.
type Stacks interface {
	Push(parent trace.StackID, addr trace.Addr, how trace.How) trace.StackID
}

// Config is what an Assembler works with. Stacks and Sink are required.
type Config struct {
	Stacks Stacks
	Sink   func(*trace.Event) // the Event is the assembler's, and valid during the call

	// Segment gives the slots of threads and processes whose own records were lost, and what threads are in
	// when recording ends. nil: none.
	Segment *segment.Segment

	// Maps reads the executable mappings of a process that lives, when an address turns up that no MODULE
	// record covers; nil when it cannot. See ReadMaps.
	Maps func(procUID uint32) []MapsEntry
	// File looks into a mapped file as that process sees it. See FileCache. nil: no build ids.
	File func(procUID uint32, path string) File
	// Describe may complete a process that was just met: Cmdline, Exe, PID as the recorder sees it.
	Describe func(procUID uint32, p *trace.Process)

	// Called with what is new or changed, from EndPass, ProcGone, Refresh and Finish; the value is the
	// callee's. Modules are announced before the first event whose stack needs them.
	OnThread  func(trace.Thread)
	OnProcess func(trace.Process)
	OnModule  func(trace.Module)
	OnGone    func(trace.ThreadID) // a thread has ended, and no event of it follows

	MaxRun time.Duration // longest run of merged samples; 0: 100 ms
}

// Stats is the assembler's account.
type Stats struct {
	Records        uint64 // taken in
	Broken         uint64 // of them, made no sense
	Late           uint64 // of them, came after they had been declared lost
	Gaps, Lost     uint64 // gaps in threads' numbers, and the records missing there
	ThreadsLost    uint64 // sum of all threads' lost records: what a thread counted itself, or what is missing of it, whichever is more
	PythonUnplaced uint64 // frames of Python whose native frame is not known
	SkippedStacks  uint64 // stacks that built on one that was lost
	Events         uint64 // delivered, after merging
	Entered        uint64 // samples at the entry of a call that became part of the call's interval
	Threads        uint64 // announced
	Processes      uint64 // announced
	MapsReads      uint64 // times that Maps was asked
	OffsUnmatched  uint64 // times off a CPU, as the kernel told, of threads that are not known
}

// firstSeq is the number of a thread's first record: hb_thread.seq counts the records written or dropped so far,
// this one included.
const firstSeq = 1

// Limits on what a hostile target can make us keep.
const (
	maxThreads = 1 << 18 // alive at once
	maxProcs   = 1 << 16
	maxUID     = 1<<32 - 2 // of threads and processes: a session's uids count up from 1
)

// Assembler holds the state of every thread and process that is being recorded.
type Assembler struct {
	longest   uint64 // that the period was: see period
	cpuPeriod uint64 // that a sampling point stands for, ns; 0 without a segment
	cpuDebt   int64  // ns, never above 0: what processes that have ended were given beyond what they used (cpuRest)
	clock     uint64 // ns of CPU time that threads' clocks have shown in all: see capped
	given     int64  // ns of it that samples got
	cfg       Config
	maxRun    trace.Ns
	stats     Stats
	pass      uint32
	arenas    [2][]byte // raw records of this pass and of the one before; arenas[pass&1] is being filled
	queued    []*thread // threads with records in their queue
	running   []*thread // threads with a run in the making
	leaving   []*thread // threads that have ended, or seem to have: EndPass looks at no others
	latest    trace.Ns  // newest time interpreted
	horizon   uint64    // no record is from later than this: one in the future would confuse all that ages

	threads map[uint32]*thread
	procs   map[uint32]*process
	known   met        // thread uids ever met: they stay valid references after the thread is gone
	past    met        // uids of processes that are gone and forgotten
	slots   []*thread  // by slot: the thread that is known to have it
	scanned uint32     // pass of the last scan of all thread slots on behalf of an unknown thread
	swept   uint32     // pass of the last scan on behalf of processes that are gone
	changed []*thread  // whose meta has changed since announce
	altered []*process // the same of processes
	orphans []*process // new ones whose parent has not been looked for
	gone    []*process // processes that ProcGone was told of
	mods    registry
	wakes   wakes
	delays  [3]delays // see delaysOf
	left    wakes     // waits for conditions that have ended: see joinLeavers
	offs    offs

	active []*thread // that recorded something since Usages asked about them, oldest first

	recent        [recentThreads]recentThread
	frames        frameCache
	mixed         []mixed // scratch of mixedStack
	codeBytes     int     // of line tables that are kept
	pythonModules int
	unnamed       trace.ModuleID // stands for functions of Python whose name is not known
	event         trace.Event    // what interpretRecord makes
	cursors       []cursor
}

// New returns an assembler for a session that has just begun.
func New(cfg Config) *Assembler {
	a := &Assembler{
		cfg: cfg, maxRun: trace.Ns(cfg.MaxRun), pass: 1,
		threads: map[uint32]*thread{}, procs: map[uint32]*process{},
	}
	if a.maxRun <= 0 {
		a.maxRun = trace.Ns(100 * time.Millisecond)
	}
	if cfg.Segment != nil {
		a.cpuPeriod = cfg.Segment.Config().CPUPeriodNs
	}
	a.mods.on = cfg.OnModule
	a.look()
	return a
}

// look sets the horizon. Without a segment, times are made up by a test.
func (a *Assembler) look() {
	a.horizon = math.MaxInt64 / 2
	if a.cfg.Segment != nil {
		a.horizon = uint64(segment.Now()) + uint64(time.Minute)
	}
}

// Stats is the account so far.
func (a *Assembler) Stats() Stats { return a.stats }

// Record takes in one record of the current pass. rec is copied.
func (a *Assembler) Record(rec []byte) {
	a.stats.Records++
	var h segment.Rec
	if !h.Decode(rec) || int(h.Bytes) != len(rec) || len(rec) > segment.MaxRecord || len(rec)%8 != 0 || h.TimeNs == 0 || h.TimeNs > a.horizon {
		a.stats.Broken++
		return
	}
	if h.Thread == 0 || h.Thread == segment.UIDClaiming {
		// Written by a process before its thread had a name: it has no number to be ordered by.
		if !a.arrived(nil, &h, rec) {
			a.stats.Broken++
		}
		return
	}
	t := a.thread(h.Thread)
	if t == nil {
		a.stats.Broken++
		return
	}
	if !a.arrived(t, &h, rec) {
		a.stats.Broken++ // it takes its turn nevertheless, for its number
	}
	if t.proc == nil {
		t.unheard, t.unheardTo = true, h.Seq
	}
	if !a.enqueue(t, &h, rec) {
		a.stats.Broken++
	}
}

// EndPass says that a complete pass over the ring has been taken in. It interprets the records of the pass
// before, with those of this one that belong before them.
func (a *Assembler) EndPass() {
	a.interpret(false)
	a.settleOffs(false)
	a.pass++
	a.look()
	a.arenas[a.pass&1] = a.arenas[a.pass&1][:0]
	a.endOldRuns()
	a.adopt()
	a.retire()
	a.announce()
}

// Flush interprets everything that was taken in and delivers the runs in the making. Numbers that are missing
// now count as lost: it is for the end, and for tests.
func (a *Assembler) Flush() {
	a.interpret(true)
	a.endRuns()
	a.adopt()
	a.announce()
}

// next interprets one record in its thread's order.
func (a *Assembler) next(t *thread, rec []byte) {
	var h segment.Rec
	h.Decode(rec)
	if !t.begun {
		t.begun = true
		t.expect = h.Seq
		if h.Type != segment.RecTypeThread && h.Seq < math.MaxInt32 {
			t.expect = firstSeq // the THREAD record comes first: it, at least, is missing
		}
	}
	a.start(t, &h)
	switch missing := int32(h.Seq - t.expect); {
	case missing < 0:
		// Its place has passed: the gap was reported, and later stacks stand without it.
		a.stats.Late++
		return
	case missing > 0 && !t.exited:
		a.lost(t, trace.Ns(h.TimeNs), uint32(missing))
	}
	t.expect = h.Seq + 1
	if t.proc != nil && t.proc.golang && !t.meta.Goroutine {
		h.TimeNs = max(h.TimeNs, uint64(t.seen)) // by another thread than the one before: its clock was read before its number was drawn
	}
	t.seen = max(t.seen, trace.Ns(h.TimeNs))
	if !t.active {
		t.active = true
		a.active = append(a.active, t)
	}
	if t.exited && h.Type != segment.RecTypeProcExit {
		a.stats.Broken++ // nothing follows a goodbye
		return
	}
	if !a.interpretRecord(t, &h, rec) {
		a.stats.Broken++
		switch h.Type {
		case segment.RecTypeSample, segment.RecTypeInterval, segment.RecTypeRelease, segment.RecTypeAlloc:
			t.whole = false // the next stack may build on what this one said
		}
	}
}

// setLost sets a thread's lost records, and keeps their sum.
func (a *Assembler) setLost(m *trace.Thread, n uint64) {
	a.stats.ThreadsLost += n - m.Lost
	m.Lost = n
}

// lost reports a gap of n records before time.
func (a *Assembler) lost(t *thread, time trace.Ns, n uint32) {
	a.stats.Gaps++
	a.stats.Lost += uint64(n)
	t.lost += uint64(n)
	a.setLost(&t.meta, max(t.meta.Lost, t.lost))
	a.touch(t)
	t.whole = false
	a.emit(t, &trace.Event{Kind: trace.KindLost, Flags: trace.FlagNoStack, Time: time, Start: time, Count: n})
}

// deliver hands an event to the sink.
func (a *Assembler) deliver(e *trace.Event) {
	a.stats.Events++
	a.cfg.Sink(e)
}
