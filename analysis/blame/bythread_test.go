package blame

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/hbtrace/hbtrace/trace"
)

// TestByThread: nearly ordered, shuffled and backwards, the result is that of a stable sort.
func TestByThread(t *testing.T) {
	thread := func(s *sample) trace.ThreadID { return s.thread }
	order := func(x, y *sample) int { return cmp.Compare(x.start, y.start) }
	var spare []sample
	for name, start := range map[string]func(i int) int{
		"ordered": func(i int) int { return i }, "nearly": func(i int) int { return i ^ 3 }, "equal": func(int) int { return 7 },
		"shuffled": func(int) int { return rand.IntN(500) }, "backwards": func(i int) int { return -i },
	} {
		var list []sample
		for i := range 3000 {
			list = append(list, sample{start: trace.Ns(start(i)), end: trace.Ns(i), thread: trace.ThreadID(rand.IntN(5) * 3)})
		}
		want := slices.Clone(list)
		slices.SortStableFunc(want, func(x, y sample) int {
			return cmp.Or(cmp.Compare(x.thread, y.thread), cmp.Compare(x.start, y.start))
		})
		var got []sample
		var of map[trace.ThreadID]span
		got, spare, of = byThread(list, spare, thread, order)
		if !slices.Equal(got, want) {
			t.Errorf("%s: not in order", name)
		}
		n := 0
		for id, s := range of {
			for _, x := range got[s.lo:s.hi] {
				if x.thread != id {
					t.Fatalf("%s: thread %d's part [%d, %d) has one of %d", name, id, s.lo, s.hi, x.thread)
				}
			}
			n += s.hi - s.lo
		}
		if n != len(list) {
			t.Errorf("%s: the parts are %d of %d", name, n, len(list))
		}
	}
}
