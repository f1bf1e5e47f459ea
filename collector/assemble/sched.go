// sched.go makes events of what the kernel tells about the session's threads. The kernel knows them by number; whose
// numbers those were is known when the threads' own records have come in, so what comes too early waits a few passes.
package assemble

import (
	"slices"

	"github.com/hbtrace/hbtrace/kernel"
	"github.com/hbtrace/hbtrace/trace"
)

const (
	maxOffs = 1 << 17 // that wait for their threads
	// A thread announces itself when it first has something to say, which for one that only sleeps takes until the
	// slots are looked at (Refresh).
	offPatience = 150
)

// offs are the kernel's records that wait.
type offs struct {
	waiting []offWaiting
	frames  []uint64 // of all of them
	dropped uint64
	kernel  trace.ModuleID
	byPID   map[int][]*process // of processes known by the recorder's numbers
	indexed uint32             // pass in which byPID was made
}

type offWaiting struct {
	kernel.Off
	pass uint32
}

// Off takes in one record of the kernel's.
func (a *Assembler) Off(o *kernel.Off) {
	if o.Exit {
		return // the agent tells, or the process's end
	}
	if len(a.offs.waiting) >= maxOffs {
		a.stats.OffsUnmatched++
		return
	}
	w := offWaiting{*o, a.pass}
	// One piece of memory for all frames that wait: they are given up together.
	n := len(a.offs.frames)
	a.offs.frames = append(append(a.offs.frames, o.Kernel...), o.User...)
	k, u := len(o.Kernel), len(o.User)
	w.Kernel, w.User = a.offs.frames[n:n+k:n+k], a.offs.frames[n+k:n+k+u:n+k+u]
	a.offs.waiting = append(a.offs.waiting, w)
}

// settleOffs delivers what waits for no more; all of it where that was the last pass.
func (a *Assembler) settleOffs(last bool) {
	if len(a.offs.waiting) == 0 {
		return
	}
	a.offs.byPID = map[int][]*process{}
	for _, p := range a.procs {
		a.offs.byPID[p.meta.PID] = append(a.offs.byPID[p.meta.PID], p)
	}
	for _, ps := range a.offs.byPID {
		slices.SortFunc(ps, func(x, y *process) int { return int(x.uid) - int(y.uid) })
	}
	keep := a.offs.waiting[:0]
	for i := range a.offs.waiting {
		w := &a.offs.waiting[i]
		if !last && w.pass == a.pass {
			keep = append(keep, *w) // what its thread wrote meanwhile comes with the next pass
			continue
		}
		at := trace.Ns(w.On)
		if w.On == 0 {
			at = trace.Ns(w.Off.Off)
		}
		id, p := a.kernelThread(w.PID, w.TID, at)
		switch {
		case id != 0:
			a.off(id, p, w)
		case !last && a.pass-w.pass < offPatience:
			keep = append(keep, *w)
		default:
			a.stats.OffsUnmatched++
		}
	}
	clear(a.offs.waiting[len(keep):])
	a.offs.waiting = keep
	if len(keep) == 0 {
		a.offs.frames = nil // slices of what was delivered point into it
	}
}

// kernelThread finds the thread that had a number of the kernel's at a time; 0 unknown. Threads of processes that
// number them otherwise (in a pid namespace of their own) are not found.
func (a *Assembler) kernelThread(pid, tid int, at trace.Ns) (trace.ThreadID, *process) {
	ps := a.offs.byPID[pid]
	for i := len(ps) - 1; i >= 0; i-- {
		if p := ps[i]; p.meta.Start <= at || i == 0 {
			return a.tid(p, uint32(tid), at), p
		}
	}
	return 0, nil
}

// off delivers one time off a CPU.
func (a *Assembler) off(id trace.ThreadID, p *process, w *offWaiting) {
	e := &a.event
	*e = trace.Event{
		Kind: trace.KindOff, Thread: id, Count: 1, Start: trace.Ns(w.Off.Off), Time: trace.Ns(w.On), Release: trace.Ns(w.Wake),
		Object: uint64(w.OffCPU), Object2: uint64(w.OnCPU), Result: int64(w.State), Size: uint64(w.WakerTID),
	}
	if w.On == 0 {
		e.Time, e.Object2 = a.latest, 0
		e.Flags |= trace.FlagOpen
	}
	e.Time = max(e.Time, e.Start)
	switch {
	case w.New:
		e.Weight = trace.OffNew
	case w.Interrupt:
		e.Weight = trace.OffByInterrupt
	}
	if !w.Interrupt && w.WakerPID != 0 {
		e.Releaser, _ = a.kernelThread(w.WakerPID, w.WakerTID, trace.Ns(w.Wake))
	}
	how := trace.HowFP
	for i := len(w.User) - 1; i >= 0; i-- {
		if i == 0 && w.State == kernel.StateRunnable {
			how = trace.HowExact // the instruction that it was interrupted at
		}
		if pc := w.User[i]; pc != 0 {
			e.Stack = a.cfg.Stacks.Push(e.Stack, a.resolve(p, pc, how), how)
		}
	}
	if len(w.Kernel) > 0 && a.offs.kernel == 0 {
		a.offs.kernel = a.mods.id(moduleKey{path: kernelPath, kind: trace.ModuleKernel}, 1<<63, 1<<64-1, 0, trace.Code{})
	}
	for i := len(w.Kernel) - 1; i >= 0; i-- {
		e.Stack = a.cfg.Stacks.Push(e.Stack, trace.Addr{Module: a.offs.kernel, Off: w.Kernel[i]}, trace.HowTable)
	}
	if e.Stack == 0 {
		e.Flags |= trace.FlagNoStack
	}
	a.deliver(e)
}

// kernelPath is what the kernel is called among modules.
const kernelPath = "[kernel]"
