// Replay repeats the experiment of the BTrace paper (Wang et al., "Enabling Efficient Mobile Tracing with
// BTrace", ASPLOS '25, section 5): twenty smartphone workloads written to a 12 MB buffer by the threads of
// twelve cores, for this project's block buffer and what it competes with; how much continuous history is
// left, and what writing cost.
//
//	go run ./bench/replay -quick               three workloads, one second each: under a minute
//	go run ./bench/replay -o raw               all twenty; raw.json and raw.csv have every run
//	go run ./bench/replay -figure10            latest fragment against active blocks and mapping
//	go run ./bench/replay -stuck 0.00003 -stuck-for 2s   with writers that sleep between reserve and commit
//	go run ./bench/replay -shrink              halve the buffer and restore it while writing
//
// docs/design/replay.md says where the workloads come from and what came out.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/hbtrace/hbtrace/bench/replay/tracer"
	"github.com/hbtrace/hbtrace/bench/replay/workload"
)

type options struct {
	seconds   float64
	workloads string
	tracers   string
	level     string
	quick     bool
	figure10  bool
	speed     float64
	turns     float64
	stuck     float64
	stuckFor  time.Duration
	shrink    bool
	live      int
	threads   int
	active    int
	mapping   string
	block     int
	repeat    int
	out       string
}

func main() {
	var o options
	var names []string
	for _, t := range allTracers() {
		names = append(names, t.Name+": "+t.Is)
	}
	flag.Float64Var(&o.seconds, "seconds", 3, "length of each replay")
	flag.StringVar(&o.workloads, "workload", "all", "workloads, comma-separated; all; or known, those whose rates the paper prints")
	flag.StringVar(&o.tracers, "tracer", "all", "tracers, comma-separated, or all\n"+strings.Join(names, "\n"))
	flag.StringVar(&o.level, "level", "thread", "thread: as many threads a core as the paper counts; core: one; both")
	flag.BoolVar(&o.quick, "quick", false, "three workloads for a second each, unless other flags say otherwise")
	flag.BoolVar(&o.figure10, "figure10", false, "the block buffer alone, with 1 to 64 active blocks a core and each mapping")
	flag.Float64Var(&o.speed, "speed", 0, "times as fast as the phone; 0: so fast that the buffer is filled -turns times")
	flag.Float64Var(&o.turns, "turns", 4, "times that the buffer is filled")
	flag.Float64Var(&o.stuck, "stuck", 0, "share of records whose writer sleeps between reserve and commit, where the tracer has a reserve")
	flag.DurationVar(&o.stuckFor, "stuck-for", 100*time.Millisecond, "how long it sleeps")
	flag.BoolVar(&o.shrink, "shrink", false, "halve the buffer when it has been filled 1.25 times, restore it at 2.5, where the tracer can")
	flag.IntVar(&o.live, "live", 2, "snapshots read while writing, where the tracer can: each is verified")
	flag.IntVar(&o.threads, "threads", 120, "most threads a core at a time")
	flag.IntVar(&o.active, "active", 0, "the block buffer's active blocks a core; 0: its default")
	flag.StringVar(&o.mapping, "mapping", "", "the block buffer's mapping: "+strings.Join(tracer.Mappings, ", ")+"; empty: its default")
	flag.IntVar(&o.block, "block", 0, "the block buffer's block size in bytes; 0: its default")
	flag.IntVar(&o.repeat, "repeat", 1, "times that everything is done, interleaved; the table has medians")
	flag.StringVar(&o.out, "o", "", "write every run's result to this name with .json and .csv")
	flag.Parse()
	if err := run(o); err != nil {
		fmt.Fprintln(os.Stderr, "replay:", err)
		os.Exit(1)
	}
}

func run(o options) error {
	set := map[string]bool{}
	flag.Visit(func(f *flag.Flag) { set[f.Name] = true })
	if o.quick {
		if !set["seconds"] {
			o.seconds = 1
		}
		if !set["workload"] {
			o.workloads = "Desktop,Video-1,IM"
		}
	}
	if o.figure10 && !set["tracer"] {
		o.tracers = "blockbuf"
	}
	if o.figure10 && !set["level"] {
		o.level = "both"
	}
	replays, err := plan(o)
	if err != nil {
		return err
	}
	defer dropTools(replays)
	watch := newStopwatch()
	var results []Result
	missing := map[string]bool{}
	for i, r := range replays {
		if missing[r.Tracer] {
			continue
		}
		fmt.Fprintf(os.Stderr, "\r\033[K%d of %d: %s %s", i+1, len(replays), r.Workload.Name, r.Tracer)
		res, err := r.do(watch)
		if unavailable(err) {
			missing[r.Tracer] = true
			fmt.Fprintf(os.Stderr, "\r\033[K%s is left out: %v\n", r.Tracer, err)
			continue
		}
		if err != nil {
			fmt.Fprintln(os.Stderr)
			return err
		}
		results = append(results, res)
	}
	fmt.Fprint(os.Stderr, "\r\033[K")
	if o.out != "" {
		if err := save(o.out, results); err != nil {
			return err
		}
	}
	if o.figure10 {
		printFigure10(os.Stdout, results)
		return nil
	}
	printTable(os.Stdout, results)
	if o.shrink {
		printShrunk(os.Stdout, results)
	}
	return nil
}

// unavailable: the machine does not have that tracer, or does not allow it.
func unavailable(err error) bool {
	return errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EPERM) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, errUnavailable)
}

// plan is every replay in the order in which they are done: tracers next to one another, so that what else the
// machine does hits all of them.
func plan(o options) ([]Replay, error) {
	loads, err := pick(o.workloads)
	if err != nil {
		return nil, err
	}
	var tracers []string
	for _, t := range allTracers() {
		if o.tracers == "all" && t.Name != tracer.Null.Name || slices.Contains(strings.Split(o.tracers, ","), t.Name) {
			tracers = append(tracers, t.Name)
		}
	}
	if len(tracers) == 0 || o.tracers != "all" && len(tracers) != len(strings.Split(o.tracers, ",")) {
		return nil, fmt.Errorf("-tracer %s: see -help for those that there are", o.tracers)
	}
	var levels []bool
	switch o.level {
	case "thread":
		levels = []bool{false}
	case "core":
		levels = []bool{true}
	case "both":
		levels = []bool{true, false}
	default:
		return nil, fmt.Errorf("-level %s: take thread, core or both", o.level)
	}
	actives, mappings := []int{o.active}, []string{o.mapping}
	if o.figure10 {
		actives, mappings = []int{1, 2, 4, 8, 16, 32, 64}, tracer.Mappings
	}
	if o.seconds <= 0 || o.turns <= 0 || o.speed < 0 || o.threads < 1 || o.repeat < 1 {
		return nil, errors.New("-seconds, -turns, -threads and -repeat must be above 0, -speed not below")
	}
	var all []Replay
	for range o.repeat {
		for _, w := range loads {
			for _, perCore := range levels {
				for _, a := range actives {
					for _, m := range mappings {
						for _, t := range tracers {
							r := Replay{Workload: w, Tracer: t, PerCore: perCore, Duration: time.Duration(o.seconds * float64(time.Second)),
								Speed: o.speed, Stuck: o.stuck, StuckFor: o.stuckFor, Live: o.live, Shrink: o.shrink, Threads: o.threads,
								Config: tracer.Config{Bytes: workload.BufferBytes, BlockBytes: o.block, Active: a, Mapping: m}}
							if r.Speed == 0 {
								r.Speed = o.turns * workload.BufferBytes / workload.MeanEntry() / o.seconds / w.Sum()
							}
							all = append(all, r)
						}
					}
				}
			}
		}
	}
	return all, nil
}

func pick(names string) ([]workload.Workload, error) {
	var loads []workload.Workload
	if names == "all" || names == "known" {
		for _, w := range workload.All() {
			if names == "all" || w.Known {
				loads = append(loads, w)
			}
		}
		return loads, nil
	}
	for _, n := range strings.Split(names, ",") {
		w, ok := workload.Find(n)
		if !ok {
			var all []string
			for _, w := range workload.All() {
				all = append(all, w.Name)
			}
			return nil, fmt.Errorf("there is no workload %q: take some of %s", n, strings.Join(all, ", "))
		}
		loads = append(loads, w)
	}
	return loads, nil
}
