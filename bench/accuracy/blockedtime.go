package main

// This file owns blocked time: each wait that the program timed, against the interval in the recording.

import (
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/tracefile"
)

// interval is a wait, in ns of CLOCK_MONOTONIC.
type interval struct {
	what     string
	from, to int64
	matched  bool

	slept, preempted bool // timed ones: in this wait, or right next to it
}

func (i interval) ns() int64 { return i.to - i.from }

// Thresholds from which a wait has to be there: hbtrace's defaults, and the time that the program's clock takes.
const (
	lockThresholdNs = 10_000 + 2_000
	callThresholdNs = 100_000 + 2_000
)

func (b *bench) blocked() error {
	var due, missing, invented int
	var errs []int64 // ns, recorded minus timed
	var work []int64 // ns that the same work took right behind each wait
	raw, err := os.Create(b.file("blocked.txt"))
	if err != nil {
		return err
	}
	defer raw.Close()
	for round := range b.rounds {
		base := b.file("blocked-%d", round)
		if err := quiet(b.hbtrace, "run", "-q", "-o", base, "--", b.program("blocked"), "400", base+".truth"); err != nil {
			return err
		}
		var facts []interval
		if err := readFacts(base+".truth", func(w []string, n []int64) error {
			facts = append(facts, interval{what: w[1], from: n[0], to: n[1], slept: n[2] > 0, preempted: n[3] > 0})
			if n[3] == 0 {
				work = append(work, n[4])
			}
			return nil
		}); err != nil {
			return err
		}
		seen, err := mainWaits(base + ".hbt")
		if err != nil {
			return err
		}
		d, m, i, e := match(facts, seen, raw)
		due, missing, invented, errs = due+d, missing+m, invented+i, append(errs, e...)
	}
	for i, e := range errs {
		errs[i] = max(e, -e)
	}
	at := func(v []int64, q float64) float64 { // µs
		slices.Sort(v)
		if len(v) == 0 {
			return 0
		}
		return float64(v[int(q*float64(len(v)-1))]) / 1e3
	}
	fmt.Printf("Blocked time: %d rounds, waits for a mutex, a condition, a semaphore, a pipe (read and poll), sleeps\n\n", b.rounds)
	fmt.Println("| waits above the threshold | missing | invented | error of the duration where the thread was not preempted, µs: number / median / p99 / largest | a fixed piece of work right behind, µs: median / p99 / largest |")
	fmt.Println("|---|---|---|---|---|")
	fmt.Printf("| %d | %d | %d | %d / %.1f / %.1f / %.1f | %.1f / %.1f / %.1f |\n\n", due, missing, invented, len(errs), at(errs, 0.5), at(errs, 0.99), at(errs, 1),
		at(work, 0.5), at(work, 0.99), at(work, 1))
	return nil
}

// mainWaits reads the intervals of a recording's main thread.
func mainWaits(path string) ([]interval, error) {
	r, err := tracefile.Open(path)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	var main trace.ThreadID
	for _, t := range r.Threads() {
		if t.Main {
			main = t.ID
		}
	}
	hooks := r.Meta().Hooks
	var out []interval
	err = trace.Events(r, func(e *trace.Event) error {
		if e.Thread == main && (e.Kind == trace.KindWait || e.Kind == trace.KindCall) {
			out = append(out, interval{what: hooks[e.Hook].Name, from: int64(e.Start), to: int64(e.Time)})
		}
		return nil
	})
	return out, err
}

// match finds for each timed wait the recorded one inside it. Recorded ones of the time that waits were made in, and that
// no timed one contains, are invented.
func match(facts, seen []interval, raw io.Writer) (due, missing, invented int, errs []int64) {
	const slack = 1_000_000 // ns; intervals of different waits are further apart than errors are large
	for _, f := range facts {
		threshold := int64(lockThresholdNs)
		if f.what == "read" || f.what == "poll" || f.what == "sleep" {
			threshold = callThresholdNs
		}
		best := -1
		for i, s := range seen {
			mid := s.from + s.ns()/2
			if !s.matched && mid >= f.from && mid <= f.to && (best < 0 || s.ns() > seen[best].ns()) {
				best = i
			}
		}
		if best >= 0 {
			seen[best].matched = true
			if !f.preempted { // the program's clock then measured the wait for a CPU as well
				errs = append(errs, seen[best].ns()-f.ns())
			}
			fmt.Fprintf(raw, "%s of %d ns (preempted %v): recorded %d, begins %+d, ends %+d\n", f.what, f.ns(), f.preempted, seen[best].ns(), seen[best].from-f.from, seen[best].to-f.to)
		}
		if f.ns() >= threshold && f.slept {
			if due++; best < 0 {
				missing++
				fmt.Fprintf(raw, "missing: %s of %d ns at %d\n", f.what, f.ns(), f.from)
			}
		}
	}
	if len(facts) == 0 {
		return due, missing, invented, errs
	}
	first, last := facts[0].from-slack, facts[len(facts)-1].to
	for _, s := range seen {
		if !s.matched && s.from >= first && s.to <= last {
			invented++
			fmt.Fprintf(raw, "invented: %s of %d ns at %d\n", s.what, s.ns(), s.from)
		}
	}
	return due, missing, invented, errs
}
