// kit_test.go is an agent in Go: it writes the records that an agent writes, for the tests beside it.
package assemble

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/hbtrace/hbtrace/segment"
	"github.com/hbtrace/hbtrace/stacktable"
	"github.com/hbtrace/hbtrace/trace"
)

// kit is an assembler and what came out of it.
type kit struct {
	*Assembler
	t       testing.TB
	table   *stacktable.Table
	events  []trace.Event
	threads map[trace.ThreadID]trace.Thread
	procs   map[trace.ProcID]trace.Process
	modules map[trace.ModuleID]trace.Module
}

func newKit(t testing.TB, cfg Config) *kit {
	k := &kit{
		t: t, table: stacktable.New(stacktable.Options{}), threads: map[trace.ThreadID]trace.Thread{},
		procs: map[trace.ProcID]trace.Process{}, modules: map[trace.ModuleID]trace.Module{},
	}
	cfg.Stacks = k.table
	cfg.Sink = func(e *trace.Event) { k.events = append(k.events, *e) }
	cfg.OnThread = func(x trace.Thread) { k.threads[x.ID] = x }
	cfg.OnProcess = func(x trace.Process) { k.procs[x.ID] = x }
	cfg.OnModule = func(x trace.Module) {
		if _, dup := k.modules[x.ID]; dup {
			t.Errorf("module %d announced twice", x.ID)
		}
		k.modules[x.ID] = x
	}
	k.Assembler = New(cfg)
	return k
}

// put hands over records in this order, in one pass.
func (k *kit) put(recs ...[]byte) {
	for _, r := range recs {
		k.Record(r)
	}
}

// of returns the events of these kinds, all kinds if none are named.
func (k *kit) of(kinds ...trace.Kind) []trace.Event {
	var out []trace.Event
	for _, e := range k.events {
		for _, kind := range kinds {
			if e.Kind == kind {
				out = append(out, e)
			}
		}
	}
	return out
}

// one returns the only event of a kind.
func (k *kit) one(kind trace.Kind) trace.Event {
	k.t.Helper()
	es := k.of(kind)
	if len(es) != 1 {
		k.t.Fatalf("%d events of kind %d, want 1: %+v", len(es), kind, k.events)
	}
	return es[0]
}

// stack is the addresses of a stack, root first.
func (k *kit) stack(id trace.StackID) (out []trace.Addr) {
	for id != 0 {
		n := k.table.Node(id)
		out = append([]trace.Addr{n.Addr}, out...)
		id = n.Parent
	}
	return out
}

// agent is one thread's side.
type agent struct {
	uid, proc, tid uint32
	seq            uint32
	last           []uint64
	full           bool
}

func newAgent(uid, proc uint32) *agent {
	return &agent{uid: uid, proc: proc, tid: 100 + uid, full: true}
}

func (g *agent) rec(typ uint8, hook trace.HookID, time trace.Ns) segment.Rec {
	g.seq++
	return segment.Rec{Type: typ, Hook: uint16(hook), Thread: g.uid, Seq: g.seq, TimeNs: uint64(time)}
}

type encoder interface{ Encode([]byte) }

// record encodes a fixed part with what follows it and fills in the length.
func record(v encoder, fixed int, tail []byte) []byte {
	b := make([]byte, fixed+(len(tail)+7)&^7)
	v.Encode(b)
	copy(b[fixed:], tail)
	binary.LittleEndian.PutUint32(b, uint32(len(b)))
	return b
}

// drop is a record that the ring had no room for.
func (g *agent) drop(n int) {
	g.seq += uint32(n)
	g.full = true
}

// delta describes a stack, root first, against the last one: frames with equal pcs, up to sameMax, are the
// same invocations.
func (g *agent) delta(pcs []uint64, sameMax int) (segment.Stack, []byte) {
	s := segment.Stack{}
	if g.full {
		s.Flags = segment.StackFull
		g.full = false
	} else {
		for int(s.Same) < min(len(pcs), len(g.last), sameMax) && pcs[s.Same] == g.last[s.Same] {
			s.Same++
		}
	}
	rest := pcs[s.Same:]
	s.Count = uint16(len(rest))
	g.last = append([]uint64(nil), pcs...)
	tail := make([]byte, 8*len(rest))
	for i, pc := range rest {
		binary.LittleEndian.PutUint64(tail[8*i:], pc)
	}
	return s, tail
}

const noLimit = segment.MaxFrames

// pc marks addresses as found by frame pointer.
func pcs(addrs ...uint64) []uint64 {
	out := make([]uint64, len(addrs))
	for i, a := range addrs {
		out[i] = a | segment.PCFP<<segment.PCShift
	}
	return out
}

func (g *agent) thread(time trace.Ns) []byte {
	r := segment.RecThread{
		Rec: g.rec(segment.RecTypeThread, 0, time), ProcUID: g.proc, TID: g.tid, StartNs: uint64(time),
		CPUStartNs: 1000,
	}
	copy(r.Name[:], fmt.Sprintf("t%d", g.uid))
	return record(&r, segment.RecThreadBytes, nil)
}

func (g *agent) procRec(time trace.Ns, parent, flags uint32) []byte {
	r := segment.RecProc{Rec: g.rec(segment.RecTypeProc, 0, time), ProcUID: g.proc, PID: 1000 + g.proc, ParentUID: parent, Flags: flags}
	return record(&r, segment.RecProcBytes, nil)
}

func (g *agent) module(time trace.Ns, path string, lo, hi, bias uint64) []byte {
	r := segment.RecModule{Rec: g.rec(segment.RecTypeModule, 0, time), ProcUID: g.proc, PathBytes: uint32(len(path)), Bias: bias, Lo: lo, Hi: hi}
	return record(&r, segment.RecModuleBytes, []byte(path))
}

func (g *agent) sample(kind uint32, hook trace.HookID, time trace.Ns, cpu uint64, stack []uint64) []byte {
	s, tail := g.delta(stack, noLimit)
	r := segment.RecSample{Rec: g.rec(segment.RecTypeSample, hook, time), Kind: kind, CPUNs: cpu, WeightNs: cpu, Stack: s} // all since the last sample: more is not to be had
	return record(&r, segment.RecSampleBytes, tail)
}

func (g *agent) interval(hook trace.HookID, start, end trace.Ns, edit func(*segment.RecInterval)) []byte {
	s, tail := g.delta(pcs(0x10, 0x20), noLimit)
	r := segment.RecInterval{Rec: g.rec(segment.RecTypeInterval, hook, end), StartNs: uint64(start), Object: 0xabc, Stack: s}
	if edit != nil {
		edit(&r)
	}
	return record(&r, segment.RecIntervalBytes, tail)
}

func (g *agent) release(hook trace.HookID, time trace.Ns, object uint64) []byte {
	s, tail := g.delta(pcs(0x10, 0x30), noLimit)
	r := segment.RecRelease{Rec: g.rec(segment.RecTypeRelease, hook, time), Object: object, DebtNs: 77, AcquiredNs: uint64(time - 5), Stack: s}
	return record(&r, segment.RecReleaseBytes, tail)
}

func (g *agent) exit(time trace.Ns, cpu uint64) []byte {
	r := segment.RecExit{Rec: g.rec(segment.RecTypeThreadExit, 0, time), CPUNs: cpu, Calls: 3, AllocBytes: 99}
	return record(&r, segment.RecExitBytes, nil)
}

func (g *agent) plain(typ uint8, time trace.Ns) []byte {
	r := g.rec(typ, 0, time)
	return record(&r, segment.RecBytes, nil)
}
