package flight

import (
	"os"
	"testing"

	"github.com/hbtrace/hbtrace/stacktable"
	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/tracefile"
)

func TestMain(m *testing.M) {
	os.Setenv("HBTRACE_SYMBOL_CACHE", "off")
	if len(os.Args) > 1 && os.Args[1] == Command {
		os.Exit(Main())
	}
	if len(os.Args) > 1 && os.Args[1] == "record-forever" {
		recordForever()
	}
	os.Exit(m.Run())
}

// producer makes events as a program with threads, locks and ever new stacks does. Equal seeds make equal events.
type producer struct {
	w       *Window
	stacks  *stacktable.Table
	r       *dice
	now     trace.Ns
	threads []*source
	nextTID int
	sent    func(e *trace.Event, frames []trace.Addr) // told of each event; nil: nobody
	frames  map[trace.StackID][]trace.Addr
	waiting map[trace.ThreadID]*trace.Event // what threads are in
}

// source is one thread that the producer makes events of.
type source struct {
	t      trace.Thread
	stack  trace.StackID
	begun  bool
	inWait trace.Ns // since when; 0: it runs
	owner  trace.ThreadID
	object uint64
}

// dice is a small generator, the same on every version of Go.
type dice struct{ s uint64 }

func (r *dice) next() uint64 {
	r.s ^= r.s << 13
	r.s ^= r.s >> 7
	r.s ^= r.s << 17
	return r.s
}

func (r *dice) n(n int) int { return int(r.next() % uint64(n)) }

const producerThreads = 6

func newProducer(t testing.TB, keep Keep, seed uint64) *producer {
	if t != nil {
		t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	}
	stacks := stacktable.New(stacktable.Options{})
	meta := trace.Meta{
		Version: "test", Arch: "amd64", CPUs: 64, TickNs: 1e6, Freq: 499, StartNs: 1e9, Command: []string{"producer"}, ExitStatus: -1,
		Hooks: map[trace.HookID]trace.HookInfo{20: {Name: "pthread_mutex_lock", Class: "LOCK", Object: "ADDR"}},
	}
	w, err := Create(Config{Keep: keep, Meta: &meta, Stacks: stacks})
	if err != nil {
		if t == nil {
			panic(err)
		}
		t.Fatal(err)
	}
	p := &producer{w: w, stacks: stacks, r: &dice{seed*2 + 1}, now: 1e9, frames: map[trace.StackID][]trace.Addr{}, waiting: map[trace.ThreadID]*trace.Event{}}
	w.PutProcess(&trace.Process{ID: 1, PID: 100, Start: p.now, Exe: "/bin/producer"})
	w.PutModule(&trace.Module{ID: 1, Path: "/bin/producer", Lo: 1, Hi: 1 << 40, Kind: trace.ModuleAnon})
	for range producerThreads {
		p.addThread()
	}
	return p
}

func (p *producer) addThread() {
	p.nextTID++
	s := &source{t: trace.Thread{ID: trace.ThreadID(p.nextTID), Proc: 1, TID: 1000 + p.nextTID, Name: "t", Start: p.now, Main: p.nextTID == 1}}
	p.threads = append(p.threads, s)
	p.w.PutThread(&s.t)
}

func (p *producer) emit(e trace.Event) {
	if p.sent != nil {
		var list []trace.Addr
		for id := e.Stack; id != 0; id = p.stacks.Node(id).Parent {
			list = append(list, p.stacks.Node(id).Addr)
		}
		p.sent(&e, list)
	}
	p.w.Event(&e)
}

// newStack gives a thread another stack, some frames of which are those of its last one.
func (p *producer) newStack(s *source) (same uint32) {
	var path []trace.StackID
	for id := s.stack; id != 0; id = p.stacks.Node(id).Parent {
		path = append([]trace.StackID{id}, path...)
	}
	keep := 0
	if len(path) > 0 {
		keep = p.r.n(len(path) + 1)
	}
	id := trace.StackID(0)
	if keep > 0 {
		id = path[keep-1]
	}
	for d := keep; d < 3+p.r.n(5); d++ {
		off := uint64(p.r.n(40)) * 16
		if p.r.n(4) == 0 {
			off = p.r.next() % (1 << 30) // code that is never met again
		}
		id = p.stacks.Push(id, trace.Addr{Module: 1, Off: 16 + off}, trace.HowTable)
	}
	s.stack = id
	return uint32(keep)
}

// step is one event, or a few.
func (p *producer) step() {
	p.now += trace.Ns(1000 + p.r.n(20000))
	s := p.threads[p.r.n(len(p.threads))]
	if !s.begun {
		s.begun = true
		p.emit(trace.Event{Kind: trace.KindThreadStart, Thread: s.t.ID, Time: p.now, Start: p.now, Count: 1, Flags: trace.FlagNoStack})
		return
	}
	switch {
	case s.inWait != 0:
		same := p.newStack(s)
		p.emit(trace.Event{
			Kind: trace.KindWait, Hook: 20, Thread: s.t.ID, Time: p.now, Start: s.inWait, Count: 1, Stack: s.stack, Same: same,
			Object: s.object, Owner: s.owner,
		})
		s.t.Waits++
		s.t.WaitNs += int64(p.now - s.inWait)
		s.inWait = 0
	case p.r.n(4) == 0:
		s.inWait, s.object, s.owner = p.now, 0x1000+uint64(p.r.n(5))*64, p.threads[p.r.n(len(p.threads))].t.ID
		if s.owner == s.t.ID {
			s.owner = 0
		}
	case p.r.n(400) == 0 && len(p.threads) > 2 && s.t.ID != 1:
		s.t.End = p.now
		p.emit(trace.Event{Kind: trace.KindThreadExit, Thread: s.t.ID, Time: p.now, Start: p.now, Count: 1, Flags: trace.FlagNoStack})
		p.w.PutThread(&s.t)
		for i := range p.threads {
			if p.threads[i] == s {
				p.threads = append(p.threads[:i], p.threads[i+1:]...)
				break
			}
		}
		p.addThread()
	default:
		same := p.newStack(s)
		s.t.CPU += 1000
		s.t.Samples++
		p.emit(trace.Event{Kind: trace.KindCPU, Thread: s.t.ID, Time: p.now, Start: p.now, Count: 1, Stack: s.stack, Same: same, CPU: 1000})
	}
}

// keyframe writes a keyframe, and collects as the recorder does.
func (p *producer) keyframe() {
	p.now++
	st := State{Time: p.now}
	for _, s := range p.threads {
		st.Threads = append(st.Threads, s.t)
		if e := p.open(s); e != nil {
			st.Open = append(st.Open, *e)
		}
		p.w.PutThread(&s.t)
	}
	p.w.Keyframe(st)
	p.w.Collect(p.now, func(mark func(trace.StackID)) {
		for _, s := range p.threads {
			mark(s.stack)
		}
	}, func(trace.ThreadID) {})
}

// open is what a thread is in.
func (p *producer) open(s *source) *trace.Event {
	if s.inWait == 0 || s.inWait >= p.now {
		return nil
	}
	return &trace.Event{
		Kind: trace.KindWait, Hook: 20, Flags: trace.FlagOpen | trace.FlagNoStack, Thread: s.t.ID, Time: p.now, Start: s.inWait, Count: 1,
		Object: s.object, Owner: s.owner,
	}
}

// stackOf is a recording's stack as addresses, innermost first.
func stackOf(r trace.Source, id trace.StackID) (list []trace.Addr) {
	for ; id != 0; id = r.Node(id).Parent {
		list = append(list, r.Node(id).Addr)
	}
	return list
}

func openFile(t testing.TB, path string) *tracefile.Reader {
	t.Helper()
	r, err := tracefile.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}
