package main

// This file owns blocked time against the kernel's own account: the times that threads were off their CPUs, by the scheduler's
// sched_switch events of the same run, which perf records for whoever may trace the whole machine.

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/hbtrace/hbtrace/hooks"
	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/tracefile"
)

// off is a time that a thread was off its CPU, ns of CLOCK_MONOTONIC. asleep: it waited for something; else it had to make room.
type off struct {
	from, to int64
	asleep   bool
}

// switchesRefused is why sched_switch cannot be recorded here; "" if it can.
func switchesRefused(dir string) string {
	if _, err := exec.LookPath("perf"); err != nil {
		return "there is no perf"
	}
	out, err := exec.Command("perf", "record", "-q", "-a", "-e", "sched:sched_switch", "-k", "CLOCK_MONOTONIC", "-o", dir+"/may.perf", "--", "true").CombinedOutput()
	os.Remove(dir + "/may.perf")
	if err != nil {
		first, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
		return fmt.Sprintf("perf may not record sched_switch of the machine (%v: %s)", err, first)
	}
	return ""
}

// slept is what became of sleeps: of one class, of all rounds.
type slept struct {
	due, missing   int
	seen, invented int
	unknown        int     // without a switch, where perf lost some
	difference     []int64 // ns: recorded, less from the first switch away to the last one back
}

func (b *bench) switches() error {
	fmt.Printf("Blocked time against sched_switch: %d rounds of the same program, its threads together\n\n", b.rounds)
	if why := switchesRefused(b.dir); why != "" {
		fmt.Printf("skipped: %s\n\n", why)
		return nil
	}
	raw, err := os.Create(b.file("switches.txt"))
	if err != nil {
		return err
	}
	defer raw.Close()
	var locks, calls slept
	lost := 0
	for round := range b.rounds {
		base := b.file("switches-%d", round)
		// Of all threads: where two events of a CPU do not fit together, perf has lost one between them, of which it says nothing.
		if err := quiet("perf", "record", "-q", "-a", "-m", "8M", "-e", "sched:sched_switch", "-k", "CLOCK_MONOTONIC", "-o", base+".perf", "--", b.hbtrace, "run", "-q", "-o", base, "--", b.program("blocked"), "400", base+".truth"); err != nil {
			return err
		}
		kernel, err := offCPU(base + ".perf")
		if err != nil {
			return err
		}
		os.Remove(base + ".perf")
		lost += len(kernel.lost)
		first := int64(-1) // before its first wait the program is being started: the agent waits for its unwind tables
		if err := readFacts(base+".truth", func(_ []string, n []int64) error {
			if first < 0 {
				first = n[0]
			}
			return nil
		}); err != nil {
			return err
		}
		if err := compareSwitches(base+".hbt", kernel, first, &locks, &calls, raw); err != nil {
			return err
		}
	}
	fmt.Printf("perf lost %d switches of the machine.\n\n", lost)
	fmt.Println("| | sleeps above the threshold, by sched_switch | of them not recorded | recorded | of them without a switch (where perf lost one) | recorded less off the CPU, µs: median / p99 / largest |")
	fmt.Println("|---|---|---|---|---|---|")
	for _, row := range []struct {
		name string
		s    *slept
	}{{"locks, conditions, semaphores, joins", &locks}, {"calls", &calls}} {
		d := row.s.difference
		slices.Sort(d)
		at := func(q float64) float64 {
			if len(d) == 0 {
				return 0
			}
			return float64(d[int(q*float64(len(d)-1))]) / 1e3
		}
		fmt.Printf("| %s | %d | %d | %d | %d (%d) | %.1f / %.1f / %.1f |\n", row.name, row.s.due, row.s.missing, row.s.seen, row.s.invented, row.s.unknown, at(0.5), at(0.99), at(1))
	}
	fmt.Println()
	return nil
}

var switchLine = regexp.MustCompile(`^\s*\[([0-9]+)\]\s+([0-9]+)\.([0-9]{9}):.*prev_pid=([0-9]+) .*prev_state=(\S+) ==> .*next_pid=([0-9]+)`)

// account is what the scheduler's events say.
type account struct {
	off  map[int][]off // by thread id
	lost []off         // when an event was lost, of whatever CPU
}

// lostIn says whether an event was lost in a time.
func (a *account) lostIn(from, to int64) bool {
	return slices.ContainsFunc(a.lost, func(o off) bool { return o.from <= to && o.to >= from })
}

// offCPU reads when each thread was off its CPU.
func offCPU(path string) (*account, error) {
	out, err := exec.Command("perf", "script", "--ns", "-i", path, "-F", "cpu,time,trace").Output()
	if err != nil {
		return nil, fmt.Errorf("perf script: %w", err)
	}
	return offCPUOf(bytes.NewReader(out))
}

func offCPUOf(r io.Reader) (*account, error) {
	type last struct {
		next int
		at   int64
	}
	all, away, cpus := account{off: map[int][]off{}}, map[int]off{}, map[string]last{}
	for sc := bufio.NewScanner(r); sc.Scan(); {
		w := switchLine.FindStringSubmatch(sc.Text())
		if w == nil {
			return nil, fmt.Errorf("perf script: line %q is no switch", sc.Text())
		}
		at, err := strconv.ParseInt(w[2]+w[3], 10, 64)
		if err != nil {
			return nil, err
		}
		prev, _ := strconv.Atoi(w[4])
		next, _ := strconv.Atoi(w[6])
		if l, ok := cpus[w[1]]; ok && l.next != prev {
			all.lost = append(all.lost, off{from: l.at, to: at})
		}
		cpus[w[1]] = last{next, at}
		away[prev] = off{from: at, asleep: !strings.HasPrefix(w[5], "R")}
		if o, ok := away[next]; ok && next != 0 {
			o.to = at
			all.off[next] = append(all.off[next], o)
			delete(away, next)
		}
	}
	return &all, nil
}

// recordedWait is an interval of a recording, and the class of what it waited in.
type recordedWait struct {
	interval
	lock bool
}

// compareSwitches holds the intervals of a recording, from some time on, against when its threads were off their CPUs.
func compareSwitches(path string, kernel *account, from int64, locks, calls *slept, raw io.Writer) error {
	r, err := tracefile.Open(path)
	if err != nil {
		return err
	}
	defer r.Close()
	names := r.Meta().Hooks
	of := map[trace.ThreadID][]recordedWait{}
	if err := trace.Events(r, func(e *trace.Event) error {
		if (e.Kind == trace.KindWait || e.Kind == trace.KindCall) && int64(e.Start) >= from {
			h, _ := hooks.ByID(e.Hook)
			of[e.Thread] = append(of[e.Thread], recordedWait{interval{what: names[e.Hook].Name, from: int64(e.Start), to: int64(e.Time)}, h.Class.Waits()})
		}
		return nil
	}); err != nil {
		return err
	}
	for _, t := range r.Threads() {
		matchSwitches(of[t.ID], within(kernel.off[t.TID], max(from, int64(t.Start)), int64(t.End)), kernel, locks, calls, raw)
	}
	return nil
}

// within keeps what lies wholly in a thread's life as it was recorded: thread ids are used again.
func within(all []off, from, to int64) (in []off) {
	for _, o := range all {
		if o.from >= from && o.to <= to {
			in = append(in, o)
		}
	}
	return in
}

// matchSwitches compares one thread's intervals with the times that it was off its CPU; both are in the order of time. A sleep belongs to
// the interval that its middle lies in. What no interval holds is due from the threshold of calls on, since nothing tells what
// it was a wait for; shorter ones that lie in one are counted by its kind.
func matchSwitches(seen []recordedWait, kernel []off, all *account, locks, calls *slept, raw io.Writer) {
	next := 0
	for _, w := range seen {
		into, threshold := calls, int64(callThresholdNs)
		if w.lock {
			into, threshold = locks, lockThresholdNs
		}
		into.seen++
		var first, last int64
		for ; next < len(kernel) && kernel[next].from+(kernel[next].to-kernel[next].from)/2 <= w.to; next++ {
			o := kernel[next]
			switch {
			case o.from+(o.to-o.from)/2 < w.from:
				if o.asleep && o.to-o.from >= callThresholdNs {
					calls.due++
					calls.missing++
					fmt.Fprintf(raw, "not recorded: asleep for %d ns at %d, before %s\n", o.to-o.from, o.from, w.what)
				}
				continue
			case o.asleep && o.to-o.from >= threshold:
				into.due++
			}
			if first == 0 {
				first = o.from
			}
			last = o.to
		}
		if first == 0 {
			into.invented++
			if all.lostIn(w.from, w.to) {
				into.unknown++
			}
			fmt.Fprintf(raw, "no switch in %s of %d ns at %d\n", w.what, w.ns(), w.from)
			continue
		}
		into.difference = append(into.difference, w.ns()-(last-first))
		fmt.Fprintf(raw, "%s of %d ns: off its CPU from %+d to %+d\n", w.what, w.ns(), first-w.from, last-w.to)
	}
	for ; next < len(kernel); next++ {
		if o := kernel[next]; o.asleep && o.to-o.from >= callThresholdNs {
			calls.due++
			calls.missing++
			fmt.Fprintf(raw, "not recorded: asleep for %d ns at %d\n", o.to-o.from, o.from)
		}
	}
}
