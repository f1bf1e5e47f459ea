// usage.go turns what the kernel counts of each thread into events of how much that was since the last look.
package assemble

import (
	"slices"

	"github.com/hbtrace/hbtrace/trace"
)

// Usage is what the kernel counted of a thread since its beginning.
type Usage struct {
	MinorFaults, MajorFaults uint64 // page faults without and with a read from a disk
	Voluntary, Involuntary   uint64 // context switches: to wait, and to make room
	ReadyNs                  uint64 // ready to run, without a CPU
}

// Usages asks for the usage of threads that have recorded something since they were asked about last, most of them at a
// call, those first that wait the longest. ask gets a thread's numbers, in its process's numbering; where it says no, the
// thread is gone or cannot be found. now is CLOCK_MONOTONIC.
func (a *Assembler) Usages(now trace.Ns, most int, ask func(pid, tid int) (Usage, bool)) {
	done := 0
	defer func() {
		clear(a.active[:done])
		a.active = slices.Delete(a.active, 0, done)
	}()
	for _, t := range a.active {
		asked := !t.meta.Goroutine && t.started && !t.exited && t.proc != nil && !t.proc.isGone && t.seen > t.usedAt
		if asked && most == 0 {
			return
		}
		done++
		t.active = false
		if !asked {
			continue
		}
		most--
		u, ok := ask(t.proc.meta.PID, t.meta.TID)
		if !ok {
			continue
		}
		start := t.usedAt
		if start == 0 {
			start = t.meta.Start
		}
		before := t.used
		t.used, t.usedAt = u, now
		since := Usage{
			more(u.MinorFaults, before.MinorFaults), more(u.MajorFaults, before.MajorFaults),
			more(u.Voluntary, before.Voluntary), more(u.Involuntary, before.Involuntary),
			min(more(u.ReadyNs, before.ReadyNs), uint64(max(now-start, 0))), // a run of it is counted when it ends, and may have begun before
		}
		if since == (Usage{}) || start <= 0 || start >= now {
			continue
		}
		a.deliver(&trace.Event{
			Kind: trace.KindUsage, Flags: trace.FlagNoStack, Thread: t.meta.ID, Start: start, Time: now, Count: 1,
			Size: since.MinorFaults, Weight: since.MajorFaults, Object: since.Voluntary, Object2: since.Involuntary,
			Debt: int64(since.ReadyNs),
		})
	}
}

// more is by how much a counter has grown; 0 where it is another thread's meanwhile.
func more(now, before uint64) uint64 { return max(now, before) - before }

// queuedUntil delivers for how long a goroutine was runnable without running since that was last said; total is for how long
// it was in all, by the Go runtime's own changes of state.
func (a *Assembler) queuedUntil(t *thread, total uint64, now trace.Ns) {
	start := t.usedAt
	if start == 0 {
		start = t.meta.Start
	}
	since := more(total, t.used.ReadyNs)
	if since == 0 || start <= 0 || start >= now {
		return
	}
	t.used.ReadyNs, t.usedAt = total, now
	a.deliver(&trace.Event{
		Kind: trace.KindUsage, Flags: trace.FlagNoStack, Thread: t.meta.ID, Start: start, Time: now, Count: 1,
		Debt: int64(min(since, uint64(now-start))),
	})
}
