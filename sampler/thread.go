// What the sampler does with one thread: whether it ran, whether it is to be asked for its stack, and what
// became of the asking.
package sampler

import (
	"github.com/hbtrace/hbtrace/segment"
	"golang.org/x/sys/unix"
)

// thread is what the sampler knows of the thread in one slot.
//
// The kernel brings a running thread's CPU counter up to date only at its own tick (every 4 ms at HZ=250) and
// at context switches. In between, the counter of a thread that has been running is carried forward by the
// clock (busy, estimate); because that is a guess, and because a thread that went to sleep in a system call
// that nobody wraps must not be disturbed, wchan is read before any signal.
type thread struct {
	uid       uint32
	tid       uint32 // in our pid namespace
	schedstat int32  // kept open: pins the task, a tid that is used again does not lead here. 0 not open
	wchan     int32  // "0" while the thread can run. 0 not open, -1 cannot be
	gone      bool
	started   bool // cpu, seen and due are set
	busy      bool // it ran most of the time between the counter's last two moves
	fdCounted bool

	backoff  uint64 // ticks between looks
	still    int    // looks since the counter last moved or a hook was passed
	lastTick uint64 // slot's last_tick at the last look
	cpu      uint64 // counter at the last look
	seen     uint64 // estimate at the last look
	due      uint64 // estimate that justifies the periodic samples so far
	movedNs  int64  // when the counter was last seen to move
	rng      uint64

	askedNs    int64 // our signal is in flight since; 0 none
	checkAfter int64 // age at which it is looked into
}

// look deals with slot i and returns in how many ticks to look again.
func (l *loop) look(i int) uint64 {
	s, t := l.seg.Thread(i), &l.threads[i]
	uid := s.UID.Load()
	if uid != t.uid {
		t.reset(uid)
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
	proc := s.Proc.Load()
	p := l.proc(proc, s.ProcUID.Load())
	if p == nil {
		return 4 // not verified yet, or never
	}
	if wait := l.open(i, t, s, p); wait != 0 {
		return wait
	}
	if state == segment.StateSignalled {
		return l.waiting(i, proc, t, s, p)
	}
	if p.quiet || l.seg.Proc(int(proc)).Flags.Load()&(segment.ProcFlagSyncOnly|segment.ProcFlagHandlerChained) != 0 {
		return l.quietLook(proc, t, p)
	}

	n := pread(int(t.schedstat), l.buf[:])
	cpu, ok := uint64(0), false
	if n > 0 {
		cpu, ok = leadingUint(l.buf[:n])
	}
	if !ok {
		return l.lose(i, t)
	}
	lastTick := s.LastTick.Load()
	hooked := lastTick != t.lastTick
	t.lastTick = lastTick
	ran := t.progress(cpu, l.now, l.intervalNs)
	switch {
	case l.chosen(t):
		if l.runnable(t, p) && l.ask(i, proc, t, s, p, segment.AskPeriodic) {
			t.advanceDue(l.intervalNs)
		}
	case ran >= uint64(l.tickNs)/2 && lastTick+1 < l.tick:
		if l.runnable(t, p) {
			l.ask(i, proc, t, s, p, segment.AskGap)
		}
	}
	if ran > 0 || hooked {
		t.still, t.backoff = 0, 1
	} else if t.still++; t.still > stillTicks { // before, it may run and not have been counted yet
		t.backoff = min(t.backoff*2, maxBackoff)
	}
	return t.backoff
}

// chosen decides whether the moment of this look is one to sample the thread at, if it is on a CPU.
//
// Every moment has the same chance, whatever the thread did before: that makes the samples unbiased. (Asking
// once enough CPU time has gone by is not: for a thread that runs in bursts the counter moves when a burst
// ends, so the request would always be met early in the next one.) The CPU clock only bounds the number: a
// thread that waits for a CPU most of the time looks as runnable as one that runs.
func (l *loop) chosen(t *thread) bool {
	return t.seen+lagNs >= t.due && t.random()%l.intervalNs < l.elapsed*uint64(l.tickNs)
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

// open makes sure that the thread's descriptor is open; else it returns when to try again.
func (l *loop) open(i int, t *thread, s *segment.Thread, p *proc) uint64 {
	if t.schedstat != 0 {
		return 0
	}
	tid := s.TID.Load()
	if c := &l.ctl.procs[s.Proc.Load()%uint32(len(l.ctl.procs))]; c.translate.Load() != 0 {
		tc := &l.ctl.threads[i]
		if tc.uid.Load() != t.uid {
			return 4 // the collector has not found it yet
		}
		tid = tc.hostTID.Load()
	}
	fd := l.path.reset().str("task/").num(tid).str("/schedstat").open(int(p.dir), unix.O_RDONLY)
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
	t.schedstat, t.tid = int32(fd), tid
	return 0
}

// lose reports a thread that is no more. The collector frees its slot.
func (l *loop) lose(i int, t *thread) uint64 {
	uid := t.uid
	t.reset(uid)
	t.gone = true
	l.ctl.threads[i].gone.Store(uid)
	return 8
}

// progress takes a new value of the counter and returns by how much the estimate grew.
func (t *thread) progress(cpu uint64, now int64, interval uint64) (ran uint64) {
	if !t.started || cpu < t.cpu {
		t.started = true
		t.rng = uint64(t.uid)*0x9e3779b97f4a7c15 | 1
		t.cpu, t.seen, t.movedNs = cpu, cpu, now
		t.due = cpu
		return 0
	}
	estimate := cpu
	switch {
	case cpu != t.cpu:
		elapsed := now - t.movedNs
		t.busy = elapsed < 2*kernelTickNs && int64(cpu-t.cpu)*5 >= elapsed*3
		t.cpu, t.movedNs = cpu, now
	case t.busy:
		estimate += uint64(min(max(now-t.movedNs, 0), kernelTickNs))
	}
	if estimate > t.seen {
		ran = estimate - t.seen
	}
	t.seen = estimate
	return ran
}

// advanceDue accounts for a periodic sample: its CPU time is spent. What was saved up while no tick came by does
// not count for more than the lag.
func (t *thread) advanceDue(interval uint64) {
	t.due = max(t.due+lagNs, t.seen) - lagNs + interval
}

// random is xorshift64: the same thread uid gives the same sequence.
func (t *thread) random() uint64 {
	x := t.rng
	x ^= x << 13
	x ^= x >> 7
	x ^= x << 17
	t.rng = x
	return x
}

// runnable: the thread runs or waits for a CPU. True as well when the kernel does not say.
func (l *loop) runnable(t *thread, p *proc) bool {
	if t.wchan == 0 {
		fd := l.path.reset().str("task/").num(t.tid).str("/wchan").open(int(p.dir), unix.O_RDONLY)
		t.wchan = int32(max(fd, -1))
	}
	if t.wchan < 0 {
		return true
	}
	n := pread(int(t.wchan), l.buf[:])
	if n > 0 && !(n == 1 && l.buf[0] == '0') {
		t.busy = false
		return false
	}
	return true
}

// ask sends the signal. The order is the handshake's: ask before the CAS, which the thread's
// handler and proxies pair with; the signal after it, so that it never reaches a thread in a slow call.
func (l *loop) ask(i int, proc uint32, t *thread, s *segment.Thread, p *proc, kind uint32) bool {
	now := clockNs()
	if l.info.signo >= 32 { // it kills a program that has just been exec'ed: not while one is
		gate := &l.seg.Proc(int(proc)).Gate
		if !gate.CompareAndSwap(segment.GateOpen, segment.GateSending) {
			return false
		}
		defer gate.And(^uint32(segment.GateSending))
	}
	s.Ask.Store(kind)
	s.AskedNs.Store(uint64(now))
	if !s.State.CompareAndSwap(segment.StateRunning, segment.StateSignalled) {
		return false // it went into a call
	}
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
	t.askedNs, t.checkAfter = now, stuckNs
	l.ctl.head.sent.Add(1)
	tc := &l.ctl.threads[i]
	if tc.sentUID.Load() != t.uid {
		tc.sent.Store(0)
		tc.sentUID.Store(t.uid)
	}
	tc.sent.Add(1)
	return true
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
	fate, ok := l.fate(t, p)
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
func (l *loop) fate(t *thread, p *proc) (fate, bool) {
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
	return fateOf(l.buf[:n], l.signalBit), true
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
		if fate, ok := l.fate(t, p); ok && fate != fateNoHandler {
			l.unquieten(proc, p)
			return 1
		}
		p.quietUntil = l.now + p.quietFor
	}
	return maxBackoff
}
