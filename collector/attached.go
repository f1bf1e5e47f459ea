// Recording programs that run already: package attach puts the agent into them and takes it out; the rest is as for a command.
package collector

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hbtrace/hbtrace/attach"
	"github.com/hbtrace/hbtrace/segment"
	"github.com/hbtrace/hbtrace/trace"
	"golang.org/x/sys/unix"
)

// joinPoll is how often a program is asked whether it has made its first call: seldom after a second, it may sleep for hours.
const (
	joinPoll     = 2 * time.Millisecond
	joinPollLong = 50 * time.Millisecond
)

// targets are the programs that were attached to.
type targets struct {
	s     *session
	all   []*target
	seen  map[threadOf]trace.ThreadID // threads that are recorded
	quit  chan struct{}
	holds []time.Duration // of all, once they were left
	wg    sync.WaitGroup
}

// threadOf is a process of the recording and a thread id as that process sees it.
type threadOf struct {
	proc trace.ProcID
	tid  int
}

type target struct {
	*attach.Target
	id      identity
	cpu     time.Duration // that the process had used when it was attached to
	at      trace.Ns      // when its calls were redirected
	left    trace.Ns      // when they were given back
	uid     atomic.Uint32 // of the process in the recording; 0: it has made no recorded call yet
	slept   []attach.Thread
	ended   bool  // when hbtrace left
	failure error // of leaving
}

// Attach records processes that run already, until they have ended, o.Duration is over or ctx is done; then it leaves them as they were.
//
// A nil Result means that nothing was recorded and that all processes are as they were.
func Attach(ctx context.Context, o Options, pids []int) (*Result, error) {
	if err := o.fill(); err != nil {
		return nil, err
	}
	for _, pid := range pids { // before anything is made
		if err := attach.Check(pid); err != nil {
			return nil, err
		}
	}
	if len(o.Command) == 0 && len(pids) > 0 {
		o.Command, _ = describe(pids[0])
	}
	s, err := open(&o)
	if err != nil {
		return nil, err
	}
	defer s.close()
	s.targets = &targets{s: s, seen: map[threadOf]trace.ThreadID{}, quit: make(chan struct{})}
	s.start()
	for _, pid := range pids {
		if err := s.targets.add(pid); err != nil {
			s.targets.unhook()
			s.seg.Header().Recording.Store(0)
			s.sampler.Stop()
			s.targets.leave()
			s.abandon()
			return nil, err
		}
	}
	s.keep.began(pids[0])
	c := s.targets.child()
	s.run(ctx, c)
	hurry := make(chan struct{})
	err = s.finish(c, hurry)
	r := s.result()
	if r != nil {
		r.Holds = s.targets.holds
	}
	return r, errors.Join(err, s.targets.failures())
}

// add attaches to one process.
func (g *targets) add(pid int) error {
	s := g.s
	hello := segment.Hello{Magic: segment.Magic, Version: segment.ABIVersion, SegmentBytes: s.seg.Geometry().Bytes}
	fds := []int{s.seg.FD()}
	if s.tables != nil {
		fds = append(fds, s.tables.fd)
		hello.TablesBytes = tablesBytes
	}
	id, err := identify(pid)
	if err != nil {
		return err
	}
	cpu := processCPU(pid)
	t, err := attach.Join(pid, attach.Session{Hello: hello, FDs: fds})
	if err != nil {
		id.close()
		return err
	}
	if other := t.OtherVersion(); other != "" {
		s.notes.add(other)
	}
	a := &target{Target: t, id: id, cpu: cpu, at: trace.Ns(segment.Now())}
	g.all = append(g.all, a)
	s.meta.Attached = append(s.meta.Attached, a.describe())
	var parts []mapped
	lo, hi, offset := t.Text()
	s.placed.add(placed{lo, hi, offset})
	if s.tables != nil {
		parts = s.tables.mapped(pid) // what is new of it is being compiled
	}
	g.wg.Go(func() { g.welcome(a, pid, parts) })
	return nil
}

// welcome waits for the program's first call, and takes it in as a process of the session.
func (g *targets) welcome(t *target, pid int, parts []mapped) {
	begun := time.Now()
	for {
		slot, uid, ok, err := t.Joined()
		if err != nil {
			if !errors.Is(err, os.ErrClosed) && running(pid) {
				g.s.notes.refuse(err.Error())
			}
			return
		}
		if ok {
			if g.take(pid, slot, uid, parts) {
				t.uid.Store(uid)
				g.follow(t.Target, slot, uid)
			}
			return
		}
		pause := joinPoll
		if time.Since(begun) > time.Second {
			pause = joinPollLong
		}
		select {
		case <-g.quit:
			return
		case <-time.After(pause):
		}
	}
}

// follow redirects the calls of what the program loads. It says so before it does; how long that takes is not known, so it is looked at as
// often as unwind tables are. Until then the sampler sends no signals, and no longer.
func (g *targets) follow(t *attach.Target, slot int, uid uint32) {
	p := g.s.seg.Proc(slot)
	for gen := p.ModulesGen.Load(); ; {
		select {
		case <-g.quit:
			return
		case <-time.After(joinPoll):
		}
		if p.UID.Load() != uid {
			return
		}
		now := p.ModulesGen.Load()
		if now == gen {
			continue
		}
		for _, pause := range reload {
			select {
			case <-g.quit:
				return
			case <-time.After(pause):
			}
			if t.PatchNew() != nil {
				return
			}
		}
		if gen = now; p.ModulesGen.Load() == gen {
			p.Flags.And(^uint32(segment.ProcFlagLoading))
		}
	}
}

func (g *targets) take(pid, slot int, uid uint32, parts []mapped) bool {
	s := g.s
	if uint64(slot) >= uint64(s.seg.Geometry().Procs) || uid == 0 || s.seg.Proc(slot).UID.Load() != uid {
		s.notes.refuse(fmt.Sprintf("process %d claims slot %d, which is not its own", pid, slot))
		return false
	}
	id, err := identify(pid)
	if err != nil {
		return false // it has ended: its records are good
	}
	a := attachment{slot: slot, uid: uid, id: id}
	a.cmdline, a.exe = describe(pid)
	s.attach(a)
	if s.tables != nil {
		s.tables.show(slot, uid, parts)
	}
	return true
}

// child stands for the processes, where the session waits for the end of a command: done when all of them have ended.
func (g *targets) child() *child {
	c := &child{done: make(chan struct{}), reaped: true}
	g.wg.Go(func() {
		for {
			left := 0
			for _, t := range g.all {
				if t.id.pidfd > 0 && polled(t.id.pidfd) || !running(t.id.pid) {
					continue
				}
				left++
			}
			if left == 0 {
				close(c.done)
				return
			}
			select {
			case <-g.quit:
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	})
	return c
}

// polled: the process behind a pidfd has ended.
func polled(pidfd int) bool {
	p := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
	n, err := unix.Poll(p, 0)
	return err == nil && n > 0
}

// unhook gives the programs their own calls back.
func (g *targets) unhook() {
	if g == nil {
		return
	}
	close(g.quit) // nobody redirects calls from here on
	g.wg.Wait()
	for _, t := range g.all {
		t.slept = t.StillAsleep() // before a thread is woken to take back what is there
		if t.failure = t.Unhook(); t.failure == nil {
			t.left = trace.Ns(segment.Now())
		}
	}
}

// leave takes back the rest, when the sampler has ended.
func (g *targets) leave() {
	if g == nil {
		return
	}
	for _, t := range g.all {
		g.s.stats.TargetCPU += max(0, processCPU(t.id.pid)-t.cpu)
		if t.failure == nil {
			t.failure = t.Leave()
		}
		var asleep *attach.Asleep
		switch {
		case errors.As(t.failure, &asleep):
			g.s.notes.add(t.failure.Error())
			t.failure = nil
		case t.failure != nil && (!running(t.id.pid) || errors.Is(t.failure, attach.ErrGone)):
			t.failure = nil
		}
		holds := t.Holds()
		g.holds = append(g.holds, holds...)
		g.s.remark(fmt.Sprintf("process %d: threads of it were stopped %d times, %v at most", t.id.pid, len(holds), slices.Max(append(holds, 0))))
		t.Close()
		t.id.close()
	}
	g.leaveForks()
}

// leaveForks leaves the processes that the programs have forked while they were recorded: they have their parents' memory.
func (g *targets) leaveForks() {
	own := map[int]bool{}
	for _, t := range g.all {
		own[t.id.pid] = true
	}
	var forks []int
	g.s.mu.Lock()
	for _, p := range g.s.live {
		if p.verified && !p.gone && !own[p.id.pid] {
			forks = append(forks, p.id.pid)
		}
	}
	g.s.mu.Unlock()
	for _, pid := range forks {
		if _, err := attach.Detach(pid); err != nil && running(pid) {
			g.s.notes.add(err.Error())
		}
	}
}

// met notes a thread that is recorded.
func (g *targets) met(t *trace.Thread) {
	if g != nil {
		g.seen[threadOf{t.Proc, t.TID}] = t.ID
	}
}

func (g *targets) failures() error {
	var err error
	for _, t := range g.all {
		err = errors.Join(err, t.failure)
	}
	return err
}

// processCPU is the CPU time that a process has used; 0 where it is gone.
func processCPU(pid int) time.Duration {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	f := strings.Fields(string(b)[strings.LastIndexByte(string(b), ')')+1:])
	if len(f) < 13 {
		return 0
	}
	user, _ := strconv.ParseInt(f[11], 10, 64)
	system, _ := strconv.ParseInt(f[12], 10, 64)
	const tick = time.Second / 100 // USER_HZ
	return time.Duration(user+system) * tick
}
