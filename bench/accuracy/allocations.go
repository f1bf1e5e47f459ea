package main

// This file owns allocations: sums of the sampled ones by function, against the program's own counts.

import (
	"fmt"
	"math"

	"github.com/hbtrace/hbtrace/tracefile"
)

func (b *bench) allocations() error {
	const period = 512 << 10 // bytes between samples, hbtrace's default
	type count struct{ bytes, liveBytes, objects, gotBytes, gotLive, gotObjects, inverse float64 }
	counts := map[string]*count{}
	var order []string
	var exact, truth float64
	for round := range b.rounds {
		base := b.file("alloc-%d", round)
		if err := quiet(b.hbtrace, "run", "-q", "-o", base, "--", b.program("alloc"), "1000", base+".truth"); err != nil {
			return err
		}
		space, err := pprofSplit(base+".pb.gz", "alloc_space")
		if err != nil {
			return err
		}
		objects, err := pprofSplit(base+".pb.gz", "alloc_objects")
		if err != nil {
			return err
		}
		live, err := pprofSplit(base+".pb.gz", "inuse_space")
		if err != nil {
			return err
		}
		if err := readFacts(base+".truth", func(w []string, n []int64) error {
			c := counts[w[1]]
			if c == nil {
				c = &count{}
				counts[w[1]] = c
				order = append(order, w[1])
			}
			c.objects += float64(n[0])
			c.bytes += float64(n[1])
			c.liveBytes += float64(n[3])
			c.inverse += float64(n[4]) / 1e6
			c.gotBytes += space.in[w[1]]
			c.gotObjects += objects.in[w[1]]
			c.gotLive += live.in[w[1]]
			truth += float64(n[1])
			return nil
		}); err != nil {
			return err
		}
		r, err := tracefile.Open(base + ".hbt")
		if err != nil {
			return err
		}
		for _, t := range r.Threads() {
			exact += float64(t.AllocBytes)
		}
		r.Close()
	}
	fmt.Printf("Allocations: %d rounds, half of what is freed by another thread, a sample every %d KiB\n\n", b.rounds, period>>10)
	fmt.Println("| function | bytes: error, % (in standard deviations) | objects: error, % (in standard deviations) | in use at the end: error, % (in standard deviations) |")
	fmt.Println("|---|---|---|---|")
	for _, name := range order {
		c := counts[name]
		// The variance of a sum of samples taken every period bytes is at most period times the sum.
		dev := func(got, want float64) float64 { return (got - want) / math.Sqrt(period*want) }
		fmt.Printf("| %s | %+.2f (%+.1f) | %+.2f (%+.1f) | %+.2f (%+.1f) |\n", name, 100*(c.gotBytes/c.bytes-1), dev(c.gotBytes, c.bytes),
			100*(c.gotObjects/c.objects-1), (c.gotObjects-c.objects)/math.Sqrt(period*c.inverse), 100*(c.gotLive/c.liveBytes-1), dev(c.gotLive, c.liveBytes))
	}
	fmt.Printf("\nexact counters of all threads: %+.4f %% of the program's own count (libc's own allocations included)\n\n", 100*(exact/truth-1))
	return nil
}
