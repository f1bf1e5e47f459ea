package main

// This file owns allocations: sums of the sampled ones by function, against the program's own counts.

import (
	"fmt"
	"math"
	"os"

	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/tracefile"
)

func (b *bench) allocations() error {
	const period = 512 << 10 // bytes between samples, hbtrace's default
	type count struct {
		bytes, liveBytes, objects, gotBytes, gotLive, gotObjects float64
		deviation                                                *variances
		spreadBytes, spreadObjects, spreadLive                   spread
		covered                                                  int // rounds whose bytes are within 1.96 of their own standard deviations: 95 in 100 should be
	}
	counts := map[string]*count{}
	var order []string
	var exact, truth float64
	var liveSamples, liveWrong int
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
		stated, counted, err := variancesOf(base + ".hbt")
		if err != nil {
			return err
		}
		exact += counted
		n, wrong, err := inUse(base+".hbt", base+".truth.kept")
		if err != nil {
			return err
		}
		os.Remove(base + ".truth.kept") // large
		liveSamples, liveWrong = liveSamples+n, liveWrong+wrong
		if err := readFacts(base+".truth", func(w []string, n []int64) error {
			c := counts[w[1]]
			if c == nil {
				c = &count{deviation: &variances{}}
				counts[w[1]] = c
				order = append(order, w[1])
			}
			c.objects += float64(n[0])
			c.bytes += float64(n[1])
			c.liveBytes += float64(n[3])
			v := stated[w[1]]
			if v == nil {
				v = &variances{}
			}
			c.deviation.add(v)
			c.spreadBytes.add(space.in[w[1]], float64(n[1]), v.bytes)
			c.spreadObjects.add(objects.in[w[1]], float64(n[0]), v.objects)
			c.spreadLive.add(live.in[w[1]], float64(n[3]), v.live)
			if math.Abs(space.in[w[1]]-float64(n[1])) <= 1.96*math.Sqrt(v.bytes) {
				c.covered++
			}
			c.gotBytes += space.in[w[1]]
			c.gotObjects += objects.in[w[1]]
			c.gotLive += live.in[w[1]]
			truth += float64(n[1])
			return nil
		}); err != nil {
			return err
		}
	}
	fmt.Printf("Allocations: %d rounds, half of what is freed by another thread, a sample every %d KiB or, where they come fast, more\n\n", b.rounds, period>>10)
	fmt.Println("| function | bytes: error, % (in standard deviations) | objects: error, % (in standard deviations) | in use at the end: error, % (in standard deviations) | rounds whose bytes are within 1.96 standard deviations of their own, % |")
	fmt.Println("|---|---|---|---|---|")
	for _, name := range order {
		c := counts[name]
		d := c.deviation
		fmt.Printf("| %s | %+.2f (%+.1f) | %+.2f (%+.1f) | %+.2f (%+.1f) | %.0f |\n", name,
			100*(c.gotBytes/c.bytes-1), (c.gotBytes-c.bytes)/math.Sqrt(d.bytes),
			100*(c.gotObjects/c.objects-1), (c.gotObjects-c.objects)/math.Sqrt(d.objects),
			100*(c.gotLive/c.liveBytes-1), (c.gotLive-c.liveBytes)/math.Sqrt(d.live), 100*float64(c.covered)/float64(b.rounds))
	}
	fmt.Println("\n| function | over the rounds: mean error ± its standard error, %; standard deviation of a round / the stated one, %: bytes | objects | in use |")
	fmt.Println("|---|---|---|---|")
	for _, name := range order {
		c := counts[name]
		fmt.Printf("| %s | %v | %v | %v |\n", name, &c.spreadBytes, &c.spreadObjects, &c.spreadLive)
	}
	fmt.Printf("\nsampled objects said to be in use at the end: %d, of which the program had freed %d\n", liveSamples, liveWrong)
	fmt.Printf("\nexact counters of all threads: %+.4f %% of the program's own count (libc's own allocations included)\n\n", 100*(exact/truth-1))
	return nil
}

// variances of what was sampled in a function. A sample of s bytes with weight w was taken with probability s/w, so that
// the sum of w(w-s) over the samples is an unbiased estimate of the variance of the sum of w (Horvitz and Thompson 1952).
type variances struct{ bytes, objects, live float64 }

func (v *variances) add(o *variances) {
	v.bytes += o.bytes
	v.objects += o.objects
	v.live += o.live
}

// variancesOf reads them from a recording, with the exact number of bytes that its threads asked for.
func variancesOf(path string) (in map[string]*variances, counted float64, err error) {
	r, err := tracefile.Open(path)
	if err != nil {
		return nil, 0, err
	}
	defer r.Close()
	for _, t := range r.Threads() {
		counted += float64(t.AllocBytes)
	}
	in = map[string]*variances{}
	functions := map[trace.StackID][]*variances{}
	type alive struct {
		v  float64
		at []*variances
	}
	live := map[uint64]alive{}
	err = trace.Events(r, func(e *trace.Event) error {
		switch {
		case e.Kind == trace.KindFree:
			delete(live, e.Object)
		case e.Kind == trace.KindAlloc && e.Size > 0:
			at, ok := functions[e.Stack]
			if !ok {
				for id := e.Stack; id != 0; id = r.Node(id).Parent {
					for _, f := range r.Symbols(id) {
						if in[f.Func] == nil {
							in[f.Func] = &variances{}
						}
						at = append(at, in[f.Func])
					}
				}
				functions[e.Stack] = at
			}
			w, s := float64(e.Weight), float64(e.Size)
			for _, v := range at {
				v.bytes += w * (w - s)
				v.objects += w * (w - s) / (s * s)
			}
			live[e.Object] = alive{w * (w - s), at}
		}
		return nil
	})
	for _, l := range live {
		for _, v := range l.at {
			v.live += l.v
		}
	}
	return in, counted, err
}
