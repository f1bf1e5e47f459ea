package edges

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/hbtrace/hbtrace/analysis/blame"
	"github.com/hbtrace/hbtrace/trace"
)

// exactJoin is the join with unbounded memory: every wait against every release.
func exactJoin(events []trace.Event) map[blame.EdgeKey]Edge {
	releases := map[releaseKey]trace.Site{}
	for _, e := range events {
		if e.Kind == trace.KindRelease {
			releases[releaseKey{e.Thread, e.Time}] = trace.Site{Stack: e.Stack, Hook: e.Hook}
		}
	}
	out := map[blame.EdgeKey]Edge{}
	for _, e := range events {
		if e.Kind != trace.KindWait {
			continue
		}
		k := blame.EdgeKey{
			Hook:     e.Hook,
			Object:   e.Object,
			Waiter:   e.Thread,
			Owner:    e.Owner,
			Releaser: e.Releaser,
			Stack:    e.Stack,
		}
		if e.Releaser != 0 && e.Release != 0 {
			k.Release = releases[releaseKey{e.Releaser, e.Release}]
		}
		x := out[k]
		x.EdgeKey = k
		x.Count++
		x.Total += int64(e.Time - e.Start)
		x.Max = max(x.Max, int64(e.Time-e.Start))
		if e.Flags&trace.FlagCertain != 0 {
			x.Sure++
		}
		if e.Releaser != 0 {
			x.Expected += 1000
		}
		out[k] = x
	}
	return out
}

// randomWaits are waits and releases whose order in the file differs from that in time by up to disorder places.
func randomWaits(rng *rand.Rand, n, disorder int) []trace.Event {
	type placed struct {
		at int
		e  trace.Event
	}
	var list []placed
	for i := range n {
		rel := trace.Event{
			Kind:   trace.KindRelease,
			Hook:   24,
			Thread: trace.ThreadID(1 + rng.IntN(4)),
			Time:   trace.Ns(1 + i*10 + rng.IntN(3)),
			Stack:  trace.StackID(1 + rng.IntN(5)),
		}
		if rng.IntN(10) > 0 {
			list = append(list, placed{i*4 + rng.IntN(disorder), rel})
		}
		for range rng.IntN(4) {
			w := trace.Event{
				Kind:     trace.KindWait,
				Hook:     20,
				Thread:   trace.ThreadID(10 + rng.IntN(3)),
				Time:     rel.Time + 5,
				Start:    rel.Time - trace.Ns(rng.IntN(50)),
				Object:   uint64(rng.IntN(3)),
				Stack:    trace.StackID(1 + rng.IntN(5)),
				Releaser: rel.Thread,
				Release:  rel.Time,
			}
			if rng.IntN(8) == 0 {
				w.Releaser, w.Release = 0, 0
			}
			list = append(list, placed{i*4 + rng.IntN(disorder), w})
		}
	}
	slices.SortStableFunc(list, func(a, b placed) int { return a.at - b.at })
	var out []trace.Event
	for _, p := range list {
		out = append(out, p.e)
	}
	return out
}

func TestJoinIsExact(t *testing.T) {
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 7))
		events := randomWaits(rng, 3000, 1+rng.IntN(200))
		j := New()
		for i := range events {
			j.Add(&events[i])
		}
		want := exactJoin(events)
		got := j.Finish()
		if len(got) != len(want) {
			t.Fatalf("seed %d: %d edges, want %d", seed, len(got), len(want))
		}
		for _, e := range got {
			if *e != want[e.EdgeKey] {
				t.Fatalf("seed %d: edge %+v, want %+v", seed, *e, want[e.EdgeKey])
			}
		}
		if j.Folded != 0 {
			t.Fatalf("seed %d: %d waits folded", seed, j.Folded)
		}
	}
}

// However many waits look for releases that never come, memory is bounded and no wait's time is lost.
func TestJoinIsBounded(t *testing.T) {
	j := New()
	const n = 5 * MaxEdges / 4
	for i := range n {
		j.Add(&trace.Event{Kind: trace.KindRelease, Thread: 1, Time: trace.Ns(2 * i), Stack: 1})
		j.Add(
			&trace.Event{
				Kind:     trace.KindWait,
				Thread:   2,
				Start:    trace.Ns(i),
				Time:     trace.Ns(i + 3),
				Object:   uint64(i),
				Releaser: 1,
				Release:  trace.Ns(2*i + 1),
			},
		)
		if len(j.releases) > joinWindow || len(j.queue) > joinWindow || len(j.waiting) > joinWindow ||
			len(j.edges) > MaxEdges {
			t.Fatalf("after %d: %d releases, %d waits, %d edges", i, len(j.releases), len(j.queue), len(j.edges))
		}
	}
	var count uint64
	var total int64
	for _, e := range j.Finish() {
		count += e.Count
		total += e.Total
	}
	if count+j.Folded != n || total+j.FoldedNs != 3*n || j.Folded == 0 {
		t.Errorf("%d waits in edges, %d folded (want %d in all); %d + %d ns", count, j.Folded, n, total, j.FoldedNs)
	}
}

func BenchmarkJoin(b *testing.B) {
	for _, threads := range []int{1, 64} {
		b.Run(fmt.Sprintf("threads=%d", threads), func(b *testing.B) {
			events := randomWaits(rand.New(rand.NewPCG(1, 1)), 20000, threads)
			b.ReportAllocs()
			for b.Loop() {
				j := New()
				for i := range events {
					j.Add(&events[i])
				}
				j.Finish()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(events)), "ns/event")
		})
	}
}
