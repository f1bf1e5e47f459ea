package report

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/hbtrace/hbtrace/trace"
)

// exactJoin is the join with unbounded memory: every wait against every release.
func exactJoin(events []trace.Event) map[edgeKey]edge {
	releases := map[releaseKey]site{}
	for _, e := range events {
		if e.Kind == trace.KindRelease {
			releases[releaseKey{e.Thread, e.Time}] = site{e.Stack, e.Hook}
		}
	}
	out := map[edgeKey]edge{}
	for _, e := range events {
		if e.Kind != trace.KindWait {
			continue
		}
		k := edgeKey{hook: e.Hook, object: e.Object, waiter: e.Thread, owner: e.Owner, releaser: e.Releaser, stack: e.Stack}
		if e.Releaser != 0 && e.Release != 0 {
			k.release = releases[releaseKey{e.Releaser, e.Release}]
		}
		x := out[k]
		x.edgeKey = k
		x.count++
		x.total += int64(e.Time - e.Start)
		x.max = max(x.max, int64(e.Time-e.Start))
		if e.Flags&trace.FlagCertain != 0 {
			x.sure++
		}
		if e.Releaser != 0 {
			x.expected += 1000
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
		rel := trace.Event{Kind: trace.KindRelease, Hook: 24, Thread: trace.ThreadID(1 + rng.IntN(4)), Time: trace.Ns(1 + i*10 + rng.IntN(3)), Stack: trace.StackID(1 + rng.IntN(5))}
		if rng.IntN(10) > 0 {
			list = append(list, placed{i*4 + rng.IntN(disorder), rel})
		}
		for range rng.IntN(4) {
			w := trace.Event{Kind: trace.KindWait, Hook: 20, Thread: trace.ThreadID(10 + rng.IntN(3)), Time: rel.Time + 5, Start: rel.Time - trace.Ns(rng.IntN(50)),
				Object: uint64(rng.IntN(3)), Stack: trace.StackID(1 + rng.IntN(5)), Releaser: rel.Thread, Release: rel.Time}
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
		j := newJoiner()
		for i := range events {
			j.event(&events[i])
		}
		want := exactJoin(events)
		got := j.finish()
		if len(got) != len(want) {
			t.Fatalf("seed %d: %d edges, want %d", seed, len(got), len(want))
		}
		for _, e := range got {
			if *e != want[e.edgeKey] {
				t.Fatalf("seed %d: edge %+v, want %+v", seed, *e, want[e.edgeKey])
			}
		}
		if j.folded != 0 {
			t.Fatalf("seed %d: %d waits folded", seed, j.folded)
		}
	}
}

// However many waits look for releases that never come, memory is bounded and no wait's time is lost.
func TestJoinIsBounded(t *testing.T) {
	j := newJoiner()
	const n = 5 * maxEdges / 4
	for i := range n {
		j.event(&trace.Event{Kind: trace.KindRelease, Thread: 1, Time: trace.Ns(2 * i), Stack: 1})
		j.event(&trace.Event{Kind: trace.KindWait, Thread: 2, Start: trace.Ns(i), Time: trace.Ns(i + 3), Object: uint64(i), Releaser: 1, Release: trace.Ns(2*i + 1)})
		if len(j.releases) > joinWindow || len(j.queue) > joinWindow || len(j.waiting) > joinWindow || len(j.edges) > maxEdges {
			t.Fatalf("after %d: %d releases, %d waits, %d edges", i, len(j.releases), len(j.queue), len(j.edges))
		}
	}
	var count uint64
	var total int64
	for _, e := range j.finish() {
		count += e.count
		total += e.total
	}
	if count+j.folded != n || total+j.foldedNs != 3*n || j.folded == 0 {
		t.Errorf("%d waits in edges, %d folded (want %d in all); %d + %d ns", count, j.folded, n, total, j.foldedNs)
	}
}

func TestEdgesJSON(t *testing.T) {
	var r struct {
		Edges []struct {
			Kind, Object             string
			Address                  string
			Waiter, Holder, Releaser *struct {
				TID  int
				Name string
			}
			Certain     int
			Count       int
			HolderDoing []struct {
				What string
				Ns   int64
			} `json:"holder_doing"`
			TotalNs       int64    `json:"total_ns"`
			MaxNs         int64    `json:"max_ns"`
			WaiterStack   []string `json:"waiter_stack"`
			ReleaserStack []string `json:"releaser_stack"`
		}
	}
	out := render(t, server().Source(), ViewLocks, Options{JSON: true})
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatal(err)
	}
	if len(r.Edges) != 4 {
		t.Fatalf("%d edges, want 4", len(r.Edges))
	}
	e := r.Edges[0]
	if e.Kind != "mutex" || e.Object != "mutex of journal::Journal::append" || e.Address != "0x7f0010" || e.Count != 18 ||
		e.TotalNs != 18*38_020_000 || e.MaxNs != 38_020_000 || e.Certain != 9 {
		t.Errorf("first edge %+v", e)
	}
	if e.Waiter.Name != "worker-1" || e.Holder.TID != 4103 || e.Releaser.Name != "flusher" {
		t.Errorf("threads %+v, %+v, %+v", e.Waiter, e.Holder, e.Releaser)
	}
	if d := e.HolderDoing; len(d) == 0 || d[0].What != "fsync in journal::Journal::flush(bool)" || d[0].Ns != 18*37_000_000 {
		t.Errorf("the holder did %+v", e.HolderDoing)
	}
	want := []string{"pthread_mutex_lock", "std::mutex::lock()", "journal::Journal::append(std::string const&)", "handle", "worker_main", "start_thread"}
	if !slices.Equal(e.WaiterStack, want) {
		t.Errorf("waiter's stack %q", e.WaiterStack)
	}
	want = []string{"pthread_mutex_unlock", "std::mutex::unlock()", "journal::Journal::flush(bool)", "flusher_main", "start_thread"}
	if !slices.Equal(e.ReleaserStack, want) {
		t.Errorf("releaser's stack %q", e.ReleaserStack)
	}
	last := r.Edges[3]
	if last.Releaser != nil || last.Holder != nil || last.ReleaserStack == nil || len(last.ReleaserStack) != 0 {
		t.Errorf("edge with no releaser: %+v", last)
	}
	for i := 1; i < len(r.Edges); i++ {
		if r.Edges[i].TotalNs > r.Edges[i-1].TotalNs {
			t.Errorf("edge %d is heavier than the one before it", i)
		}
	}
}

func BenchmarkJoin(b *testing.B) {
	for _, threads := range []int{1, 64} {
		b.Run(fmt.Sprintf("threads=%d", threads), func(b *testing.B) {
			events := randomWaits(rand.New(rand.NewPCG(1, 1)), 20000, threads)
			b.ReportAllocs()
			for b.Loop() {
				j := newJoiner()
				for i := range events {
					j.event(&events[i])
				}
				j.finish()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(events)), "ns/event")
		})
	}
}
