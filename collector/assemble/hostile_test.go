// hostile_test.go: whatever a target writes, the assembler neither panics nor grows without bound, and what it
// delivers keeps the promises of package trace.
package assemble

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/hbtrace/hbtrace/concurrentring"
	"github.com/hbtrace/hbtrace/hooks"
	"github.com/hbtrace/hbtrace/segment"
	"github.com/hbtrace/hbtrace/trace"
	"golang.org/x/sys/unix"
)

// checkEvent holds an event against what package trace says of it.
func checkEvent(t *testing.T, k *kit, e *trace.Event) {
	t.Helper()
	switch {
	case e.Kind < trace.KindCPU || e.Kind > trace.KindLost:
		t.Fatalf("kind: %+v", e)
	case e.Thread == 0 || uint32(e.Thread) > maxUID:
		t.Fatalf("thread: %+v", e)
	case e.Start > e.Time || e.Start < 0:
		t.Fatalf("times: %+v", e)
	case e.Count == 0:
		t.Fatalf("count: %+v", e)
	case e.CPU < 0 || e.Debt < 0:
		t.Fatalf("negative: %+v", e)
	case (e.Stack == 0) != (e.Flags&trace.FlagNoStack != 0):
		t.Fatalf("stack: %+v", e)
	case int(e.Stack) > k.table.Len() || int(e.Same) > k.table.Depth(e.Stack):
		t.Fatalf("stack: %+v of %d nodes, depth %d", e, k.table.Len(), k.table.Depth(e.Stack))
	case e.Flags&trace.FlagCertain != 0 && e.Releaser == 0:
		t.Fatalf("certain of nobody: %+v", e)
	case e.Release > e.Time:
		t.Fatalf("released after its end: %+v", e)
	}
}

// checkSame: the frames that an event calls the same as before are equal, at least.
func checkSame(t *testing.T, k *kit, last map[trace.ThreadID]trace.StackID, e *trace.Event) {
	t.Helper()
	if e.Stack == 0 {
		return
	}
	if e.Same > 0 && k.ancestor(e.Stack, int(e.Same)) != k.ancestor(last[e.Thread], int(e.Same)) {
		t.Fatalf("%+v shares no %d frames with stack %d", e, e.Same, last[e.Thread])
	}
	last[e.Thread] = e.Stack
}

// ancestor is the stack of a stack's first n frames.
func (k *kit) ancestor(id trace.StackID, n int) trace.StackID {
	for id != 0 && k.table.Depth(id) > n {
		id = k.table.Node(id).Parent
	}
	return id
}

// FuzzRecords takes the input as a stream: a byte of length/8, then a record of that length. Record headers are
// used as they are, but for uid, which is folded into a few, so that records meet each other's state.
func FuzzRecords(f *testing.F) {
	g, h := newAgent(1, 1), newAgent(2, 2)
	var seed []byte
	add := func(recs ...[]byte) {
		for _, r := range recs {
			seed = append(append(seed, byte(len(r)/8)), r...)
		}
	}
	add(g.thread(10), g.procRec(10, 0, 0), g.module(11, "/bin/app", 0x1000, 0x9000, 0x1000),
		g.sample(segment.SamplePeriodic, 0, 20, 3000, pcs(0x1001, 0x1002)), g.sample(segment.SampleEnter, hooks.Read, 30, 0, pcs(0x1001, 0x1003)))
	add(h.thread(12), h.procRec(12, 1, segment.ProcFlagForked), h.interval(hooks.PthreadCondWait, 15, 40, nil), h.release(hooks.PthreadCondSignal, 41, 0xabc))
	add(g.interval(hooks.PthreadMutexLock, 15, 40, func(r *segment.RecInterval) { r.Releaser, r.OwnerTID = 2, 102 }), g.exit(50, 9000), h.plain(segment.RecTypeProcExit, 60))
	f.Add(seed)
	f.Add(seed[9:])
	f.Add([]byte{})
	seg := newSegment(f)
	slotProc(seg, 0, 1, 10, 1, 10, 0, 0, 1, "/bin/app")
	x := slotThread(seg, 0, 1, 1, 10, 2)
	x.State.Store(segment.StateBlocked)
	x.InHook.Store(uint32(hooks.Read))
	x.InTick.Store(1)
	x.InPC.Store(0x1234)
	f.Fuzz(func(t *testing.T, in []byte) {
		k := newKit(t, Config{Segment: seg, Maps: func(uint32) []MapsEntry {
			return []MapsEntry{{Lo: 0x100, Hi: math.MaxUint64, Exec: true, Path: "/big"}, {Lo: 0x4000, Hi: 0x5000, Exec: true}}
		}})
		feed(in, k)
		k.ProcGone(2, 1000)
		k.EndPass()
		k.EndPass()
		k.FinishOpen(math.MaxInt64 / 2)
		last := map[trace.ThreadID]trace.StackID{}
		started := map[trace.ThreadID]bool{}
		for i := range k.events {
			e := &k.events[i]
			checkEvent(t, k, e)
			checkSame(t, k, last, e)
			if !started[e.Thread] && e.Kind != trace.KindThreadStart {
				t.Fatalf("thread %d begins with %+v", e.Thread, e)
			}
			if started[e.Thread] && e.Kind == trace.KindThreadStart {
				t.Fatalf("thread %d starts twice", e.Thread)
			}
			started[e.Thread] = true
			if _, ok := k.threads[e.Thread]; !ok {
				t.Fatalf("thread %d was never announced", e.Thread)
			}
		}
		for id := range k.table.Len() {
			if m := k.table.Node(trace.StackID(id + 1)).Addr.Module; m != 0 && k.modules[m].ID != m {
				t.Fatalf("node %d is in module %d, which was never announced", id+1, m)
			}
		}
	})
}

// FuzzSlots gives the other side the segment's metadata while records come: header, process slots, thread slots and the
// sub-buffers' control words. Patches are 2 bytes of offset/8 and 8 bytes of memory; three of them lie between two passes.
func FuzzSlots(f *testing.F) {
	g := newAgent(1, 1)
	var records []byte
	for _, r := range [][]byte{g.thread(10), g.procRec(10, 0, 0), g.sample(segment.SamplePeriodic, 0, 20, 3000, pcs(0x1001, 0x1002)), g.exit(50, 9000)} {
		records = append(append(records, byte(len(r)/8)), r...)
	}
	f.Add([]byte{}, records)
	var everywhere []byte
	for off := range uint16(1200) {
		everywhere = binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint16(everywhere, off), 0x0000000300000002)
	}
	f.Add(everywhere, records)
	f.Fuzz(func(t *testing.T, patches, in []byte) {
		seg := newSegment(t)
		meta := seg.Geometry().RingsOff
		mem, err := unix.Mmap(seg.FD(), 0, int(meta), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Munmap(mem)
		slotProc(seg, 0, 1, 10, 1, 10, 0, 0, 1, "/bin/app")
		slotThread(seg, 0, 1, 1, 10, 2)
		k := newKit(t, Config{Segment: seg, Maps: func(uint32) []MapsEntry { return []MapsEntry{{Lo: 0x100, Hi: 0x5000, Exec: true, Path: "/x"}} }})
		for i := 0; len(patches) >= 10; i++ {
			at := int(binary.LittleEndian.Uint16(patches)) * 8 % (len(mem) - 7)
			copy(mem[at:at+8], patches[2:10])
			patches = patches[10:]
			if i%3 == 2 {
				n := min(len(in), 200)
				feed(in[:n], k)
				in = in[n:]
				k.EndPass()
				k.Refresh()
			}
		}
		feed(in, k)
		k.EndPass()
		k.Refresh()
		k.ProcGone(1, 1000)
		k.EndPass()
		k.FinishOpen(math.MaxInt64 / 2)
		for i := range k.events {
			checkEvent(t, k, &k.events[i])
		}
		if len(k.threads) > 1000 || len(k.procs) > 1000 {
			t.Fatalf("%d threads and %d processes of 8 slots each", len(k.threads), len(k.procs))
		}
	})
}

func feed(in []byte, k *kit) {
	for i := 0; len(in) > 0; i++ {
		n := min(int(in[0])*8, len(in)-1)
		rec := append([]byte(nil), in[1:1+n]...)
		in = in[1+n:]
		if n >= segment.RecBytes {
			uid := binary.LittleEndian.Uint32(rec[8:])
			if uid > 8 && uid != segment.UIDClaiming {
				uid = uid % 8
			}
			binary.LittleEndian.PutUint32(rec[8:], uid)
			rec[4] %= segment.RecTypes + 1
		}
		k.Record(rec)
		if i%3 == 2 {
			k.EndPass()
		}
	}
}

// TestThroughTheRing sends records through a real segment and reader.
func TestThroughTheRing(t *testing.T) {
	seg := newSegment(t)
	r := concurrentring.NewReader(seg)
	k := newKit(t, Config{Segment: seg})
	g := newAgent(1, 1)
	put := func(sub int, rec []byte) {
		ctl := seg.Subbuf(sub)
		head := ctl.Head.Load()
		copy(seg.Ring(sub)[head:], rec)
		ctl.Head.Store(head + uint64(len(rec)))
	}
	put(1, g.thread(1))
	for i := range 20 {
		put(i%2, g.sample(segment.SampleSync, 1, trace.Ns(10+i), 0, pcs(1, 2, uint64(i))))
	}
	for range 2 {
		r.Drain(func(_ int, rec []byte) { k.Record(rec) })
		k.EndPass()
	}
	k.Flush()
	es := k.of(trace.KindSync)
	if len(es) != 20 || k.Stats().Gaps != 0 {
		t.Fatalf("%d events, %+v", len(es), k.Stats())
	}
	for i, e := range es {
		if e.Time != trace.Ns(10+i) || k.stack(e.Stack)[2].Off != uint64(i) {
			t.Errorf("event %d: %+v", i, e)
		}
	}
}

func BenchmarkRecord(b *testing.B) {
	k := newKit(b, Config{})
	k.Assembler.cfg.Sink = func(*trace.Event) {}
	var gs []*agent
	for uid := uint32(1); uid <= 8; uid++ {
		gs = append(gs, newAgent(uid, 1))
		k.put(gs[uid-1].thread(1), gs[uid-1].module(1, "/app", 0, 1<<40, 0))
	}
	stack := pcs(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20)
	const each = 4096
	var recs [][]byte
	for i := range each {
		g := gs[i%len(gs)]
		stack[17], stack[18], stack[19] = pcs(uint64(i % 7))[0], pcs(uint64(i % 13))[0], pcs(uint64(i % 31))[0]
		recs = append(recs, g.sample(segment.SampleSync, 1, trace.Ns(10+i), 0, stack))
	}
	seqs := make([]uint32, len(recs))
	for i, r := range recs {
		seqs[i] = binary.LittleEndian.Uint32(r[12:])
	}
	b.ReportAllocs()
	round := uint32(0)
	for b.Loop() {
		for i, r := range recs {
			// The first stack of each thread in a round stands alone only in round 0; later ones build on
			// the last round's last stack, which has at least the 17 common frames.
			binary.LittleEndian.PutUint32(r[12:], seqs[i]+round*each/8)
			k.Record(r)
		}
		k.EndPass()
		round++
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/each, "ns/record")
}
