// finish.go reads what the slots still say when a process has gone or recording ends, and lets go of the state of
// what has ended.
package assemble

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/hbtrace/hbtrace/hooks"
	"github.com/hbtrace/hbtrace/segment"
	"github.com/hbtrace/hbtrace/trace"
)

// slotState is a copy of what a thread's slot says about now.
type slotState struct {
	state, hook, ownerTID uint32
	object, tick, pc      uint64
	seq, lost             uint32
	cpu                   uint64
}

// Refresh copies the counters of all slots into the threads and processes, takes up those whose records were
// lost, and announces what has changed. It costs a look at every slot: call it about once a second.
func (a *Assembler) Refresh() {
	a.refresh()
	a.announce()
}

func (a *Assembler) refresh() {
	a.procSlots()
	a.scanSlots(true)
	for _, t := range a.slots {
		if t != nil {
			a.readSlot(t)
		}
	}
}

// procSlots copies the counters of all process slots, and takes up processes that are new.
func (a *Assembler) procSlots() {
	seg := a.cfg.Segment
	if seg == nil {
		return
	}
	for i := range seg.HighProcs() {
		s := seg.Proc(i)
		uid := s.UID.Load()
		if st := s.State.Load(); uid == 0 || (st != segment.ProcLive && st != segment.ProcExited) {
			continue
		}
		if p := a.proc(uid); p != nil {
			p.slot = i
			a.readProcSlot(p)
		}
	}
}

// readProcSlot copies the process's counters of doubt.
func (a *Assembler) readProcSlot(p *process) {
	if a.cfg.Segment == nil || p.slot < 0 {
		return
	}
	s := a.cfg.Segment.Proc(p.slot)
	doubt := readDoubt(s)
	if s.UID.Load() == p.uid && doubt != p.meta.Doubt {
		p.meta.Doubt = doubt
		a.alter(p)
	}
}

func readDoubt(s *segment.Proc) trace.ProcDoubt {
	flags := s.Flags.Load()
	d := trace.ProcDoubt{
		Lost: s.Lost.Load(), SignalsForeign: s.SignalsForeign.Load(), SignalsStray: s.SignalsStray.Load(),
		WalksRefused: s.WalksRefused.Load(), AllocTableFull: s.AllocTableFull.Load(),
		HooksUnresolved: s.HooksUnresolved.Load(), BootAllocs: s.BootAllocs.Load(), ModulesLost: uint64(s.ModulesLost.Load()),
		SmallStacks:  s.SmallStacks.Load(),
		CodesUnnamed: s.CodesUnnamed.Load(), PythonCut: s.PythonCut.Load(),
		SyncOnly:       flags&segment.ProcFlagSyncOnly != 0,
		MutexOpaque:    flags&segment.ProcFlagMutexOpaque != 0,
		HandlerChained: flags&segment.ProcFlagHandlerChained != 0,
	}
	switch off := s.Disabled.Load(); off {
	case segment.OffNo:
	case segment.OffCollectorSilent:
		d.Disabled = "the ring was full and the collector silent"
	case segment.OffNoMemory:
		d.Disabled = "no memory for a thread's state"
	case segment.OffNoClock:
		d.Disabled = "no monotonic clock"
	case segment.OffSeccomp:
		d.Disabled = "it confined itself by seccomp, and is not recorded from there on"
	case segment.OffNoCounter:
		d.Disabled = "it took the cycle counter from itself (PR_SET_TSC), and is not recorded from there on"
	case segment.OffUnresolved:
		d.Disabled = "a function that every program needs could not be found"
	default:
		d.Disabled = "unknown reason"
	}
	return d
}

// readSlot copies what the thread's slot says, if it still has one.
func (a *Assembler) readSlot(t *thread) {
	if a.cfg.Segment == nil || t.slot < 0 || t.exited {
		return
	}
	s := a.cfg.Segment.Thread(t.slot)
	st := slotState{
		state: s.State.Load(), hook: s.InHook.Load(), ownerTID: s.InOwnerTID.Load(),
		object: s.InObject.Load(), tick: s.InTick.Load(), pc: s.InPC.Load(),
		seq: s.Seq.Load(), lost: s.Lost.Load(), cpu: s.CPUNs.Load(),
	}
	m := t.meta
	m.AllocObjects, m.AllocBytes, m.FreeObjects = s.AllocObjects.Load(), s.AllocBytes.Load(), s.FreeObjects.Load()
	m.Calls, m.CallsSlow, m.Waits = s.Calls.Load(), s.CallsSlow.Load(), s.Waits.Load()
	m.WaitNs = int64(min(s.WaitNs.Load(), math.MaxInt64))
	m.Samples, m.Lost = s.Samples.Load(), max(uint64(st.lost), t.lost)
	if s.UID.Load() != uint32(t.meta.ID) {
		a.leftSlot(t)
		if t.proc != nil && !t.proc.isGone {
			// It freed its slot itself. What the slot said last of what it was in is over.
			t.vanished = a.pass
			a.leaves(t)
			if t.final != nil {
				t.final.hook = 0
			}
		}
		return
	}
	t.final = &st
	if st.cpu <= math.MaxInt64 {
		t.cpuSeen = max(t.cpuSeen, st.cpu)
	}
	old := t.meta
	a.setLost(&t.meta, m.Lost)
	t.meta = m
	t.setCPU()
	if t.meta != old {
		a.touch(t)
	}
}

// ProcGone says that a process was seen to be dead. It reads what its slots say before it returns, so that the
// caller may free them; its threads end when what they had written has been interpreted. now is
// CLOCK_MONOTONIC.
func (a *Assembler) ProcGone(uid uint32, now trace.Ns) {
	p := a.proc(uid)
	if p == nil {
		return
	}
	a.readProcSlot(p)
	a.procGone(p, now)
	a.announce()
}

func (a *Assembler) procGone(p *process, at trace.Ns) {
	if p.isGone {
		return
	}
	p.isGone, p.gonePass = true, a.pass
	if p.meta.End == 0 {
		p.meta.End = at
	}
	a.alter(p)
	a.gone = append(a.gone, p)
	if a.swept != a.pass { // many may have gone at once
		a.swept = a.pass
		a.scanSlots(true)
	}
	for _, t := range a.byUID(p) {
		a.readSlot(t)
	}
}

// byUID lists the threads of p, of everybody for nil, in the order in which they came.
func (a *Assembler) byUID(p *process) []*thread {
	var ts []*thread
	if p != nil {
		ts = slices.AppendSeq(ts, maps.Keys(p.threads))
	} else {
		ts = slices.AppendSeq(ts, maps.Values(a.threads))
	}
	slices.SortFunc(ts, func(x, y *thread) int { return cmp.Compare(x.meta.ID, y.meta.ID) })
	return ts
}

// retire ends the threads of processes that have gone, two passes after that was seen, and forgets exited
// threads and their processes when nothing of theirs can be under way any more.
func (a *Assembler) retire() {
	keep := a.gone[:0]
	forgotten := map[uint32]bool{}
	for _, p := range a.gone {
		if a.pass-p.gonePass < 3 {
			keep = append(keep, p)
			continue
		}
		forgotten[p.uid] = true
	}
	if len(forgotten) > 0 {
		for _, q := range a.procs {
			if q.space.heir && forgotten[q.parentUID] {
				a.inherit(q)
			}
		}
	}
	for _, p := range a.gone {
		if !forgotten[p.uid] {
			continue
		}
		for _, t := range a.byUID(p) {
			if !t.exited {
				a.cutShort(t, p.meta.End)
			}
		}
		a.forgetFunctions(p)
		delete(a.procs, p.uid)
		a.past.set(p.uid)
		p.space, p.tids = space{}, nil // threads point here for one pass more
	}
	clear(a.gone[len(keep):])
	a.gone = keep
	leaving := a.leaving
	a.leaving = nil
	for _, t := range leaving {
		uid := uint32(t.meta.ID)
		if t.vanished != 0 && a.pass-t.vanished >= 3 && !t.exited {
			a.cutShort(t, max(t.seen, t.meta.Start)) // its THREAD_EXIT was lost
		}
		if t.exited && a.pass-t.exitPass >= 3 && len(t.queue) == 0 && !t.inRun && !t.dirty {
			delete(a.threads, uid)
			a.recent[uid%recentThreads] = recentThread{}
			a.leftSlot(t)
			t.forgetTID(uid)
			if a.cfg.OnGone != nil {
				a.cfg.OnGone(t.meta.ID)
			}
			continue
		}
		a.leaving = append(a.leaving, t)
	}
	if len(a.active) > 2*len(a.threads)+mostEnded { // threads that have ended wait there for Usages
		a.active = slices.DeleteFunc(a.active, func(t *thread) bool { return t.exited })
	}
}

// mostEnded is how many threads that have ended are kept for want of anybody who asks, besides as many as are there.
const mostEnded = 1024

// leaves notes a thread that has ended, or seems to have.
func (a *Assembler) leaves(t *thread) {
	if !t.leaving {
		t.leaving = true
		a.leaving = append(a.leaving, t)
	}
}

// forgetTID takes the thread out of its process's numbering, so that a process that starts threads for weeks
// does not gather them.
func (t *thread) forgetTID(uid uint32) {
	if t.proc == nil {
		return
	}
	delete(t.proc.threads, t)
	tid := uint32(t.meta.TID)
	uids := t.proc.tids[tid]
	if i := slices.Index(uids, uid); i >= 0 {
		if uids = slices.Delete(uids, i, i+1); len(uids) == 0 {
			delete(t.proc.tids, tid)
		} else {
			t.proc.tids[tid] = uids
		}
	}
}

// cutShort ends a thread that left no THREAD_EXIT record: its process was killed, or exited around it.
func (a *Assembler) cutShort(t *thread, at trace.Ns) {
	a.begin(t, at)
	a.open(t, at)
	cpu := uint64(0)
	if t.final != nil {
		a.tailLost(t, at)
		cpu = t.final.cpu
	}
	a.ended(t, at, max(cpu, t.cpuSeen))
}

// begin delivers the first event of a thread that none of whose records ever came.
func (a *Assembler) begin(t *thread, at trace.Ns) {
	if !t.started {
		a.start(t, &segment.Rec{TimeNs: uint64(max(at, 1))})
	}
}

// tailLost reports records that were dropped after the last one that came.
func (a *Assembler) tailLost(t *thread, at trace.Ns) {
	if !t.begun { // none ever came: what its slot counted is all that is known
		if n := t.final.lost; n > 0 {
			a.lost(t, at, n)
			t.begun, t.expect = true, t.final.seq+1
		}
		return
	}
	if missing := int32(t.final.seq + 1 - t.expect); missing > 0 {
		if n := min(uint32(missing), t.final.lost); n > 0 {
			a.lost(t, at, n)
			t.expect = t.final.seq + 1
		}
	}
}

// FinishOpen ends the recording at now: everything taken in is interpreted, what threads are waiting in becomes
// open intervals, and runs are delivered. Call it after the last pass; nothing may be recorded afterwards.
func (a *Assembler) FinishOpen(now trace.Ns) {
	a.refresh()
	a.Flush()
	a.latest = max(a.latest, now)
	a.settleOffs(true)
	for _, t := range a.byUID(nil) {
		switch {
		case t.exited || (t.final == nil && !t.started):
			continue
		case t.proc != nil && t.proc.isGone:
			a.cutShort(t, t.proc.meta.End)
			continue
		case t.vanished != 0:
			a.cutShort(t, max(t.seen, t.meta.Start))
			continue
		}
		a.begin(t, now)
		if t.final != nil {
			a.open(t, now)
			a.tailLost(t, now)
		}
	}
	a.Flush()
}

// Slept adds a thread that no agent has spoken of, and that was in one call from e.Start until e.Time without running. It returns false where there
// is no room for it, or no such process.
func (a *Assembler) Slept(proc, uid, tid uint32, name string, e *trace.Event) bool {
	t := a.thread(uid)
	if t == nil || a.procs[proc] == nil {
		return false
	}
	r := segment.RecThread{ProcUID: proc, TID: tid, Flags: segment.ThreadFlagLazy, StartNs: uint64(e.Start)}
	copy(r.Name[:], name)
	if !a.identify(t, &r) {
		return false
	}
	t.meta.CPU = 0
	a.start(t, &segment.Rec{TimeNs: uint64(e.Start)})
	a.emit(t, e)
	return true
}

// lateTicks is how late the sampler's ticks are taken to be at most.
const lateTicks = 4

// open delivers an interval for what a thread was in when it was last looked at.
func (a *Assembler) open(t *thread, now trace.Ns) {
	if e, ok := a.opened(t, now); ok {
		a.emit(t, &e)
	}
}

// Open delivers the runs in the making, and calls thread for every thread of a living process, with its counters, and
// event for the call or wait that one is in: an interval with FlagOpen that ends now. It returns the moment that it
// took for now. Recording goes on. Call it between two passes. The event is reused.
func (a *Assembler) Open(thread func(*trace.Thread), event func(*trace.Event)) (now trace.Ns) {
	a.refresh()
	a.endRuns()
	now = trace.Ns(segment.Now()) // after the counters: what they count is older
	for _, t := range a.byUID(nil) {
		if t.exited || t.vanished != 0 || t.proc == nil || t.proc.isGone {
			continue
		}
		thread(&t.meta)
		if e, ok := a.opened(t, now); ok {
			e.Thread = t.meta.ID
			event(&e)
		}
	}
	return now
}

// opened is the interval that a thread was in when it was last looked at.
func (a *Assembler) opened(t *thread, now trace.Ns) (e trace.Event, ok bool) {
	f := t.final
	if f == nil || f.hook == 0 || f.hook > math.MaxUint16 || (f.state != segment.StateBlocked && f.object == 0) {
		return e, false
	}
	hook, ok := hooks.ByID(trace.HookID(f.hook))
	if !ok {
		return e, false
	}
	tickNs := uint64(1e6)
	if a.cfg.Segment != nil {
		tickNs = max(a.cfg.Segment.Config().TickNs, 1)
	}
	if f.tick == 0 || f.tick > math.MaxInt64/tickNs {
		return e, false
	}
	e = trace.Event{
		Kind: trace.KindCall, Flags: trace.FlagOpen, Hook: hook.ID, Count: 1, Object: f.object,
		Time: now, Start: trace.Ns(f.tick * tickNs), // to a tick, unless the entry was sampled
	}
	if hook.Class.Waits() {
		e.Kind = trace.KindWait
		e.Owner = a.tid(t.proc, f.ownerTID, e.Start)
	}
	// An entry that was sampled since that tick began, at the same call, is this very one: the next entry of
	// the same tick would not have been sampled, but stands on the same frames as far as anybody knows.
	n := t.enter
	sampled := n.stack != 0 && n.hook == hook.ID && n.time >= e.Start && n.leaf == f.pc
	if !sampled && t.seen > e.Start && t.seen-e.Start < trace.Ns(lateTicks*tickNs) {
		// What the thread recorded since that tick was before the call, where it is not so much later that a handler must have done it.
		e.Start = t.seen
	}
	switch pc := f.pc; {
	case sampled:
		e.Start, e.Stack, e.Same = n.time, n.stack, uint32(len(t.stack))
		e.Flags |= n.flags
	case pc != 0 && pc>>segment.PCShift == 0:
		e.Stack = a.cfg.Stacks.Push(0, a.resolve(t.proc, pc, trace.HowCaller), trace.HowCaller)
		e.Flags |= trace.FlagStackCut
	default:
		e.Flags |= trace.FlagNoStack
	}
	return e, e.Start < now
}
