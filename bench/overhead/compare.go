package main

// compare.go: the workloads and real servers under every tool, interleaved round by round.

import (
	"encoding/csv"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hbtrace/hbtrace/tracefile"
)

// run1 is one run of one subject under one tool.
type run1 struct {
	cpu, wall time.Duration // the subject's own; cpu 0: not known
	latency   latency       // of requests, for servers
	bytes     int64         // written by the tool
	events    uint64        // recorded, where the tool is hbtrace
	requests  int           // that servers answered: a load may last for a time
}

// latency is how long requests took, by percentile; 0: not known.
type latency struct{ p50, p99, p999 time.Duration }

// rate is how many requests were answered a second; 0: it is no server.
func (r run1) rate() float64 { return float64(r.requests) / max(r.wall.Seconds(), 1e-9) }

// per is a time for the work done.
func (r run1) per(d time.Duration) float64 { return d.Seconds() / float64(max(r.requests, 1)) }

// subject is what is run: a workload, or a program or server with a load.
type subject struct {
	name string
	run  func(t *tool, dir string) (run1, error)
	skip string
}

// chosen are the names of the tools to compare; nil: all.
var chosen []string

// compare runs rounds of every subject under every tool that is here.
func compare(rounds int, outDir, bin, tmp string, names []string) error {
	all := tools(bin)
	var here []*tool
	fmt.Printf("%d rounds, interleaved, %s; ratios to bare (of servers: for each request): geometric mean [95 %% confidence interval], * where it can be told from 1\n", rounds, machine())
	for i := range all {
		t := &all[i]
		if chosen != nil && i > 0 && !slices.Contains(chosen, t.name) {
			continue
		}
		if why := t.missing(); why != "" {
			fmt.Printf("left out: %s: %s\n", t.name, why)
			continue
		}
		here = append(here, t)
	}
	raw, err := os.Create(filepath.Join(outDir, "tools.csv"))
	if err != nil {
		return err
	}
	defer raw.Close()
	table := csv.NewWriter(raw)
	if err := table.Write([]string{"subject", "tool", "round", "cpu_ns", "wall_ns", "p50_ns", "p99_ns", "p999_ns", "bytes", "events", "requests"}); err != nil {
		return err
	}
	fmt.Printf("%-12s %-18s %-24s %-24s %-24s %-24s %-24s %-24s %12s %10s\n", "subject", "tool", "CPU", "wall", "requests/s", "p50", "p99",
		"p99.9", "bytes/s", "B/event")
	for _, s := range append(workloads(tmp, names), servers(names)...) {
		if s.skip != "" {
			fmt.Printf("left out: %s: %s\n", s.name, s.skip)
			continue
		}
		results := map[*tool][]run1{}
		failed := map[*tool]error{}
		for round := range rounds {
			order := slices.Clone(here)
			if round%2 == 1 {
				slices.Reverse(order)
			}
			for _, t := range order {
				if failed[t] != nil {
					continue
				}
				r, err := one1(s, t, tmp)
				if err != nil {
					failed[t] = err
					continue
				}
				results[t] = append(results[t], r)
				if err := table.Write([]string{s.name, t.name, strconv.Itoa(round), ns(r.cpu), ns(r.wall), ns(r.latency.p50), ns(r.latency.p99), ns(r.latency.p999),
					strconv.FormatInt(r.bytes, 10), strconv.FormatUint(r.events, 10), strconv.Itoa(r.requests)}); err != nil {
					return err
				}
			}
		}
		bare := results[here[0]]
		for _, t := range here {
			if err := failed[t]; err != nil {
				fmt.Printf("%-12s %-18s failed: %.150s\n", s.name, t.name, strings.ReplaceAll(err.Error(), "\n", "; "))
				continue
			}
			printRow(s.name, t.name, results[t], bare)
		}
		table.Flush()
	}
	fmt.Println("\nwhat each can show:")
	for _, t := range here[1:] {
		fmt.Printf("  %-18s %s\n", t.name, t.shows)
	}
	fmt.Printf("raw results: %s\n", raw.Name())
	return table.Error()
}

func printRow(subject, tool string, runs, bare []run1) {
	ratios := func(of func(run1) float64) string {
		var v []float64
		for i := range min(len(runs), len(bare)) {
			if b := of(bare[i]); b > 0 && of(runs[i]) > 0 {
				v = append(v, of(runs[i])/b)
			}
		}
		if len(v) == 0 {
			return "-"
		}
		return ratio(v)
	}
	var rate, each []float64
	for _, r := range runs {
		rate = append(rate, float64(r.bytes)/max(r.wall.Seconds(), 1e-9))
		if r.events > 0 {
			each = append(each, float64(r.bytes)/float64(r.events))
		}
	}
	perEvent := "-"
	if len(each) > 0 {
		perEvent = fmt.Sprintf("%.1f", median(each))
	}
	fmt.Printf("%-12s %-18s %-24s %-24s %-24s %-24s %-24s %-24s %12.0f %10s\n", subject, tool,
		ratios(func(r run1) float64 { return r.per(r.cpu) }), ratios(func(r run1) float64 { return r.per(r.wall) }), ratios(run1.rate),
		ratios(func(r run1) float64 { return r.latency.p50.Seconds() }), ratios(func(r run1) float64 { return r.latency.p99.Seconds() }),
		ratios(func(r run1) float64 { return r.latency.p999.Seconds() }), median(rate), perEvent)
}

// one1 gives a run a directory of its own and looks at what the tool left there.
func one1(s subject, t *tool, tmp string) (run1, error) {
	dir, err := os.MkdirTemp(tmp, "run-")
	if err != nil {
		return run1{}, err
	}
	defer os.RemoveAll(dir)
	r, err := s.run(t, dir)
	if err != nil {
		return r, err
	}
	r.bytes = written(dir)
	if t.hb { // the recording itself; the two exports are made from it
		path := filepath.Join(dir, "rec.hbt")
		rec, err := tracefile.Open(path)
		if err != nil {
			return r, err
		}
		defer rec.Close()
		r.events = rec.Stats().Events
		if st, err := os.Stat(path); err == nil {
			r.bytes = st.Size()
		}
	}
	return r, nil
}

// runLimit bounds one run; some tools make a workload fifty times slower.
const runLimit = 3 * time.Minute

// workloads are the programs of bench/workloads, which measure themselves.
func workloads(tmp string, names []string) (list []subject) {
	sources, _ := filepath.Glob("bench/workloads/*.c") // only error: a malformed pattern
	for _, src := range sources {
		name := strings.TrimSuffix(filepath.Base(src), ".c")
		if len(names) > 0 && !slices.Contains(names, name) {
			continue
		}
		list = append(list, subject{name: name, run: func(t *tool, dir string) (run1, error) {
			exe := filepath.Join(tmp, name+strings.Join(t.build, ""))
			if _, err := os.Stat(exe); err != nil {
				args := append([]string{"-O2", "-g", "-fno-omit-frame-pointer", "-pthread", "-o", exe, src}, t.build...)
				if err := command("compiling "+name, nil, "gcc", args...); err != nil {
					return run1{}, err
				}
			}
			result := filepath.Join(tmp, "result-"+name)
			if err := os.Remove(result); err != nil && !os.IsNotExist(err) {
				return run1{}, err
			}
			args, env := t.wrap(dir, []string{exe})
			if err := limited(args, append(env, "WORKLOAD_RESULT="+result), dir); err != nil {
				return run1{}, err
			}
			data, err := os.ReadFile(result)
			if err != nil {
				return run1{}, err
			}
			var user, sys, wall int64
			if _, err := fmt.Sscan(string(data), &user, &sys, &wall); err != nil {
				return run1{}, fmt.Errorf("%s: %q: %w", result, data, err)
			}
			return run1{cpu: time.Duration(user + sys), wall: time.Duration(wall)}, nil
		}})
	}
	return list
}

// limited runs a command to its end within runLimit.
func limited(args, env []string, dir string) error {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Dir = dir
	cmd.WaitDelay = 5 * time.Second
	timer := time.AfterFunc(runLimit, func() { _ = cmd.Process.Kill() }) // ended already: what was wanted
	defer timer.Stop()
	if out, err := cmd.CombinedOutput(); err != nil {
		if !timer.Stop() {
			err = errors.Join(err, fmt.Errorf("not done after %v", runLimit))
		}
		return fmt.Errorf("%w: %.300s", err, out)
	}
	return nil
}
