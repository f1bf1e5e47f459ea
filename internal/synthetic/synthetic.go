// Package synthetic makes up recordings of any length without keeping them, for benchmarks and for tests of what
// must not depend on a recording's length. The same numbers give the same recording.
package synthetic

import (
	"fmt"
	"math/rand/v2"

	"github.com/hbtrace/hbtrace/trace"
)

// Source is a recording of a program that computes, allocates, locks and reads. It implements [trace.Source].
type Source struct {
	EventCount, ThreadCount int

	meta     trace.Meta
	stats    trace.Stats
	procs    []trace.Process
	threads  []trace.Thread
	modules  []trace.Module
	nodes    []trace.Node // by id; 0 unused
	depth    []int32
	children [][]trace.StackID
	symbols  [][]trace.SymFrame // by function
}

const (
	nodeCount = 30_000
	funcCount = 800
	maxDepth  = 30
	stepNs    = 50_000 // between events of the recording
)

// New makes a recording of so many events by so many threads.
func New(events, threads int) *Source {
	s := &Source{EventCount: events, ThreadCount: threads}
	s.meta = trace.Meta{
		StartNs: 1_000_000_000_000, Freq: 1000, TickNs: 1_000_000, AllocPeriod: 512 << 10, CPUs: 4,
		Features: []string{"cpu", "alloc", "lock", "syscall"},
		Hooks: map[trace.HookID]trace.HookInfo{
			1:  {Name: "malloc", Class: "ALLOC"},
			20: {Name: "pthread_mutex_lock", Class: "LOCK", Object: "ADDR"},
			24: {Name: "pthread_mutex_unlock", Class: "UNLOCK", Object: "ADDR"},
			60: {Name: "read", Class: "CALL", Object: "FD"},
		},
	}
	s.meta.EndNs = s.meta.StartNs + trace.Ns(events+1)*stepNs
	s.stats.Complete = true
	s.procs = []trace.Process{{ID: 1, PID: 1000, Exe: "/usr/bin/synthetic", Start: s.meta.StartNs}}
	s.modules = []trace.Module{{ID: 1, Path: "/usr/bin/synthetic", BuildID: "abcd", Lo: 0x400000, Hi: 0x4000000}}
	for i := range threads {
		s.threads = append(s.threads, trace.Thread{
			ID: trace.ThreadID(i + 1), Proc: 1, TID: 1000 + i, Name: fmt.Sprintf("worker-%d", i), Start: s.meta.StartNs, CPU: -1,
		})
	}
	for f := range funcCount {
		s.symbols = append(s.symbols, []trace.SymFrame{{
			Func: fmt.Sprintf("app::module_%d::do_something_%d(int, std::string const&)", f%17, f),
			File: fmt.Sprintf("/src/module_%d.cc", f%17), Line: f,
		}})
	}
	r := rand.New(rand.NewPCG(1, 2))
	s.nodes, s.depth, s.children = make([]trace.Node, 2), []int32{0, 1}, make([][]trace.StackID, 2)
	s.nodes[1] = trace.Node{Addr: trace.Addr{Module: 1, Off: 0x1000}, How: trace.HowTable}
	for len(s.nodes) < nodeCount {
		n := trace.StackID(1)
		for s.depth[n] < maxDepth {
			if c := s.children[n]; len(c) > 0 && r.IntN(100) < 80 {
				n = c[r.IntN(len(c))]
				continue
			}
			id := trace.StackID(len(s.nodes))
			off := 0x1000 + uint64(r.IntN(funcCount))*0x100 + uint64(r.IntN(4))*0x10
			s.nodes = append(s.nodes, trace.Node{Parent: n, Addr: trace.Addr{Module: 1, Off: off}, How: trace.HowTable})
			s.depth = append(s.depth, s.depth[n]+1)
			s.children = append(s.children, nil)
			s.children[n] = append(s.children[n], id)
			n = id
		}
	}
	return s
}

// EventBatches implements [trace.Source].
func (s *Source) EventBatches(f func([]trace.Event, func()) error) error {
	return trace.InBatches(s.each, f)
}

func (s *Source) each(f func(*trace.Event) error) error {
	r := rand.New(rand.NewPCG(3, 4))
	at := make([]trace.StackID, s.ThreadCount)
	seen := make([]trace.Ns, s.ThreadCount)
	var e trace.Event
	for i := range s.EventCount {
		t := r.IntN(s.ThreadCount)
		now := s.meta.StartNs + trace.Ns(i+1)*stepNs
		e = trace.Event{Thread: trace.ThreadID(t + 1), Time: now, Start: now, Count: 1}
		old := at[t]
		n, same := s.move(r, old)
		at[t], e.Stack, e.Same = n, n, same
		switch p := r.IntN(100); {
		case p < 40:
			e.Kind, e.CPU = trace.KindCPU, 1_000_000
		case p < 70:
			e.Kind, e.Hook = trace.KindSync, 1
		case p < 80:
			e.Kind, e.Hook, e.Object = trace.KindAlloc, 1, uint64(r.IntN(10_000))<<4
			e.Size, e.Weight = 100, 512<<10
		case p < 85:
			e.Kind, e.Object, e.Stack, e.Same = trace.KindFree, uint64(r.IntN(10_000))<<4, 0, 0
			at[t] = old
		case p < 90 && seen[t] != 0 && s.ThreadCount > 1:
			e.Kind, e.Hook, e.Object = trace.KindWait, 20, uint64(0x7000+r.IntN(20)*64)
			e.Start = seen[t] + (now-seen[t])/4
			e.Releaser, e.Release = trace.ThreadID((t+1)%s.ThreadCount+1), now-(now-seen[t])/8
		case p < 95 && seen[t] != 0:
			e.Kind, e.Hook, e.Object = trace.KindCall, 60, 3
			e.Start = seen[t] + (now-seen[t])/4
		default:
			e.Kind, e.Hook, e.Object, e.Debt = trace.KindRelease, 24, uint64(0x7000+r.IntN(20)*64), 1000
		}
		seen[t] = now
		if err := f(&e); err != nil {
			return err
		}
	}
	return nil
}

// move returns where a thread is next, and how many frames it kept.
func (s *Source) move(r *rand.Rand, n trace.StackID) (trace.StackID, uint32) {
	if n == 0 {
		n = 1
		for len(s.children[n]) > 0 && s.depth[n] < 20 {
			n = s.children[n][r.IntN(len(s.children[n]))]
		}
		return n, 0
	}
	for k := r.IntN(5); k > 0 && s.depth[n] > 5; k-- {
		n = s.nodes[n].Parent
	}
	same := uint32(s.depth[n])
	for k := r.IntN(5); k > 0 && len(s.children[n]) > 0; k-- {
		n = s.children[n][r.IntN(len(s.children[n]))]
	}
	return n, same
}

// Meta implements [trace.Source].
func (s *Source) Meta() *trace.Meta { return &s.meta }

// Stats implements [trace.Source].
func (s *Source) Stats() *trace.Stats { return &s.stats }

// Processes implements [trace.Source].
func (s *Source) Processes() []trace.Process { return s.procs }

// Threads implements [trace.Source].
func (s *Source) Threads() []trace.Thread { return s.threads }

// Modules implements [trace.Source].
func (s *Source) Modules() []trace.Module { return s.modules }

// Nodes implements [trace.Source].
func (s *Source) Nodes() int { return len(s.nodes) - 1 }

// Node implements [trace.Source].
func (s *Source) Node(id trace.StackID) trace.Node {
	if int64(id) >= int64(len(s.nodes)) {
		return trace.Node{}
	}
	return s.nodes[id]
}

// Symbols implements [trace.Source].
func (s *Source) Symbols(id trace.StackID) []trace.SymFrame {
	n := s.Node(id)
	if n.Addr.Off < 0x1000 {
		return nil
	}
	return s.symbols[(n.Addr.Off-0x1000)/0x100%funcCount]
}

// Summary implements [trace.Source].
func (s *Source) Summary() []byte { return nil }
