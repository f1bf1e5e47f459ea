package page

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/hbtrace/hbtrace/internal/synthetic"
	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/visualize/report"
)

// reported is what `hbtrace report --locks --json` has of what the page shows, too.
type reported struct {
	Edges []struct {
		Object, Kind             string
		Waiter, Holder, Releaser *struct{ TID int }
		Total                    int64 `json:"total_ns"`
		Count                    uint64
	}
	Chains []struct {
		Total int64 `json:"total_ns"`
		Max   int64 `json:"max_ns"`
		Count uint64
		Lock  bool
		Links []struct{ Thread *struct{ TID int } }
		End   struct {
			Act    string
			Thread *struct{ TID int }
		}
	}
	Deadlocks, Inversions []json.RawMessage
}

func locksReport(t *testing.T, src trace.Source) (r reported) {
	t.Helper()
	var out bytes.Buffer
	if err := report.Write(&out, src, report.ViewLocks, report.Options{JSON: true}); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		t.Fatal(err)
	}
	return r
}

// TestChainsAreTheReports: over a whole recording the page tells of the same waits, by the same holders, and of the same chains as
// report --locks.
func TestChainsAreTheReports(t *testing.T) {
	for name, src := range map[string]trace.Source{"demo": synthetic.Demo(), "synthetic": synthetic.New(20_000, 5), "crowd": synthetic.Crowd(60).Source()} {
		t.Run(name, func(t *testing.T) {
			want, m := locksReport(t, src), read(t, src)
			tid := func(number uint32) int {
				if number == 0 {
					return 0
				}
				return m.threads[number-1].info.TID
			}
			rows, err := m.sums(context.Background(), selection{from: 0, to: int64(m.to - m.from)}, true, true)
			if err != nil {
				t.Fatal(err)
			}
			type pair struct{ waiter, holder int }
			got, of := map[pair]int64{}, map[pair]int64{}
			for i, st := range rows.state {
				if state(st) == locked {
					got[pair{tid(rows.thread[i] + 1), tid(cmp.Or(rows.owner[i], rows.releaser[i]))}] += int64(rows.value[i])
				}
			}
			for _, e := range want.Edges {
				if e.Kind == "condvar" || e.Kind == "semaphore" || e.Total == 0 {
					continue
				}
				p := pair{waiter: e.Waiter.TID}
				if e.Holder != nil {
					p.holder = e.Holder.TID
				}
				of[p] += e.Total
			}
			if !maps.Equal(got, of) || len(got) == 0 {
				t.Errorf("who waited for whom, ns: %v, the report says %v", got, of)
			}
			line := func(ns, longest int64, count uint64, lock bool, links []int, act string, by int) string {
				return fmt.Sprint(ns, longest, count, lock, links, act, by)
			}
			var chains, theirs []string
			for _, c := range m.chains.Chains {
				var who []int
				for _, l := range c.Links {
					who = append(who, tid(l.Thread))
				}
				chains = append(chains, line(c.Ns, c.Longest, c.Count, c.Lock, who, c.End.Act, tid(c.End.Thread)))
			}
			for _, c := range want.Chains {
				var who []int
				for _, l := range c.Links {
					who = append(who, l.Thread.TID)
				}
				by := 0
				if c.End.Thread != nil {
					by = c.End.Thread.TID
				}
				theirs = append(theirs, line(c.Total, c.Max, c.Count, c.Lock, who, c.End.Act, by))
			}
			left := m.chains.Rest[0].Chains + m.chains.Rest[1].Chains
			if len(chains) == 0 || len(chains)+left != len(theirs) || !slices.Equal(chains, theirs[:len(chains)]) {
				t.Errorf("%d chains and %d more, the report has %d:\n%.2000q\n%.2000q", len(chains), left, len(theirs), chains, theirs)
			}
			if len(m.chains.Deadlocks) != len(want.Deadlocks) || len(m.chains.Inversions) != len(want.Inversions) {
				t.Errorf("%d deadlocks and %d inversions, the report has %d and %d", len(m.chains.Deadlocks), len(m.chains.Inversions), len(want.Deadlocks), len(want.Inversions))
			}
			// A holder that is sent belongs to an edge that the page shows.
			type edge struct{ thread, site, object, owner, releaser uint32 }
			shown := map[edge]bool{}
			for i := range rows.state {
				shown[edge{rows.thread[i] + 1, rows.site[i], rows.object[i], rows.owner[i], rows.releaser[i]}] = true
			}
			for _, h := range m.chains.Holding {
				if !shown[edge{h.Thread, h.Site, h.Object, h.Owner, h.Releaser}] {
					t.Errorf("the page shows no edge for %+v", h)
				}
			}
		})
	}
}
