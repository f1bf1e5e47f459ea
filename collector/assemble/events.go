// events.go says what each record means.
package assemble

import (
	"math"

	"github.com/hbtrace/hbtrace/hooks"
	"github.com/hbtrace/hbtrace/segment"
	"github.com/hbtrace/hbtrace/trace"
)

// arrived takes up what does not wait for its turn: who is who, what is mapped where, and who let what go.
// t is nil for a record of no thread, which must be of a kind that can be; false when it makes no sense.
func (a *Assembler) arrived(t *thread, h *segment.Rec, rec []byte) bool {
	switch h.Type {
	case segment.RecTypeProc:
		return a.procRecord(h, rec)
	case segment.RecTypeModule:
		return a.moduleRecord(h, rec)
	case segment.RecTypeThread:
		return a.threadRecord(t, rec)
	case segment.RecTypeCode:
		return t != nil && (t.proc == nil || a.codeRecord(t.proc, rec))
	case segment.RecTypeRelease:
		var r segment.RecRelease
		if t != nil && t.proc != nil && r.Decode(rec) {
			x := release{at: trace.Ns(h.TimeNs), by: uint32(t.meta.ID), left: lets(trace.HookID(h.Hook), r.Woken)}
			if r.AcquiredNs > h.TimeNs {
				x.lasted = uint32(min(r.AcquiredNs-h.TimeNs, math.MaxUint32))
			}
			a.wakes.released(a.sharing(t.proc, h.Flags), r.Object, x)
		}
	case segment.RecTypeInterval:
		var r segment.RecInterval
		if i, ok := hooks.ByID(trace.HookID(h.Hook)); ok && i.Class == hooks.ClassCond && t != nil && t.proc != nil && r.Decode(rec) {
			lasted := min(h.TimeNs-min(r.StartNs, h.TimeNs), math.MaxUint32)
			a.left.released(t.proc.uid, r.Object, release{at: trace.Ns(h.TimeNs), by: uint32(t.meta.ID), lasted: uint32(lasted)})
		}
	case segment.RecTypeThreadExit:
		if t != nil && t.proc != nil {
			t.proc.exits.add(uint32(t.meta.ID), trace.Ns(h.TimeNs))
		}
	}
	return t != nil
}

// interpretRecord makes events of a record whose turn has come; false when it makes no sense.
func (a *Assembler) interpretRecord(t *thread, h *segment.Rec, rec []byte) bool {
	a.latest = max(a.latest, trace.Ns(h.TimeNs))
	if t.unheard && t.proc != nil && int32(h.Seq-t.unheardTo) <= 0 && (h.Type == segment.RecTypeRelease || h.Type == segment.RecTypeThreadExit || h.Type == segment.RecTypeInterval || h.Type == segment.RecTypeCode) {
		a.arrived(t, h, rec) // when it came, nobody knew whose it was
	}
	e := &a.event
	*e = trace.Event{Hook: trace.HookID(h.Hook), Time: trace.Ns(h.TimeNs), Start: trace.Ns(h.TimeNs), Count: 1}
	switch h.Type {
	case segment.RecTypeSample:
		return a.sample(t, h, rec, e)
	case segment.RecTypeInterval:
		return a.interval(t, h, rec, e)
	case segment.RecTypeRelease:
		return a.release(t, rec, e)
	case segment.RecTypeAlloc:
		return a.alloc(t, rec, e)
	case segment.RecTypeFree:
		var r segment.RecFree
		if !r.Decode(rec) || len(rec) != segment.RecFreeBytes {
			return false
		}
		e.Kind, e.Flags, e.Object = trace.KindFree, trace.FlagNoStack, r.Addr
		a.emit(t, e)
	case segment.RecTypeName:
		var r segment.RecName
		if !r.Decode(rec) {
			return false
		}
		named := t
		if r.Of != 0 {
			if named = a.thread(r.Of); named == nil {
				return a.known.has(r.Of) // it has ended meanwhile
			}
		}
		named.meta.Name, named.renamed = clean(r.Name[:]), true
		a.touch(named)
	case segment.RecTypeThreadExit:
		return a.exit(t, rec, e)
	case segment.RecTypeProcExit:
		if t.proc == nil {
			return false
		}
		t.proc.meta.End = max(t.proc.meta.End, e.Time)
		a.alter(t.proc)
	case segment.RecTypeThread, segment.RecTypeProc, segment.RecTypeModule, segment.RecTypeCode:
		// taken up on arrival, and counted there where they made no sense
	default:
		return false
	}
	return true
}

func (a *Assembler) sample(t *thread, h *segment.Rec, rec []byte, e *trace.Event) bool {
	var r segment.RecSample
	if !r.Decode(rec) {
		return false
	}
	switch r.Kind {
	case segment.SampleSync:
		e.Kind = trace.KindSync
	case segment.SampleEnter:
		e.Kind, e.Object = trace.KindEnter, r.Object
	case segment.SamplePeriodic:
		e.Kind = trace.KindCPU
	case segment.SampleGap:
		e.Kind = trace.KindGap
	default:
		return false
	}
	if h.Flags&segment.RecFlagConsumed != 0 {
		e.Flags |= trace.FlagLate
	} else if h.Flags&segment.RecFlagStale != 0 {
		e.Flags |= trace.FlagLate | trace.FlagPreempted
	}
	if !a.stackOf(t, &r.Stack, rec[segment.RecSampleBytes:], e) {
		return false
	}
	if e.Kind == trace.KindCPU {
		if h.Flags&segment.RecFlagAfterSyscall != 0 {
			e.Flags |= trace.FlagSyscallEnd
		}
		if h.Flags&segment.RecFlagSameCPU != 0 {
			e.Flags |= trace.FlagSameCPU
		}
		if e.Hook == hooks.Execve {
			e.CPU = a.execPassed(t, r.WeightNs)
		} else {
			before := t.clock()
			passed := t.cpuPassed(r.CPUNs, r.WeightNs, a.period())
			e.CPU, e.Object, e.Weight = a.capped(t, before, passed), r.Object, uint64(r.Worth)
		}
	}
	if r.Kind == segment.SamplePeriodic && h.Flags&segment.RecFlagAlone != 0 {
		t.sampleAlone()
	}
	t.noteEnter(e)
	a.emit(t, e)
	return true
}

// sampleAlone takes the thread's last sample out of those that say where runs of the same origin spend their time. It has not
// been delivered yet: nothing lies between it and the record that says so. (Where others were merged into
// it, they were met in longer runs.) One that was taken at the end of a system call because it was on its way there, or because the thread
// was put off until there, says nothing of the run: the work before may have been long, and what the sample weighs is the origin's.
func (t *thread) sampleAlone() {
	if f := t.run.Flags; f&trace.FlagSyscallEnd != 0 && f&trace.FlagSameCPU == 0 {
		return
	}
	if r := &t.run; t.inRun && r.Kind == trace.KindCPU && r.Count == 1 && r.Flags&(trace.FlagLate|trace.FlagPreempted) != trace.FlagLate {
		r.Object = 0
	}
}

// cpuPassed books the weight of sampling points that a thread passed (sampler/points.h), now being its CPU time. It can run
// ahead of that by less than a period, no more.
func (t *thread) cpuPassed(now, weight, period uint64) int64 {
	if !t.cpuUsed(now) || now+period <= t.cpuLast {
		return 0
	}
	d := min(weight, now+period-t.cpuLast)
	t.cpuLast += d
	return int64(d)
}

// period is the CPU time that a sampling point stands for at most: a budget makes it longer (collector/budget.go), and threads go on
// with points that they drew before.
func (a *Assembler) period() uint64 {
	if a.cfg.Segment != nil && a.cpuPeriod != 0 {
		a.longest = max(a.longest, a.cpuPeriod, min(a.cfg.Segment.Header().KnobCPUPeriodNs.Load(), 1e9))
		return a.longest
	}
	return a.cpuPeriod
}

// clock is the CPU time that the thread is known to have used.
func (t *thread) clock() uint64 {
	if !t.cpuKnown {
		return 0
	}
	return t.cpuSeen - min(t.cpuBase, t.cpuSeen)
}

// earlyPeriods: for so many sampling periods of CPU time, samples get no more than threads' clocks have shown in all. A
// sample of a run that is shorter than a period would stand for more than the run used. Afterwards what is given varies about
// what was used by less than can be seen, and must not be cut on one side.
const earlyPeriods = 16

// capped is what of a sample's weight is given to it. The thread's clock showed before until then; what is not given
// stays for the thread's end.
func (a *Assembler) capped(t *thread, before uint64, weight int64) int64 {
	a.clock += t.clock() - min(before, t.clock())
	if a.clock < earlyPeriods*a.cpuPeriod {
		d := min(weight, max(0, int64(a.clock)-a.given))
		t.cpuLast -= uint64(weight - d)
		weight = d
	}
	a.given += weight
	return weight
}

// execPassed books what a program used before it was recorded, all of it at once (agent/emit.h, hb_emit_exec). used is what
// the thread's clock showed by then, and exec keeps that clock: what the image before it used is its own.
func (a *Assembler) execPassed(t *thread, used uint64) int64 {
	if t.cpuBase != used {
		return 0
	}
	d := a.execUsed(t, used)
	t.cpuBase -= uint64(d)
	a.clock, a.given = a.clock+uint64(d), a.given+d
	return d
}

// execUsed is what of CPU time `used`, the clock's of a program's first thread when it could be recorded, is the exec's.
func (a *Assembler) execUsed(t *thread, used uint64) int64 {
	if t.proc == nil || t.proc.meta.Forked || !t.meta.Main || !t.cpuKnown || used > math.MaxInt64 {
		return 0
	}
	a.adopt()
	a.usedBefore(t.proc)
	return int64(used - min(t.proc.cpuBefore, used))
}

// usedBefore takes up what the image before p used: its slot and its records say so, and both are gone after a while.
func (a *Assembler) usedBefore(p *process) {
	if p.replaced == nil {
		return
	}
	for t := range p.replaced.threads { // whichever of them it was that called exec
		p.cpuBefore = max(p.cpuBefore, t.cpuSeen)
	}
}

// cpuRest is what no sample stands for when a thread ends, now being its CPU time. Less than two periods is no more than
// the chance that strata bring, and evens out over a process's threads: it is kept in the process's balance, and
// what is left of that when its main thread ends is the main thread's. Of a process that has been given more than it used, the rest
// is taken from others': of a thousand short ones with a thread each, most have no sample, and few have one that stands for all. More was lost.
func (a *Assembler) cpuRest(t *thread, now uint64) int64 {
	if !t.cpuUsed(now) {
		return 0
	}
	period := a.period()
	rest := int64(t.cpuSeen) - int64(t.cpuLast)
	t.cpuLast = max(t.cpuLast, t.cpuSeen)
	if t.proc == nil || period == 0 || rest >= 2*int64(period) {
		return max(rest, 0)
	}
	b := &t.proc.cpuBalance
	*b += rest
	if !t.meta.Main {
		return 0
	}
	rest, *b = *b+a.cpuDebt, 0
	a.cpuDebt = min(rest, 0)
	return max(rest, 0)
}

// cpuUsed takes up a thread's CPU time; false when it says nothing.
func (t *thread) cpuUsed(now uint64) bool {
	if now == 0 || now > math.MaxInt64 {
		return false
	}
	t.cpuSeen = max(t.cpuSeen, now)
	if !t.cpuKnown {
		t.cpuKnown = true
		t.cpuBase, t.cpuLast = now, now
	}
	return true
}

// noteEnter keeps the stack that an unfinished wait will need.
func (t *thread) noteEnter(e *trace.Event) {
	if e.Kind == trace.KindEnter && e.Stack != 0 {
		const stackFlags = trace.FlagStackCut | trace.FlagStackGuessed | trace.FlagStackOmitted
		t.enter = enter{hook: e.Hook, time: e.Time, stack: e.Stack, flags: e.Flags & stackFlags, leaf: t.leaf}
	} else if e.Kind == trace.KindCPU && e.Flags&trace.FlagLate != 0 && e.Stack == t.enter.stack {
		return // work before the same call, counted at its entry
	} else if e.Stack != 0 && t.enter.stack != 0 {
		t.enter = enter{}
	}
}

func (a *Assembler) interval(t *thread, h *segment.Rec, rec []byte, e *trace.Event) bool {
	var r segment.RecInterval
	if !r.Decode(rec) {
		return false
	}
	for _, f := range [...]struct {
		c uint8
		e trace.Flags
	}{
		{segment.RecFlagInterrupted, trace.FlagInterrupted},
		{segment.RecFlagTimedout, trace.FlagTimedOut},
		{segment.RecFlagFailed, trace.FlagFailed},
		{segment.RecFlagUnwound, trace.FlagUnwound},
		{segment.RecFlagOpen, trace.FlagOpen},
	} {
		if h.Flags&f.c != 0 {
			e.Flags |= f.e
		}
	}
	if !a.stackOf(t, &r.Stack, rec[segment.RecIntervalBytes:], e) {
		return false
	}
	// Clocks of two CPUs may differ by some 100 ns: nothing begins, or was let go, after its own end.
	e.Start = trace.Ns(min(r.StartNs, h.TimeNs))
	e.Object, e.Object2, e.Result = r.Object, r.Object2, r.Result
	hook, _ := hooks.ByID(e.Hook)
	if hook.Go() {
		e.Object2 = 0
		a.queuedUntil(t, r.Object2, e.Time)
	}
	e.Kind = trace.KindCall
	if e.Releaser = a.ref(r.Releaser); e.Releaser != 0 {
		e.Release = trace.Ns(min(r.ReleaseNs, h.TimeNs))
	}
	if hook.Class.Waits() {
		e.Kind = trace.KindWait
		e.Owner = a.tid(t.proc, r.OwnerTID, e.Start)
		a.join(t, hook, a.sharing(t.proc, h.Flags), e)
	} else if hook.Class == hooks.ClassWake {
		a.joinLeavers(t, e)
	} else if e.Releaser != 0 && h.Flags&segment.RecFlagOnly != 0 {
		e.Flags |= trace.FlagCertain
	}
	t.noteEnter(e)
	a.emit(t, e)
	return true
}

func (a *Assembler) release(t *thread, rec []byte, e *trace.Event) bool {
	var r segment.RecRelease
	if !r.Decode(rec) {
		return false
	}
	pcs := rec[segment.RecReleaseBytes:]
	n := 8 * (int(r.Stack.Count) + int(r.Stack.Python))
	if n > len(pcs) || !a.stackOf(t, &r.Stack, pcs[:n], e) {
		return false
	}
	e.Kind, e.Object = trace.KindRelease, r.Object
	e.Debt = int64(min(r.DebtNs, math.MaxInt64))
	if r.AcquiredNs < uint64(e.Time) { // else it is when a wake-up's call came back
		e.Release = trace.Ns(r.AcquiredNs)
	}
	if ok := a.taken(t, &r, pcs[n:], e); !ok {
		return false
	}
	t.noteEnter(e)
	a.emit(t, e)
	return true
}

func (a *Assembler) alloc(t *thread, rec []byte, e *trace.Event) bool {
	var r segment.RecAlloc
	if !r.Decode(rec) || !a.stackOf(t, &r.Stack, rec[segment.RecAllocBytes:], e) {
		return false
	}
	e.Kind, e.Object, e.Size = trace.KindAlloc, r.Addr, r.Bytes
	e.Weight = allocWeight(r.Bytes, r.Period)
	t.noteEnter(e)
	a.emit(t, e)
	return true
}

// allocWeight is the number of bytes that a sampled allocation stands for. With exponentially distributed gaps
// of mean `period` bytes, one of `size` bytes is sampled with probability 1 - exp(-size/period); the inverse
// makes sums unbiased. A period up to 1 samples everything.
func allocWeight(size, period uint64) uint64 {
	if period <= 1 || size == 0 {
		return size
	}
	x := float64(size) / float64(period)
	if x > 40 {
		return size // the probability is 1 to the last bit
	}
	w := float64(size) / -math.Expm1(-x)
	if w >= math.MaxInt64 {
		return math.MaxInt64
	}
	return uint64(math.Round(w))
}

func (a *Assembler) exit(t *thread, rec []byte, e *trace.Event) bool {
	var r segment.RecExit
	if !r.Decode(rec) {
		return false
	}
	m := &t.meta
	m.AllocObjects, m.AllocBytes, m.FreeObjects = r.AllocObjects, r.AllocBytes, r.FreeObjects
	m.Calls, m.CallsSlow, m.Waits, m.WaitNs = r.Calls, r.CallsSlow, r.Waits, int64(min(r.WaitNs, math.MaxInt64))
	if t.meta.Goroutine {
		a.queuedUntil(t, r.QueueNs, e.Time)
	}
	a.ended(t, e.Time, max(r.CPUNs, t.cpuSeen))
	return true
}

// ended delivers a thread's last event. cpu is its thread CPU time then, as far as known.
func (a *Assembler) ended(t *thread, at trace.Ns, cpu uint64) {
	rest := a.cpuRest(t, cpu)
	t.exited, t.exitPass = true, a.pass
	a.leaves(t)
	t.meta.End = max(at, t.meta.Start, t.seen) // its process may have ended while it ran on
	t.setCPU()
	a.emit(t, &trace.Event{Kind: trace.KindThreadExit, Flags: trace.FlagNoStack, Time: t.meta.End, Start: t.meta.End, Count: 1, CPU: rest})
	a.touch(t)
}

// setCPU brings the thread's CPU time up to date.
func (t *thread) setCPU() {
	if t.cpuKnown && t.cpuSeen >= t.cpuBase && t.cpuSeen-t.cpuBase <= math.MaxInt64 {
		t.meta.CPU = int64(t.cpuSeen - t.cpuBase)
	}
}
