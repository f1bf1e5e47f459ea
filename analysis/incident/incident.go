// Package incident says what the thread did whose event made a flight recorder dump, and those that it waited for.
package incident

import (
	"cmp"
	"slices"

	"github.com/hbtrace/hbtrace/trace"
)

// Step is one thread of the chain: the first is that of the event, the next one had what the one before waited for.
type Step struct {
	Thread trace.ThreadID
	Doing  []Doing // most time first
	Known  int64   // ns of the event's time that Doing and the kinds of doing that are left out account for
}

// Doing is one thing that a thread did, in the time of the event.
type Doing struct {
	Kind   trace.Kind // KindCPU ran; KindWait, KindCall; KindUsage could run and had no CPU
	At     trace.Site
	Object uint64
	Owner  trace.ThreadID // of what it waited for; 0 unknown
	Open   bool           // it had not ended when the recording did
	Ns     int64
	Count  uint64
}

// maxSteps bounds a chain.
const maxSteps = 6

// key is what makes two events one doing.
type key struct {
	thread trace.ThreadID
	kind   trace.Kind
	at     trace.Site
	object uint64
	owner  trace.ThreadID
}

// Follow reads src's events, and returns the chain behind the event of its dump. It is empty where the dump has none.
func Follow(src trace.Source) ([]Step, error) {
	d := src.Meta().Dump
	if d.Thread == 0 || d.End <= d.Start {
		return nil, nil
	}
	sums := map[key]*Doing{}
	freq := int64(1e9) / int64(max(src.Meta().Freq, 1))
	err := trace.Events(src, func(e *trace.Event) error {
		from, to := max(e.Start, d.Start), min(e.Time, d.End)
		if e.Time <= d.Start || e.Start >= d.End {
			return nil
		}
		k := key{e.Thread, e.Kind, trace.Site{Hook: e.Hook, Stack: e.Stack}, e.Object, 0}
		ns := int64(to - from)
		switch e.Kind {
		case trace.KindWait:
			k.owner = cmp.Or(e.Owner, e.Releaser)
		case trace.KindCall:
		case trace.KindCPU:
			ns, k.object = e.CPU, 0
			if e.Time > e.Start {
				ns = int64(float64(e.CPU) * float64(to-from) / float64(e.Time-e.Start))
			}
			// A sample stands for time in front of it: some of that may lie before the event.
			ns = min(ns, int64(e.Time-d.Start)+freq)
		case trace.KindUsage:
			if e.Debt == 0 {
				return nil
			}
			k.at, k.object = trace.Site{}, 0
			ns = int64(float64(e.Debt) * float64(to-from) / float64(max(1, e.Time-e.Start)))
		default:
			return nil
		}
		x := sums[k]
		if x == nil {
			x = &Doing{Kind: e.Kind, At: k.at, Object: k.object, Owner: k.owner}
			sums[k] = x
		}
		x.Ns += ns
		x.Count += uint64(e.Count)
		x.Open = x.Open || e.Flags&trace.FlagOpen != 0
		return nil
	})
	if err != nil {
		return nil, err
	}
	var steps []Step
	seen := map[trace.ThreadID]bool{}
	for t := d.Thread; t != 0 && !seen[t] && len(steps) < maxSteps; {
		seen[t] = true
		s := Step{Thread: t}
		for k, x := range sums {
			if k.thread == t {
				s.Doing = append(s.Doing, *x)
				s.Known += x.Ns
			}
		}
		slices.SortFunc(s.Doing, func(a, b Doing) int {
			return cmp.Or(cmp.Compare(b.Ns, a.Ns), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.At.Stack, b.At.Stack))
		})
		t = 0
		if len(s.Doing) > 0 && s.Doing[0].Kind == trace.KindWait {
			t = s.Doing[0].Owner
		}
		steps = append(steps, s)
	}
	return steps, nil
}
