// likely_test.go: edges are as likely as they say.
package assemble

import (
	"container/heap"
	"math/rand/v2"
	"testing"

	"github.com/hbtrace/hbtrace/hooks"
	"github.com/hbtrace/hbtrace/segment"
	"github.com/hbtrace/hbtrace/trace"
)

// byEnd are records in the order in which they are written.
type byEnd []struct {
	at  trace.Ns
	put func()
}

func (h byEnd) Len() int           { return len(h) }
func (h byEnd) Less(i, j int) bool { return h[i].at < h[j].at }
func (h byEnd) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *byEnd) Push(x any)        { *h = append(*h, x.(byEnd)[0]) }
func (h *byEnd) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return byEnd{x}
}

// TestLikelyIsAsLikelyAsItSays: takers wait for what putters signal, and come back after a delay; the simulation knows
// whose signal it was. Quick takers leave little doubt, slow ones much; either way waits must be right as often as they claim.
func TestLikelyIsAsLikelyAsItSays(t *testing.T) {
	for _, c := range []struct {
		name             string
		takers, putters  int
		gap, delay, work float64 // ns on average: between signals of one putter; from a signal to its wait's end; between waits
		right            float64 // at least, of all
		off              float64 // at most, claimed and not right
	}{
		{"quick", 6, 3, 600e3, 30e3, 50e3, 0.85, 0.1},
		{"two putters, two takers", 2, 2, 200e3, 30e3, 30e3, 0.8, 0.1},
		{"many putters", 12, 8, 800e3, 100e3, 100e3, 0.5, 0.1},
		// Where coming back takes three times as long as signals are apart, order and delays say next to nothing, and who seems to
		// have been served before is mostly wrong: here too much is claimed.
		{"slow", 6, 3, 150e3, 150e3, 50e3, 0.5, 0.15},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := newKit(t, Config{})
			r := rand.New(rand.NewPCG(1, 2))
			agents := make([]*agent, c.takers+c.putters)
			for i := range agents {
				agents[i] = newAgent(uint32(i+1), 1)
				k.put(agents[i].thread(1))
			}
			type wait struct {
				taker int
				start trace.Ns
			}
			type key struct {
				thread trace.ThreadID
				end    trace.Ns
			}
			truth := map[key]trace.ThreadID{}
			var todo byEnd
			at := func(when trace.Ns, put func()) { heap.Push(&todo, byEnd{{when, put}}) }
			after := func(from trace.Ns, mean float64) trace.Ns { return from + 1000 + trace.Ns(r.ExpFloat64()*mean) }
			var waiting []wait
			var signal func(p int, now trace.Ns)
			signal = func(p int, now trace.Ns) {
				at(after(now, c.gap), func() { signal(p, todoNow) })
				if len(waiting) == 0 {
					return
				}
				k.put(signalled(agents[c.takers+p], now, now+1500))
				w := waiting[0]
				waiting = waiting[1:]
				at(after(now, c.delay), func() {
					end := todoNow
					k.put(agents[w.taker].interval(hooks.PthreadCondWait, w.start, end, nil))
					truth[key{trace.ThreadID(w.taker + 1), end}] = trace.ThreadID(c.takers + p + 1)
					at(after(end, c.work), func() { waiting = append(waiting, wait{w.taker, todoNow}) })
				})
			}
			for i := range c.takers {
				waiting = append(waiting, wait{i, 1_000_000})
			}
			for p := range c.putters {
				at(after(1_000_000, c.gap), func() { signal(p, todoNow) })
			}
			for i := 0; len(truth) < 20_000; i++ {
				x := heap.Pop(&todo).(byEnd)[0]
				todoNow = x.at
				x.put()
				if i%64 == 0 {
					k.EndPass()
				}
			}
			k.Flush()
			var n, right, claimed, sure, sureRight float64
			for _, e := range k.of(trace.KindWait) {
				is := 0.0
				if truth[key{e.Thread, e.Time}] == e.Releaser {
					is = 1
				}
				if e.Flags&trace.FlagCertain != 0 {
					sure++
					sureRight += is
					continue
				}
				if e.Weight < 2 || e.Size == 0 || e.Size >= chanceWhole {
					t.Fatalf("neither certain nor likely: %+v", e)
				}
				n++
				right += is
				claimed += float64(e.Size) / chanceWhole
			}
			t.Logf("%.0f certain, right %.4f; %.0f likely, claim %.3f, right %.3f", sure, sureRight/sure, n, claimed/n, right/n)
			if d := claimed/n - right/n; n < 1000 || d > c.off || d < -0.1 {
				t.Errorf("%.0f likely edges claim %.3f and are right in %.3f", n, claimed/n, right/n)
			}
			if (right+sureRight)/(n+sure) < c.right {
				t.Errorf("right in %.3f of all", (right+sureRight)/(n+sure))
			}
			if sure > 0 && sureRight/sure < 0.995 {
				t.Errorf("%.0f certain edges are right in %.4f", sure, sureRight/sure)
			}
		})
	}
}

// signalled is the record of a call of pthread_cond_signal.
func signalled(g *agent, begun, cameBack trace.Ns) []byte {
	s, tail := g.delta(pcs(0x10), noLimit)
	r := segment.RecRelease{Rec: g.rec(segment.RecTypeRelease, hooks.PthreadCondSignal, begun), Object: 0xabc, DebtNs: 7, AcquiredNs: uint64(cameBack), Stack: s}
	r.Taken.Flags = segment.StackNone
	return record(&r, segment.RecReleaseBytes, tail)
}

// todoNow is the simulation's time.
var todoNow trace.Ns

// TestSlowSignals: a signal that took long may have ended every wait that it overlaps, also one that began after it.
func TestSlowSignals(t *testing.T) {
	for _, c := range []struct {
		name            string
		begun, cameBack trace.Ns
		releaser        trace.ThreadID
		certain         bool
	}{
		{"overlaps the beginning", 500_000, 1_100_000, 2, true},
		{"was over", 500_000, 999_999, 0, false},
		{"was over just before", 990_000, 999_999, 0, false},
		{"not known when it came back, just before", 990_000, 0, 2, false},
		{"inside", 1_500_000, 1_501_000, 2, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := newKit(t, Config{})
			w, g := newAgent(1, 1), newAgent(2, 1)
			k.put(w.thread(1), g.thread(1))
			k.put(signalled(g, c.begun, c.cameBack))
			k.put(w.interval(hooks.PthreadCondWait, 1_000_000, 2_000_000, nil))
			k.Flush()
			if e := k.one(trace.KindWait); e.Releaser != c.releaser || (e.Flags&trace.FlagCertain != 0) != c.certain {
				t.Errorf("%+v", e)
			}
			if e := k.one(trace.KindRelease); e.Release != 0 {
				t.Errorf("a signal was held since %d", e.Release)
			}
		})
	}
}
