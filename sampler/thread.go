// What the sampler does with one thread: whether it ran, whether it is to be asked for its stack, and what
// became of the asking.
package sampler

import (
	"github.com/hbtrace/hbtrace/segment"
	"golang.org/x/sys/unix"
)

// thread is what the sampler knows of the thread in one slot.
//
// What the kernel says of a thread is read when it may be signalled, and not at each look: a look at one that sleeps in a
// call, or has passed a hook of late, is two loads.
type thread struct {
	uid       uint32
	tid       uint32 // in our pid namespace
	wchan     int32  // "0" while the thread can run. 0 not open, -1 says nothing here: see proc.wchan
	schedstat int32  // CPU time, up to date as of the kernel's last tick or switch. 0 not open
	// Whichever of the two is open pins the task: a tid that is used again does not lead here.
	gone      bool
	fdCounted bool
	cpu       uint64    // CPU time at the last reading, ns
	movedNs   int64     // when it was last seen to move
	budgets   [2]budget // periodic samples, gap samples

	backoff  uint64 // ticks between looks
	still    int    // looks in a row that found it asleep outside of calls
	lastTick uint64 // slot's last_tick when it was last found asleep

	askedNs    int64 // our signal is in flight since; 0 none
	checkAfter int64 // age at which it is looked into
}

// look deals with slot i, to be sampled now if it runs and is picked, and returns in how many ticks to look again.
func (l *loop) look(i int, picked bool) uint64 {
	s, t := l.slots[i], &l.threads[i]
	uid := s.UID.Load()
	if uid != t.uid {
		t.reset(uid)
		t.budgets = [2]budget{newBudget(l.configNs), newBudget(uint64(l.tickNs))}
	}
	if uid == 0 || uid == segment.UIDClaiming {
		return 1
	}
	if t.gone {
		return 8 // until the collector frees the slot
	}
	state := s.State.Load()
	if t.askedNs != 0 && state != segment.StateSignalled {
		l.answered(s.Proc.Load(), t)
	}
	switch state {
	case segment.StateBlocked, segment.StateMasked, segment.StateExited:
		return 1 // what CPU time it burns there it samples itself (points.h)
	}
	looked := clockNs() // only who is out of calls now is sent a signal: to the program, it is on its way from here on
	proc := s.Proc.Load()
	p := l.proc(proc, s.ProcUID.Load())
	if p == nil {
		return 4 // not verified yet, or never
	}
	if state == segment.StateSignalled {
		l.busy = true
		if wait := l.open(i, t, s, p); wait != 0 {
			return wait
		}
		return l.waiting(i, proc, t, s, p)
	}
	lastTick := s.LastTick.Load()
	kind := uint32(segment.AskGap)
	if picked {
		kind = segment.AskPeriodic
	} else if l.noGaps || lastTick+1 >= l.tick { // it passed a hook in the last tick: no gap
		l.busy = true
		return 1
	}
	if wait := l.open(i, t, s, p); wait != 0 {
		return wait
	}
	if p.quiet || l.seg.Proc(int(proc)).Flags.Load()&(segment.ProcFlagSyncOnly|segment.ProcFlagHandlerChained|segment.ProcFlagLoading) != 0 {
		return l.quietLook(proc, t, p)
	}
	runs, ok := l.runnable(t, p)
	if !ok {
		return l.lose(i, t)
	}
	if !runs {
		return t.sleeps(lastTick)
	}
	l.busy = true
	t.still, t.backoff = 0, 1
	b := &t.budgets[0]
	b.perNs = l.intervalNs
	if kind == segment.AskGap {
		b = &t.budgets[1]
	}
	var known uint64 // by which its handler tells whether it is on a CPU now
	if kind == segment.AskPeriodic || !b.left(t.cpu) {
		if !l.readCPU(t, p) {
			return l.lose(i, t)
		}
		if !b.left(t.cpu) {
			return 1 // it has waited for a CPU rather than had one
		}
		if t.schedstat > 0 {
			known = t.cpu
		}
	}
	s.LookedCPUNs.Store(known)
	if l.ask(i, proc, t, s, p, kind, looked) {
		b.spend(t.cpu)
	}
	return 1
}

// sleeps takes note that the thread was found asleep outside of calls, and returns in how many ticks to look again.
func (t *thread) sleeps(lastTick uint64) uint64 {
	if lastTick != t.lastTick {
		t.lastTick, t.still, t.backoff = lastTick, 0, 1
	} else if t.still++; t.still > stillLooks {
		t.backoff = min(t.backoff*2, maxBackoff)
	}
	return t.backoff
}

func (t *thread) reset(uid uint32) {
	if t.schedstat > 0 {
		rawClose(int(t.schedstat))
	}
	if t.wchan > 0 {
		rawClose(int(t.wchan))
	}
	*t = thread{uid: uid, backoff: 1}
}

// open makes sure that one of the thread's descriptors is open; else it returns when to try again.
func (l *loop) open(i int, t *thread, s *segment.Thread, p *proc) uint64 {
	if t.wchan > 0 || t.schedstat > 0 {
		return 0
	}
	tid := s.TID.Load()
	if c := &l.ctl.procs[s.Proc.Load()%uint32(len(l.ctl.procs))]; c.translate.Load() != 0 {
		tc := &l.ctl.threads[i]
		if tc.uid.Load() != t.uid {
			l.wake.threads = true
			return 4 // the collector has not found it yet
		}
		tid = tc.hostTID.Load()
	}
	name, to := "/schedstat", &t.schedstat
	if p.wchan {
		name, to = "/wchan", &t.wchan
	} else {
		t.wchan = -1
	}
	fd := l.path.reset().str("task/").num(tid).str(name).open(int(p.dir), unix.O_RDONLY)
	switch {
	case noDescriptor(fd):
		if !t.fdCounted {
			t.fdCounted = true
			l.ctl.head.noFD.Add(1)
		}
		return 16 * maxBackoff
	case fd < 0:
		return l.lose(i, t)
	}
	if s.UID.Load() != t.uid { // the slot changed hands while its tid was read
		rawClose(fd)
		return 1
	}
	*to, t.tid = int32(fd), tid
	return 0
}

// lose reports a thread that is no more. The collector frees its slot.
func (l *loop) lose(i int, t *thread) uint64 {
	uid := t.uid
	t.reset(uid)
	t.gone = true
	l.ctl.threads[i].gone.Store(uid)
	l.wake.threads = true
	return 8
}

// runnable: the thread runs or waits for a CPU. Where the kernel does not say, a thread whose CPU time moved within the
// last of the kernel's ticks is taken to. ok: the thread is still there.
func (l *loop) runnable(t *thread, p *proc) (runs, ok bool) {
	if t.wchan > 0 {
		n := pread(int(t.wchan), l.buf[:])
		return n == 1 && l.buf[0] == '0' || n == 0, n >= 0
	}
	ok = l.readCPU(t, p)
	return l.now-t.movedNs < kernelTickNs, ok
}

// readCPU brings the thread's CPU time up to the kernel's last tick or switch; false when the thread is gone.
func (l *loop) readCPU(t *thread, p *proc) bool {
	if t.schedstat == 0 {
		fd := l.path.reset().str("task/").num(t.tid).str("/schedstat").open(int(p.dir), unix.O_RDONLY)
		if noDescriptor(fd) { // cannot tell: no limit
			t.cpu, t.movedNs = t.cpu+kernelTickNs, l.now
			return true
		} else if fd < 0 {
			return false
		}
		t.schedstat = int32(fd)
	}
	n := pread(int(t.schedstat), l.buf[:])
	if n <= 0 {
		return false
	}
	cpu, ok := leadingUint(l.buf[:n])
	if cpu != t.cpu {
		t.cpu, t.movedNs = cpu, l.now
	}
	return ok
}

// ask sends the signal. The order is the handshake's: ask before the CAS, which the thread's
// handler and proxies pair with; the signal after it, so that it never reaches a thread in a slow call.
func (l *loop) ask(i int, proc uint32, t *thread, s *segment.Thread, p *proc, kind uint32, looked int64) bool {
	gate := &l.seg.Proc(int(proc)).Gate
	if !gate.CompareAndSwap(segment.GateOpen, segment.GateSending) {
		return false // it is about to exec, or to confine its system calls
	}
	defer gate.And(^uint32(segment.GateSending))
	s.Ask.Store(kind)
	s.AskedNs.Store(uint64(looked))
	s.AskedCPU.Store(currentCPU() + 1)
	if !s.State.CompareAndSwap(segment.StateRunning, segment.StateSignalled) {
		return false // it went into a call
	}
	l.info.signo = l.signalOf(proc)
	l.info.value = l.cookie | uint64(kind)
	if e := l.info.queue(p.hostPID, t.tid); e != 0 {
		s.State.CompareAndSwap(segment.StateSignalled, segment.StateRunning)
		l.ctl.head.failed.Add(1)
		switch -e {
		case int(unix.EPERM):
			l.quieten(proc, p, QuietDenied)
		case int(unix.ESRCH):
			l.lose(i, t)
		}
		return false
	}
	t.askedNs, t.checkAfter = looked, stuckNs
	l.ctl.head.sent.Add(1)
	tc := &l.ctl.threads[i]
	if tc.sentUID.Load() != t.uid {
		tc.sent.Store(0)
		tc.sentUID.Store(t.uid)
	}
	tc.sent.Add(1)
	return true
}

// signalOf is the sampling signal of a process. Its agent may move it, if the user has not chosen it, to another one that is
// ignored by default (sampler/move.h); whatever else the segment says is not sent.
func (l *loop) signalOf(proc uint32) int32 {
	if l.signal == int32(unix.SIGURG) && l.seg.Proc(int(proc)).Signal.Load() == uint32(unix.SIGWINCH) {
		return int32(unix.SIGWINCH)
	}
	return l.signal
}

func (l *loop) answered(proc uint32, t *thread) {
	t.askedNs = 0
	if proc < uint32(len(l.procs)) {
		l.procs[proc].lostInRow = 0
	}
}

// waiting looks into a signal that nobody has taken for long.
func (l *loop) waiting(i int, proc uint32, t *thread, s *segment.Thread, p *proc) uint64 {
	if t.askedNs == 0 { // by a sampler before this one, or the target wrote the state itself
		t.askedNs, t.checkAfter = l.now, stuckNs
	}
	age := l.now - t.askedNs
	if age < t.checkAfter {
		return 1
	}
	t.checkAfter = min(t.checkAfter*2, t.checkAfter+maxStuckWait)
	fate, ok := l.fate(proc, t, p)
	switch {
	case !ok:
		return l.lose(i, t)
	case fate == fateNoHandler:
		l.giveUp(t, s)
		l.quieten(proc, p, QuietNoHandler)
	case fate == fateLost, fate == fateTaken && age > 10*stuckNs:
		l.giveUp(t, s)
		if p.lostInRow++; p.lostInRow >= 16 {
			l.quieten(proc, p, QuietNoHandler)
		}
	}
	return 1
}

func (l *loop) giveUp(t *thread, s *segment.Thread) {
	if s.State.CompareAndSwap(segment.StateSignalled, segment.StateRunning) {
		l.ctl.head.stuck.Add(1)
	}
	t.askedNs = 0
}

type fate int

const (
	fatePending   fate = iota // it waits for the thread to run, or to unblock it
	fateTaken                 // blocked and not pending: the handler runs, or somebody took it by sigwait
	fateNoHandler             // nobody catches it
	fateLost                  // caught, not blocked, not pending, and still no answer
)

// fate is what became of the signal, by the thread's masks; false when the thread is gone.
func (l *loop) fate(proc uint32, t *thread, p *proc) (fate, bool) {
	fd := l.path.reset().str("task/").num(t.tid).str("/status").open(int(p.dir), unix.O_RDONLY)
	if noDescriptor(fd) {
		return fatePending, true
	}
	if fd < 0 {
		return 0, false
	}
	n := pread(fd, l.buf[:])
	rawClose(fd)
	if n <= 0 {
		return 0, false
	}
	return fateOf(l.buf[:n], 1<<(l.signalOf(proc)-1)), true
}

func fateOf(status []byte, bit uint64) fate {
	pending, ok1 := statusMask(status, "SigPnd:")
	blocked, ok2 := statusMask(status, "SigBlk:")
	caught, ok3 := statusMask(status, "SigCgt:")
	switch {
	case !ok1 || !ok2 || !ok3:
		return fatePending // cannot tell: cut by thousands of group ids
	case caught&bit == 0:
		return fateNoHandler
	case pending&bit != 0:
		return fatePending
	case blocked&bit != 0:
		return fateTaken
	}
	return fateLost
}

// quietLook sees now and then whether our handler has come back.
func (l *loop) quietLook(proc uint32, t *thread, p *proc) uint64 {
	if p.quiet && l.now >= p.quietUntil {
		if fate, ok := l.fate(proc, t, p); ok && fate != fateNoHandler {
			l.unquieten(proc, p)
			return 1
		}
		p.quietUntil = l.now + p.quietFor
	}
	return maxBackoff
}
