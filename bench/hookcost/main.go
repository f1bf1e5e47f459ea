// Command hookcost measures one hook: nanoseconds per malloc+free and per uncontended lock+unlock pair, with nothing
// preloaded, with a preload that only forwards, and with the agent in a recording session, interleaved. Run it from
// the repository:
//
//	go run ./bench/hookcost [-rounds 9] [-cpu N] [-flags "…"] [-o FILE]
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	rounds := flag.Int("rounds", 9, "rounds; each runs every variant once")
	cpu := flag.String("cpu", "", "processor to pin the program to (default: none)")
	flags := flag.String("flags", "", "more flags for hbtrace run, separated by spaces")
	bin := flag.String("hbtrace", "", "the hbtrace to measure (default: built from this tree)")
	out := flag.String("o", "", "file for the raw results")
	flag.Parse()
	if err := run(*rounds, *cpu, strings.Fields(*flags), *bin, *out); err != nil {
		fmt.Fprintf(os.Stderr, "hookcost: %v\n", err)
		os.Exit(1)
	}
}

type variant struct {
	name string
	args []string
	env  []string
	// by kind: of each round, the least, the median and the mean of its chunks
	least, middle, mean map[string][]float64
}

func run(rounds int, cpu string, flags []string, bin, out string) error {
	if _, err := os.Stat("bench/hookcost/hookcost.c"); err != nil {
		return errors.New("no bench/hookcost/hookcost.c here: run this from the repository's top")
	}
	tmp, err := os.MkdirTemp("", "hbtrace-hookcost-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	exe, forward := filepath.Join(tmp, "hookcost"), filepath.Join(tmp, "forward.so")
	builds := [][]string{
		{"gcc", "-O2", "-g", "-fno-omit-frame-pointer", "-fno-builtin", "-pthread", "-o", exe, "bench/hookcost/hookcost.c"},
		{"gcc", "-O2", "-shared", "-fPIC", "-fno-builtin", "-fvisibility=hidden", "-Wl,-z,now", "-o", forward, "bench/hookcost/forward.c"},
	}
	if bin == "" {
		bin = filepath.Join(tmp, "hbtrace")
		builds = append(builds, []string{"go", "build", "-o", bin, "./cmd/hbtrace"})
	}
	for _, b := range builds {
		cmd := exec.Command(b[0], b[1:]...)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if msg, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w\n%s", strings.Join(b, " "), err, msg)
		}
	}
	program := []string{exe}
	if cpu != "" {
		program = append(program, cpu)
	}
	variants := []*variant{
		{name: "nothing preloaded", args: program},
		{name: "plain forwarding", args: program, env: []string{"LD_PRELOAD=" + forward}},
		{name: "hbtrace, recording", args: slices.Concat([]string{bin, "run", "-q", "-o", filepath.Join(tmp, "rec")}, flags, []string{"--"}, program)},
	}
	var raw strings.Builder
	fmt.Fprintln(&raw, "round,variant,kind,min_ns,median_ns,mean_ns")
	kinds := []string{}
	for round := range rounds {
		for i := range variants {
			v := variants[(i+round)%len(variants)] // so that no variant always comes after the same one
			cmd := exec.Command(v.args[0], v.args[1:]...)
			cmd.Env = append(os.Environ(), v.env...)
			cmd.Stderr = os.Stderr
			text, err := cmd.Output()
			if err != nil {
				return fmt.Errorf("%s: %w", v.name, err)
			}
			for _, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
				var kind string
				var least, middle, mean float64
				if _, err := fmt.Sscan(line, &kind, &least, &middle, &mean); err != nil {
					return fmt.Errorf("%s: %q: %w", v.name, line, err)
				}
				if v.least == nil {
					v.least, v.middle, v.mean = map[string][]float64{}, map[string][]float64{}, map[string][]float64{}
				}
				if !slices.Contains(kinds, kind) {
					kinds = append(kinds, kind)
				}
				v.least[kind] = append(v.least[kind], least)
				v.middle[kind] = append(v.middle[kind], middle)
				v.mean[kind] = append(v.mean[kind], mean)
				fmt.Fprintf(&raw, "%d,%s,%s,%.3f,%.3f,%.3f\n", round, v.name, kind, least, middle, mean)
			}
		}
	}
	for _, kind := range kinds {
		fmt.Printf("%s, ns per pair, %d interleaved rounds\n%-20s %10s %10s %10s %12s %12s\n", kind, rounds, "", "least", "median", "mean",
			"least +", "median +")
		base := variants[1]
		for _, v := range variants {
			lo, mid, mean := slices.Min(v.least[kind]), median(v.middle[kind]), median(v.mean[kind])
			over := [2]string{"", ""}
			if v != base {
				over[0] = fmt.Sprintf("%+.2f", lo-slices.Min(base.least[kind]))
				over[1] = fmt.Sprintf("%+.2f", mid-median(base.middle[kind]))
			}
			fmt.Printf("%-20s %10.2f %10.2f %10.2f %12s %12s\n", v.name, lo, mid, mean, over[0], over[1])
		}
	}
	fmt.Println("(+: over plain forwarding; least: over all chunks of all rounds; median and mean: medians of the rounds')")
	if out != "" {
		return os.WriteFile(out, []byte(raw.String()), 0o644)
	}
	return nil
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	if len(v) == 0 {
		return 0
	}
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}
