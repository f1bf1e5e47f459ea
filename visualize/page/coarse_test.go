package page

import (
	"cmp"
	"maps"
	"slices"
	"testing"

	"github.com/hbtrace/hbtrace/internal/synthetic"
	"github.com/hbtrace/hbtrace/trace"
)

// added is what rows of one key add up to.
type added struct{ value, count, longest int64 }

func bySum(t *testing.T, m *Model, edges bool) map[sumKey]added {
	t.Helper()
	r, err := m.sums(t.Context(), selection{from: 0, to: int64(m.to - m.from)}, true, edges)
	if err != nil {
		t.Fatal(err)
	}
	out := map[sumKey]added{}
	for i := range r.state {
		k := sumKey{r.thread[i], r.site[i], r.object[i], r.owner[i], r.releaser[i], r.releaseSite[i], state(r.state[i]), r.flags[i]&uint16(trace.FlagCertain) != 0}
		a := out[k]
		a.value += int64(r.value[i])
		if a.count += int64(r.count[i]); k.state == allocated {
			a.count = 0 // rounded, which depends on how many rows they are in
		}
		if edges {
			a.longest = max(a.longest, int64(r.release[i]))
		}
		out[k] = a
	}
	return out
}

// TestCoarsened: a model that may keep little keeps no more, and every sum over the whole recording is what it is without
// that: times, numbers, edges and where locks were let go.
func TestCoarsened(t *testing.T) {
	src := synthetic.New(200_000, 8)
	fine := read(t, src)
	if fine.res != 0 || fine.spanFloor != 0 {
		t.Fatalf("resolution %d, calls from %d ns on: nothing had to be coarsened", fine.res, fine.spanFloor)
	}
	m := New(src)
	m.most = most{pieces: 70_000, allocs: 8_000, spans: 10_000, stretches: 1}
	if err := m.Read(t.Context()); err != nil {
		t.Fatal(err)
	}
	check(t, m)
	if m.res == 0 || m.about().Resolution != m.res {
		t.Fatalf("resolution %d, the page says %d", m.res, m.about().Resolution)
	}
	pieces, before, allocs := 0, 0, 0
	for i, th := range m.threads {
		pieces += len(th.pieces)
		before += len(fine.threads[i].pieces)
		allocs += len(th.allocs)
		if th.total != fine.threads[i].total {
			t.Errorf("thread %d: total %v, want %v", i, th.total, fine.threads[i].total)
		}
	}
	t.Logf("%d pieces of %d, resolution %v ns; %d allocations; %d calls, %d too thin", pieces, before, m.res, allocs, m.spanCount, m.doubt.ThinSpans)
	if m.share != 0 || m.doubt.Displaced != 0 {
		t.Errorf("%d ns lost their places", m.doubt.Displaced)
	}
	if pieces > 70_000 || allocs > 8_000 || m.spanCount > 10_000 {
		t.Errorf("%d pieces of %d, %d allocations, %d calls were kept", pieces, before, allocs, m.spanCount)
	}
	for _, edges := range []bool{false, true} {
		want, got := bySum(t, fine, edges), bySum(t, m, edges)
		if maps.Equal(got, want) {
			continue
		}
		keys := slices.SortedFunc(maps.Keys(want), func(a, b sumKey) int { return cmp.Or(cmp.Compare(a.thread, b.thread), cmp.Compare(a.site, b.site)) })
		shown := 0
		for _, k := range keys {
			if got[k] != want[k] && shown < 5 {
				shown++
				t.Errorf("edges %v: %+v: %+v, want %+v", edges, k, got[k], want[k])
			}
		}
		t.Errorf("edges %v: %d sums, want %d", edges, len(got), len(want))
	}
	lanes, err := m.lanes(t.Context(), selection{from: 0, to: int64(m.to - m.from)}, int64(m.to-m.from)/100)
	if err != nil {
		t.Fatal(err)
	}
	all, err := fine.lanes(t.Context(), selection{from: 0, to: int64(m.to - m.from)}, int64(m.to-m.from)/100)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := byState(lanes), byState(all); got != want {
		t.Errorf("lanes sum to %v, want %v", got, want)
	}
}

// TestDisplaced: where a recording has more places than there is room for, times by thread and state are still what they are.
func TestDisplaced(t *testing.T) {
	src := synthetic.New(200_000, 8)
	fine, m := read(t, src), New(src)
	m.most = most{pieces: 30_000, allocs: 8_000, spans: 10_000, stretches: 512}
	if err := m.Read(t.Context()); err != nil {
		t.Fatal(err)
	}
	check(t, m)
	pieces := 0
	var nowhere, before int64
	for i, th := range m.threads {
		if pieces += len(th.pieces); th.total != fine.threads[i].total || th.counted != fine.threads[i].counted {
			t.Errorf("thread %d: total %v of %d, want %v of %d", i, th.total, th.counted, fine.threads[i].total, fine.threads[i].counted)
		}
		for _, p := range th.pieces {
			if p.site == 0 && p.state != off {
				nowhere += p.end - p.start
			}
		}
		for _, p := range fine.threads[i].pieces {
			if p.site == 0 && p.state != off {
				before += p.end - p.start
			}
		}
	}
	t.Logf("%d pieces, resolution %d ns, share %v, %d ns without a place", pieces, m.res, m.share, nowhere)
	if pieces > 30_000 || m.res > int64(m.to-m.from)/512 && m.share < 0.25 {
		t.Errorf("%d pieces, resolution %d ns of %d, share %v", pieces, m.res, m.to-m.from, m.share)
	}
	if nowhere == 0 || nowhere-before != m.doubt.Displaced {
		t.Errorf("%d ns have no place, %d had none before; %d are said to have lost it", nowhere, before, m.doubt.Displaced)
	}
}
