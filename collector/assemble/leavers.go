// leavers.go joins signals that had to wait with whoever let them go on.
//
// glibc's pthread_cond_signal lets the waiters that earlier signals woke leave the condition first, and the last of them wakes it
// (nptl/pthread_cond_common.c, __condvar_quiesce_and_switch_g1): in pthread_cond_wait, before it takes its mutex again. So it is
// one whose wait ended about then or, where the mutex was taken, somewhat later.
package assemble

import (
	"slices"

	"github.com/hbtrace/hbtrace/trace"
)

// leaverLate: after a signal has come back the one who woke it may still wait for its mutex. Later ends are not looked at.
const leaverLate = trace.Ns(5e6)

// joinLeavers names who may have let a signal go on: of those that left meanwhile the one whose wait ended at the time nearest to its
// end, and how many there are. Where the signaller has the mutex they all wait for it then, and any of them may have been the last
// to leave, or one whose wait was too short to be recorded: it is never certain.
func (a *Assembler) joinLeavers(t *thread, e *trace.Event) {
	if t.proc == nil {
		return
	}
	c := a.left.get(objectKey{e.Object, t.proc.uid})
	if c == nil {
		return
	}
	var best release
	var by [16]uint32 // who left
	n := 0
	nearest := leaverLate
	for _, x := range c.ring[:min(c.n, uint32(len(c.ring)))] {
		if x.by == uint32(t.meta.ID) || x.at-trace.Ns(x.lasted) > e.Time || x.at < e.Start || x.at > e.Time+leaverLate || a.ref(x.by) == 0 {
			continue
		}
		if !slices.Contains(by[:n], x.by) && n < len(by) {
			by[n] = x.by
			n++
		}
		if d := max(x.at-e.Time, e.Time-x.at); d < nearest {
			nearest, best = d, x
		}
	}
	if best.by != 0 {
		e.Releaser, e.Release, e.Weight = a.ref(best.by), min(best.at, e.Time), uint64(max(n, 2))
	}
}
