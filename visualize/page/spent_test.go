package page

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/hbtrace/hbtrace/internal/synthetic"
	"github.com/hbtrace/hbtrace/trace"
)

func spentIn(t *testing.T, m *Model, sel selection) *chains {
	t.Helper()
	c, err := m.spentIn(context.Background(), sel)
	if err != nil || c == nil {
		t.Fatalf("chains of %+v: %v, %v", sel, c, err)
	}
	return c
}

// line is a chain in words.
func (m *Model) line(c *chain) string {
	out := ""
	for _, l := range c.Links {
		out += fmt.Sprintf("%s in %s < ", m.threads[l.Thread-1].info.Name, l.In)
	}
	by := ""
	if c.End.Thread > 0 {
		by = m.threads[c.End.Thread-1].info.Name + " "
	}
	return fmt.Sprintf("%s%s%s %s: %d ns, %d of %d", out, by, c.End.Act, c.End.In, c.Ns, c.Longest, c.Count)
}

// TestChainsOfSelection: waits are cut to a selection, by its time and by who waited.
func TestChainsOfSelection(t *testing.T) {
	m := read(t, chained()) // waiter waits 10 to 62 for middle, which waits 11 to 60 for last, which reads 12 to 58
	for _, c := range []struct {
		sel  selection
		want []string
	}{
		{selection{from: 0, to: 30 * ms, threads: []int{0}}, []string{
			"waiter in get_it < middle in get_it < last call read in load_from_disk: 18000000 ns, 18000000 of 1",
			"waiter in get_it < middle in get_it < last unseen give_back: 1000000 ns, 1000000 of 1", "waiter in get_it < middle unseen give_back: 1000000 ns, 1000000 of 1",
		}},
		{selection{from: 20 * ms, to: 21 * ms}, []string{
			"waiter in get_it < middle in get_it < last call read in load_from_disk: 1000000 ns, 1000000 of 1",
			"middle in get_it < last call read in load_from_disk: 1000000 ns, 1000000 of 1",
		}},
		{selection{from: 59 * ms, to: 60*ms - 1000, threads: []int{1}}, []string{"middle in get_it < last unseen give_back: 999000 ns, 999000 of 1"}},
		{selection{from: 0, to: 100 * ms, threads: []int{2}}, nil},
		{selection{from: 70 * ms, to: 100 * ms}, nil},
	} {
		var got []string
		for _, x := range spentIn(t, m, c.sel).Chains {
			got = append(got, m.line(&x))
		}
		slices.Sort(got)
		slices.Sort(c.want)
		if !slices.Equal(got, c.want) {
			t.Errorf("%+v: chains are\n%q, want\n%q", c.sel, got, c.want)
		}
	}
}

// locksOf is how long each thread waited for locks within a selection, as its pieces say.
func locksOf(t *testing.T, m *Model, sel selection) map[uint32]int64 {
	t.Helper()
	rows, err := m.sums(context.Background(), sel, true, true)
	if err != nil {
		t.Fatal(err)
	}
	out := map[uint32]int64{}
	for i, st := range rows.state {
		if state(st) == locked {
			out[rows.thread[i]] += int64(rows.value[i])
		}
	}
	return out
}

// TestSpentIsWhatWasWaited: chains of any selection last as long as its pieces of waiting for locks, those of its parts as long as its own, and
// those of all that there is are the whole recording's.
func TestSpentIsWhatWasWaited(t *testing.T) {
	for name, src := range map[string]trace.Source{"demo": synthetic.Demo(), "synthetic": synthetic.New(20_000, 5), "crowd": synthetic.Crowd(60).Source()} {
		t.Run(name, func(t *testing.T) {
			m := read(t, src)
			length := int64(m.to - m.from)
			whole := spentIn(t, m, selection{from: 0, to: length, threads: all(m)})
			sums := func(c *chains) (lines []string) {
				for i := range c.Chains {
					lines = append(lines, m.line(&c.Chains[i]))
				}
				return lines
			}
			if got, want := sums(whole), sums(m.chains); !slices.Equal(got, want) || len(got) == 0 || whole.Rest != m.chains.Rest {
				t.Errorf("all threads' chains are not the recording's:\n%.1000q\n%.1000q", got, want)
			}
			if len(whole.Holding) == 0 || len(whole.Holding) != len(m.chains.Holding) {
				t.Errorf("%d holders, the recording has %d", len(whole.Holding), len(m.chains.Holding))
			}
			for i := range min(len(whole.Holding), len(m.chains.Holding)) {
				a, b := whole.Holding[i], m.chains.Holding[i]
				did := func(h holding) map[string]int64 {
					out := map[string]int64{}
					for _, d := range h.Doing {
						out[fmt.Sprint(d.Act, d.Object)] += d.Ns
					}
					return out
				}
				if a.Ns != b.Ns || a.Count != b.Count || a.Thread != b.Thread || a.Object != b.Object || len(b.Doing) < mostDoing && !maps.Equal(did(a), did(b)) {
					t.Errorf("holder %d is %+v, of the recording %+v", i, a, b)
					break
				}
			}
			r := rand.New(rand.NewPCG(1, 2))
			waited := 0
			for range 40 {
				from := r.Int64N(length - 1)
				sel := selection{from: from, to: from + 1 + r.Int64N(length-from)}
				if r.IntN(2) == 0 {
					for i := range m.threads {
						if r.IntN(2) == 0 {
							sel.threads = append(sel.threads, i)
						}
					}
				}
				want := int64(0)
				for _, ns := range locksOf(t, m, sel) {
					want += ns
				}
				c := spentIn(t, m, sel)
				got := c.Rest[0].Ns
				for _, x := range c.Chains {
					if x.Lock {
						got += x.Ns
					}
					if x.Ns <= 0 || x.Longest > x.Ns || x.Longest <= 0 || x.Count == 0 || x.Count == 1 && x.Longest != x.Ns {
						t.Fatalf("%+v: a chain of %d ns in %d waits, at most %d", sel, x.Ns, x.Count, x.Longest)
					}
					if first := int(x.Links[0].Thread) - 1; sel.threads != nil && !slices.Contains(sel.threads, first) {
						t.Fatalf("threads %v are selected, a chain begins with %d", sel.threads, first)
					}
				}
				if got != want {
					t.Fatalf("%+v: chains last %d ns, waits for locks %d", sel, got, want)
				}
				waited += int(min(1, want))
				mid := (sel.from + sel.to) / 2
				if a, b := total(spentIn(t, m, selection{sel.threads, sel.from, mid})), total(spentIn(t, m, selection{sel.threads, mid, sel.to})); sel.from < mid && a+b != total(c) {
					t.Fatalf("%+v: its halves' chains last %d and %d ns, its own %d", sel, a, b, total(c))
				}
			}
			if waited == 0 {
				t.Error("nobody waited in any selection: this test tests nothing")
			}
		})
	}
}

// total is how long all chains last together.
func total(c *chains) (ns int64) {
	for _, x := range c.Chains {
		ns += x.Ns
	}
	return ns + c.Rest[0].Ns + c.Rest[1].Ns
}

// TestSpentIsBounded: of many parts short ones are added up, which changes no chain of the whole, and parts of it by no more than
// what the resolution cuts.
func TestSpentIsBounded(t *testing.T) {
	fine := read(t, chainedOften(1000))
	s := *fine.spending
	s.parts, s.most = slices.Clone(s.parts), len(s.parts)/8
	s.coarsen()
	if len(s.parts) > s.most || s.res == 0 || s.res > s.length/64 {
		t.Fatalf("%d parts of %d are kept, at %d ns of %d", len(s.parts), len(fine.spending.parts), s.res, s.length)
	}
	with := func(kept *spending, sel selection) *chains {
		was := fine.spending
		defer func() { fine.spending = was }()
		fine.spending = kept
		return spentIn(t, fine, sel)
	}
	sel := selection{from: 0, to: s.length, threads: all(fine)}
	type sum struct {
		ns    int64
		count uint64
		act   string
	}
	by := func(c *chains) (out []sum) {
		for _, x := range c.Chains {
			out = append(out, sum{x.Ns, 0, x.End.Act})
		}
		return out
	}
	if got, want := by(with(&s, sel)), by(spentIn(t, fine, sel)); !reflect.DeepEqual(got, want) {
		t.Errorf("added up, chains of the whole are %v, before %v", got, want)
	}
	sel = selection{from: s.length / 3, to: 2 * s.length / 3, threads: []int{0, 1}}
	got, want := total(with(&s, sel)), total(spentIn(t, fine, sel))
	if room := 2 * s.res * int64(len(sel.threads)); got > want+room || got < want-room || want == 0 {
		t.Errorf("added up at %d ns, chains of a part last %d ns, before %d", s.res, got, want)
	}
}
