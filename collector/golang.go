// Go programs: which commands are such, their place in the session, and the names of goroutines. What is done to the
// program is in package goruntime.
package collector

import (
	"errors"
	"fmt"

	"github.com/hbtrace/hbtrace/goruntime"
	"github.com/hbtrace/hbtrace/segment"
	"github.com/hbtrace/hbtrace/trace"
)

// inspectGo says whether the file is a Go program without a loader, which no agent can be loaded into; p.golang is set if its
// runtime can be recorded, and there is a note if it cannot.
func (p *program) inspectGo(shown, path string) bool {
	g, err := goruntime.Open(path)
	if errors.Is(err, goruntime.ErrNotGo) || !g.Static {
		return false
	}
	if err != nil {
		p.notes = append(p.notes, fmt.Sprintf("%s is a Go program and is not recorded: %v", shown, err))
	} else if len(p.notes) == 0 { // privileges: it may not be traced
		p.golang = g
	}
	return true
}

// goProcess is a recorded Go program.
type goProcess struct {
	program *goruntime.Program
	table   *goruntime.Table
	pid     int
	bias    uint64 // of its code
	started bool   // it is sampled
}

// runtimeName is what the thread is called that stands for the runtime itself: the scheduler, and the garbage collector where
// it runs for no goroutine.
const runtimeName = "(scheduler)"

// joinGo gives a process its slots in the segment, as an agent would, and announces it. Called while the process is stopped.
func (s *session) joinGo(pid int, p *goruntime.Program) (out goruntime.Session, err error) {
	id, err := identify(pid)
	if err != nil {
		return out, err
	}
	table, err := goruntime.NewTable()
	if err != nil {
		id.close()
		return out, err
	}
	proc := claim(s.seg.Geometry().Procs, func(i int) bool {
		return s.seg.Proc(i).State.CompareAndSwap(segment.ProcFree, segment.ProcClaiming)
	}, &s.seg.Header().ProcsHigh)
	thread := claim(s.seg.Geometry().Threads, func(i int) bool {
		return s.seg.Thread(i).UID.CompareAndSwap(0, segment.UIDClaiming)
	}, &s.seg.Header().ThreadsHigh)
	if proc < 0 || thread < 0 {
		id.close()
		table.Close()
		return out, errors.New("the session has no free slot for another process")
	}
	cmdline, exe := describe(pid)
	now := uint64(segment.Now())
	out = goruntime.Session{
		Segment: s.seg, Table: table, ProcSlot: proc, ThreadSlot: thread, CPU: s.seg.Config().Features&segment.FeatureCPU != 0,
		ProcUID: s.seg.Header().NextProcUID.Add(1), RuntimeUID: s.seg.Header().NextThreadUID.Add(1),
	}
	ps := s.seg.Proc(proc)
	ps.PID.Store(uint32(pid))
	ps.HostPID.Store(uint32(pid))
	ps.ParentUID.Store(0)
	ps.PPID.Store(0)
	ps.StartNs.Store(now)
	ps.Flags.Store(segment.ProcFlagGo)
	ps.Disabled.Store(segment.OffNo)
	ps.ModulesGen.Store(0)
	clear(ps.Exe[copy(ps.Exe[:len(ps.Exe)-1], exe):])
	ps.UID.Store(out.ProcUID)
	ps.State.Store(segment.ProcLive)
	// The slot that stands for the runtime: the sampler leaves threads in this state alone.
	ts := s.seg.Thread(thread)
	ts.State.Store(segment.StateExited)
	ts.Proc.Store(uint32(proc))
	ts.ProcUID.Store(out.ProcUID)
	ts.TID.Store(uint32(pid))
	ts.ParentUID.Store(0)
	ts.Flags.Store(0)
	ts.StartNs.Store(now)
	ts.StartRoutine.Store(0)
	ts.Seq.Store(1) // its THREAD record, which the recorder writes
	ts.CPUNs.Store(0)
	ts.Samples.Store(0)
	ts.InHook.Store(0)
	clear(ts.Name[copy(ts.Name[:], runtimeName):])
	ts.UID.Store(out.RuntimeUID)
	bias := p.Bias(pid)
	s.mu.Lock()
	if s.golang == nil {
		s.golang = map[uint32]*goProcess{}
	}
	s.golang[out.ProcUID] = &goProcess{program: p, table: table, pid: pid, bias: bias}
	s.announced = append(s.announced, procRecord(out, pid, now), moduleRecord(out, p, exe, bias, now), runtimeRecord(out, pid, now))
	s.mu.Unlock()
	s.attach(attachment{slot: proc, uid: out.ProcUID, id: id, cmdline: cmdline, exe: exe})
	return out, nil
}

// claim takes the first slot that try can take, and moves the high-water mark; -1: none.
func claim(n int, try func(int) bool, high interface {
	Load() uint32
	CompareAndSwap(from, to uint32) bool
}) int {
	for i := range n {
		if !try(i) {
			continue
		}
		for h := high.Load(); h <= uint32(i) && !high.CompareAndSwap(h, uint32(i)+1); h = high.Load() {
		}
		return i
	}
	return -1
}

func procRecord(g goruntime.Session, pid int, now uint64) []byte {
	r := segment.RecProc{
		Rec:     segment.Rec{Bytes: segment.RecProcBytes, Type: segment.RecTypeProc, TimeNs: now},
		ProcUID: g.ProcUID, ProcSlot: uint32(g.ProcSlot), PID: uint32(pid), Flags: segment.ProcFlagGo,
	}
	b := make([]byte, segment.RecProcBytes)
	r.Encode(b)
	return b
}

func moduleRecord(g goruntime.Session, p *goruntime.Program, exe string, bias, now uint64) []byte {
	lo, hi := p.Text()
	path := []byte(exe)
	path = path[:min(len(path), segment.MaxRecord-segment.RecModuleBytes)]
	size := (segment.RecModuleBytes + len(path) + 7) &^ 7
	r := segment.RecModule{
		Rec:     segment.Rec{Bytes: uint32(size), Type: segment.RecTypeModule, TimeNs: now},
		ProcUID: g.ProcUID, PathBytes: uint32(len(path)), Bias: bias, Lo: lo + bias, Hi: hi + bias,
	}
	b := make([]byte, size)
	r.Encode(b)
	copy(b[segment.RecModuleBytes:], path)
	return b
}

func runtimeRecord(g goruntime.Session, pid int, now uint64) []byte {
	r := segment.RecThread{
		Rec:     segment.Rec{Bytes: segment.RecThreadBytes, Type: segment.RecTypeThread, Thread: g.RuntimeUID, Seq: 1, TimeNs: now},
		ProcUID: g.ProcUID, TID: uint32(pid), StartNs: now,
	}
	copy(r.Name[:], runtimeName)
	b := make([]byte, segment.RecThreadBytes)
	r.Encode(b)
	return b
}

// sampleGo begins to send a Go program sampling signals, until it has ended or stop is closed.
func (s *session) sampleGo(g *goProcess) {
	if s.seg.Config().Features&segment.FeatureCPU == 0 {
		return
	}
	s.publishing.Add(1)
	go func() {
		defer s.publishing.Done()
		sampler := goruntime.Sampler{PID: g.pid, Cookie: s.seg.Cookie(), PeriodNs: s.seg.Config().CPUPeriodNs}
		if _, ignored := sampler.Run(s.stopGo); ignored {
			s.notes.addf("process %d ignores SIGWINCH, by which Go programs are sampled: no CPU samples of it from then on", g.pid)
		}
	}()
}

// startGo samples what joinGo took in, when the program runs.
func (s *session) startGo() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range s.golang {
		if !g.started {
			g.started = true
			s.sampleGo(g)
		}
	}
}

// isGo says whether the process is a recorded Go program.
func (s *session) isGo(pid int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range s.golang {
		if g.pid == pid {
			return true
		}
	}
	return false
}

// announceGo hands on what the recorder says of Go programs, before the ring says anything of them.
func (s *session) announceGo() {
	s.mu.Lock()
	records := s.announced
	s.announced = nil
	s.mu.Unlock()
	for _, r := range records {
		s.asm.Record(r)
	}
}

// nameGoroutine names a goroutine by the function that it began with.
func (s *session) nameGoroutine(t *trace.Thread) {
	if !t.Goroutine || t.Name != "" || t.StartRoutine.Off == 0 {
		return
	}
	s.mu.Lock()
	g := s.golang[uint32(t.Proc)]
	s.mu.Unlock()
	if g == nil {
		return
	}
	at := t.StartRoutine.Off
	if t.StartRoutine.Module == 0 { // not resolved yet: an address of the process
		at -= g.bias
	}
	t.Name = g.program.Name(at)
}
