// What a contended mutex costs under hbtrace, and under what one would use instead: the same program, in turns, in one run.
package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"

	"github.com/hbtrace/hbtrace/tracefile"
)

// around is a tool with a program in it.
type around struct {
	name, needs string
	root        bool
	wrap        func(dir, exe string) (args, env []string)
	shows       string
}

func arounds(bin, trylock string) []around {
	run := func(words ...string) func(dir, exe string) ([]string, []string) {
		return func(dir, exe string) ([]string, []string) {
			var args []string
			for _, w := range words {
				args = append(args, strings.ReplaceAll(w, "DIR", dir))
			}
			return append(args, exe), nil
		}
	}
	return []around{
		{name: "bare", wrap: run()},
		{name: "hbtrace", wrap: run(bin, "run", "-q", "-o", "DIR/rec", "--"),
			shows: "each wait, who had the lock and where they took it, who let go and where, chains"},
		{name: "hbtrace --kernel on", root: true, wrap: run(bin, "run", "-q", "--kernel", "on", "-o", "DIR/rec", "--"),
			shows: "that, wakers, and the time without a CPU"},
		{name: "trylock preload", wrap: func(dir, exe string) ([]string, []string) {
			return []string{exe}, []string{"LD_PRELOAD=" + trylock, "TRYLOCK_OUT=" + filepath.Join(dir, "out")}
		}, shows: "time by caller; nobody who had it"},
		{name: "perf sched record", needs: "perf", root: true, wrap: run("perf", "sched", "record", "-q", "-o", "DIR/perf", "--"),
			shows: "every switch of the machine: delays by thread; no stack, no lock"},
		{name: "perf switch+waking -g", needs: "perf", root: true, wrap: run("perf", "record", "-q", "-e", "sched:sched_switch", "-e", "sched:sched_waking", "-g", "-o", "DIR/perf", "--"),
			shows: "where threads slept, and who woke them where; no lock, not who had it"},
		{name: "bpftrace off-CPU", needs: "bpftrace", root: true, wrap: func(dir, exe string) ([]string, []string) {
			return []string{"bpftrace", "-q", "-o", filepath.Join(dir, "out"), "-c", exe, "bench/locks/src/offcpu.bt", filepath.Base(exe)}, nil
		}, shows: "time asleep by stack; no waker, no lock"},
	}
}

// cost is what one run took: ns of the program's own, of all, and on the clock; and bytes written.
type cost struct{ program, tool, wall, bytes float64 }

// compareTools runs bench/workloads/contended.c bare and under every tool, rounds times in turns, and writes medians.
func compareTools(bin, tmp string, rounds int, others bool) (string, error) {
	var text strings.Builder
	often := filepath.Join(tmp, "contend")
	if err := command("gcc", "-O2", "-g", "-fno-omit-frame-pointer", "-pthread", "bench/locks/src/contend.c", "-o", often); err != nil {
		return "", err
	}
	if !others {
		err := agentPerWait(&text, bin, often, tmp, rounds)
		return text.String(), err
	}
	exe, trylock := filepath.Join(tmp, "contended"), filepath.Join(tmp, "trylock.so")
	if err := command("gcc", "-O2", "-g", "-fno-omit-frame-pointer", "-pthread", "bench/workloads/contended.c", "-o", exe); err != nil {
		return "", err
	}
	if err := command("gcc", "-O2", "-shared", "-fPIC", "bench/locks/src/trylock.c", "-o", trylock); err != nil {
		return "", err
	}
	var all []around
	for _, a := range arounds(bin, trylock) {
		if _, err := exec.LookPath(a.needs); a.needs != "" && err != nil {
			fmt.Fprintf(&text, "without %s: not in PATH\n", a.name)
		} else if a.root && os.Getuid() != 0 {
			fmt.Fprintf(&text, "without %s: needs root\n", a.name)
		} else {
			all = append(all, a)
		}
	}
	costs := make([][]cost, len(all))
	var waits, seconds []float64
	for range rounds {
		for i, a := range all {
			dir := filepath.Join(tmp, "around")
			if err := errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o755)); err != nil {
				return "", err
			}
			c, err := runAround(a, dir, exe)
			if err != nil {
				return "", err
			}
			costs[i] = append(costs[i], c)
			if a.name == "hbtrace" {
				n, err := countWaits(filepath.Join(dir, "rec.hbt"))
				if err != nil {
					return "", err
				}
				waits, seconds = append(waits, n), append(seconds, c.wall/1e9)
			}
		}
	}
	t := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "tool\tprogram's CPU\twall clock\ttool's own CPU\twritten\tshows\n")
	for i, a := range all {
		ratio := func(of func(c cost) float64) float64 { // the median of each round's
			var rs []float64
			for r := range costs[i] {
				rs = append(rs, of(costs[i][r])/of(costs[0][r]))
			}
			return median(rs)
		}
		of := func(f func(c cost) float64) float64 {
			var v []float64
			for _, c := range costs[i] {
				v = append(v, f(c))
			}
			return median(v)
		}
		fmt.Fprintf(t, "%s\t%.2f\t%.2f\t%.2f s\t%.1f MB\t%s\n", a.name, ratio(func(c cost) float64 { return c.program }), ratio(func(c cost) float64 { return c.wall }),
			of(func(c cost) float64 { return c.tool })/1e9, of(func(c cost) float64 { return c.bytes })/1e6, a.shows)
	}
	if err := t.Flush(); err != nil {
		return "", err
	}
	fmt.Fprintf(&text, "%.0f contended acquisitions a run, %.0f a second\n", median(waits), median(waits)/median(seconds))
	err := agentPerWait(&text, bin, often, tmp, rounds)
	return text.String(), err
}

func runAround(a around, dir, exe string) (cost, error) {
	args, env := a.wrap(dir, exe)
	result := filepath.Join(filepath.Dir(dir), "result")
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(append(os.Environ(), "WORKLOAD_RESULT="+result), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return cost{}, fmt.Errorf("%s: %w\n%s", a.name, err, out)
	}
	text, err := os.ReadFile(result)
	if err != nil {
		return cost{}, err
	}
	var user, system, wall float64
	if _, err := fmt.Sscan(string(text), &user, &system, &wall); err != nil {
		return cost{}, fmt.Errorf("%s: its program's result %q: %w", a.name, text, err)
	}
	u := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	whole := float64(u.Utime.Nano() + u.Stime.Nano())
	c := cost{program: user + system, wall: wall, tool: max(0, whole-user-system)}
	err = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			c.bytes += float64(info.Size())
		}
		return err
	})
	return c, err
}

// countWaits is how many waits a recording's threads had, recorded or not.
func countWaits(path string) (float64, error) {
	src, err := tracefile.Open(path)
	if err != nil {
		return 0, err
	}
	defer src.Close()
	n := uint64(0)
	for _, t := range src.Threads() {
		n += t.Waits
	}
	return float64(n), nil
}

// agentPerWait says what the agent takes in contend.c, in which a lock that is waited for is taken all the time, for each lock and unlock with all that belongs to it (the wait, the release, the stacks,
// the records): its share of the program's CPU samples. The whole CPU time also holds how the recording changes who gets the lock when.
func agentPerWait(w *strings.Builder, bin, exe, tmp string, rounds int) error {
	perf, err := exec.LookPath("perf")
	if err != nil {
		fmt.Fprintf(w, "without the agent's share: no perf\n")
		return nil
	}
	const pairs = 2 * oftenRounds
	var per, shares, contended []float64
	for range rounds {
		data, rec, result := filepath.Join(tmp, "perf.data"), filepath.Join(tmp, "rec"), filepath.Join(tmp, "result")
		cmd := exec.Command(perf, "record", "-q", "-F", "4000", "-e", "cpu-clock", "-o", data, bin, "run", "-q", "-o", rec, "--", exe, fmt.Sprint(oftenRounds))
		cmd.Env = append(os.Environ(), "WORKLOAD_RESULT="+result)
		if out, err := cmd.CombinedOutput(); err != nil {
			fmt.Fprintf(w, "without the agent's share: perf record: %v %s\n", err, bytes.TrimSpace(out))
			return nil
		}
		text, err := os.ReadFile(result)
		if err != nil {
			return err
		}
		var user, system float64
		if _, err := fmt.Sscan(string(text), &user, &system); err != nil {
			return fmt.Errorf("result %q: %w", text, err)
		}
		out, err := exec.Command(perf, "report", "-i", data, "--stdio", "--sort", "comm,dso").Output()
		if err != nil {
			return fmt.Errorf("perf report: %w", err)
		}
		total, agent := 0.0, 0.0
		for s := bufio.NewScanner(bytes.NewReader(out)); s.Scan(); {
			f := strings.Fields(s.Text())
			if len(f) != 3 || f[1] != filepath.Base(exe) {
				continue
			}
			v, err := strconv.ParseFloat(strings.TrimSuffix(f[0], "%"), 64)
			if err != nil {
				continue
			}
			total += v
			if strings.Contains(f[2], "agent-") {
				agent += v
			}
		}
		n, err := countWaits(rec + ".hbt")
		if err != nil {
			return err
		}
		if total > 0 && n > 0 {
			per, shares, contended = append(per, agent/total*(user+system)/pairs), append(shares, agent/total), append(contended, n/pairs)
		}
	}
	slices.Sort(per)
	if len(per) > 0 {
		fmt.Fprintf(w, "an adaptive mutex, %d times taken, %.1f %% of them contended: %.1f %% of the CPU time in the agent\n", pairs, 100*median(contended), 100*median(shares))
		fmt.Fprintf(w, "in the agent: %.0f ns for each lock and unlock (median; %.0f to %.0f): %.1f %% of a CPU at 200,000 a second\n",
			median(per), per[0], per[len(per)-1], median(per)*200_000/1e9*100)
	}
	return nil
}

// oftenRounds is how often each of contend.c's two threads takes the lock.
const oftenRounds = 400_000

func median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	v = slices.Clone(v)
	slices.Sort(v)
	return v[len(v)/2]
}
