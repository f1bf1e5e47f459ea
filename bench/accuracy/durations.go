package main

// This file owns durations: spans that were made by diffing stacks, against the program's own stamps of each call.

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"

	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/tracefile"
	"github.com/hbtrace/hbtrace/visualize/frames"
	"github.com/hbtrace/hbtrace/visualize/spans"
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

// outcome is what became of the calls of a class.
type outcome struct {
	calls, missing, shared int
	errs                   []int64 // ns, of calls with a span of their own
}

func (b *bench) durations() error {
	const calls = 800
	fmt.Printf("Durations: %d rounds of %d calls of one function and two that it calls, 0.1 to 20 ms, of them those that were not preempted for more than %.1f ms; %d samples a second\n\n", b.rounds, calls, offNs/1e6, b.freq)
	fmt.Println("| program | calls | spans by | not seen | share a span with another call | error, ms: mean / median of sizes / p90 / p99 |")
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
				seen, err := spansOf(base+".hbt", how.plain)
				if err != nil {
					return err
				}
				for f, calls := range truth {
					score(calls, seen[f], how.into, raw)
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

// score gives each true call the spans that lie over it: none, one of its own, or one that lies over several calls.
// A span lies over a call when it holds the call's middle, or is held by the call.
func score(calls, seen []drawn, into *[3]outcome, raw io.Writer) {
	over := make([][]int, len(calls))
	holds := make([]int, len(seen))
	for i, s := range seen {
		for k, c := range calls {
			if mid := c.from + (c.to-c.from)/2; s.from <= mid && s.to >= mid || s.from >= c.from && s.to <= c.to {
				over[k] = append(over[k], i)
				holds[i]++
			}
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
		for _, i := range over[k] {
			shared = shared || holds[i] > 1
			sum += seen[i].to - seen[i].from
		}
		switch {
		case len(over[k]) == 0:
			o.missing++
		case shared:
			o.shared++
		default: // what was torn apart counts together
			o.errs = append(o.errs, sum-length)
			fmt.Fprintf(raw, "%d ns: %+d in %d\n", length, sum-length, len(over[k]))
		}
	}
}

// spansOf diffs a recording's stacks and returns its spans by function. plain: as if nothing but addresses could be
// compared.
func spansOf(path string, plain bool) (map[string][]drawn, error) {
	r, err := tracefile.Open(path)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	src := trace.Source(r)
	if plain {
		src = &byAddress{Source: r, last: map[trace.ThreadID][]trace.StackID{}}
	}
	tab := frames.New(src)
	c := &spanCollector{tab: tab, in: map[string][]drawn{}}
	builder := spans.New(src, tab, c)
	if err := src.Events(builder.Add); err != nil {
		return nil, err
	}
	_, err = builder.Close()
	return c.in, err
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

// Events implements [trace.Source].
func (b *byAddress) Events(f func(*trace.Event) error) error {
	return b.Source.Events(func(e *trace.Event) error {
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
