// stacks_test.go: stacks that were sent as deltas are rebuilt, and never built on something that was lost.
package assemble

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/hbtrace/hbtrace/segment"
	"github.com/hbtrace/hbtrace/trace"
)

// TestRandomStacks sends random walks over call trees from several threads as deltas, loses some, spreads the
// rest over sub-buffers and passes, and expects each event's stack to be the one that was meant, and Same to be
// the frames that it has in common with the thread's previous one.
func TestRandomStacks(t *testing.T) {
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 1))
		k := newKit(t, Config{MaxRun: 1}) // one event per sample
		type sent struct {
			stack []uint64
			same  int
		}
		const threads, each = 3, 200
		want := map[trace.ThreadID]map[trace.Ns]sent{}
		lost := 0
		var stream [][]byte
		for id := uint32(1); id <= threads; id++ {
			g := newAgent(id, 1)
			want[trace.ThreadID(id)] = map[trace.Ns]sent{}
			stream = append(stream, g.thread(1))
			var stack []uint64
			for i := range each {
				at := trace.Ns(1000 + 10*i)
				if rng.IntN(40) == 0 {
					stack = nil
					for len(stack) < segment.MaxFrames {
						stack = append(stack, pcs(rng.Uint64N(1<<30))...)
					}
				}
				stack = slices.Clone(stack[:len(stack)-rng.IntN(len(stack)+1)])
				for range 1 + rng.IntN(6) {
					if len(stack) < segment.MaxFrames {
						how := uint64(1 + rng.IntN(6))
						stack = append(stack, rng.Uint64N(50)|how<<segment.PCShift)
					}
				}
				if len(stack) == 0 {
					stack = pcs(1)
				}
				if rng.IntN(10) == 0 {
					g.drop(1 + rng.IntN(3))
					lost++
				}
				s, tail := g.delta(stack, rng.IntN(segment.MaxFrames))
				r := segment.RecSample{Rec: g.rec(segment.RecTypeSample, 0, at), Kind: segment.SampleSync, Stack: s}
				if rng.IntN(12) == 0 {
					g.full = true // this one is lost as well
					lost++
					continue
				}
				want[trace.ThreadID(id)][at] = sent{stack, int(s.Same)}
				stream = append(stream, record(&r, segment.RecSampleBytes, tail))
			}
			stream = append(stream, g.exit(1e6, 0))
		}
		// Sub-buffers: within a window of one pass, any order.
		for len(stream) > 0 {
			n := min(len(stream), 1+rng.IntN(30))
			pass := stream[:n]
			stream = stream[n:]
			rng.Shuffle(n, func(i, j int) { pass[i], pass[j] = pass[j], pass[i] })
			k.put(pass...)
			k.EndPass()
		}
		k.Flush()
		got := 0
		last := map[trace.ThreadID]trace.StackID{}
		for _, e := range k.of(trace.KindSync) {
			w, ok := want[e.Thread][e.Time]
			if !ok {
				t.Fatalf("seed %d: thread %d has an event at %d that nobody sent", seed, e.Thread, e.Time)
			}
			got++
			checkEvent(t, k, &e)
			checkSame(t, k, last, &e)
			var stack []uint64
			for id := e.Stack; id != 0; {
				n := k.table.Node(id)
				stack = append(stack, n.Addr.Off|uint64(n.How)<<segment.PCShift)
				id = n.Parent
			}
			slices.Reverse(stack)
			if !slices.Equal(stack, w.stack) || int(e.Same) != w.same {
				t.Fatalf("seed %d thread %d at %d: same %d, stack of %d frames; want %d, %d", seed, e.Thread, e.Time, e.Same, len(stack), w.same, len(w.stack))
			}
		}
		sum := 0
		for _, w := range want {
			sum += len(w)
		}
		st := k.Stats()
		if got != sum || st.Broken != 0 || st.Late != 0 || st.SkippedStacks != 0 || (lost > 0) != (st.Gaps > 0) {
			t.Fatalf("seed %d: %d events of %d, %+v", seed, got, sum, st)
		}
	}
}

// TestSkippedUntilFull: an agent that does not know of a loss goes on with deltas. They are events without a
// stack until one stands alone.
func TestSkippedUntilFull(t *testing.T) {
	k := newKit(t, Config{})
	g := newAgent(1, 1)
	send := func(at trace.Ns, stack []uint64) []byte { return g.sample(segment.SampleSync, 1, at, 0, stack) }
	k.put(g.thread(1), send(10, pcs(1, 2, 3)))
	send(20, pcs(1, 2, 4)) // lost
	k.put(send(30, pcs(1, 2, 4, 5)))
	g.full = true
	k.put(send(40, pcs(1, 2, 4, 5)))
	send(50, pcs(7)) // lost
	k.put(send(60, pcs(9)))
	k.Flush()
	var got []int
	for _, e := range k.of(trace.KindSync) {
		if (e.Stack == 0) != (e.Flags&trace.FlagNoStack != 0) {
			t.Errorf("%+v", e)
		}
		got = append(got, len(k.stack(e.Stack)))
	}
	// The last one shares nothing with what was lost, so it stands alone although it does not say so.
	if !slices.Equal(got, []int{3, 0, 4, 1}) || k.Stats().SkippedStacks != 1 {
		t.Errorf("depths %v, %+v", got, k.Stats())
	}
}

func TestStackChecks(t *testing.T) {
	base := func() (*kit, *agent) {
		k := newKit(t, Config{})
		g := newAgent(1, 1)
		k.put(g.thread(1), g.sample(segment.SampleSync, 1, 10, 0, pcs(1, 2, 3)))
		return k, g
	}
	for _, c := range []struct {
		name   string
		stack  segment.Stack
		pcs    []uint64
		broken bool
		depth  int
	}{
		{"deeper than what there is", segment.Stack{Same: 4}, nil, true, 0},
		{"full with a shared part", segment.Stack{Same: 1, Count: 1, Flags: segment.StackFull}, pcs(4), true, 0},
		{"fewer addresses than said", segment.Stack{Same: 1, Count: 2}, pcs(4), true, 0},
		{"more addresses than said", segment.Stack{Same: 1, Count: 1}, pcs(4, 5), true, 0},
		{"deeper than a stack can be", segment.Stack{Same: 3, Count: 400}, make([]uint64, 400), true, 0},
		{"none, with addresses", segment.Stack{Count: 1, Flags: segment.StackNone}, pcs(4), true, 0},
		{"found in no known way", segment.Stack{Same: 1, Count: 1}, []uint64{4}, true, 0},
		{"found in a way of later versions", segment.Stack{Same: 1, Count: 1}, []uint64{7<<60 | 4}, true, 0},
		{"none", segment.Stack{Flags: segment.StackNone}, nil, false, 0},
		{"a return", segment.Stack{Same: 1}, nil, false, 1},
		{"unchanged", segment.Stack{Same: 3}, nil, false, 3},
		{"empty", segment.Stack{}, nil, false, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			k, g := base()
			r := segment.RecSample{Rec: g.rec(segment.RecTypeSample, 1, 20), Kind: segment.SampleGap, Stack: c.stack}
			k.put(record(&r, segment.RecSampleBytes, raw(c.pcs)))
			if !c.broken && c.stack.Flags&segment.StackNone == 0 {
				g.last = g.last[:c.depth]
			}
			k.put(g.sample(segment.SamplePeriodic, 0, 30, 0, pcs(1, 2, 3, 9)))
			k.Flush()
			if (k.Stats().Broken == 1) != c.broken {
				t.Fatalf("%+v", k.Stats())
			}
			if !c.broken {
				if e := k.one(trace.KindGap); len(k.stack(e.Stack)) != c.depth {
					t.Errorf("depth %d, want %d", len(k.stack(e.Stack)), c.depth)
				}
				if e := k.one(trace.KindCPU); len(k.stack(e.Stack)) != 4 {
					t.Errorf("what follows has depth %d", len(k.stack(e.Stack)))
				}
				return
			}
			// What follows builds on a stack that is not known.
			if e := k.one(trace.KindCPU); e.Stack != 0 || k.Stats().SkippedStacks != 1 {
				t.Errorf("%+v, %+v", e, k.Stats())
			}
		})
	}
}

func raw(pcs []uint64) (b []byte) {
	for _, pc := range pcs {
		b = binary.LittleEndian.AppendUint64(b, pc)
	}
	return b
}

func TestSameCall(t *testing.T) {
	k := newKit(t, Config{MaxRun: 1})
	g := newAgent(1, 1)
	k.put(g.thread(1), g.sample(segment.SampleSync, 1, 10, 0, pcs(1, 2, 3)))
	send := func(at trace.Ns, s segment.Stack, addrs ...uint64) {
		r := segment.RecSample{Rec: g.rec(segment.RecTypeSample, 1, at), Kind: segment.SampleSync, Stack: s}
		k.put(record(&r, segment.RecSampleBytes, raw(pcs(addrs...))))
	}
	send(20, segment.Stack{Same: 2, Count: 1, Flags: segment.StackSameCall}, 4)            // 3 → 4, one call
	send(30, segment.Stack{Same: 3, Count: 1, Flags: segment.StackSameCall}, 5)            // nothing stood there
	send(40, segment.Stack{Same: 2, Count: 1}, 6)                                          // another call
	send(50, segment.Stack{Count: 1, Flags: segment.StackFull | segment.StackSameCall}, 7) // stands alone
	k.Flush()
	var got []bool
	for _, e := range k.of(trace.KindSync) {
		got = append(got, e.Flags&trace.FlagSameCall != 0)
	}
	if !slices.Equal(got, []bool{false, true, false, false, false}) {
		t.Errorf("%v", got)
	}
}

func TestMarker(t *testing.T) {
	k := newKit(t, Config{})
	g := newAgent(1, 1)
	k.put(g.thread(1), g.module(1, "/app", 0, 1<<40, 0),
		g.sample(segment.SampleSync, 1, 10, 0, []uint64{0x100 | segment.PCFP<<60, 1234 | segment.PCMark<<60, 0x200 | segment.PCCaller<<60}))
	k.Flush()
	e := k.one(trace.KindSync)
	n := k.table.Node(k.table.Node(e.Stack).Parent)
	if n.How != trace.HowMark || n.Addr != (trace.Addr{Off: 1234}) {
		t.Errorf("%+v", n)
	}
	if leaf := k.table.Node(e.Stack); leaf.How != trace.HowCaller || leaf.Addr.Module == 0 {
		t.Errorf("%+v", leaf)
	}
}
