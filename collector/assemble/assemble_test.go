// assemble_test.go: each record's meaning, and the order of a thread's records.
package assemble

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/hbtrace/hbtrace/hooks"
	"github.com/hbtrace/hbtrace/segment"
	"github.com/hbtrace/hbtrace/trace"
)

func TestRecords(t *testing.T) {
	const T = trace.Ns(1e9)
	none := segment.Stack{Flags: segment.StackNone}
	for _, c := range []struct {
		name string
		rec  func(g *agent) []byte
		want trace.Event // Thread is filled in; Stack 1 means "some stack"
	}{
		{"sync", func(g *agent) []byte { return g.sample(segment.SampleSync, hooks.Malloc, T, 0, pcs(1, 2)) },
			trace.Event{Kind: trace.KindSync, Hook: hooks.Malloc, Time: T, Start: T, Stack: 1, Count: 1}},
		{"gap", func(g *agent) []byte { return g.sample(segment.SampleGap, 0, T, 0, pcs(1, 2)) },
			trace.Event{Kind: trace.KindGap, Time: T, Start: T, Stack: 1, Count: 1}},
		{"enter", func(g *agent) []byte {
			s, tail := g.delta(pcs(1), noLimit)
			r := segment.RecSample{Rec: g.rec(segment.RecTypeSample, hooks.Read, T), Kind: segment.SampleEnter, Object: 9, Stack: s}
			return record(&r, segment.RecSampleBytes, tail)
		}, trace.Event{Kind: trace.KindEnter, Hook: hooks.Read, Time: T, Start: T, Stack: 1, Count: 1, Object: 9}},
		{"periodic, consumed at an entry", func(g *agent) []byte {
			s, tail := g.delta(pcs(1), noLimit)
			s.Flags |= segment.StackCut | segment.StackGuessed | segment.StackOmitted
			r := segment.RecSample{Rec: g.rec(segment.RecTypeSample, 0, T), Kind: segment.SamplePeriodic, CPUNs: 1500, WeightNs: 300, Object: 0x77, Stack: s}
			r.Rec.Flags = segment.RecFlagConsumed
			return record(&r, segment.RecSampleBytes, tail)
		}, trace.Event{Kind: trace.KindCPU, Time: T, Start: T, Stack: 1, Count: 1, CPU: 300, Object: 0x77,
			Flags: trace.FlagLate | trace.FlagStackCut | trace.FlagStackGuessed | trace.FlagStackOmitted}},
		{"call", func(g *agent) []byte {
			return g.interval(hooks.Read, T-500, T, func(r *segment.RecInterval) {
				r.Result = -4
				r.Rec.Flags = segment.RecFlagFailed | segment.RecFlagInterrupted
			})
		}, trace.Event{Kind: trace.KindCall, Hook: hooks.Read, Time: T, Start: T - 500, Stack: 1, Count: 1, Object: 0xabc, Result: -4,
			Flags: trace.FlagFailed | trace.FlagInterrupted}},
		{"wait on a mutex", func(g *agent) []byte {
			return g.interval(hooks.PthreadMutexLock, T-500, T, func(r *segment.RecInterval) {
				r.OwnerTID, r.Releaser, r.ReleaseNs = 102, 2, uint64(T-10)
			})
		}, trace.Event{Kind: trace.KindWait, Hook: hooks.PthreadMutexLock, Time: T, Start: T - 500, Stack: 1, Count: 1, Object: 0xabc,
			Owner: 2, Releaser: 2, Release: T - 10, Flags: trace.FlagCertain}},
		{"wait on a condition, unwound", func(g *agent) []byte {
			return g.interval(hooks.PthreadCondWait, T-500, T, func(r *segment.RecInterval) { r.Object2 = 0xdef; r.Rec.Flags = segment.RecFlagUnwound })
		}, trace.Event{Kind: trace.KindWait, Hook: hooks.PthreadCondWait, Time: T, Start: T - 500, Stack: 1, Count: 1, Object: 0xabc,
			Object2: 0xdef, Flags: trace.FlagUnwound}},
		{"an interval that begins after its end", func(g *agent) []byte { return g.interval(hooks.Read, T+100, T, nil) },
			trace.Event{Kind: trace.KindCall, Hook: hooks.Read, Time: T, Start: T, Stack: 1, Count: 1, Object: 0xabc}},
		{"release", func(g *agent) []byte { return g.release(hooks.PthreadMutexUnlock, T, 0xabc) },
			trace.Event{Kind: trace.KindRelease, Hook: hooks.PthreadMutexUnlock, Time: T, Start: T, Stack: 1, Count: 1, Object: 0xabc, Debt: 77, Release: T - 5}},
		{"allocation", func(g *agent) []byte {
			s, tail := g.delta(pcs(1), noLimit)
			r := segment.RecAlloc{Rec: g.rec(segment.RecTypeAlloc, hooks.Malloc, T), Addr: 0x5000, Bytes: 64, Period: 1, Stack: s}
			return record(&r, segment.RecAllocBytes, tail)
		}, trace.Event{Kind: trace.KindAlloc, Hook: hooks.Malloc, Time: T, Start: T, Stack: 1, Count: 1, Object: 0x5000, Size: 64, Weight: 64}},
		{"allocation without a stack", func(g *agent) []byte {
			r := segment.RecAlloc{Rec: g.rec(segment.RecTypeAlloc, hooks.Calloc, T), Addr: 0x5000, Bytes: 1 << 40, Period: 512 << 10, Stack: none}
			return record(&r, segment.RecAllocBytes, nil)
		}, trace.Event{Kind: trace.KindAlloc, Hook: hooks.Calloc, Time: T, Start: T, Count: 1, Object: 0x5000, Size: 1 << 40, Weight: 1 << 40, Flags: trace.FlagNoStack}},
		{"free", func(g *agent) []byte {
			r := segment.RecFree{Rec: g.rec(segment.RecTypeFree, hooks.Free, T), Addr: 0x5000}
			return record(&r, segment.RecFreeBytes, nil)
		}, trace.Event{Kind: trace.KindFree, Hook: hooks.Free, Time: T, Start: T, Count: 1, Object: 0x5000, Flags: trace.FlagNoStack}},
		{"exit", func(g *agent) []byte { return g.exit(T, 5000) },
			trace.Event{Kind: trace.KindThreadExit, Time: T, Start: T, Count: 1, CPU: 4000, Flags: trace.FlagNoStack}},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := newKit(t, Config{})
			g, other := newAgent(1, 1), newAgent(2, 1)
			k.put(g.thread(1), other.thread(1), c.rec(g))
			k.Flush()
			k.events = slices.DeleteFunc(k.events, func(e trace.Event) bool { return e.Kind == trace.KindThreadStart })
			if len(k.events) != 1 || k.Stats().Broken != 0 {
				t.Fatalf("%+v, %+v", k.events, k.Stats())
			}
			got := k.events[0]
			c.want.Thread = 1
			if c.want.Stack != 0 && got.Stack != 0 {
				c.want.Stack = got.Stack
			}
			if got != c.want {
				t.Errorf("\n got %+v\nwant %+v", got, c.want)
			}
		})
	}
}

func TestThreadLife(t *testing.T) {
	k := newKit(t, Config{})
	g := newAgent(3, 2)
	name := segment.RecName{}
	k.put(g.thread(10), g.procRec(5, 0, 0))
	name.Rec = g.rec(segment.RecTypeName, 0, 20)
	copy(name.Name[:], "worker\xff")
	k.put(record(&name, segment.RecNameBytes, nil), g.exit(30, 4000), g.plain(segment.RecTypeProcExit, 31))
	k.Flush()
	th := k.threads[3]
	if th.Proc != 2 || th.TID != 103 || th.Name != "worker\uFFFD" || th.Start != 10 || th.End != 30 || th.CPU != 3000 || th.Calls != 3 || th.AllocBytes != 99 {
		t.Errorf("%+v", th)
	}
	if p := k.procs[2]; p.PID != 1002 || p.Start != 5 || p.End != 31 {
		t.Errorf("%+v", p)
	}
	if start := k.one(trace.KindThreadStart); start.Thread != 3 || start.Time != 10 {
		t.Errorf("%+v", start)
	}
}

// TestNamedByAnother: pthread_setname_np on a thread that has ended, or whose own record comes later.
func TestNamedByAnother(t *testing.T) {
	k := newKit(t, Config{})
	g, late, ended := newAgent(1, 1), newAgent(2, 1), newAgent(3, 1)
	name := func(of uint32, s string) []byte {
		r := segment.RecName{Rec: g.rec(segment.RecTypeName, 0, 20), Of: of}
		copy(r.Name[:], s)
		return record(&r, segment.RecNameBytes, nil)
	}
	k.put(ended.thread(1), ended.exit(2, 0))
	for range 8 {
		k.EndPass()
	}
	k.put(g.thread(10), g.sample(segment.SampleSync, 1, 15, 0, pcs(1, 2)), name(2, "worker"), name(3, "too late"))
	k.put(g.sample(segment.SampleGap, 0, 30, 0, pcs(1, 3)))
	k.EndPass()
	k.EndPass()
	k.put(late.thread(12))
	k.Flush()
	if k.threads[2].Name != "worker" || k.threads[3].Name != "t3" || k.Stats().Broken != 0 {
		t.Errorf("%+v, %+v", k.threads, k.Stats())
	}
	// A name that makes no sense does not cost the stacks that follow.
	k.put(name(0, "self"), name(maxUID+1, "nobody"), g.sample(segment.SampleSync, 1, 40, 0, pcs(1, 3, 4)))
	k.Flush()
	if es := k.of(trace.KindSync); k.Stats().Broken != 1 || len(es) != 2 || len(k.stack(es[1].Stack)) != 3 || k.threads[1].Name != "self" {
		t.Errorf("%+v, %+v", k.Stats(), es)
	}
}

// TestOrder puts a thread's records into passes in every way that sub-buffers can mix them.
func TestOrder(t *testing.T) {
	times := func(k *kit) (out []trace.Ns) {
		for _, e := range k.of(trace.KindFree) {
			out = append(out, e.Time)
		}
		return out
	}
	setup := func(t *testing.T) (*kit, [][]byte) {
		g := newAgent(1, 1)
		recs := [][]byte{g.thread(1)}
		for i := range 4 {
			r := segment.RecFree{Rec: g.rec(segment.RecTypeFree, 0, trace.Ns(10+i))}
			recs = append(recs, record(&r, segment.RecFreeBytes, nil))
		}
		return newKit(t, Config{}), recs
	}
	t.Run("shuffled within a pass", func(t *testing.T) {
		rng := rand.New(rand.NewPCG(3, 4))
		for range 50 {
			k, recs := setup(t)
			rng.Shuffle(len(recs), func(i, j int) { recs[i], recs[j] = recs[j], recs[i] })
			k.put(recs...)
			k.EndPass()
			if len(k.events) != 0 {
				t.Fatal("interpreted before the next pass had ended")
			}
			k.EndPass()
			if got := times(k); !slices.Equal(got, []trace.Ns{10, 11, 12, 13}) || k.Stats().Gaps != 0 {
				t.Fatalf("%v, %+v", got, k.Stats())
			}
		}
	})
	t.Run("predecessor in the next pass", func(t *testing.T) {
		k, recs := setup(t)
		k.put(recs[0], recs[1], recs[3], recs[4])
		k.EndPass()
		k.put(recs[2])
		k.EndPass()
		if got := times(k); !slices.Equal(got, []trace.Ns{10, 11, 12, 13}) || k.Stats().Gaps != 0 {
			t.Errorf("%v, %+v", got, k.Stats())
		}
	})
	t.Run("missing", func(t *testing.T) {
		k, recs := setup(t)
		k.put(recs[0], recs[1], recs[4])
		k.EndPass()
		k.EndPass()
		if got := times(k); !slices.Equal(got, []trace.Ns{10, 13}) {
			t.Errorf("%v", got)
		}
		if l := k.one(trace.KindLost); l.Count != 2 || l.Time != 13 || k.Stats().Lost != 2 || k.threads[1].Lost != 2 {
			t.Errorf("%+v, %+v, %+v", l, k.Stats(), k.threads[1])
		}
		k.put(recs[2]) // too late: not told twice, not out of order
		k.EndPass()
		k.EndPass()
		if got := times(k); !slices.Equal(got, []trace.Ns{10, 13}) || k.Stats().Late != 1 {
			t.Errorf("%v, %+v", got, k.Stats())
		}
	})
	t.Run("numbers wrap", func(t *testing.T) {
		k := newKit(t, Config{})
		g := newAgent(1, 1)
		g.seq = math.MaxUint32 - 2
		recs := [][]byte{g.thread(1)}
		for i := range 4 {
			r := segment.RecFree{Rec: g.rec(segment.RecTypeFree, 0, trace.Ns(10+i))}
			recs = append(recs, record(&r, segment.RecFreeBytes, nil))
		}
		k.put(recs[4], recs[2], recs[0], recs[3], recs[1])
		k.Flush()
		if got := times(k); !slices.Equal(got, []trace.Ns{10, 11, 12, 13}) || k.Stats().Gaps != 0 {
			t.Errorf("%v, %+v", got, k.Stats())
		}
	})
	t.Run("across threads by time", func(t *testing.T) {
		k := newKit(t, Config{})
		a, b := newAgent(1, 1), newAgent(2, 1)
		free := func(g *agent, at trace.Ns) []byte {
			r := segment.RecFree{Rec: g.rec(segment.RecTypeFree, 0, at)}
			return record(&r, segment.RecFreeBytes, nil)
		}
		k.put(a.thread(1), b.thread(1), free(a, 10), free(a, 30), free(a, 25), free(b, 5), free(b, 20), free(b, 40))
		k.EndPass()
		k.EndPass()
		// 25 comes after 30 in its thread, and so it does here.
		if got := times(k); !slices.Equal(got, []trace.Ns{5, 10, 20, 30, 25, 40}) {
			t.Errorf("%v", got)
		}
	})
}

func TestFirstRecordLost(t *testing.T) {
	k := newKit(t, Config{})
	g := newAgent(1, 1)
	g.drop(3)
	k.put(g.sample(segment.SampleSync, 1, 50, 0, pcs(1)))
	k.Flush()
	if l := k.one(trace.KindLost); l.Count != 3 {
		t.Errorf("%+v", l)
	}
	if s := k.one(trace.KindThreadStart); s.Time != 50 || k.events[0].Kind != trace.KindThreadStart {
		t.Errorf("%+v", k.events)
	}
	if k.threads[1].CPU != -1 {
		t.Errorf("CPU time %d of a thread whose beginning is not known", k.threads[1].CPU)
	}
}

// TestCPUSums: the weights of periodic samples and of the exit add up to what the thread used, whatever was
// lost, merged or not read.
func TestCPUSums(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for round := range 100 {
		k := newKit(t, Config{})
		g := newAgent(1, 1)
		k.put(g.thread(1))
		cpu := uint64(1000)
		for i := range 50 {
			cpu += uint64(rng.IntN(1000))
			at := trace.Ns(100 + i)
			switch rng.IntN(6) {
			case 0:
				g.drop(1)
			case 1:
				k.put(g.sample(segment.SamplePeriodic, 0, at, 0, pcs(1))) // clock not read
			case 2:
				k.put(g.sample(segment.SampleSync, 1, at, 0, pcs(1, uint64(i))))
			default:
				k.put(g.sample(segment.SamplePeriodic, 0, at, cpu, pcs(1, uint64(rng.IntN(2)))))
			}
			if rng.IntN(5) == 0 {
				k.EndPass()
			}
		}
		k.put(g.exit(1000, cpu+7))
		k.Flush()
		sum := int64(0)
		for _, e := range k.of(trace.KindCPU, trace.KindThreadExit) {
			sum += e.CPU
		}
		if want := int64(cpu + 7 - 1000); sum != want || k.threads[1].CPU != want {
			t.Fatalf("round %d: events add up to %d, the thread says %d, want %d", round, sum, k.threads[1].CPU, want)
		}
	}
}

func TestMerge(t *testing.T) {
	const ms = trace.Ns(1e6)
	k := newKit(t, Config{})
	g := newAgent(1, 1)
	k.put(g.thread(1))
	cpu := uint64(1000)
	periodic := func(at trace.Ns, stack []uint64) []byte {
		cpu += 100
		return g.sample(segment.SamplePeriodic, 0, at, cpu, stack)
	}
	k.put(
		periodic(10*ms, pcs(1, 2)), periodic(20*ms, pcs(1, 2)), periodic(30*ms, pcs(1, 2)), // one run of 3
		periodic(40*ms, pcs(1, 3)),                              // another stack
		g.sample(segment.SampleSync, 1, 50*ms, 0, pcs(1, 3)),    // another kind
		periodic(60*ms, pcs(1, 3)), periodic(159*ms, pcs(1, 3)), // one run of 2
		periodic(161*ms, pcs(1, 3)), // the run would be too long
	)
	// The same addresses, yet the leaf is another invocation.
	s, tail := g.delta(pcs(1, 3), 1)
	r := segment.RecSample{Rec: g.rec(segment.RecTypeSample, 0, 170*ms), Kind: segment.SamplePeriodic, CPUNs: cpu + 50, WeightNs: 50, Stack: s}
	k.put(record(&r, segment.RecSampleBytes, tail))
	k.EndPass()
	k.EndPass()
	if n := len(k.of(trace.KindCPU)); n != 4 {
		t.Errorf("%d CPU events before the flush", n)
	}
	k.Flush()
	type row struct {
		kind        trace.Kind
		start, time trace.Ns
		count       uint32
		cpu         int64
		same        uint32
	}
	var got []row
	for _, e := range k.events[1:] {
		got = append(got, row{e.Kind, e.Start / ms, e.Time / ms, e.Count, e.CPU, e.Same})
	}
	want := []row{
		{trace.KindCPU, 10, 30, 3, 300, 0},
		{trace.KindCPU, 40, 40, 1, 100, 1},
		{trace.KindSync, 50, 50, 1, 0, 2},
		{trace.KindCPU, 60, 159, 2, 200, 2},
		{trace.KindCPU, 161, 161, 1, 100, 2},
		{trace.KindCPU, 170, 170, 1, 50, 1},
	}
	if !slices.Equal(got, want) {
		t.Errorf("\n got %+v\nwant %+v", got, want)
	}
}

// TestOldRunsEnd: a run does not wait for its thread to do something else.
func TestOldRunsEnd(t *testing.T) {
	k := newKit(t, Config{})
	a, b := newAgent(1, 1), newAgent(2, 1)
	k.put(a.thread(1), b.thread(1), a.sample(segment.SampleEnter, hooks.Poll, 1e6, 0, pcs(1)))
	k.EndPass()
	k.put(b.sample(segment.SampleSync, 1, 200e6, 0, pcs(1)))
	k.EndPass()
	k.EndPass()
	if e := k.one(trace.KindEnter); e.Thread != 1 {
		t.Errorf("%+v", e)
	}
}

// TestAllocWeights samples a random program's allocations the way the agent does: weighted, bytes and objects
// come out right.
func TestAllocWeights(t *testing.T) {
	const period = 512 << 10
	rng := rand.New(rand.NewPCG(7, 8))
	for _, size := range []uint64{16, 4096, 300_000, 2_000_000} {
		var weight, objects float64
		left := rng.ExpFloat64() * period
		n := int(4e10 / (float64(size) + period/64))
		n = min(n, 3_000_000)
		for range n {
			if left -= float64(size); left <= 0 {
				w := float64(allocWeight(size, period))
				weight += w
				objects += w / float64(size)
				left = rng.ExpFloat64() * period
			}
		}
		samples := objects * float64(size) / float64(allocWeight(size, period))
		tolerance := 5 / math.Sqrt(max(samples, 1)) // five standard deviations
		if got := weight / (float64(n) * float64(size)); math.Abs(got-1) > tolerance+1e-6 {
			t.Errorf("size %d: %.4f of the bytes, tolerance %.4f (%.0f samples)", size, got, tolerance, samples)
		}
		if got := objects / float64(n); math.Abs(got-1) > tolerance+1e-6 {
			t.Errorf("size %d: %.4f of the objects", size, got)
		}
	}
	for _, c := range []struct{ size, period, want uint64 }{
		{100, 0, 100}, {100, 1, 100}, {0, 512, 0}, {math.MaxUint64, 2, math.MaxUint64}, {1, math.MaxUint64, math.MaxInt64},
	} {
		if got := allocWeight(c.size, c.period); got != c.want {
			t.Errorf("allocWeight(%d, %d) = %d, want %d", c.size, c.period, got, c.want)
		}
	}
}

// TestWeightsAddUp: what samples weigh and what is left at the exit are together the CPU time that was used, also when
// records are lost or claim more than there was.
func TestWeightsAddUp(t *testing.T) {
	k := newKit(t, Config{})
	g := newAgent(1, 1)
	k.put(g.thread(1)) // CPU time 1000 at its start
	for i, weight := range []uint64{300, 0, 1 << 40, 200} {
		s, tail := g.delta(pcs(1), noLimit)
		cpu := 2000 + uint64(i)*1000
		r := segment.RecSample{Rec: g.rec(segment.RecTypeSample, 0, trace.Ns(10+i)), Kind: segment.SamplePeriodic, CPUNs: cpu, WeightNs: weight, Stack: s}
		k.put(record(&r, segment.RecSampleBytes, tail))
	}
	k.put(g.exit(100, 5500))
	k.Flush()
	var sum, rest int64
	for _, e := range k.events {
		sum += e.CPU
		if e.Kind == trace.KindThreadExit {
			rest = e.CPU
		}
	}
	// 300 of 1000; nothing; all 2700 up to 4000; 200 of 1000; the exit has the other 800 and the last 500
	if sum != 4500 || rest != 1300 {
		t.Errorf("weights add up to %d, of it %d at the exit; 4500 ns were used, 1300 behind the last sampling point", sum, rest)
	}
}

// TestWorth: what a sample counts for is its weight, and samples of different weights are not made one.
func TestWorth(t *testing.T) {
	k := newKit(t, Config{})
	g := newAgent(1, 1)
	k.put(g.thread(1))
	for i, worth := range []uint32{0, 0, 512, 512, 300, 0} {
		s, tail := g.delta(pcs(1, 2), noLimit)
		r := segment.RecSample{Rec: g.rec(segment.RecTypeSample, 0, trace.Ns(10+i)), Kind: segment.SamplePeriodic, Worth: worth,
			CPUNs: 2000 + uint64(i)*1000, WeightNs: 300, Object: 0x77, Stack: s}
		k.put(record(&r, segment.RecSampleBytes, tail))
	}
	k.Flush()
	type run struct {
		count  uint32
		weight uint64
	}
	var got []run
	for _, e := range k.of(trace.KindCPU) {
		got = append(got, run{e.Count, e.Weight})
	}
	if want := []run{{2, 0}, {2, 512}, {1, 300}, {1, 0}}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestSampleAlone: a sample that was met in a run of work too short for others keeps its time and loses its origin; no other does.
func TestSampleAlone(t *testing.T) {
	k := newKit(t, Config{})
	g := newAgent(1, 1)
	k.put(g.thread(1))
	for i, flags := range []uint8{0, segment.RecFlagStale, segment.RecFlagConsumed | segment.RecFlagAlone, segment.RecFlagStale,
		segment.RecFlagConsumed | segment.RecFlagAlone, 0, segment.RecFlagConsumed, segment.RecFlagConsumed | segment.RecFlagAlone,
		// One at the end of a system call is the run's where the signal would have come elsewhere.
		segment.RecFlagStale | segment.RecFlagAfterSyscall, segment.RecFlagConsumed | segment.RecFlagAlone,
		segment.RecFlagAfterSyscall, segment.RecFlagConsumed | segment.RecFlagAlone,
		segment.RecFlagAfterSyscall | segment.RecFlagSameCPU, segment.RecFlagConsumed | segment.RecFlagAlone} {
		s, tail := g.delta(pcs(1, uint64(2+i)), noLimit)
		r := segment.RecSample{Rec: g.rec(segment.RecTypeSample, 0, trace.Ns(10+i)), Kind: segment.SamplePeriodic,
			CPUNs: 2000 + uint64(i)*1000, WeightNs: 300, Object: 0x77, Stack: s}
		r.Rec.Flags = flags
		k.put(record(&r, segment.RecSampleBytes, tail))
	}
	k.Flush()
	want := []uint64{0x77, 0, 0x77, 0, 0x77, 0x77, 0x77, 0x77, 0x77, 0x77, 0x77, 0x77, 0, 0x77}
	for i, e := range k.of(trace.KindCPU) {
		if e.Object != want[i] || e.CPU != 300 {
			t.Errorf("sample %d: %+v, want object %#x", i, e, want[i])
		}
	}
}
