// merge.go makes one event of a thread's equal neighbours in time, and of a call and the sample taken at its entry.
package assemble

import "github.com/hbtrace/hbtrace/trace"

// emit delivers an event of a thread, or makes it part of the thread's run. A run is one event that stands for
// several samples of the same kind and stack in the same invocations; anything else of that thread ends it.
func (a *Assembler) emit(t *thread, e *trace.Event) {
	e.Thread = t.meta.ID
	sample := e.Kind == trace.KindCPU || e.Kind == trace.KindGap || e.Kind == trace.KindSync || e.Kind == trace.KindEnter
	if t.inRun {
		r := &t.run
		if sample && e.Stack != 0 && e.Kind == r.Kind && e.Stack == r.Stack && int(e.Same) == len(t.stack) &&
			e.Hook == r.Hook && e.Object == r.Object && e.Weight == r.Weight && e.Flags == r.Flags&^trace.FlagSameCall &&
			e.Time >= r.Time && e.Time-r.Start <= a.maxRun {
			r.Time = e.Time
			r.Count += e.Count
			r.CPU += e.CPU
			return
		}
		if a.entered(t, e) {
			t.inRun = false
			a.stats.Entered++
		} else {
			a.endRun(t)
		}
	}
	if sample && e.Stack != 0 {
		t.run, t.inRun = *e, true
		if !t.listed {
			t.listed = true
			a.running = append(a.running, t)
		}
		return
	}
	a.deliver(e)
}

// entryNs is the most that may lie between the sample at a call's entry and the beginning of the call, where it was taken before that. It is the time
// between two readings of the clock, unless the thread was preempted between them. Agents take it inside the call, at its beginning.
const entryNs = 20_000

// entered reports whether the run in the making is nothing but the entry of the call that interval e is, and if so
// takes into e what the entry said of the stack before it. The entry is then no event of its own: the interval says when
// and where, and that the thread was there.
func (a *Assembler) entered(t *thread, e *trace.Event) bool {
	r := &t.run
	if r.Kind != trace.KindEnter || r.Count != 1 || e.Kind != trace.KindCall && e.Kind != trace.KindWait {
		return false
	}
	const late = trace.FlagLate // of the signal that took the sample
	const stack = trace.FlagStackCut | trace.FlagStackGuessed | trace.FlagStackOmitted
	if e.Hook != r.Hook || e.Object != r.Object || e.Stack == 0 || e.Stack != r.Stack || int(e.Same) != len(t.stack) ||
		(e.Flags^r.Flags)&stack != 0 || e.Flags&trace.FlagSameCall != 0 || r.Flags&late != 0 {
		return false
	}
	if e.Start-r.Time > entryNs || r.Time > e.Time {
		return false
	}
	e.Same, e.Flags = r.Same, e.Flags|r.Flags&trace.FlagSameCall
	return true
}

// endRun delivers the run, if there is one. The thread stays listed until endOldRuns comes by.
func (a *Assembler) endRun(t *thread) {
	if t.inRun {
		t.inRun = false
		a.deliver(&t.run)
	}
}

// endRuns delivers all runs in the making.
func (a *Assembler) endRuns() {
	for _, t := range a.running {
		a.endRun(t)
		t.listed = false
	}
	clear(a.running)
	a.running = a.running[:0]
}

// endOldRuns delivers runs that began so long ago that nothing of the newest pass could still have joined
// them, so that the last sample before a long sleep does not wait for its end.
func (a *Assembler) endOldRuns() {
	keep := a.running[:0]
	for _, t := range a.running {
		if t.inRun && a.latest-t.run.Start > a.maxRun {
			a.endRun(t)
		}
		if t.listed = t.inRun; t.listed {
			keep = append(keep, t)
		}
	}
	clear(a.running[len(keep):])
	a.running = keep
}
