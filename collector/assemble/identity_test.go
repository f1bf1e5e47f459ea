// identity_test.go: who is known from slots alone, how processes follow each other, and how things end.
package assemble

import (
	"testing"

	"github.com/hbtrace/hbtrace/hooks"
	"github.com/hbtrace/hbtrace/segment"
	"github.com/hbtrace/hbtrace/trace"
)

func newSegment(t testing.TB) *segment.Segment {
	t.Helper()
	s, err := segment.Create(segment.Config{Threads: 8, Procs: 8, Rings: 2, RingBytes: 65536})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// slotProc fills a process slot the way an agent does.
func slotProc(s *segment.Segment, i int, uid, pid, ppid, host, parent, flags uint32, start trace.Ns, exe string) *segment.Proc {
	p := s.Proc(i)
	p.PID.Store(pid)
	p.PPID.Store(ppid)
	p.HostPID.Store(host)
	p.ParentUID.Store(parent)
	p.Flags.Store(flags)
	p.StartNs.Store(uint64(start))
	copy(p.Exe[:], exe)
	p.UID.Store(uid)
	p.State.Store(segment.ProcLive)
	s.Header().ProcsHigh.Store(max(s.Header().ProcsHigh.Load(), uint32(i+1)))
	return p
}

func slotThread(s *segment.Segment, i int, uid, procUID, tid uint32, start trace.Ns) *segment.Thread {
	x := s.Thread(i)
	x.ProcUID.Store(procUID)
	x.TID.Store(tid)
	x.StartNs.Store(uint64(start))
	x.CPUStartNs.Store(500)
	copy(x.Name[:], "slot")
	x.UID.Store(uid)
	s.Header().ThreadsHigh.Store(max(s.Header().ThreadsHigh.Load(), uint32(i+1)))
	return x
}

// TestLostThreadRecord: a thread whose THREAD record the ring had no room for is known from its slot.
func TestLostThreadRecord(t *testing.T) {
	s := newSegment(t)
	slotProc(s, 3, 5, 77, 1, 0, 0, 0, 10, "/bin/app")
	slotThread(s, 2, 9, 5, 4711, 20)
	k := newKit(t, Config{Segment: s})
	g := newAgent(9, 5)
	g.drop(1)
	k.put(g.sample(segment.SamplePeriodic, 0, 100, 800, pcs(1)))
	k.EndPass()
	k.EndPass()
	k.Flush()
	th := k.threads[9]
	if th.Proc != 5 || th.TID != 4711 || th.Name != "slot" || th.Start != 20 {
		t.Errorf("%+v", th)
	}
	if p := k.procs[5]; p.PID != 77 || p.Exe != "/bin/app" || p.Start != 10 {
		t.Errorf("%+v", p)
	}
	if e := k.one(trace.KindCPU); e.CPU != 300 {
		t.Errorf("CPU %d, the slot says that it began at 500", e.CPU)
	}
	if l := k.one(trace.KindLost); l.Count != 1 {
		t.Errorf("%+v", l)
	}
}

// TestMainProgramPath: the main program's MODULE record has no path.
func TestMainProgramPath(t *testing.T) {
	s := newSegment(t)
	slotProc(s, 0, 1, 77, 1, 0, 0, 0, 10, "/bin/app")
	k := newKit(t, Config{Segment: s})
	g := newAgent(1, 1)
	k.put(g.thread(10), g.module(11, "", 0x1000, 0x2000, 0))
	if m, off := k.leaf(g, 20, 0x1004); m.Path != "/bin/app" || off != 0x1004 {
		t.Errorf("%+v %#x", m, off)
	}
}

func TestExecAndSpawn(t *testing.T) {
	s := newSegment(t)
	k := newKit(t, Config{Segment: s, Describe: func(uid uint32, p *trace.Process) { p.Cmdline = []string{"process", p.Exe} }})
	// A shell forks, and the child execs; the shell also spawns a program with vfork.
	slotProc(s, 0, 1, 10, 1, 10, 0, 0, 100, "/bin/sh")
	slotProc(s, 1, 2, 11, 10, 0, 1, segment.ProcFlagForked, 200, "/bin/sh")
	slotProc(s, 2, 3, 11, 10, 11, 0, 0, 300, "/bin/ls")
	slotProc(s, 3, 4, 12, 10, 12, 0, 0, 400, "/bin/vf")
	x := slotThread(s, 0, 2, 2, 11, 200)
	x.InHook.Store(uint32(hooks.Read))
	agents := []*agent{nil, newAgent(1, 1), newAgent(2, 2), newAgent(3, 3), newAgent(4, 4)}
	// The sub-buffer of the youngest is read first, and the fork child's record never comes.
	for _, uid := range []uint32{4, 3, 1} {
		k.put(agents[uid].thread(trace.Ns(uid * 100)))
	}
	for range 5 {
		k.EndPass()
	}
	for id, want := range map[trace.ProcID]trace.Process{
		1: {Parent: 0, PID: 10, Exe: "/bin/sh", Start: 100},
		2: {Parent: 1, PID: 11, Exe: "/bin/sh", Start: 200, End: 300, Forked: true},
		3: {Parent: 2, PID: 11, Exe: "/bin/ls", Start: 300},
		4: {Parent: 1, PID: 12, Exe: "/bin/vf", Start: 400},
	} {
		got := k.procs[id]
		if got.ID != id || got.Parent != want.Parent || got.PID != want.PID || got.Exe != want.Exe || got.Start != want.Start || got.End != want.End || got.Forked != want.Forked {
			t.Errorf("%+v, want %+v", got, want)
		}
		if len(got.Cmdline) != 2 || got.Cmdline[1] != want.Exe {
			t.Errorf("process %d was not described: %q", id, got.Cmdline)
		}
	}
	// The exec ended the child's thread.
	if e := k.one(trace.KindThreadExit); e.Thread != 2 || e.Time != 300 {
		t.Errorf("%+v", e)
	}
}

// TestKilled: a process that leaves no goodbye. What its slots say is read before ProcGone returns.
func TestKilled(t *testing.T) {
	s := newSegment(t)
	slotProc(s, 0, 1, 10, 1, 10, 0, 0, 1, "/bin/app").Lost.Store(3)
	x := slotThread(s, 0, 1, 1, 10, 2)
	k := newKit(t, Config{Segment: s})
	g := newAgent(1, 1)
	k.put(g.thread(2), g.sample(segment.SamplePeriodic, 0, 50e6, 1400, pcs(1)))
	x.State.Store(segment.StateBlocked)
	x.InHook.Store(uint32(hooks.Read))
	x.InObject.Store(7)
	x.InTick.Store(60)
	x.InPC.Store(0x4444)
	x.CPUNs.Store(2000)
	x.Seq.Store(g.seq + 2) // two more were dropped
	x.Lost.Store(2)
	x.Calls.Store(12)
	k.EndPass()
	k.ProcGone(1, 100e6)
	x.UID.Store(0) // the caller frees the slots
	s.Proc(0).UID.Store(0)
	for range 8 {
		k.EndPass()
	}
	open := k.one(trace.KindCall)
	if open.Flags != trace.FlagOpen|trace.FlagStackCut || open.Hook != hooks.Read || open.Object != 7 || open.Start != 60e6 || open.Time != 100e6 ||
		k.stack(open.Stack)[0].Off != 0x4444 {
		t.Errorf("%+v", open)
	}
	// The thread began with 1000 ns (its record says so), 400 were sampled, and the slot says 2000.
	if e := k.one(trace.KindThreadExit); e.CPU != 600 || e.Time != 100e6 {
		t.Errorf("%+v", e)
	}
	if l := k.one(trace.KindLost); l.Count != 2 {
		t.Errorf("%+v", l)
	}
	if th := k.threads[1]; th.CPU != 1000 || th.Calls != 12 || th.Lost != 2 || th.End != 100e6 {
		t.Errorf("%+v", th)
	}
	if p := k.procs[1]; p.End != 100e6 || p.Doubt.Lost != 3 {
		t.Errorf("%+v", p)
	}
	if len(k.Assembler.threads) != 0 || len(k.Assembler.procs) != 0 {
		t.Errorf("%d threads and %d processes still kept", len(k.Assembler.threads), len(k.Assembler.procs))
	}
	// A straggler of the dead thread does not raise it.
	k.put(g.sample(segment.SampleSync, 1, 200e6, 0, pcs(1)))
	k.Flush()
	if k.Stats().Broken != 1 || len(k.of(trace.KindThreadStart)) != 1 {
		t.Errorf("%+v", k.Stats())
	}
}

// TestOpenBegins: a call that a killed thread was in began when its entry was sampled, also where work before it was counted there;
// otherwise no earlier than what the thread recorded shortly before, for the sampler may be late with its ticks; what came long after its tick
// a handler recorded, inside.
func TestOpenBegins(t *testing.T) {
	const ms, tick = 1_000_000, 60
	for name, c := range map[string]struct {
		records func(g *agent) [][]byte
		start   trace.Ns
		cut     bool
	}{
		"entry, then work before it": {func(g *agent) [][]byte {
			late := segment.RecSample{Kind: segment.SamplePeriodic, CPUNs: 1400, WeightNs: 400}
			enter := g.sample(segment.SampleEnter, hooks.Read, 61*ms, 0, pcs(0x10, 0x20))
			late.Rec = g.rec(segment.RecTypeSample, 0, 61*ms+2000)
			late.Rec.Flags = segment.RecFlagConsumed
			late.Stack, _ = g.delta(pcs(0x10, 0x20), noLimit)
			return [][]byte{enter, record(&late, segment.RecSampleBytes, nil)}
		}, 61 * ms, false},
		"work shortly before": {func(g *agent) [][]byte {
			return [][]byte{g.sample(segment.SamplePeriodic, 0, 61*ms, 1400, pcs(0x10, 0x30))}
		}, 61 * ms, true},
		"a handler long after": {func(g *agent) [][]byte {
			return [][]byte{g.sample(segment.SamplePeriodic, 0, 80*ms, 1400, pcs(0x10, 0x30))}
		}, tick * ms, true},
	} {
		s := newSegment(t)
		slotProc(s, 0, 1, 10, 1, 10, 0, 0, 1, "/bin/app")
		x := slotThread(s, 0, 1, 1, 10, 2)
		k := newKit(t, Config{Segment: s})
		g := newAgent(1, 1)
		k.put(append([][]byte{g.thread(2)}, c.records(g)...)...)
		x.State.Store(segment.StateBlocked)
		x.InHook.Store(uint32(hooks.Read))
		x.InTick.Store(tick)
		x.InPC.Store(0x20)
		x.Seq.Store(g.seq)
		k.EndPass()
		k.ProcGone(1, 100*ms)
		for range 8 {
			k.EndPass()
		}
		if open := k.one(trace.KindCall); open.Start != c.start || open.Time != 100*ms || (open.Flags&trace.FlagStackCut != 0) != c.cut {
			t.Errorf("%s: %+v, want it to begin at %d", name, open, c.start)
		}
	}
}

// TestExitRecordLost: a thread that freed its slot while its process lives has exited, whatever became of its
// last record; what its slot said of it is over.
func TestExitRecordLost(t *testing.T) {
	for _, finish := range []bool{false, true} {
		s := newSegment(t)
		slotProc(s, 0, 1, 10, 1, 10, 0, 0, 1, "/bin/app")
		x := slotThread(s, 0, 1, 1, 10, 2)
		x.State.Store(segment.StateBlocked)
		x.InHook.Store(uint32(hooks.Read))
		x.InTick.Store(1)
		x.CPUNs.Store(1700)
		k := newKit(t, Config{Segment: s})
		g := newAgent(1, 1)
		k.put(g.thread(2), g.sample(segment.SampleSync, 1, 50e6, 0, pcs(1)))
		k.Refresh()
		x.UID.Store(0)
		if finish {
			k.FinishOpen(100e6)
		} else {
			k.Refresh()
			for range 8 {
				k.EndPass()
			}
		}
		if e := k.one(trace.KindThreadExit); e.Time != 50e6 || e.CPU != 700 {
			t.Errorf("%+v", e)
		}
		if n := len(k.of(trace.KindCall)); n != 0 {
			t.Errorf("%d open calls", n)
		}
	}
}

// TestFuture: a time that has not come yet is no time.
func TestFuture(t *testing.T) {
	k := newKit(t, Config{Segment: newSegment(t)})
	g := newAgent(1, 1)
	k.put(g.thread(trace.Ns(segment.Now()) + 3600e9))
	if k.Stats().Broken != 1 {
		t.Errorf("%+v", k.Stats())
	}
}

func TestFinishOpen(t *testing.T) {
	s := newSegment(t)
	slotProc(s, 0, 1, 10, 1, 10, 0, 0, 1, "/bin/app")
	in := func(slot int, uid uint32, state uint32, hook trace.HookID, object uint64) *segment.Thread {
		x := slotThread(s, slot, uid, 1, 100+uid, 2)
		x.State.Store(state)
		x.InHook.Store(uint32(hook))
		x.InObject.Store(object)
		x.InTick.Store(40)
		return x
	}
	in(0, 1, segment.StateRunning, hooks.PthreadMutexLock, 0xabc).InOwnerTID.Store(102)
	in(1, 2, segment.StateRunning, 0, 0)                   // runs
	in(2, 3, segment.StateBlocked, hooks.Poll, 0)          // its entry was sampled
	in(3, 4, segment.StateRunning, hooks.Poll, 0)          // has not gone to sleep
	in(4, 5, segment.StateBlocked, hooks.Nanosleep, 0)     // never wrote a record
	in(5, 6, segment.StateBlocked, trace.HookID(60000), 0) // no such hook
	k := newKit(t, Config{Segment: s})
	for uid := uint32(1); uid <= 6; uid++ {
		if g := newAgent(uid, 1); uid != 5 {
			k.put(g.thread(2))
			if uid == 3 {
				s.Thread(2).InPC.Store(0x22)
				k.put(g.sample(segment.SampleEnter, hooks.Poll, 40_500_000, 0, pcs(0x11, 0x22)))
			}
		}
	}
	k.FinishOpen(100e6)
	open := map[trace.ThreadID]trace.Event{}
	for _, e := range k.of(trace.KindWait, trace.KindCall) {
		if e.Flags&trace.FlagOpen == 0 || e.Time != 100e6 {
			t.Errorf("%+v", e)
		}
		open[e.Thread] = e
	}
	if len(open) != 3 {
		t.Fatalf("%+v", open)
	}
	if e := open[1]; e.Kind != trace.KindWait || e.Owner != 2 || e.Object != 0xabc || e.Start != 40e6 || e.Flags&trace.FlagNoStack == 0 {
		t.Errorf("%+v", e)
	}
	if e := open[3]; e.Kind != trace.KindCall || e.Start != 40_500_000 || len(k.stack(e.Stack)) != 2 || e.Same != 2 {
		t.Errorf("%+v", e)
	}
	if e := open[5]; e.Hook != hooks.Nanosleep || e.Thread != 5 {
		t.Errorf("%+v", e)
	}
	// Everybody is known, the silent ones as well; nobody has ended.
	if len(k.threads) != 6 || len(k.of(trace.KindThreadExit)) != 0 {
		t.Errorf("%d threads, %+v", len(k.threads), k.of(trace.KindThreadExit))
	}
}

// TestRetired: a session that starts threads for weeks does not keep them, and still knows their names when a
// late record refers to one.
func TestRetired(t *testing.T) {
	k := newKit(t, Config{})
	w := newAgent(1, 1)
	k.put(w.thread(1))
	for uid := uint32(2); uid < 500; uid++ {
		g := newAgent(uid, 1)
		k.put(g.thread(trace.Ns(uid)), g.exit(trace.Ns(uid+1), 0))
		k.EndPass()
	}
	for range 5 {
		k.EndPass()
	}
	if n := len(k.Assembler.threads); n != 1 {
		t.Errorf("%d threads kept", n)
	}
	if n := len(k.Assembler.procs[1].tids); n != 1 {
		t.Errorf("%d thread numbers kept", n)
	}
	k.put(w.interval(hooks.PthreadMutexLock, 1000, 2000, func(r *segment.RecInterval) { r.Releaser = 77 }))
	k.Flush()
	if e := k.one(trace.KindWait); e.Releaser != 77 {
		t.Errorf("%+v", e)
	}
}

func TestDoubts(t *testing.T) {
	s := newSegment(t)
	p := slotProc(s, 0, 1, 10, 1, 10, 0, segment.ProcFlagSyncOnly|segment.ProcFlagMutexOpaque, 1, "/bin/app")
	p.Disabled.Store(segment.OffCollectorSilent)
	p.AllocTableFull.Store(4)
	k := newKit(t, Config{Segment: s})
	k.Refresh()
	d := k.procs[1].Doubt
	if !d.SyncOnly || !d.MutexOpaque || d.HandlerChained || d.AllocTableFull != 4 || d.Disabled == "" {
		t.Errorf("%+v", d)
	}
	n := 0
	k.Assembler.cfg.OnProcess = func(trace.Process) { n++ }
	k.Refresh()
	if n != 0 {
		t.Error("announced again although nothing had changed")
	}
}

// TestAttachedAfterItsFirstRecords: what the launcher knows of a process may come after its first records.
func TestAttachedAfterItsFirstRecords(t *testing.T) {
	s := newSegment(t)
	known := false
	k := newKit(t, Config{Segment: s, Describe: func(uid uint32, p *trace.Process) {
		if known {
			p.Cmdline = []string{"app", "-x"}
		}
	}})
	slotProc(s, 0, 1, 10, 1, 10, 0, 0, 100, "/bin/app")
	k.put(newAgent(1, 1).thread(100))
	k.EndPass()
	if got := k.procs[1]; got.Exe != "/bin/app" || got.Cmdline != nil {
		t.Fatalf("%+v", got)
	}
	known = true
	k.Attached(1)
	k.Attached(7) // never met
	k.EndPass()
	if got := k.procs[1]; len(got.Cmdline) != 2 {
		t.Errorf("%+v", got)
	}
	if len(k.procs) != 1 {
		t.Errorf("%d processes", len(k.procs))
	}
}
