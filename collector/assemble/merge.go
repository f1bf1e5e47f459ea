// merge.go makes one event of a thread's equal neighbours in time.
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
			e.Hook == r.Hook && e.Object == r.Object && e.Flags == r.Flags&^trace.FlagSameCall &&
			e.Time >= r.Time && e.Time-r.Start <= a.maxRun {
			r.Time = e.Time
			r.Count += e.Count
			r.CPU += e.CPU
			return
		}
		a.endRun(t)
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

// endRun delivers the run, if there is one. The thread stays listed until endOldRuns comes by.
func (a *Assembler) endRun(t *thread) {
	if t.inRun {
		t.inRun = false
		a.deliver(&t.run)
	}
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
