// stacks.go rebuilds each thread's stacks from the deltas that its agent sends.
package assemble

import (
	"encoding/binary"

	"github.com/hbtrace/hbtrace/segment"
	"github.com/hbtrace/hbtrace/trace"
)

// stackOf reads the stack of a record: s, followed by pcs, which is the rest of the record: program counters and frames of
// Python. It fills Stack,
// Same and the stack flags of e; false when the stack makes no sense.
//
// t.stack is the thread's current stack, root first: t.stack[i] is the id of the stack up to frame i. It
// mirrors what the agent remembers (unwind/delta.h). t.whole says that the two agree; after a loss they do
// not, until a stack arrives that builds on nothing.
func (a *Assembler) stackOf(t *thread, s *segment.Stack, pcs []byte, e *trace.Event) bool {
	same, count := int(s.Same), int(s.Count)
	if len(pcs) != 8*(count+int(s.Python)) || same+count > segment.MaxFrames || s.Python > segment.PyFrames {
		return false
	}
	if s.Flags&segment.StackNone != 0 {
		e.Flags |= trace.FlagNoStack
		return count == 0 && s.Python == 0
	}
	if s.Flags&segment.StackFull != 0 && same != 0 {
		return false
	}
	if same > 0 && !t.whole {
		a.stats.SkippedStacks++
		e.Flags |= trace.FlagNoStack
		return true
	}
	if same > len(t.pcs) {
		return false
	}
	t.pcs = t.pcs[:same]
	for i := range count {
		t.pcs = append(t.pcs, binary.LittleEndian.Uint64(pcs[8*i:]))
	}
	if s.Python > 0 || len(t.mixed) > 0 {
		if count > 0 {
			t.leaf = t.pcs[same+count-1] & (1<<segment.PCShift - 1)
		} else {
			t.leaf = 0
		}
		return a.mixedStack(t, s, pcs[8*count:], e)
	}
	if same > len(t.stack) {
		return false
	}
	// What the thread had at depth same, before it is overwritten: only that can go on as the same call.
	hadNext := same > 0 && same < len(t.stack)
	parent := trace.StackID(0)
	if same > 0 {
		parent = t.stack[same-1]
	}
	depth := len(t.stack)
	t.stack = t.stack[:same]
	for i := range count {
		id, ok := a.frame(t.proc, parent, binary.LittleEndian.Uint64(pcs[8*i:]))
		if !ok {
			return false // next drops what was pushed so far, with t.whole
		}
		if id == parent { // no room: half a stack would be another one
			a.stats.SkippedStacks++
			t.whole = false
			e.Flags |= trace.FlagNoStack
			return true
		}
		parent = id
		t.stack = append(t.stack, parent)
	}
	if count > 0 {
		t.leaf = binary.LittleEndian.Uint64(pcs[8*(count-1):]) & (1<<segment.PCShift - 1)
	}
	t.whole = true
	if count == 0 && same < depth {
		t.leaf = 0 // the leaf is now a frame whose address was not kept
	}
	if len(t.stack) == 0 {
		e.Flags |= trace.FlagNoStack
		return true
	}
	e.Stack = parent
	e.Same = uint32(same)
	t.stackTime = e.Time
	if count > 0 && hadNext && s.Flags&segment.StackSameCall != 0 {
		e.Flags |= trace.FlagSameCall
	}
	e.Flags |= stackFlags(s)
	return true
}

// taken delivers where the lock of a release's record had been taken, beside the thread's order: r.Taken is described
// against the release's own stack, e's, which the thread has now. False when it makes no sense.
func (a *Assembler) taken(t *thread, r *segment.RecRelease, pcs []byte, e *trace.Event) bool {
	s := &r.Taken
	same, count := int(s.Same), int(s.Count)
	if len(pcs) != 8*count || same+count > segment.MaxFrames {
		return false
	}
	if s.Flags&segment.StackNone != 0 {
		return count == 0 && same == 0
	}
	if e.Release == 0 || e.Flags&trace.FlagNoStack != 0 && same > 0 {
		return true // of a stack that is not known
	}
	if same > len(t.pcs) {
		return false
	}
	held := trace.Event{
		Kind: trace.KindHold, Flags: stackFlags(s), Hook: trace.HookID(r.TakenHook), Thread: t.meta.ID, Start: e.Release, Time: e.Time,
		Count: 1, Object: r.Object,
	}
	if len(t.mixed) > 0 {
		// What Python ran then is not known: its frames are left out, and the native ones stand for themselves.
		k := 0
		for k < len(t.mixed) && !t.mixed[k].python && int(t.mixed[k].native) < same {
			k++
		}
		if k > 0 {
			held.Stack = t.stack[k-1]
		}
		for _, pc := range t.pcs[k:same] {
			id, ok := a.frame(t.proc, held.Stack, pc)
			if !ok || id == held.Stack {
				return ok
			}
			held.Stack = id
		}
	} else if same > 0 {
		held.Stack = t.stack[same-1]
	}
	for i := range count {
		pc := binary.LittleEndian.Uint64(pcs[8*i:])
		how, addr := trace.How(pc>>segment.PCShift), pc&(1<<segment.PCShift-1)
		if how < trace.HowExact || how > trace.HowMark {
			return false
		}
		id := a.cfg.Stacks.Push(held.Stack, a.resolve(t.proc, addr, how), how)
		if id == held.Stack { // no room
			a.stats.SkippedStacks++
			return true
		}
		held.Stack = id
	}
	if held.Stack != 0 {
		a.deliver(&held)
	}
	return true
}

// stackFlags are what a record says of how its stack was taken.
func stackFlags(s *segment.Stack) (flags trace.Flags) {
	for _, f := range [...]struct {
		c uint16
		e trace.Flags
	}{
		{segment.StackCut, trace.FlagStackCut},
		{segment.StackGuessed, trace.FlagStackGuessed},
		{segment.StackOmitted, trace.FlagStackOmitted},
	} {
		if s.Flags&f.c != 0 {
			flags |= f.e
		}
	}
	return flags
}

// resolve gives an address the module that it lies in.
func (a *Assembler) resolve(p *process, addr uint64, how trace.How) trace.Addr {
	in, _ := a.within(p, addr, how)
	return in
}

// within is resolve; settled says that the answer is the same until modules come.
func (a *Assembler) within(p *process, addr uint64, how trace.How) (in trace.Addr, settled bool) {
	if how == trace.HowMark || p == nil {
		return trace.Addr{Off: addr}, how == trace.HowMark
	}
	at := addr
	if how != trace.HowExact && at > 0 {
		at-- // a return address may be the first byte behind its module: the call is inside
	}
	m := a.find(p, at)
	if m == nil {
		if !p.space.blind {
			return trace.Addr{Off: addr}, false
		}
		// A process that makes code maps more of it all the time: what is not known yet is most likely that, and its
		// address stays what it is.
		return trace.Addr{Module: p.space.anon, Off: addr}, false
	}
	return trace.Addr{Module: m.id, Off: addr - m.bias}, true
}

// Stacks calls f for every stack that the assembler still refers to: what threads are known to be in, and the runs in
// the making. All others may be taken out of the table, with their ids, once what was delivered is where it does not
// need them: between passes, or from within Config.Stacks.
func (a *Assembler) Stacks(f func(trace.StackID)) {
	a.frames.forget()
	for _, t := range a.threads {
		if n := len(t.stack); n > 0 {
			f(t.stack[n-1])
		}
		f(t.enter.stack)
		if t.inRun {
			f(t.run.Stack)
		}
	}
}
