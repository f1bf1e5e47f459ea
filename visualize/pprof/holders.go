// The second view of lock contention: by holder. contentions and delay are the waiters', where they waited; what has to
// change is often what the holder did meanwhile. held_contentions and held_delay are the same waits at the place where
// the holder let go of the lock, as in the profile of mutexes of Go's runtime, or where it had taken it, where only that
// is known. Samples are kept apart by what the holder did while it was waited for: label "doing".

package pprof

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/google/pprof/profile"

	"github.com/hbtrace/hbtrace/analysis/blame"
	"github.com/hbtrace/hbtrace/analysis/weigh"
	"github.com/hbtrace/hbtrace/trace"
)

// kindHeld is the label of holders' samples.
const kindHeld weigh.Kind = "held"

// wantsHolders says whether the profile is to have the holders' columns.
func wantsHolders(t *weigh.Table, o Options) bool {
	return slices.Contains(t.Values, weigh.Delay) && (o.Values == nil || slices.Contains(o.Values, weigh.Delay))
}

// holders adds the columns and their samples, with the labels by which t keeps rows apart.
func (w *writer) holders(t *weigh.Table, o Options) error {
	res, err := blame.Analyse(w.src, t.Frames, blame.Export())
	if err != nil {
		return err
	}
	w.p.SampleType = append(w.p.SampleType, &profile.ValueType{Type: "held_contentions", Unit: "count"}, &profile.ValueType{Type: "held_delay", Unit: "nanoseconds"})
	for _, s := range w.p.Sample {
		s.Value = append(s.Value, 0, 0)
	}
	keys := make([]blame.EdgeKey, 0, len(res.Edges))
	for k, e := range res.Edges {
		if e.Lock {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, func(a, b blame.EdgeKey) int {
		return cmp.Or(cmp.Compare(a.Release.Stack, b.Release.Stack), cmp.Compare(a.Release.Hook, b.Release.Hook), cmp.Compare(a.Object, b.Object),
			cmp.Compare(a.Waiter, b.Waiter), cmp.Compare(a.Owner, b.Owner), cmp.Compare(a.Releaser, b.Releaser),
			cmp.Compare(a.Hook, b.Hook), cmp.Compare(a.Stack, b.Stack))
	})
	type row struct {
		at     trace.Site
		thread trace.ThreadID
		object uint64
		doing  string
	}
	index := map[row]*profile.Sample{}
	sample := func(r row) *profile.Sample {
		if o.NoLabels || t.By == 0 {
			r = row{at: r.at}
		}
		if t.By&weigh.ByThread == 0 {
			r.thread, r.doing = 0, ""
		}
		if t.By&weigh.ByObject == 0 {
			r.object = 0
		}
		s := index[r]
		if s != nil {
			return s
		}
		s = &profile.Sample{Value: make([]int64, len(w.p.SampleType)), Location: w.stack(t, &weigh.Key{Stack: r.at.Stack, Hook: r.at.Hook})}
		if r != (row{at: r.at}) {
			proc := trace.ProcID(0)
			if th := w.thr[r.thread]; th != nil {
				proc = th.Proc
			}
			l := w.label(&weigh.Key{Thread: r.thread, Proc: proc, Object: r.object, Kind: kindHeld})
			s.NumLabel, s.Label = l.num, map[string][]string{}
			for k, v := range l.str {
				s.Label[k] = v
			}
			if r.doing != "" {
				s.Label["doing"] = []string{r.doing}
			}
		}
		index[r] = s
		w.p.Sample = append(w.p.Sample, s)
		return s
	}
	n := len(w.p.SampleType)
	for _, k := range keys {
		e := res.Edges[k]
		r := row{at: k.Release, thread: k.Releaser, object: k.Object}
		if r.at == (trace.Site{}) {
			r.at = e.Taken
		}
		if r.thread == 0 {
			r.thread = k.Owner
		}
		rest := e.Total
		for i, d := range e.Doing {
			r.doing = doing(res, &d)
			s := sample(r)
			if i == 0 {
				s.Value[n-2] += int64(e.Count)
			}
			s.Value[n-1] += d.Ns
			rest -= d.Ns
		}
		if r.doing = ""; len(e.Doing) == 0 {
			s := sample(r)
			s.Value[n-2] += int64(e.Count)
			s.Value[n-1] += rest
		}
	}
	return nil
}

// doing is a label's text: what the holder did, which is the end of the chain unless it waited itself.
func doing(res *blame.Result, d *blame.Doing) string {
	switch {
	case d.Act == blame.Calling:
		return d.Func
	case d.Act == blame.Waiting:
		return "waiting for " + cmp.Or(res.Name(d.Object), fmt.Sprintf("%#x", d.Object.Addr))
	case d.Func == "":
		return d.Act.String()
	}
	return d.Act.String() + " in " + d.Func
}
