package main

// This file owns the one question that is asked of CPU time next to perf: in how many scenarios is hbtrace further from the truth than perf, in the
// same run. It reads the file of raw results.

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// besidePerf is one scenario, all its rounds summed up.
type besidePerf struct {
	scenario           string
	truth, ours, perfs *split
}

// readCPU sums up the raw results of the cpu part, in the order of their scenarios.
func readCPU(raw io.Reader) ([]besidePerf, error) {
	type shares struct{ truth, ours, perfs float64 }
	var all []besidePerf
	round := map[string]shares{}
	sc := bufio.NewScanner(raw)
	for sc.Scan() {
		var scenario, function string
		var n, ours, perfs int
		var is shares
		if _, err := fmt.Sscanf(sc.Text(), "%s %d total truth %f ms hbtrace %f perf %f samples %d %d", &scenario, &n, &is.truth, &is.ours, &is.perfs, &ours, &perfs); err != nil {
			if _, err := fmt.Sscanf(sc.Text(), "%s %d %s truth %f hbtrace %f perf %f", &scenario, &n, &function, &is.truth, &is.ours, &is.perfs); err != nil {
				return nil, fmt.Errorf("line %q: %w", sc.Text(), err)
			}
			round[function] = is
			continue
		}
		// A round's line of totals is its last.
		if len(all) == 0 || all[len(all)-1].scenario != scenario {
			all = append(all, besidePerf{scenario, newSplit(), newSplit(), newSplit()})
		}
		s := &all[len(all)-1]
		for f, share := range round {
			s.truth.in[f] += share.truth / 100 * is.truth
			s.ours.in[f] += share.ours / 100 * is.ours
			s.perfs.in[f] += share.perfs / 100 * is.perfs
		}
		s.truth.all += is.truth
		s.ours.all += is.ours
		s.perfs.all += is.perfs
		s.ours.samples += ours
		s.perfs.samples += perfs
		clear(round)
	}
	if len(round) > 0 {
		return nil, errors.New("the last round has no totals")
	}
	return all, sc.Err()
}

// cpuBesidePerf prints whose largest error of a function is larger, scenario by scenario.
func (b *bench) cpuBesidePerf() error {
	if b.perf == "none" || b.again {
		return nil
	}
	raw, err := os.Open(b.file("cpu.txt"))
	if err != nil {
		return err
	}
	defer raw.Close()
	all, err := readCPU(raw)
	if err != nil {
		return fmt.Errorf("%s: %w", raw.Name(), err)
	}
	fmt.Printf("All rounds of a scenario together, hbtrace beside perf record -F %d (-perf %s):\n\n", b.freq, b.perf)
	fmt.Println("| scenario | samples hbtrace / perf | largest error of a function, pp: hbtrace | perf | as large in as many independent samples: hbtrace / perf |")
	fmt.Println("|---|---|---|---|---|")
	var worse, beyondChance []string
	for _, s := range all {
		ours, at := worst(s.truth, s.ours)
		perfs, perfAt := worst(s.truth, s.perfs)
		chance, perfChance := expectedWorst(s.truth, float64(s.ours.samples)), expectedWorst(s.truth, float64(s.perfs.samples))
		fmt.Printf("| %s | %d / %d | %.2f (%s) | %.2f (%s) | %.2f / %.2f |\n", s.scenario, s.ours.samples, s.perfs.samples, ours, at, perfs, perfAt, chance, perfChance)
		if ours > perfs {
			worse = append(worse, s.scenario)
		}
		if ours > perfs+chance+perfChance {
			beyondChance = append(beyondChance, s.scenario)
		}
	}
	fmt.Printf("\nhbtrace is further from the truth than perf in %d of %d scenarios (%s), by more than chance makes of both in %d (%s)\n\n",
		len(worse), len(all), orNone(worse), len(beyondChance), orNone(beyondChance))
	return nil
}

func orNone(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}
