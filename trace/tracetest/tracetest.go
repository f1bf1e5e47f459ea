// Package tracetest builds small recordings in memory, so that what reads a [trace.Source] can be tested
// without recording a program or writing a file.
//
//	b := tracetest.New()
//	p := b.AddProcess(trace.Process{PID: 100, Exe: "/bin/app"})
//	t := b.AddThread(trace.Thread{Proc: p, TID: 100, Name: "app", Main: true})
//	b.Sample(t, 1_000_000, 1_000_000, "main", "work", "inner")
//	b.Wait(t, 2_000_000, 5_000_000, b.Hook("pthread_mutex_lock"), 0x7000, other, "main", "lock_it")
//	src := b.Source()
//
// What the helpers fill in is consistent (Same follows from the thread's previous stack, Start from Time);
// [Builder.Add] stores an event as it is, for tests of odd input.
package tracetest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hbtrace/hbtrace/trace"
)

// DefaultModule is the module that functions without a "module!" prefix live in.
const DefaultModule = "app"

// Every function occupies this many bytes of its module's address space, from base on.
const (
	funcBytes = 0x1000
	funcBase  = 0x1000
)

// Builder collects a recording. The zero value is not usable: call [New]. A Builder is not safe for
// concurrent use.
type Builder struct {
	meta    trace.Meta
	stats   trace.Stats
	procs   []trace.Process
	threads []trace.Thread
	modules []trace.Module
	nodes   []trace.Node // nodes[id-1]
	events  []trace.Event

	symbols map[trace.Addr][]trace.SymFrame
	nodeIDs map[trace.Node]trace.StackID
	funcs   map[string]trace.Addr // "module!function" -> its first address
	next    map[trace.ModuleID]uint64
	last    map[trace.ThreadID]trace.StackID // stack of the thread's latest event that had one
}

// New returns a builder with metadata of an imaginary machine and the commonest hooks registered.
func New() *Builder {
	b := &Builder{
		symbols: map[trace.Addr][]trace.SymFrame{},
		nodeIDs: map[trace.Node]trace.StackID{},
		funcs:   map[string]trace.Addr{},
		next:    map[trace.ModuleID]uint64{},
		last:    map[trace.ThreadID]trace.StackID{},
	}
	b.meta = trace.Meta{
		Version: "test", Started: time.Date(2025, 1, 2, 3, 4, 5, 0, time.UTC),
		Host: "testhost", Kernel: "6.12.0", Arch: "amd64", CPUs: 2, Command: []string{"./app"},
		Features: []string{"cpu", "alloc", "lock", "syscall"}, Freq: 99, TickNs: 1_000_000,
		AllocPeriod: 512 << 10, CallThresholdNs: 1_000_000, LockThresholdNs: 10_000,
		Hooks: map[trace.HookID]trace.HookInfo{
			1:  {Name: "malloc", Class: "ALLOC", Object: "NONE"},
			4:  {Name: "free", Class: "ALLOC", Object: "ADDR"},
			20: {Name: "pthread_mutex_lock", Class: "LOCK", Object: "ADDR"},
			24: {Name: "pthread_mutex_unlock", Class: "UNLOCK", Object: "ADDR"},
			30: {Name: "pthread_cond_wait", Class: "COND", Object: "ADDR"},
			33: {Name: "pthread_cond_signal", Class: "WAKE", Object: "ADDR"},
			60: {Name: "read", Class: "CALL", Object: "FD"},
		},
	}
	b.stats.Complete = true
	return b
}

// Meta is the recording's metadata, to be changed at will until [Builder.Source]. EndNs stays the time of the
// latest event unless it is set.
func (b *Builder) Meta() *trace.Meta { return &b.meta }

// Stats is the recording's account, to be changed at will. Events and Nodes are counted by [Builder.Source]
// where they are 0.
func (b *Builder) Stats() *trace.Stats { return &b.stats }

// AddProcess adds p and returns its id, the next free one where p.ID is 0.
func (b *Builder) AddProcess(p trace.Process) trace.ProcID {
	if p.ID == 0 {
		for _, q := range b.procs {
			p.ID = max(p.ID, q.ID)
		}
		p.ID++
	}
	b.procs = append(b.procs, p)
	return p.ID
}

// AddThread adds t and returns its id, the next free one where t.ID is 0.
func (b *Builder) AddThread(t trace.Thread) trace.ThreadID {
	if t.ID == 0 {
		for _, q := range b.threads {
			t.ID = max(t.ID, q.ID)
		}
		t.ID++
	}
	b.threads = append(b.threads, t)
	return t.ID
}

// AddModule adds m and returns its id, the next free one where m.ID is 0. A later "name!function" whose name
// is the last element of m.Path is put into it.
func (b *Builder) AddModule(m trace.Module) trace.ModuleID {
	if m.ID == 0 {
		for _, q := range b.modules {
			m.ID = max(m.ID, q.ID)
		}
		m.ID++
	}
	b.modules = append(b.modules, m)
	return m.ID
}

// module finds the module of that base name, adding it where there is none.
func (b *Builder) module(name string) trace.ModuleID {
	for _, m := range b.modules {
		if m.Path[strings.LastIndexByte(m.Path, '/')+1:] == name {
			return m.ID
		}
	}
	n := uint64(len(b.modules) + 1)
	lo := 0x5500_0000_0000 + n<<32
	return b.AddModule(trace.Module{
		Path: "/usr/bin/" + name, BuildID: fmt.Sprintf("%040x", n), Lo: lo, Hi: lo + 1<<30, Bias: lo,
	})
}

// Stack returns the stack of these functions, outermost first, making nodes and symbols as needed. Equal
// prefixes share nodes. A function is written
//
//	name           a frame of it, at line 1 of name.c
//	name@7         another place in it: line 7, another address (1..255)
//	mod!name       in the module of that base name instead of [DefaultModule]
//	f|g|h          f's frame, with g inlined there, and h inlined into g
//	mod!?          an address of mod without a symbol (mod!?2 another one)
//	name=exact     found in another way than [trace.HowTable]: exact, caller, fp, guess
//	…12            a [trace.HowMark]: 12 frames are missing here
func (b *Builder) Stack(frames ...string) trace.StackID {
	var id trace.StackID
	for _, f := range frames {
		id = b.push(id, f)
	}
	return id
}

var hows = map[string]trace.How{
	"exact": trace.HowExact, "caller": trace.HowCaller, "fp": trace.HowFP,
	"table": trace.HowTable, "guess": trace.HowGuess,
}

func (b *Builder) push(parent trace.StackID, frame string) trace.StackID {
	if n, ok := strings.CutPrefix(frame, "…"); ok {
		omitted, err := strconv.ParseUint(n, 10, 32)
		if err != nil {
			panic("tracetest: frame " + strconv.Quote(frame) + ": want a number of omitted frames")
		}
		return b.Node(trace.Node{Parent: parent, Addr: trace.Addr{Off: omitted}, How: trace.HowMark})
	}
	how := trace.HowTable
	if i := strings.LastIndexByte(frame, '='); i >= 0 {
		if h, ok := hows[frame[i+1:]]; ok { // otherwise it is part of a name such as operator=
			how, frame = h, frame[:i]
		}
	}
	line := 1
	if i := strings.LastIndexByte(frame, '@'); i >= 0 {
		n, err := strconv.ParseUint(frame[i+1:], 10, 8)
		if err == nil { // otherwise it is a symbol version: memcpy@GLIBC_2.14
			line, frame = int(n), frame[:i]
		}
	}
	module, name := DefaultModule, frame
	if m, n, ok := strings.Cut(frame, "!"); ok && m != "" {
		module, name = m, n
	}
	key := module + "!" + name
	addr, ok := b.funcs[key]
	if !ok {
		addr.Module = b.module(module)
		addr.Off = funcBase + b.next[addr.Module]*funcBytes
		b.next[addr.Module]++
		b.funcs[key] = addr
	}
	addr.Off += uint64(line) * 0x10
	id := b.Node(trace.Node{Parent: parent, Addr: addr, How: how})
	if !strings.HasPrefix(name, "?") {
		b.SetSymbols(addr, symFrames(name, line))
	}
	return id
}

// symFrames makes the frames of "f|g|h": h first, each inlined into the next but f.
func symFrames(name string, line int) []trace.SymFrame {
	parts := strings.Split(name, "|")
	slices.Reverse(parts)
	var frames []trace.SymFrame
	for i, p := range parts {
		frames = append(frames, trace.SymFrame{
			Func: p, Linkage: p, File: "/src/" + p + ".c", Line: line, Inlined: i < len(parts)-1,
		})
	}
	return frames
}

// Node returns the id of a node, adding it where there is none.
func (b *Builder) Node(n trace.Node) trace.StackID {
	if id, ok := b.nodeIDs[n]; ok {
		return id
	}
	b.nodes = append(b.nodes, n)
	id := trace.StackID(len(b.nodes))
	b.nodeIDs[n] = id
	return id
}

// SetSymbols says what functions there are at an address, innermost inlined one first.
func (b *Builder) SetSymbols(a trace.Addr, frames []trace.SymFrame) { b.symbols[a] = frames }

// Hook returns the id of a hook by name; it panics where [Builder.Meta] has none of that name.
func (b *Builder) Hook(name string) trace.HookID {
	for id, h := range b.meta.Hooks {
		if h.Name == name {
			return id
		}
	}
	panic("tracetest: no hook " + name + " in Meta().Hooks")
}

// Add stores e as it is.
func (b *Builder) Add(e trace.Event) {
	if e.Stack != 0 {
		b.last[e.Thread] = e.Stack
	}
	b.events = append(b.events, e)
}

// AddJoined stores e with Same set to the frames that its stack shares with the thread's previous one, as if
// every shared frame were the same invocation, with Count 1 where it is 0 and Start = Time where it is 0.
func (b *Builder) AddJoined(e trace.Event) {
	if e.Stack != 0 {
		e.Same = b.Common(b.last[e.Thread], e.Stack)
	}
	if e.Count == 0 {
		e.Count = 1
	}
	if e.Start == 0 {
		e.Start = e.Time
	}
	b.Add(e)
}

// Sample adds a periodic CPU sample of cpuNs at a time.
func (b *Builder) Sample(t trace.ThreadID, at trace.Ns, cpuNs int64, frames ...string) {
	b.AddJoined(trace.Event{Kind: trace.KindCPU, Thread: t, Time: at, CPU: cpuNs, Stack: b.Stack(frames...)})
}

// Wait adds an interval spent waiting for an object, ended by a releaser (0 unknown) that let go at its end.
func (b *Builder) Wait(
	t trace.ThreadID,
	start, end trace.Ns,
	hook trace.HookID,
	object uint64,
	releaser trace.ThreadID,
	frames ...string,
) {
	e := trace.Event{
		Kind: trace.KindWait, Hook: hook, Thread: t, Start: start, Time: end, Object: object,
		Releaser: releaser, Owner: releaser, Stack: b.Stack(frames...),
	}
	if releaser != 0 {
		e.Release, e.Flags = end, trace.FlagCertain
	}
	b.AddJoined(e)
}

// Call adds an interval spent in a blocking call.
func (b *Builder) Call(
	t trace.ThreadID,
	start, end trace.Ns,
	hook trace.HookID,
	object uint64,
	result int64,
	frames ...string,
) {
	b.AddJoined(trace.Event{
		Kind: trace.KindCall, Hook: hook, Thread: t, Start: start, Time: end, Object: object, Result: result,
		Stack: b.Stack(frames...),
	})
}

// Alloc adds a sampled allocation of size bytes that stands for weight bytes.
func (b *Builder) Alloc(t trace.ThreadID, at trace.Ns, addr, size, weight uint64, frames ...string) {
	b.AddJoined(trace.Event{
		Kind: trace.KindAlloc, Hook: b.Hook("malloc"), Thread: t, Time: at, Object: addr, Size: size, Weight: weight,
		Stack: b.Stack(frames...),
	})
}

// Free adds the freeing of a sampled allocation.
func (b *Builder) Free(t trace.ThreadID, at trace.Ns, addr uint64) {
	b.AddJoined(trace.Event{
		Kind: trace.KindFree, Hook: b.Hook("free"), Thread: t, Time: at, Object: addr, Flags: trace.FlagNoStack,
	})
}

// Common is the number of frames, from the root, that two stacks share.
func (b *Builder) Common(x, y trace.StackID) uint32 {
	px, py := b.path(x), b.path(y)
	n := 0
	for n < len(px) && n < len(py) && px[n] == py[n] {
		n++
	}
	return uint32(n)
}

// path is a stack's nodes, root first.
func (b *Builder) path(id trace.StackID) []trace.StackID {
	var p []trace.StackID
	for id != 0 {
		p = append(p, id)
		id = b.nodes[id-1].Parent
	}
	slices.Reverse(p)
	return p
}

// Source returns what has been built so far. Later changes to the builder do not change it.
func (b *Builder) Source() *Source {
	s := &Source{
		meta: b.meta, stats: b.stats,
		procs: slices.Clone(b.procs), threads: slices.Clone(b.threads), modules: slices.Clone(b.modules),
		nodes: slices.Clone(b.nodes), events: slices.Clone(b.events), symbols: map[trace.Addr][]trace.SymFrame{},
	}
	for a, f := range b.symbols {
		s.symbols[a] = f
	}
	if s.meta.EndNs == 0 {
		for _, e := range s.events {
			s.meta.EndNs = max(s.meta.EndNs, e.Time)
		}
	}
	if s.stats.Events == 0 {
		s.stats.Events = uint64(len(s.events))
	}
	if s.stats.Nodes == 0 {
		s.stats.Nodes = uint64(len(s.nodes))
	}
	return s
}
