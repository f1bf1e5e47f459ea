package main

// This file owns durations: spans that were made by diffing stacks, against the program's own stamps of each call.

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"

	"github.com/hbtrace/hbtrace/analysis/frames"
	"github.com/hbtrace/hbtrace/analysis/spans"
	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/tracefile"
)

// drawn is a true call, or a span, of one function; ns of CLOCK_MONOTONIC.
type drawn struct {
	from, to int64
	off      int64 // calls: the thread was off its CPU, which it never asked for
}

// offNs is what a call may be off its CPU and still count: nobody sees a thread that is preempted, so a longer one
// says how loaded the machine is.
const offNs = 300_000

// lengths are the classes that calls are told apart by; ns.
var lengths = []struct {
	name     string
	from, to int64
}{
	{"below 1 ms", 0, 1e6},
	{"1 to 3 ms", 1e6, 3e6},
	{"above 3 ms", 3e6, 1 << 62},
}

// outcome is what became of the calls of a class: how many no stack was taken in, or only such as lie in one span with another call's.
type outcome struct {
	calls, missing, shared int
	errs                   []int64 // ns, of calls with a span of their own
}

func (b *bench) durations() error {
	const calls = 800
	fmt.Printf("Durations: %d rounds of %d calls of one function and two that it calls, 0.1 to 20 ms, of them those that were not preempted for more than %.1f ms; %d samples a second\n\n", b.rounds, calls, offNs/1e6, b.freq)
	fmt.Println("| program | calls | spans by | not seen | seen in one span with another call | error, ms: mean / median of sizes / p90 / p99 |")
	fmt.Println("|---|---|---|---|---|---|")
	raw, err := os.Create(b.file("durations.txt"))
	if err != nil {
		return err
	}
	defer raw.Close()
	for _, scenario := range []string{"hooked", "silent"} {
		if b.only != "" && b.only != scenario {
			continue
		}
		var with, without [3]outcome
		for round := range b.rounds {
			base := b.file("durations-%s-%d", scenario, round)
			if err := quiet(b.hbtrace, "run", "-q", "-F", strconv.Itoa(b.freq), "-o", base, "--", b.program("durations"), scenario, strconv.Itoa(calls), base+".truth"); err != nil {
				return err
			}
			truth := map[string][]drawn{}
			if err := readFacts(base+".truth", func(w []string, n []int64) error {
				truth[w[1]] = append(truth[w[1]], drawn{n[0], n[1], n[1] - n[0] - n[2]})
				return nil
			}); err != nil {
				return err
			}
			for _, how := range []struct {
				plain bool
				into  *[3]outcome
			}{{false, &with}, {true, &without}} {
				drawn, seen, err := spansOf(base+".hbt", how.plain)
				if err != nil {
					return err
				}
				for f, calls := range truth {
					score(calls, drawn[f], seen, how.into, raw)
				}
			}
		}
		for i, l := range lengths {
			for _, row := range []struct {
				name string
				o    *outcome
			}{{"hbtrace", &with[i]}, {"comparing addresses alone", &without[i]}} {
				fmt.Printf("| %s, %s | %d | %s | %s | %s | %s |\n", scenario, l.name, row.o.calls, row.name,
					percent(row.o.missing, row.o.calls), percent(row.o.shared, row.o.calls), quantiles(row.o.errs))
			}
		}
	}
	fmt.Println()
	return nil
}

func percent(n, of int) string {
	if of == 0 {
		return "–"
	}
	return fmt.Sprintf("%.1f %%", 100*float64(n)/float64(of))
}

func quantiles(errs []int64) string {
	if len(errs) == 0 {
		return "–"
	}
	var sum float64
	abs := make([]int64, len(errs))
	for i, e := range errs {
		sum += float64(e)
		abs[i] = max(e, -e)
	}
	slices.Sort(abs)
	at := func(q float64) float64 { return float64(abs[int(q*float64(len(abs)-1))]) / 1e6 }
	return fmt.Sprintf("%+.2f / %.2f / %.2f / %.2f", sum/float64(len(errs))/1e6, at(0.5), at(0.9), at(0.99))
}

// score gives each true call the spans in which it was seen: none, those of its own, or one in which another call was seen as
// well. Where a span begins and ends says nothing of that: it lies halfway between two stacks, and so
// may reach over a neighbour that nobody saw. That is an error of its length.
func score(calls, spans []drawn, seen []int64, into *[3]outcome, raw io.Writer) {
	in := make([]map[int]bool, len(spans)) // the calls that were seen in a span
	own := make([][]int, len(calls))       // the spans in which a call was seen
	c, s := 0, 0                           // calls and spans of one function do not overlap; all are in the order of time
	for _, at := range seen {
		for c < len(calls) && calls[c].to < at {
			c++
		}
		for s < len(spans) && spans[s].to < at {
			s++
		}
		if c == len(calls) || s == len(spans) {
			break
		}
		if calls[c].from > at || spans[s].from > at {
			continue
		}
		if in[s] == nil {
			in[s] = map[int]bool{}
		}
		if !in[s][c] {
			in[s][c] = true
			own[c] = append(own[c], s)
		}
	}
	for k, c := range calls {
		if c.off > offNs {
			continue
		}
		length := c.to - c.from
		class := 0
		for length >= lengths[class].to {
			class++
		}
		o := &into[class]
		o.calls++
		var sum int64
		shared := false
		for _, i := range own[k] {
			shared = shared || len(in[i]) > 1
			sum += spans[i].to - spans[i].from
		}
		switch {
		case len(own[k]) == 0:
			o.missing++
		case shared:
			o.shared++
		default: // what was torn apart counts together
			o.errs = append(o.errs, sum-length)
			fmt.Fprintf(raw, "%d ns: %+d in %d\n", length, sum-length, len(own[k]))
		}
	}
}

// spansOf diffs the stacks of a recording of one thread, and returns its spans by function, and when stacks were taken, all in the order
// of time. plain: as if nothing but addresses could be compared.
func spansOf(path string, plain bool) (in map[string][]drawn, seen []int64, err error) {
	r, err := tracefile.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer r.Close()
	src := trace.Source(r)
	if plain {
		src = &byAddress{Source: r, last: map[trace.ThreadID][]trace.StackID{}}
	}
	tab := frames.New(src)
	c := &spanCollector{tab: tab, in: map[string][]drawn{}}
	builder := spans.New(src, tab, c)
	if err := trace.Events(src, func(e *trace.Event) error {
		if e.Stack != 0 {
			if e.Count > 1 { // a run: its first stack, its last, and others between
				seen = append(seen, int64(e.Start))
			}
			seen = append(seen, int64(e.Time))
		}
		return builder.Add(e)
	}); err != nil {
		return nil, nil, err
	}
	_, err = builder.Close()
	slices.Sort(seen)
	for _, spans := range c.in { // reported as they end
		slices.SortFunc(spans, func(x, y drawn) int { return cmp.Compare(x.from, y.from) })
	}
	return c.in, seen, err
}

type spanCollector struct {
	spans.Discard
	tab *frames.Table
	in  map[string][]drawn
}

// End implements [spans.Sink].
func (c *spanCollector) End(s *spans.Span) error {
	name := c.tab.Frame(s.Frame).Name
	c.in[name] = append(c.in[name], drawn{from: int64(s.Start), to: int64(s.End)})
	return nil
}

// byAddress is a recording without what its agent knew of invocations: what two stacks have in common from the root
// is taken to have run on, and so is the function above it.
type byAddress struct {
	trace.Source
	last map[trace.ThreadID][]trace.StackID
}

// EventBatches implements [trace.Source].
func (b *byAddress) EventBatches(f func([]trace.Event, func()) error) error {
	return trace.InBatches(b.each, f)
}

func (b *byAddress) each(f func(*trace.Event) error) error {
	return trace.Events(b.Source, func(e *trace.Event) error {
		if e.Stack == 0 {
			return f(e)
		}
		var stack []trace.StackID
		for id := e.Stack; id != 0; id = b.Node(id).Parent {
			stack = append(stack, id)
		}
		slices.Reverse(stack)
		x, last := *e, b.last[e.Thread]
		x.Same = 0
		for int(x.Same) < min(len(stack), len(last)) && stack[x.Same] == last[x.Same] {
			x.Same++
		}
		x.Flags |= trace.FlagSameCall
		b.last[e.Thread] = stack
		return f(&x)
	})
}
