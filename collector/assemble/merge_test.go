package assemble

import (
	"testing"

	"github.com/hbtrace/hbtrace/hooks"
	"github.com/hbtrace/hbtrace/segment"
	"github.com/hbtrace/hbtrace/trace"
)

// TestEntryOfACall: the sample at the entry of a call is part of the call's interval, and of no other.
func TestEntryOfACall(t *testing.T) {
	const at = 1_000_000
	call := func(g *agent, start trace.Ns, object uint64) []byte {
		return g.interval(hooks.Read, start, 5_000_000, func(r *segment.RecInterval) { r.Object = object })
	}
	enter := func(g *agent, stack []uint64) []byte {
		s, tail := g.delta(stack, noLimit)
		r := segment.RecSample{Rec: g.rec(segment.RecTypeSample, hooks.Read, at), Kind: segment.SampleEnter, Object: 7, Stack: s}
		return record(&r, segment.RecSampleBytes, tail)
	}
	for _, c := range []struct {
		name  string
		taken bool
		put   func(k *kit, g *agent)
	}{
		{"sampled a little before", true, func(k *kit, g *agent) {
			k.put(enter(g, pcs(0x10, 0x20)), call(g, at+800, 7))
		}},
		{"sampled a little after", true, func(k *kit, g *agent) {
			k.put(enter(g, pcs(0x10, 0x20)), call(g, at-800, 7))
		}},
		{"in another pass", true, func(k *kit, g *agent) {
			k.put(enter(g, pcs(0x10, 0x20)))
			k.EndPass()
			k.EndPass()
			k.put(call(g, at+800, 7))
		}},
		{"long before: an earlier call", false, func(k *kit, g *agent) {
			k.put(enter(g, pcs(0x10, 0x20)), call(g, at+entryNs+1, 7))
		}},
		{"long after: it took a while", true, func(k *kit, g *agent) {
			k.put(enter(g, pcs(0x10, 0x20)), call(g, at-entryNs-1, 7))
		}},
		{"of another object", false, func(k *kit, g *agent) {
			k.put(enter(g, pcs(0x10, 0x20)), call(g, at+800, 8))
		}},
		{"on another stack", false, func(k *kit, g *agent) {
			k.put(enter(g, pcs(0x10, 0x21)), call(g, at+800, 7))
		}},
		{"of another invocation", false, func(k *kit, g *agent) {
			k.put(enter(g, pcs(0x10, 0x20)))
			g.last = g.last[:1]
			k.put(call(g, at+800, 7))
		}},
		{"with something between", false, func(k *kit, g *agent) {
			k.put(enter(g, pcs(0x10, 0x20)), g.sample(segment.SampleGap, 0, at+100, 0, pcs(0x10, 0x20)), call(g, at+800, 7))
		}},
		{"two entries", false, func(k *kit, g *agent) {
			k.put(enter(g, pcs(0x10, 0x20)), enter(g, pcs(0x10, 0x20)), call(g, at+800, 7))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := newKit(t, Config{})
			g := newAgent(1, 1)
			k.put(g.thread(1), g.sample(segment.SampleSync, 1, 500_000, 0, pcs(0x10, 0x11)))
			c.put(k, g)
			k.Flush()
			e := k.one(trace.KindCall)
			entries := len(k.of(trace.KindEnter))
			if c.taken && (entries != 0 || e.Same != 1 || e.Count != 1 || k.Stats().Entered != 1) {
				t.Errorf("%d entries beside %+v, %+v", entries, e, k.Stats())
			}
			if !c.taken && (entries != 1 || k.Stats().Entered != 0) {
				t.Errorf("%d entries beside %+v, %+v", entries, e, k.Stats())
			}
		})
	}
}
