// Chains: what waits were spent on in the end, who had taken what they waited for where, and what they did meanwhile, as package
// blame finds it in the whole recording: the numbers of `hbtrace report --locks`. Those of a selection are in spent.go.

package page

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/hbtrace/hbtrace/analysis/blame"
	"github.com/hbtrace/hbtrace/analysis/frames"
	"github.com/hbtrace/hbtrace/analysis/weigh"
	"github.com/hbtrace/hbtrace/trace"
)

// How many are sent at most, the heaviest first.
const (
	mostChains  = 400
	mostHolding = 2000 // edges whose holders are sent
	mostDoing   = 4    // things that one did
)

// chains is the answer. Threads are indices + 1, 0 none; sites and objects are numbers as in rows; times are ns.
type chains struct {
	Chains     []chain     `json:"chains"`
	Rest       [2]rest     `json:"rest"` // of chains that are left out: of waits for locks, and of others
	Holding    []holding   `json:"holding"`
	Deadlocks  []deadlock  `json:"deadlocks"`
	Inversions [][]ordered `json:"inversions"` // cycles of orders
	Names      []string    `json:"names"`      // of objects from 1 on, where there is a better one than their address
	Unfollowed uint64      `json:"unfollowed"` // waits and links that were too many to follow
	Estimated  uint64      `json:"estimated"`  // waits that were followed at some of their instants: blame/budget.go
	Resolution int64       `json:"resolution"` // ns; parts of waits that are shorter were added up before they were cut to a selection; 0: none
}

type rest struct {
	Chains int   `json:"chains"`
	Ns     int64 `json:"ns"`
}

// leaveOut counts a chain of waits, for a lock or not, of ns in all, that the answer does not list.
func (c *chains) leaveOut(lock bool, ns int64) {
	r := &c.Rest[1]
	if lock {
		r = &c.Rest[0]
	}
	r.Chains++
	r.Ns += ns
}

// chain is all time that waits were spent on one end.
type chain struct {
	Ns      int64    `json:"ns"`
	Longest int64    `json:"longest"`
	Count   uint64   `json:"count"`
	Lock    bool     `json:"lock"` // the first wait was for a lock
	Links   []link   `json:"links"`
	End     activity `json:"end"`
}

// link is a thread that waits.
type link struct {
	Thread uint32 `json:"thread"`
	Site   uint32 `json:"site"`
	In     string `json:"in"` // the function to name
	Object uint32 `json:"object"`
	Kind   string `json:"kind"`
}

// activity is what a thread did while others waited for it. Act is one of package blame's.
type activity struct {
	Act    string `json:"act"`
	State  state  `json:"state"` // whose colour it has
	In     string `json:"in,omitempty"`
	Thread uint32 `json:"thread,omitempty"`
	Site   uint32 `json:"site,omitempty"`
	Object uint32 `json:"object,omitempty"`
	Ns     int64  `json:"ns,omitempty"`
}

// holding is what is known of the holder in the waits of one thread at one place for one object that the same threads had and let go.
type holding struct {
	Thread   uint32     `json:"thread"`
	Site     uint32     `json:"site"`
	Object   uint32     `json:"object"`
	Owner    uint32     `json:"owner"`
	Releaser uint32     `json:"releaser"`
	Ns       int64      `json:"ns"`
	Count    uint64     `json:"count"`
	Taken    uint32     `json:"taken"` // site where the holder had taken it; 0 unknown
	Doing    []activity `json:"doing"`
	takenNs  int64      // of the waits that taken is of
}

type deadlock struct {
	Since   int64  `json:"since"`
	Until   int64  `json:"until"`
	Threads []link `json:"threads"` // each waits for what the next one has
}

type ordered struct {
	Outer  uint32 `json:"outer"`
	Inner  uint32 `json:"inner"`
	Thread uint32 `json:"thread"`
	Site   uint32 `json:"site"`
	In     string `json:"in"`
	Count  uint64 `json:"count"`
}

// findChains looks at the whole recording once more. It has names of its own, so that questions are answered meanwhile. It fails
// when ctx ends.
func (m *Model) findChains(ctx context.Context) error {
	spent := newSpending(m.from, m.to)
	a := blame.New(m.src, frames.New(m.src), blame.Options{Whole: true, Spent: spent.add})
	n := 0
	err := trace.Events(m.src, func(e *trace.Event) error {
		if n++; n%batch == 0 {
			if err := ctx.Err(); err != nil {
				return err
			}
		}
		a.Add(e)
		return nil
	})
	if ctx.Err() != nil {
		return err
	}
	res := a.Finish() // of a recording that is damaged, with what could be read: Read says what is wrong with it
	m.mu.Lock()
	defer m.mu.Unlock()
	m.naming.Lock()
	defer m.naming.Unlock()
	spent.seal(res.Chains)
	m.chains, m.spending = m.numbered(res), spent
	return nil
}

// chainsTable has the whole recording's chains as its info; null where they were not found yet.
func (m *Model) chainsTable() *table {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return newTable(m.chains)
}

// numbered is what was found, in the page's numbers. m.mu and m.naming are held.
func (m *Model) numbered(res *blame.Result) *chains {
	out := &chains{
		Chains: []chain{}, Holding: []holding{}, Deadlocks: []deadlock{}, Inversions: [][]ordered{},
		Unfollowed: res.IntervalsLeft + res.WaitsFaded + res.LinksLeft, Estimated: res.WaitsEstimated,
	}
	for i := range res.Chains {
		c := &res.Chains[i]
		if len(out.Chains) == mostChains {
			out.leaveOut(c.Lock, c.Total)
			continue
		}
		out.Chains = append(out.Chains, m.chainOf(c))
	}
	for k, e := range res.Edges {
		if len(e.Doing) == 0 && e.Taken == (trace.Site{}) {
			continue
		}
		h := m.holdingOf(k, e.Taken, e.Total, e.Count)
		h.Doing = m.doing(e.Doing)
		out.Holding = append(out.Holding, h)
	}
	// of equal ones, in any order of keys, the same is told
	slices.SortFunc(out.Holding, func(a, b holding) int { return cmp.Or(cmp.Compare(b.Ns, a.Ns), cmp.Compare(a.Taken, b.Taken)) })
	out.Holding = joined(out.Holding)
	for _, d := range res.Deadlocks {
		x := deadlock{Since: m.rel(d.Since), Until: m.rel(d.Until)}
		for _, h := range d.Threads {
			x.Threads = append(x.Threads, link{m.number(h.Thread), m.siteOf(h.At), "", m.objectOf(h.Object), h.Kind})
		}
		out.Deadlocks = append(out.Deadlocks, x)
	}
	for _, v := range res.Inversions {
		var cycle []ordered
		for _, o := range v.Orders {
			cycle = append(cycle, ordered{m.objectOf(o.Outer), m.objectOf(o.Inner), m.number(o.Thread), m.siteOf(o.At), "", o.Count})
		}
		out.Inversions = append(out.Inversions, cycle)
	}
	out.Names = m.objectNames(res)
	return out
}

func (m *Model) doing(list []blame.Doing) []activity {
	out := []activity{}
	for _, d := range list {
		out = append(out, m.activity(d.Act, d.Func, d.At, 0, d.Object, d.Ns))
	}
	return out
}

func (m *Model) activity(act blame.Act, function string, at trace.Site, by trace.ThreadID, o blame.Object, ns int64) activity {
	st := unknown
	switch act {
	case blame.Running:
		st = running
	case blame.Runnable:
		st = ready
	case blame.OffCPU:
		st = off
	case blame.Calling:
		st = weigh.StateOf(trace.KindCall, m.src.Meta().Hooks[at.Hook], false)
	case blame.Waiting:
		st = locked
	}
	return activity{act.String(), st, frames.Valid(function), m.number(by), m.siteOf(at), m.objectOf(o), ns}
}

// number is a thread as rows name it: its index + 1.
func (m *Model) number(id trace.ThreadID) uint32 {
	if i, ok := m.index[id]; ok && id != 0 {
		return uint32(i) + 1
	}
	return 0
}

func (m *Model) siteOf(s trace.Site) uint32 {
	if !m.tab.Valid(s.Stack) {
		s.Stack = 0
	}
	return m.sites.id(s.Stack, s.Hook)
}

// objectOf is an object's number; 0 where the page knows no wait for it.
func (m *Model) objectOf(o blame.Object) uint32 {
	return m.objects.ids[objectKey{o.Proc, o.Addr, false}]
}

// objectNames are those that blame has for objects that are no variables; "" otherwise. Locks of one name have their addresses, too.
func (m *Model) objectNames(res *blame.Result) []string {
	names := make([]string, len(m.objects.keys)-1)
	seen := map[string]int{}
	for i := range names {
		k := m.objects.keys[i+1]
		if k.fd || m.tab.Variable(k.addr) != "" {
			continue
		}
		names[i] = frames.Valid(res.Name(blame.Object{Proc: k.proc, Addr: k.addr}))
		seen[names[i]]++
	}
	for i, n := range names {
		if n != "" && seen[n] > 1 {
			names[i] = fmt.Sprintf("%s (%#x)", n, m.objects.keys[i+1].addr)
		}
	}
	return names
}
