package main

// synthesise.go makes a recording of any size that keeps every invariant of a real one, and is shaped like one: kinds of
// events in the proportions of a redis server's under load (report --storage), a few hot paths through many cold ones.

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/tracefile"
)

const (
	functions  = 4000
	origins    = 200 // calls after which runs of work begin
	mostFrames = 40
	mostNodes  = 50_000 // after that, stacks only reuse what there is
	startNs    = trace.Ns(1_000_000_000)
	periodNs   = 1_000_000 // between two events of a thread, on average
)

type made struct {
	samples, events, nodes int
}

// stack is a thread's present stack, root first.
type stack struct {
	ids    []trace.StackID
	before int // frames of the last event's stack that are still the same invocations
	had    bool
}

type synth struct {
	w        *tracefile.Writer
	rnd      *rand.Rand
	children map[trace.StackID][]trace.StackID // of a node
	nodes    []trace.Node
	stored   int // of nodes
	threads  []*synthThread
	batch    []trace.Event
	made     made
}

type synthThread struct {
	trace.Thread
	stack stack
	now   trace.Ns
	live  []uint64
	next  uint64 // address of the next allocation
}

func synthesise(path string, samples, threads int) (made, error) {
	if threads < 2 {
		return made{}, fmt.Errorf("%d threads: there must be two at least", threads)
	}
	s := &synth{rnd: rand.New(rand.NewPCG(1, 2)), children: map[trace.StackID][]trace.StackID{}}
	meta := &trace.Meta{
		Version: "bench", Started: time.Unix(1_700_000_000, 0), StartNs: startNs, Host: "bench", Kernel: "0", Arch: "amd64", CPUs: threads,
		Command: []string{"synthetic"}, Features: []string{"cpu", "alloc", "lock", "syscall"}, Freq: 99, TickNs: 1_000_000, AllocPeriod: 512 << 10,
		Hooks: map[trace.HookID]trace.HookInfo{
			1: {Name: "malloc", Class: "ALLOC", Object: "NONE"}, 4: {Name: "free", Class: "ALLOC", Object: "ADDR"},
			20: {Name: "pthread_mutex_lock", Class: "LOCK", Object: "ADDR"}, 24: {Name: "pthread_mutex_unlock", Class: "UNLOCK", Object: "ADDR"},
			60: {Name: "read", Class: "CALL", Object: "FD"},
		},
	}
	w, err := tracefile.Create(path, meta)
	if err != nil {
		return made{}, err
	}
	s.w = w
	if err := s.fill(meta, samples, threads); err != nil {
		w.Close(nil)
		return made{}, err
	}
	st := &trace.Stats{Events: uint64(s.made.events), Nodes: uint64(len(s.nodes)), Records: uint64(s.made.events), Complete: true}
	if err := w.Close(st); err != nil {
		return made{}, err
	}
	s.made.nodes = len(s.nodes)
	return s.made, nil
}

func (s *synth) fill(meta *trace.Meta, samples, threads int) error {
	p := trace.Process{ID: 1, PID: 1000, Start: startNs, Exe: "/usr/bin/synthetic", Cmdline: []string{"synthetic"}}
	if err := s.w.PutModule(&trace.Module{ID: 1, Path: p.Exe, BuildID: "0123456789abcdef", Lo: 0x400000, Hi: 0x400000 + functions*0x1000, Bias: 0}); err != nil {
		return err
	}
	for i := range threads {
		t := &synthThread{now: startNs + trace.Ns(i), next: uint64(i+1) << 32}
		t.Thread = trace.Thread{ID: trace.ThreadID(i + 1), Proc: 1, TID: 1000 + i, Name: fmt.Sprintf("worker-%d", i), Start: t.now, Main: i == 0, CPU: -1}
		if i > 0 {
			t.Parent = 1
		}
		s.threads = append(s.threads, t)
		if err := s.put(t, trace.Event{Kind: trace.KindThreadStart, Flags: trace.FlagNoStack}); err != nil {
			return err
		}
	}
	for s.made.samples < samples {
		t := s.threads[s.made.events%threads]
		if err := s.step(t); err != nil {
			return err
		}
	}
	for _, t := range s.threads {
		meta.EndNs = max(meta.EndNs, t.now)
	}
	if err := s.flush(); err != nil {
		return err
	}
	// as a recorder does, what was learnt at the end is stored again
	meta.ExitStatus = 0
	if err := s.w.PutMeta(meta); err != nil {
		return err
	}
	if err := s.w.PutProcess(&p); err != nil {
		return err
	}
	for _, t := range s.threads {
		if err := s.w.PutThread(&t.Thread); err != nil {
			return err
		}
	}
	return s.symbols()
}

// step lets one thread do the next thing.
func (s *synth) step(t *synthThread) error {
	t.now += trace.Ns(periodNs/2 + s.rnd.IntN(periodNs))
	s.change(&t.stack)
	leaf := t.stack.ids[len(t.stack.ids)-1]
	switch r := s.rnd.IntN(100); {
	case r < 50:
		s.made.samples++
		return s.put(t, trace.Event{Kind: trace.KindCPU, Stack: leaf, CPU: 400_000, Object: 0x400000 + uint64(s.hot(origins))*0x40})
	case r < 62: // a sample at a hook
		s.made.samples++
		return s.put(t, trace.Event{Kind: trace.KindSync, Hook: 60, Stack: leaf})
	case r < 85: // a call, a third of them with a sample at its entry
		if r < 70 {
			s.made.samples++
			if err := s.put(t, trace.Event{Kind: trace.KindEnter, Hook: 60, Stack: leaf}); err != nil {
				return err
			}
		}
		begun := t.now
		t.now += trace.Ns(20_000 + s.rnd.IntN(5_000_000))
		t.Calls++
		t.CallsSlow++
		return s.put(t, trace.Event{Kind: trace.KindCall, Hook: 60, Stack: leaf, Start: begun, Object: 5, Result: int64(s.rnd.IntN(3) * 100)})
	case r < 91: // a wait that some other thread ended
		begun := t.now
		t.now += trace.Ns(10_000 + s.rnd.IntN(3_000_000))
		other := s.threads[s.rnd.IntN(len(s.threads))]
		e := trace.Event{Kind: trace.KindWait, Hook: 20, Stack: leaf, Start: begun, Object: 0x7000 + uint64(s.rnd.IntN(20))*64}
		if other != t && other.now <= t.now {
			e.Releaser, e.Owner, e.Release, e.Flags = other.ID, other.ID, t.now-2000, trace.FlagCertain
		}
		t.Waits++
		t.WaitNs += int64(t.now - begun)
		return s.put(t, e)
	case r < 94:
		return s.put(t, trace.Event{Kind: trace.KindRelease, Hook: 24, Stack: leaf, Object: 0x7000 + uint64(s.rnd.IntN(20))*64, Debt: 20_000})
	case r < 97 || len(t.live) == 0: // an allocation
		t.next += 64
		t.live = append(t.live, t.next)
		t.AllocObjects++
		t.AllocBytes += 512 << 10
		return s.put(t, trace.Event{Kind: trace.KindAlloc, Hook: 1, Stack: leaf, Object: t.next, Size: 100, Weight: 512 << 10})
	default:
		addr := t.live[len(t.live)-1]
		t.live = t.live[:len(t.live)-1]
		t.FreeObjects++
		return s.put(t, trace.Event{Kind: trace.KindFree, Hook: 4, Object: addr, Flags: trace.FlagNoStack})
	}
}

// change returns from some frames and calls others.
func (s *synth) change(st *stack) {
	keep := len(st.ids)
	if keep > 0 {
		keep -= min(keep-1, s.rnd.IntN(4))
	}
	st.before = min(st.before, keep)
	st.ids = st.ids[:keep]
	for n := s.rnd.IntN(4); n > 0 && len(st.ids) < mostFrames; n-- {
		var parent trace.StackID
		if len(st.ids) > 0 {
			parent = st.ids[len(st.ids)-1]
		}
		if parent != 0 && len(s.nodes) >= mostNodes && len(s.children[parent]) == 0 {
			break
		}
		st.ids = append(st.ids, s.child(parent))
	}
	if len(st.ids) == 0 {
		st.ids = append(st.ids, s.child(0))
	}
}

// hot chooses one of n callees: programs mostly go where they went before.
func (s *synth) hot(n int) int {
	for i := range n - 1 {
		if s.rnd.IntN(10) < 7 {
			return i
		}
	}
	return n - 1
}

// child is a callee of a node: of its few, or a new one.
func (s *synth) child(parent trace.StackID) trace.StackID {
	c := s.children[parent]
	if len(c) > 0 && (len(c) >= 5 || len(s.nodes) >= mostNodes || s.rnd.IntN(3) > 0) {
		return c[s.hot(len(c))]
	}
	if parent == 0 && len(c) > 0 {
		return c[0]
	}
	s.nodes = append(s.nodes, trace.Node{Parent: parent, How: trace.HowFP,
		Addr: trace.Addr{Module: 1, Off: 0x400000 + uint64(s.rnd.IntN(functions))*0x1000 + 0x11 + uint64(s.rnd.IntN(8))*8}})
	id := trace.StackID(len(s.nodes))
	s.children[parent] = append(c, id)
	return id
}

func (s *synth) put(t *synthThread, e trace.Event) error {
	e.Thread, e.Time, e.Count = t.ID, t.now, 1
	if e.Start == 0 {
		e.Start = e.Time
	}
	if e.Stack != 0 {
		if t.stack.had {
			e.Same = uint32(t.stack.before)
		}
		t.stack.had = true
		t.stack.before = len(t.stack.ids)
	}
	if e.Kind == trace.KindCPU {
		t.Samples++
	}
	s.batch = append(s.batch, e)
	s.made.events++
	if len(s.batch) == 8192 {
		return s.flush()
	}
	return nil
}

func (s *synth) flush() error {
	if n := len(s.nodes); n > s.stored {
		if err := s.w.PutNodes(trace.StackID(s.stored+1), s.nodes[s.stored:]); err != nil {
			return err
		}
		s.stored = n
	}
	err := s.w.PutEvents(s.batch)
	s.batch = s.batch[:0]
	return err
}

func (s *synth) symbols() error {
	seen := map[uint64]bool{}
	var addrs []uint64
	var frames [][]trace.SymFrame
	for _, n := range s.nodes {
		a := n.Lookup()
		if seen[a] {
			continue
		}
		seen[a] = true
		f := (a - 0x400000) / 0x1000
		name := fmt.Sprintf("space::function_number_%d(int, char const*)", f)
		addrs = append(addrs, a)
		frames = append(frames, []trace.SymFrame{{Func: name, Linkage: name, File: fmt.Sprintf("/src/file%d.cc", f/20), Line: int(a & 0xff)}})
	}
	return s.w.PutSymbols(1, addrs, frames)
}
