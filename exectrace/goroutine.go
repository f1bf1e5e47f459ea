package exectrace

import (
	"strings"

	"github.com/hbtrace/hbtrace/hooks"
	"github.com/hbtrace/hbtrace/trace"
	exp "golang.org/x/exp/trace"
)

// goroutine is what is known of one. A wait is from where it stopped running to where it runs again; what made it runnable
// meanwhile is its releaser.
type goroutine struct {
	id      exp.GoID
	thread  trace.Thread
	started bool // its first event is delivered

	state exp.GoState
	since trace.Ns // of state
	// Of a wait or a system call.
	began trace.Ns
	hook  trace.HookID // 0: it is in none
	stack trace.StackID
	ready trace.Ns // when it was made runnable; 0: not yet
	waker trace.ThreadID

	queued   int64    // that it was runnable, not reported yet
	reported trace.Ns // up to when it was
	unseen   int64    // that it ran since its last CPU sample
}

// threshold is below what a wait is only counted.
func (m *importer) threshold(h trace.HookID) int64 {
	if i, _ := hooks.ByID(h); i.Class == hooks.ClassLock {
		return m.meta.LockThresholdNs
	}
	return m.meta.CallThresholdNs
}

func (g *goroutine) changes(m *importer, e *exp.Event, s *exp.StateTransition, from, to exp.GoState) {
	if g.thread.Name == "" {
		if g.thread.Name = root(s.Stack); g.id == 1 {
			g.thread.Name = "runtime.main" // its first frame is cut off in traces: main.main is below it
		}
	}
	if from == to && g.state == to { // what the trace repeats at the beginning of each of its parts
		if g.stack == 0 {
			g.stack = m.stacks.push(m, s.Stack)
		}
		return
	}
	switch g.state {
	case exp.GoRunning:
		g.thread.CPU += int64(m.now - g.since)
		g.unseen += int64(m.now - g.since)
	case exp.GoRunnable:
		g.queued += int64(m.now - g.since)
	}
	if from == exp.GoNotExist {
		g.thread.Start, g.thread.Lazy, g.reported = m.now, false, m.now
		if by := e.Goroutine(); by != exp.NoGoroutine {
			g.thread.Parent = m.goroutine(by).thread.ID
		}
	}
	g.met(m)
	switch to {
	case exp.GoWaiting:
		g.starts(m, waitHook(s.Reason, s.Stack), s.Stack)
	case exp.GoSyscall:
		stack := s.Stack
		if stack == exp.NoStack && from == exp.GoRunning {
			stack = e.Stack()
		}
		g.starts(m, hooks.GoSyscall, stack)
	case exp.GoRunnable:
		if g.hook != 0 && g.ready == 0 {
			g.readied(m, e)
		}
	case exp.GoRunning:
		if g.hook != 0 {
			if g.ready == 0 {
				g.ready = m.now
			}
			g.waited(m)
		}
	case exp.GoNotExist:
		g.exits(m)
	}
	g.state, g.since = to, m.now
}

// met delivers its first event.
func (g *goroutine) met(m *importer) {
	if !g.started {
		g.started = true
		m.emit(&trace.Event{Kind: trace.KindThreadStart, Thread: g.thread.ID, Start: g.thread.Start, Time: g.thread.Start})
	}
}

func (g *goroutine) starts(m *importer, hook trace.HookID, s exp.Stack) {
	g.began, g.hook, g.ready, g.waker = m.now, hook, 0, 0
	g.stack = m.stacks.push(m, s)
}

// readied: it can run again. What made it so is the goroutine that the event is of; none: the scheduler, a timer, the network.
func (g *goroutine) readied(m *importer, e *exp.Event) {
	g.ready = m.now
	by := e.Goroutine()
	if by == exp.NoGoroutine || by == g.id || g.hook == hooks.GoSyscall {
		return
	}
	w := m.goroutine(by)
	w.met(m)
	g.waker = w.thread.ID
	lasted := int64(m.now - g.began)
	if lasted < m.threshold(g.hook) {
		return
	}
	hook := hooks.GoReady
	if g.hook == hooks.GoMutexLock {
		hook = hooks.GoUnlock
	}
	m.emit(&trace.Event{Kind: trace.KindRelease, Hook: hook, Thread: w.thread.ID, Time: m.now, Start: m.now,
		Stack: m.stacks.push(m, e.Stack()), Debt: lasted})
}

// waited: its wait, or its system call, is over, and it runs.
func (g *goroutine) waited(m *importer) {
	hook, lasted := g.hook, int64(g.ready-g.began)
	g.hook = 0
	if hook != hooks.GoSyscall {
		g.thread.Waits++
		g.thread.WaitNs += lasted
	}
	if lasted < m.threshold(hook) || ownOfRuntime(g.thread.Name) {
		return
	}
	end := m.now
	if hook == hooks.GoSyscall {
		end = g.ready
	}
	e := trace.Event{Kind: kindOf(hook), Hook: hook, Thread: g.thread.ID, Start: g.began, Time: end, Stack: g.stack}
	if g.waker != 0 {
		e.Releaser, e.Release = g.waker, g.ready
		e.Flags |= trace.FlagCertain
	}
	m.emit(&e)
	g.report(m)
}

// report says for how long it was runnable.
func (g *goroutine) report(m *importer) {
	if g.queued > 0 && m.now > g.reported {
		m.emit(&trace.Event{Kind: trace.KindUsage, Thread: g.thread.ID, Start: g.reported, Time: m.now,
			Debt: min(g.queued, int64(m.now-g.reported))})
	}
	g.queued, g.reported = 0, m.now
}

// sampled: a CPU sample stands for what its goroutine ran since its last one.
func (g *goroutine) sampled(m *importer, s exp.Stack) {
	if g.state == exp.GoRunning {
		ran := int64(m.now - g.since)
		g.thread.CPU, g.unseen, g.since = g.thread.CPU+ran, g.unseen+ran, m.now
	}
	if g.unseen <= 0 {
		return
	}
	g.met(m)
	g.thread.Samples++
	m.emit(&trace.Event{Kind: trace.KindCPU, Thread: g.thread.ID, Start: m.now, Time: m.now, Stack: m.stacks.push(m, s), CPU: g.unseen})
	g.unseen = 0
}

func (g *goroutine) exits(m *importer) {
	g.report(m)
	g.thread.End = m.now
	m.emit(&trace.Event{Kind: trace.KindThreadExit, Thread: g.thread.ID, Start: m.now, Time: m.now, CPU: g.unseen})
	g.unseen = 0
}

// end is the trace's: the wait that it is in has not ended.
func (g *goroutine) end(m *importer) {
	switch g.state {
	case exp.GoRunning:
		g.thread.CPU += int64(m.now - g.since)
	case exp.GoRunnable:
		g.queued += int64(m.now - g.since)
	}
	g.met(m)
	if g.thread.End != 0 {
		return
	}
	if g.hook != 0 && g.ready == 0 && m.now > g.began && !ownOfRuntime(g.thread.Name) {
		m.emit(&trace.Event{Kind: kindOf(g.hook), Flags: trace.FlagOpen, Hook: g.hook, Thread: g.thread.ID, Start: g.began, Time: m.now, Stack: g.stack})
	}
	g.report(m)
}

func kindOf(h trace.HookID) trace.Kind {
	if i, _ := hooks.ByID(h); i.Class.Waits() {
		return trace.KindWait
	}
	return trace.KindCall
}

// ownOfRuntime: a goroutine of the runtime itself, but for the program's first one.
func ownOfRuntime(name string) bool {
	return (strings.HasPrefix(name, "runtime.") || strings.HasPrefix(name, "runtime/")) && name != "runtime.main"
}
