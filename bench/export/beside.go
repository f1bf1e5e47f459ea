package main

// next to.go has perf record the same run, and sets what its tools take for one sample next to what ours take for one event.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// besideFreq is how often both sample, per second of CPU time.
const besideFreq = 999

// next to runs bench/workloads/mixed.c under both, and then every conversion three times, by turns.
func beside(bin, dir string, rounds int) error {
	if _, err := exec.LookPath("perf"); err != nil {
		return errors.New("-beside needs perf (Debian package linux-perf)")
	}
	program := filepath.Join(dir, "mixed")
	if out, err := exec.Command("cc", "-O2", "-g", "-fno-omit-frame-pointer", "-pthread", "-o", program, "bench/workloads/mixed.c").CombinedOutput(); err != nil {
		return fmt.Errorf("building the workload: %w\n%s", err, out)
	}
	base := filepath.Join(dir, "mixed")
	perf, ours := base+".perf", base+".hbt"
	// perf is what is started, so that its file has the program alone.
	cmd := exec.Command(bin, "run", "-q", "-F", strconv.Itoa(besideFreq), "-o", base, "--",
		"perf", "record", "-q", "-F", strconv.Itoa(besideFreq), "-g", "-o", perf, "--", program, strconv.Itoa(rounds))
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, out)
	}
	c, err := tally(ours)
	if err != nil {
		return err
	}
	samples, err := perfSamples(perf)
	if err != nil {
		return err
	}
	for _, f := range []string{perf, ours} {
		st, err := os.Stat(f)
		if err != nil {
			return err
		}
		fmt.Printf("%s: %s\n", filepath.Base(f), size(st.Size()))
	}
	fmt.Printf("perf: %d samples with stacks by frame pointers; hbtrace: %d events, of them %d samples, the rest waits, calls and what ended them\n\n", samples, c.events, c.samples)
	out := filepath.Join(dir, "converted")
	conversions := []conversion{
		{"perf script", samples, []string{"perf", "script", "-i", perf}},
		{"perf report --stdio", samples, []string{"perf", "report", "--stdio", "-i", perf}},
		{"hbtrace report", c.events, []string{bin, "report", ours}},
		{"hbtrace export --folded", c.events, []string{bin, "export", ours, "--folded", "-"}},
		{"hbtrace export --pprof", c.events, []string{bin, "export", ours, "--pprof", "-"}},
		{"hbtrace export --perfetto", c.events, []string{bin, "export", ours, "--perfetto", "-"}},
		{"go tool pprof -proto, of ours", c.events, []string{"go", "tool", "pprof", "-symbolize=none", "-proto", "-output", "/dev/stdout", base + ".pb.gz"}},
	}
	if converter, err := exec.LookPath("perf_to_profile"); err == nil {
		conversions = append(conversions, conversion{"perf_to_profile", samples, []string{converter, "-f", "-i", perf, "-o", out + ".perf.pb"}})
	} else {
		fmt.Println("perf_to_profile, without which pprof reads no file of perf's, is not installed: not measured")
	}
	fmt.Printf("%-30s %24s %24s %12s\n", "", "CPU", "per sample or event", "written")
	type cost struct {
		cpu   []time.Duration
		bytes int64
	}
	costs := make([]cost, len(conversions))
	for range 3 {
		for i, x := range conversions {
			cpu, n, err := x.run()
			if err != nil {
				return err
			}
			costs[i].cpu, costs[i].bytes = append(costs[i].cpu, cpu), n
		}
	}
	for i, x := range conversions {
		lo, hi := costs[i].cpu[0], costs[i].cpu[0]
		for _, d := range costs[i].cpu {
			lo, hi = min(lo, d), max(hi, d)
		}
		each := func(d time.Duration) time.Duration {
			return (d / time.Duration(max(x.of, 1))).Round(10 * time.Nanosecond)
		}
		fmt.Printf("%-30s %24s %24s %12s\n", x.what, fmt.Sprintf("%v to %v", lo.Round(time.Millisecond), hi.Round(time.Millisecond)),
			fmt.Sprintf("%v to %v", each(lo), each(hi)), size(costs[i].bytes))
	}
	return nil
}

// conversion is a command whose result is on its standard output.
type conversion struct {
	what string
	of   int // samples or events
	args []string
}

// run returns the processor time of the command and how much it wrote.
func (x *conversion) run() (cpu time.Duration, written int64, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute) // debuginfod may be asked for by perf, and be far away
	defer cancel()
	cmd := exec.CommandContext(ctx, x.args[0], x.args[1:]...)
	cmd.Env = append(os.Environ(), "DEBUGINFOD_URLS=")
	var n counter
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &n, &said
	if err := cmd.Run(); err != nil {
		return 0, 0, fmt.Errorf("%s: %w\n%s", strings.Join(x.args, " "), err, &said)
	}
	u, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	if !ok {
		return 0, 0, fmt.Errorf("%s: no resource usage", x.what)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), int64(n), nil
}

// perfSamples counts the samples of a file of perf's.
func perfSamples(path string) (n int, err error) {
	out, err := exec.Command("perf", "script", "-i", path, "-F", "tid", "-G").Output()
	if err != nil {
		return 0, fmt.Errorf("counting the samples of %s: %w", path, err)
	}
	return len(bytes.Fields(out)), nil
}

// counter counts what is written to it.
type counter int64

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}
