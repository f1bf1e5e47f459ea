// now.go says what threads are doing at this moment: for hbtrace top.
package assemble

import (
	"math"

	"github.com/hbtrace/hbtrace/hooks"
	"github.com/hbtrace/hbtrace/segment"
	"github.com/hbtrace/hbtrace/trace"
)

// Now is what a thread is in, as its slot says, and its newest stack, as its records do.
type Now struct {
	Thread trace.Thread
	Hook   trace.HookID // the call that it is in and may sleep in; 0: none
	Since  trace.Ns     // of that call, to a tick unless Exact
	// Object is what it waits for, or the descriptor; Place is where that lies, Module 0 if in no module's data.
	Object uint64
	Place  trace.Addr
	Owner  trace.ThreadID // of the lock when the wait began; 0 unknown
	// Stack is that of the call if Exact, its caller alone (another stack then) where its entry was not sampled, and the
	// newest of any kind, from StackTime, outside of calls. 0: none.
	Stack     trace.StackID
	StackTime trace.Ns
	Exact     bool
}

// Now calls f for every thread that is alive, in the order in which they came. What is passed is reused. The stacks are
// good until the next record is taken in.
func (a *Assembler) Now(f func(*Now)) {
	a.refresh()
	for _, t := range a.byUID(nil) {
		if t.exited || t.final == nil || t.vanished != 0 || t.proc == nil || t.proc.isGone {
			continue
		}
		n := Now{Thread: t.meta, StackTime: t.stackTime}
		if k := len(t.stack); k > 0 && t.whole {
			n.Stack = t.stack[k-1]
		}
		a.in(t, &n)
		f(&n)
	}
}

// in fills in what a thread is in.
func (a *Assembler) in(t *thread, n *Now) {
	s := t.final
	if t.slot < 0 || s.hook == 0 || s.hook > math.MaxUint16 || s.state != segment.StateBlocked && s.object == 0 {
		return
	}
	hook, ok := hooks.ByID(trace.HookID(s.hook))
	tickNs := uint64(1e6)
	if a.cfg.Segment != nil {
		tickNs = max(a.cfg.Segment.Config().TickNs, 1)
		// It is written word by word: a thread that has gone on meanwhile is in nothing that is known.
		slot := a.cfg.Segment.Thread(t.slot)
		ok = ok && slot.InHook.Load() == s.hook && slot.InObject.Load() == s.object && slot.InTick.Load() == s.tick
	}
	if !ok || s.tick == 0 || s.tick > math.MaxInt64/tickNs {
		return
	}
	n.Hook, n.Since, n.Object = hook.ID, trace.Ns(s.tick*tickNs), s.object
	if hook.Object == hooks.ObjectAddr {
		if m := t.proc.space.lookup(s.object); m != nil {
			n.Place = trace.Addr{Module: m.id, Off: s.object - m.bias}
		}
	}
	if hook.Class.Waits() {
		n.Owner = a.tid(t.proc, s.ownerTID, n.Since)
	}
	if e := t.enter; e.stack != 0 && e.hook == hook.ID && e.time >= n.Since && e.leaf == s.pc {
		n.Since, n.Stack, n.StackTime, n.Exact = e.time, e.stack, e.time, true
		return
	}
	n.Stack, n.StackTime = 0, n.Since
	if s.pc != 0 && s.pc>>segment.PCShift == 0 {
		n.Stack = a.cfg.Stacks.Push(0, a.resolve(t.proc, s.pc, trace.HowCaller), trace.HowCaller)
	}
}

// Processes calls f for every process that is alive, in no order.
func (a *Assembler) Processes(f func(trace.Process)) {
	for _, p := range a.procs {
		if !p.isGone {
			f(p.meta)
		}
	}
}
