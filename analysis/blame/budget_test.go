package blame

import (
	"fmt"
	"math"
	"testing"

	"github.com/hbtrace/hbtrace/analysis/frames"
	"github.com/hbtrace/hbtrace/internal/synthetic"
	"github.com/hbtrace/hbtrace/trace"
)

// analysed is what a recording comes to, and the steps that it took.
func analysed(t testing.TB, src trace.Source, o Options) (*Result, *Analyser) {
	t.Helper()
	a := New(src, frames.New(src), o)
	if err := trace.Events(src, func(e *trace.Event) error { a.Add(e); return nil }); err != nil {
		t.Fatal(err)
	}
	return a.Finish(), a
}

// TestEstimated: waits that take more than their share are estimated, all their time is spent, and the sums are those of waits
// that are followed exactly.
func TestEstimated(t *testing.T) {
	src := synthetic.Queue(400, 3).Source()
	sums := func(r *Result) (all int64, by map[string]int64) {
		by = map[string]int64{}
		for _, c := range r.Chains {
			all += c.Total
			by[fmt.Sprint(len(c.Links), c.Lock, c.End, c.Func)] += c.Total
		}
		return all, by
	}
	exact, _ := analysed(t, src, Options{MaxSteps: math.MaxInt / 16})
	rough, _ := analysed(t, src, Options{MaxSteps: 1})
	if exact.WaitsEstimated != 0 || rough.WaitsEstimated < 1000 {
		t.Fatalf("%d waits are estimated without a bound, %d with one", exact.WaitsEstimated, rough.WaitsEstimated)
	}
	all, want := sums(exact)
	got, estimates := sums(rough)
	if got != all {
		t.Errorf("estimates spend %d ns of %d", got, all)
	}
	if len(want) < 5 {
		t.Fatalf("the recording has %d kinds of chains only: %v", len(want), want)
	}
	for k, ns := range want {
		if off := math.Abs(float64(estimates[k] - ns)); off > 0.02*float64(all) {
			t.Errorf("%s: %d ns, exactly %d", k, estimates[k], ns)
		}
	}
	var holders, about int64
	for k, e := range exact.Edges {
		holders += e.HolderNs
		if r := rough.Edges[k]; r != nil {
			about += r.HolderNs
			var did int64
			for _, d := range r.Doing {
				did += d.Ns
			}
			if did != r.Total {
				t.Fatalf("what holders did of %+v is %d ns of %d", k, did, r.Total)
			}
		}
	}
	if math.Abs(float64(about-holders)) > 0.05*float64(holders) {
		t.Errorf("holders are known for %d ns, exactly %d", about, holders)
	}
}

// TestStepsAreLinear: in a queue of many threads a wait takes no more steps than in one of few.
func TestStepsAreLinear(t *testing.T) {
	for _, n := range []int{500, 4000} {
		src := synthetic.Queue(n, 2).Source()
		_, a := analysed(t, src, Options{MaxSteps: 1000})
		if each := float64(a.walk.steps) / float64(a.walk.wait); each > 64 {
			t.Errorf("%d threads: %.0f steps a wait", n, each)
		}
	}
}

// BenchmarkQueue: threads that all wait for one lock at once. What an event takes must not grow with their number.
func BenchmarkQueue(b *testing.B) {
	for _, n := range []int{1000, 10_000, 100_000} {
		src := synthetic.Queue(n, 2).Source()
		b.Run(fmt.Sprintf("threads=%d", n), func(b *testing.B) {
			for b.Loop() {
				analysed(b, src, Options{Whole: true})
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(src.Stats().Events), "ns/event")
		})
	}
}
