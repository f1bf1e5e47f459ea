// Command overhead measures what a recording costs whole programs: each workload of bench/workloads bare and under
// `hbtrace run` with its defaults, A and B interleaved (A B B A …) in one run, as ratios, with every run's numbers
// in a file next to them. Run it from the repository:
//
//	go run ./bench/overhead [-rounds 7] [-o DIR] [-flags "…"] [WORKLOAD…]
//	go run ./bench/overhead -tools [-rounds 3] [-o DIR] [WORKLOAD or redis, nginx, memcached, sqlite3 …]
//
// With -tools the workloads and real servers run bare, under hbtrace at its defaults and at -F 10000, and under what a user
// would run instead, with what each wrote and what each can show (tools.go, compare.go, servers.go).
//
// The workload measures its own CPU time (user and system, by getrusage at its end) and wall time, so that
// neither the collector's nor the sampler's is in them; theirs are reported next to. So is the share of the workload's CPU time
// that lies in the agent, by perf in a run of its own, where there is a perf (share.go).
package main

import (
	"bufio"
	"encoding/csv"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/hbtrace/hbtrace/tracefile"
)

func main() {
	rounds := flag.Int("rounds", 7, "pairs of runs per workload")
	outDir := flag.String("o", "", "where raw results go (default: a temporary directory, kept)")
	flags := flag.String("flags", "", "more flags for hbtrace run, separated by spaces")
	bin := flag.String("hbtrace", "", "the hbtrace to measure (default: built from this tree)")
	against := flag.Bool("tools", false, "compare with other tools, and on real servers")
	only := flag.String("only", "", "with -tools: these tools alone, separated by commas")
	flag.Parse()
	if *only != "" {
		chosen = strings.Split(*only, ",")
	}
	if err := run(*rounds, *outDir, strings.Fields(*flags), *bin, flag.Args(), *against); err != nil {
		fmt.Fprintf(os.Stderr, "overhead: %v\n", err)
		os.Exit(1)
	}
}

// one is one run of one workload.
type one struct {
	traced    bool
	user, sys time.Duration // the workload's own
	wall      time.Duration // the workload's own, from its main to its end
	all       time.Duration // from start to end of what was started
	others    time.Duration // CPU time of everything else: launching, collecting, writing the files
	collector time.Duration // as the recording says: while the workload ran
	sampler   time.Duration
	switches  int64
	events    uint64
	lost      uint64
	bytes     int64
	stdout    string
}

func (o one) cpu() time.Duration { return o.user + o.sys }

func run(rounds int, outDir string, flags []string, bin string, names []string, against bool) error {
	tmp, err := os.MkdirTemp("", "hbtrace-overhead-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	if outDir == "" {
		if outDir, err = os.MkdirTemp("", "hbtrace-overhead-results-"); err != nil {
			return err
		}
	} else if err := os.MkdirAll(outDir, 0o755); err != nil {
		return err
	}
	if bin == "" {
		bin = filepath.Join(tmp, "hbtrace")
		if err := command("building hbtrace", []string{"CGO_ENABLED=0"}, "go", "build", "-o", bin, "./cmd/hbtrace"); err != nil {
			return err
		}
	}
	if against {
		return compare(rounds, outDir, bin, tmp, names)
	}
	if len(names) == 0 {
		sources, err := filepath.Glob("bench/workloads/*.c")
		if err != nil || len(sources) == 0 {
			return errors.New("no bench/workloads/*.c here: run this from the repository's top")
		}
		for _, s := range sources {
			names = append(names, strings.TrimSuffix(filepath.Base(s), ".c"))
		}
	}
	raw, err := os.Create(filepath.Join(outDir, "overhead.csv"))
	if err != nil {
		return err
	}
	defer raw.Close()
	table := csv.NewWriter(raw)
	if err := table.Write([]string{"workload", "round", "traced", "user_ns", "sys_ns", "wall_ns", "all_ns", "others_cpu_ns", "collector_cpu_ns",
		"sampler_cpu_ns", "switches", "events", "lost", "file_bytes"}); err != nil {
		return err
	}
	fmt.Printf("%d pairs each, %s; ratios traced/bare: geometric mean [95 %% confidence interval], * where it can be told from 1; least: least traced/least bare CPU time\n", rounds, machine())
	fmt.Printf("%-12s %9s  %-23s %6s %8s  %-23s %10s %10s %9s %9s %7s\n", "workload", "bare CPU", "target CPU", "least", "in agent", "wall", "collector", "sampler",
		"events/s", "switches", "lost")
	worst, worstName := 0.0, ""
	for _, name := range names {
		exe := filepath.Join(tmp, name)
		if err := command("compiling "+name, nil, "gcc", "-O2", "-g", "-fno-omit-frame-pointer", "-pthread", "-o", exe, filepath.Join("bench/workloads", name+".c")); err != nil {
			return err
		}
		cpu, err := workload(name, exe, bin, flags, tmp, rounds, table)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if cpu > worst {
			worst, worstName = cpu, name
		}
		table.Flush()
	}
	fmt.Printf("worst: %s, %+.1f %% CPU\nraw results: %s\n", worstName, 100*(worst-1), raw.Name())
	return table.Error()
}

// workload runs one workload's pairs, prints its line and returns the median ratio of CPU times.
func workload(name, exe, bin string, flags []string, tmp string, rounds int, table *csv.Writer) (float64, error) {
	if _, err := measure(exe, "", nil, tmp); err != nil { // warms the page cache
		return 0, err
	}
	var cpu, wall, collector, sampler, rate, bareCPU, tracedCPU, switches []float64
	var lost uint64
	for round := range rounds {
		var pair [2]one
		order := []int{0, 1}
		if round%2 == 1 {
			order = []int{1, 0}
		}
		for _, traced := range order {
			b := ""
			if traced == 1 {
				b = bin
			}
			o, err := measure(exe, b, flags, tmp)
			if err != nil {
				return 0, err
			}
			pair[traced] = o
			if err := table.Write([]string{name, strconv.Itoa(round), strconv.FormatBool(o.traced), ns(o.user), ns(o.sys), ns(o.wall), ns(o.all),
				ns(o.others), ns(o.collector), ns(o.sampler), strconv.FormatInt(o.switches, 10), strconv.FormatUint(o.events, 10),
				strconv.FormatUint(o.lost, 10), strconv.FormatInt(o.bytes, 10)}); err != nil {
				return 0, err
			}
		}
		a, b := pair[0], pair[1]
		if a.stdout != b.stdout {
			return 0, fmt.Errorf("bare it printed %q, traced %q", a.stdout, b.stdout)
		}
		bareCPU = append(bareCPU, a.cpu().Seconds())
		tracedCPU = append(tracedCPU, b.cpu().Seconds())
		cpu = append(cpu, b.cpu().Seconds()/a.cpu().Seconds())
		wall = append(wall, b.wall.Seconds()/a.wall.Seconds())
		collector = append(collector, b.collector.Seconds()/b.wall.Seconds())
		sampler = append(sampler, b.sampler.Seconds()/b.wall.Seconds())
		rate = append(rate, float64(b.events)/b.wall.Seconds())
		switches = append(switches, float64(b.switches)/max(float64(a.switches), 1))
		lost += b.lost
	}
	share, err := agentShare(exe, bin, flags, tmp)
	if err != nil {
		return 0, err
	}
	fmt.Printf("%-12s %8.2fs  %-23s %6.3f %6.1f %%  %-23s %8.1f %% %8.1f %% %9.0f %9.2f %7d\n", name, median(bareCPU), ratio(cpu),
		slices.Min(tracedCPU)/slices.Min(bareCPU), 100*share, ratio(wall), 100*median(collector),
		100*median(sampler), median(rate), median(switches), lost)
	return median(cpu), nil
}

// measure runs a workload, under hbtrace when bin names one.
func measure(exe, bin string, flags []string, tmp string) (one, error) {
	result := filepath.Join(tmp, "result")
	prefix := filepath.Join(tmp, "rec")
	args := []string{exe}
	if bin != "" {
		args = slices.Concat([]string{bin, "run", "-q", "-o", prefix}, flags, []string{"--", exe})
	}
	if err := os.Remove(result); err != nil && !os.IsNotExist(err) {
		return one{}, err
	}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), "WORKLOAD_RESULT="+result)
	cmd.Stderr = os.Stderr
	begun := time.Now()
	out, err := cmd.Output()
	if err != nil {
		return one{}, fmt.Errorf("%s: %w", strings.Join(args, " "), err)
	}
	o := one{traced: bin != "", all: time.Since(begun), stdout: string(out)}
	data, err := os.ReadFile(result)
	if err != nil {
		return one{}, err
	}
	var user, sys, wall, invol int64
	if _, err := fmt.Sscan(string(data), &user, &sys, &wall, &o.switches, &invol); err != nil {
		return one{}, fmt.Errorf("%s: %q: %w", result, data, err)
	}
	o.user, o.sys, o.wall = time.Duration(user), time.Duration(sys), time.Duration(wall)
	if u, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		o.others = time.Duration(u.Utime.Nano()+u.Stime.Nano()) - o.cpu()
	}
	if bin == "" {
		return o, nil
	}
	r, err := tracefile.Open(prefix + ".hbt")
	if err != nil {
		return one{}, err
	}
	defer r.Close()
	s := r.Stats()
	o.collector, o.sampler, o.events, o.lost = s.CollectorCPU, s.SamplerCPU, s.Events, s.Lost
	if st, err := os.Stat(prefix + ".hbt"); err == nil {
		o.bytes = st.Size()
	}
	return o, nil
}

func command(what string, env []string, name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", what, err, out)
	}
	return nil
}

func ns(d time.Duration) string { return strconv.FormatInt(d.Nanoseconds(), 10) }

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	if len(v) == 0 {
		return 0
	}
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

// ratio is what pairs of runs say: geometric mean and 95 % confidence interval.
func ratio(v []float64) string {
	return pairedOf(v).String()
}

// machine says what the numbers were measured on.
func machine() string {
	model := "unknown processor"
	if f, err := os.Open("/proc/cpuinfo"); err == nil {
		defer f.Close()
		for s := bufio.NewScanner(f); s.Scan(); {
			if k, v, ok := strings.Cut(s.Text(), ":"); ok && strings.TrimSpace(k) == "model name" {
				model = strings.TrimSpace(v)
				break
			}
		}
	}
	var u syscall.Utsname
	release := ""
	if syscall.Uname(&u) == nil {
		for _, c := range u.Release {
			if c == 0 {
				break
			}
			release += string(rune(c))
		}
	}
	return fmt.Sprintf("%d CPUs, %s, Linux %s", runtime.NumCPU(), model, release)
}
