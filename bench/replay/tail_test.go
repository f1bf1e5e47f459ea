package main

import (
	"fmt"
	"runtime"
	"sync"
	"testing"

	"github.com/hbtrace/hbtrace/bench/replay/measure"
	"github.com/hbtrace/hbtrace/bench/replay/tracer"
	"github.com/hbtrace/hbtrace/bench/replay/workload"
)

// BenchmarkTail times every single write of threads that do nothing else, in turn to the cores that are theirs: what
// opening a block costs where caches are warm, which in the replay they are not. Times are in ns, less the clock's own.
func BenchmarkTail(b *testing.B) {
	watch := newStopwatch()
	for _, name := range []string{"blockbuf", "percore", "bbq", "null"} {
		for _, threads := range []int{1, 2} {
			b.Run(fmt.Sprintf("tracer=%s/threads=%d", name, threads), func(b *testing.B) {
				tr, err := tracer.New(name, tracer.Config{Bytes: workload.BufferBytes, Cores: workload.Cores, Threads: workload.Cores})
				if err != nil {
					b.Fatal(err)
				}
				defer tr.Close()
				latencies := make([]measure.Latency, threads)
				var wg sync.WaitGroup
				for i := range threads {
					wg.Go(func() {
						runtime.LockOSThread()
						if err := tracer.Pin(tracer.CPU(i)); err != nil {
							b.Error(err)
							return
						}
						var p []tracer.Producer
						for core := i; core < workload.Cores; core += threads {
							p = append(p, tr.Producer(core, core))
						}
						rec := make([]byte, 48)
						for n := range b.N / threads {
							c := cycles()
							p[n%len(p)].Write(rec)
							latencies[i].Add(watch.ns(c, cycles()), 1)
						}
					})
				}
				wg.Wait()
				all := &latencies[0]
				for i := range threads - 1 {
					all.Merge(&latencies[i+1])
				}
				for _, q := range []float64{0.5, 0.99, 0.999} {
					b.ReportMetric(all.Quantile(q), fmt.Sprintf("p%g-ns", 100*q))
				}
			})
		}
	}
}
