// The session's processes: how they are met, proven, watched and let go.
//
// A process is met when its agent takes the segment (attach, from the server's goroutines), or, for fork
// children, when its slot appears (meetForks). It is gone when its pidfd says so, or when another image has
// attached from the same pid (exec). What it had written is drained before its slots are freed: they hold the
// counters that no record repeats.
package collector

import (
	"iter"
	"slices"
	"time"

	"github.com/hbtrace/hbtrace/segment"
	"github.com/hbtrace/hbtrace/trace"
	"golang.org/x/sys/unix"
)

// process is one of the session.
type process struct {
	slot     int
	uid      uint32
	id       identity
	verified bool // id is set
	cmdline  []string
	exe      string
	tries    int       // to verify a fork child
	nextTry  time.Time // of them
	gone     bool      // seen to be dead or replaced

	modulesGen uint32    // of the slot when it was last looked at
	reloads    int       // looks at its mappings still to come
	moved      time.Time // when modulesGen was seen to move
}

// keepPast is how many processes are remembered after their end: their fork children share their command line.
const keepPast = 4096

// verifyTries bounds the search for a fork child that cannot be found: it may have ended already.
const verifyTries = 8

// attach takes in a process whose agent has answered. Called from the server.
func (s *session) attach(a attachment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.procs[a.uid] != nil {
		a.id.close()
		return
	}
	if p := s.owner(a.id.pid); p != nil {
		s.depart(p) // exec: the image that was there is no more
	}
	p := &process{slot: a.slot, uid: a.uid, cmdline: a.cmdline, exe: a.exe}
	s.know(p)
	s.newcomers = append(s.newcomers, p.uid)
	s.attachedCount++
	s.trust(p, a.id)
}

// know takes in a process that runs. s.mu is held.
func (s *session) know(p *process) {
	if s.live == nil {
		s.live = map[uint32]*process{}
	}
	s.procs[p.uid], s.live[p.uid] = p, p
}

// introduce completes processes that attached since the last pass.
func (s *session) introduce() {
	s.mu.Lock()
	newcomers := s.newcomers
	s.newcomers = nil
	s.mu.Unlock()
	for _, uid := range newcomers {
		s.asm.Attached(uid)
	}
}

// titlesAtOnce bounds the work of one look at titles.
const titlesAtOnce = 64

// retitle looks at the command lines of living processes again: servers call themselves and their children by what these do
// ("postgres: checkpointer").
func (s *session) retitle() {
	type one struct {
		uid uint32
		pid int
	}
	var look []one
	s.mu.Lock()
	for uid, p := range s.live { // in no order: where there are too many, others are looked at each time
		if p.verified && !p.gone && len(look) < titlesAtOnce {
			look = append(look, one{uid, p.id.pid})
		}
	}
	s.mu.Unlock()
	for _, l := range look {
		cmdline, _ := describe(l.pid)
		if len(cmdline) == 0 {
			continue
		}
		s.mu.Lock()
		p := s.procs[l.uid]
		changed := p != nil && !p.gone && !slices.Equal(p.cmdline, cmdline)
		if changed {
			p.cmdline = cmdline
		}
		s.mu.Unlock()
		if changed {
			s.asm.Attached(l.uid)
		}
	}
}

// trust makes p a process that may be signalled and is watched. s.mu is held.
func (s *session) trust(p *process, id identity) {
	p.id, p.verified = id, true
	s.nestedSeen = s.nestedSeen || id.nested
	if id.pidfd > 0 {
		ev := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(p.uid)}
		if err := unix.EpollCtl(s.epoll, unix.EPOLL_CTL_ADD, id.pidfd, &ev); err != nil {
			p.id.close() // then it is looked at under /proc
		}
	}
	s.sampler.Verify(p.slot, p.uid, id.pid, id.start, id.nested)
	if s.tables != nil && s.seg.Proc(p.slot).Flags.Load()&segment.ProcFlagForked != 0 {
		s.publishing.Add(1)
		go func() { // until then it goes on with its parent's
			defer s.publishing.Done()
			s.tables.publish(id.pid, p.slot, p.uid)
		}()
	}
}

// reload follows processes that say that they load and unload objects. They say so before they do, hence the
// looks some time after.
func (s *session) reload(now time.Time) {
	if s.tables == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.live {
		if p.gone || !p.verified {
			continue
		}
		if gen := s.seg.Proc(p.slot).ModulesGen.Load(); gen != p.modulesGen {
			p.modulesGen, p.moved, p.reloads = gen, now, len(reload)
		}
		if p.reloads > 0 && now.Sub(p.moved) >= reload[len(reload)-p.reloads] {
			p.reloads--
			s.publishing.Add(1)
			go func(pid, slot int, uid uint32) {
				defer s.publishing.Done()
				s.tables.publish(pid, slot, uid)
			}(p.id.pid, p.slot, p.uid)
		}
	}
}

// unsettled: a process is to be looked for, or its modules, soon again.
func (s *session) unsettled() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.live {
		if !p.gone && (p.reloads > 0 || !p.verified && p.tries < verifyTries) {
			return true
		}
	}
	return false
}

// depart marks p as ended; reap frees its slots after the next pass. s.mu is held.
func (s *session) depart(p *process) {
	if p.gone {
		return
	}
	p.gone = true
	delete(s.live, p.uid)
	s.departed = append(s.departed, p)
	if p.verified {
		s.sampler.Forget(p.slot)
	}
	p.id.close() // leaves the epoll set by itself
}

// meetForks finds slots that fork children have claimed, and proves whose they are.
func (s *session) meetForks(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.seg.HighProcs() {
		slot := s.seg.Proc(i)
		state, uid := slot.State.Load(), slot.UID.Load()
		if uid == 0 || (state != segment.ProcLive && state != segment.ProcExited) || slot.Flags.Load()&segment.ProcFlagForked == 0 {
			continue
		}
		p := s.procs[uid]
		if p == nil {
			if len(s.procs) > 2*s.seg.Geometry().Procs+keepPast {
				continue // a target that invents processes
			}
			p = &process{slot: i, uid: uid}
			if parent := s.procs[slot.ParentUID.Load()]; parent != nil {
				p.cmdline, p.exe = parent.cmdline, parent.exe
			}
			s.know(p)
		}
		if p.verified || p.gone || p.slot != i || p.tries >= verifyTries || now.Before(p.nextTry) {
			continue
		}
		p.tries++
		p.nextTry = now.Add(time.Duration(p.tries*p.tries) * 5 * time.Millisecond)
		id, ok := verifyFork(slot, s.inode, s.findNested)
		if ok {
			owner := s.owner(id.pid)
			if owner == nil {
				s.trust(p, id)
				continue
			}
			id.close()
			if owner.uid > p.uid {
				s.depart(p) // it has already become another image by exec
				continue
			}
		}
		switch {
		case !ok && !s.exists(slot):
			s.depart(p) // ended before it was looked at: its records are good
		case p.tries == verifyTries:
			s.unverified++
		}
	}
}

// owner is the live process of the session that has this pid.
func (s *session) owner(pid int) *process {
	for _, p := range s.live {
		if p.verified && !p.gone && p.id.pid == pid {
			return p
		}
	}
	return nil
}

// exists: a process that could be the slot's runs, with its pid in our pid namespace or in its own.
func (s *session) exists(slot *segment.Proc) bool {
	pid := int(slot.PID.Load())
	return pid > 0 && (running(pid) || s.findNested(pid) != 0)
}

// findNested looks through /proc for a process of another pid namespace. That is costly, so where none has been
// met yet it is done now and then only.
func (s *session) findNested(inner int) int {
	now := time.Now()
	if !s.nestedSeen && now.Sub(s.lastScan) < 100*time.Millisecond {
		return 0
	}
	s.lastScan = now
	return findNested(inner, s.inode)
}

// watch finds the processes that have ended since it was last called.
func (s *session) watch(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var events [64]unix.EpollEvent
	for {
		n, err := unix.EpollWait(s.epoll, events[:], 0)
		if err != nil || n <= 0 {
			break
		}
		for _, e := range events[:n] {
			if p := s.procs[uint32(e.Fd)]; p != nil {
				s.depart(p)
			}
		}
		if n < len(events) {
			break
		}
	}
	if now.Sub(s.lastLook) < 200*time.Millisecond {
		return
	}
	s.lastLook = now
	for _, p := range s.live {
		switch {
		case p.gone:
		case p.verified && p.id.pidfd == 0:
			if !p.id.lives() {
				s.depart(p)
			}
		case !p.verified && p.tries >= verifyTries:
			// A fork child that was never found. Its slot is freed when nobody has the pid that it claims.
			slot := s.seg.Proc(p.slot)
			if slot.UID.Load() != p.uid || !s.exists(slot) {
				s.depart(p)
			}
		}
	}
}

// alive is how many processes are known to run.
func (s *session) alive() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, p := range s.live {
		if !p.gone && (p.verified || (p.tries < verifyTries && s.exists(s.seg.Proc(p.slot)))) {
			n++
		}
	}
	return n
}

// takeDeparted is what ended before the pass that follows.
func (s *session) takeDeparted() []*process {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.departed
	s.departed = nil
	return d
}

// reap lets go of processes that ended before the last pass: all that they wrote has been taken in.
func (s *session) reap(gone []*process) {
	if len(gone) == 0 {
		return
	}
	now := trace.Ns(segment.Now())
	uids := map[uint32]bool{}
	for _, p := range gone {
		uids[p.uid] = true
		s.countQuiet(p)
		s.asm.ProcGone(p.uid, now)
	}
	dead := map[uint32]bool{}
	var slots []int
	for i := range s.seg.HighThreads() {
		t := s.seg.Thread(i)
		if uid := t.UID.Load(); uid != 0 && uid != segment.UIDClaiming && uids[t.ProcUID.Load()] {
			dead[uid] = true
			slots = append(slots, i)
		}
	}
	s.ring.ReapLocks(func(thread uint32) bool { return !dead[thread] })
	for _, i := range slots {
		t := s.seg.Thread(i)
		if uid := t.UID.Load(); dead[uid] {
			s.ownInGone += t.OwnStamps.Load()
			t.UID.CompareAndSwap(uid, 0)
		}
	}
	for _, p := range gone {
		slot := s.seg.Proc(p.slot)
		if slot.UID.Load() != p.uid {
			continue
		}
		s.lostInGone += slot.Lost.Load()
		s.ownInGone += slot.OwnStamps.Load()
		slot.UID.Store(0)
		s.tables.withdraw(p.slot)
		slot.State.Store(segment.ProcFree) // last: from here on it can be claimed
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range gone {
		s.past = append(s.past, p.uid)
	}
	for len(s.past) > keepPast {
		delete(s.procs, s.past[0])
		s.past = s.past[1:]
	}
}

// attend does what is due now and then for processes that run: translating thread ids, freeing the slots of
// threads that ended without a word, and telling agents that the sampler has given up on them.
func (s *session) attend() {
	var gone []int
	for i := range turn(&s.goneFrom, s.seg.HighThreads()) {
		if uid := s.seg.Thread(i).UID.Load(); uid != 0 && uid != segment.UIDClaiming && s.sampler.Gone(i) == uid {
			gone = append(gone, i)
		}
	}
	if len(gone) > 0 {
		s.asm.Refresh() // takes what the slots say
		for _, i := range gone {
			if t, uid := s.seg.Thread(i), s.sampler.Gone(i); uid != 0 && t.UID.Load() == uid {
				s.ownInGone += t.OwnStamps.Load() // before the slot can be another thread's
				t.UID.CompareAndSwap(uid, 0)
			}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	nested := map[uint32]*process{}
	for _, p := range s.live {
		if !p.verified || p.gone {
			continue
		}
		if p.id.nested {
			nested[p.uid] = p
		}
		s.countQuiet(p)
	}
	if len(nested) == 0 {
		return
	}
	tids := map[uint32]map[uint32]int{}
	for i := range s.seg.HighThreads() {
		t := s.seg.Thread(i)
		uid := t.UID.Load()
		if uid == 0 || uid == segment.UIDClaiming {
			continue
		}
		procUID := t.ProcUID.Load()
		p := nested[procUID]
		if p == nil || s.sampler.Translated(i) == uid {
			continue
		}
		if tids[procUID] == nil {
			tids[procUID] = hostTIDs(p.id.pid)
		}
		if host, ok := tids[procUID][t.TID.Load()]; ok && t.UID.Load() == uid {
			s.sampler.Translate(i, uid, host)
		}
	}
}

// countSignals keeps how many signals each thread got: a slot says so until it belongs to another. Where there are more
// slots than one call looks at, signals of threads that lived shortly may be missing in their number.
func (s *session) countSignals() {
	for i := range turn(&s.sentFrom, s.seg.HighThreads()) {
		if uid, n := s.sampler.Sent(i); uid != 0 && n != 0 && s.asm.Knows(uid) {
			s.sent[trace.ThreadID(uid)] = n
		}
	}
}

// slotsAtOnce bounds the slots of threads that one pass looks at.
const slotsAtOnce = 1 << 12

// turn is the next slotsAtOnce of n slots, from where it ended the last time.
func turn(from *int, n int) iter.Seq[int] {
	return func(yield func(int) bool) {
		for range min(n, slotsAtOnce) {
			if *from >= n {
				*from = 0
			}
			i := *from
			*from++
			if !yield(i) {
				return
			}
		}
	}
}
