package pprof

import (
	"io"
	"os"
	"runtime"
	"testing"

	"github.com/hbtrace/hbtrace/internal/synthetic"
)

func BenchmarkWrite(b *testing.B) {
	events := 2_000_000
	if os.Getenv("HBTRACE_STRESS") != "" {
		events = 10_000_000
	}
	src := synthetic.New(events, 32)
	b.ReportAllocs()
	var heap uint64
	samples := 0
	for b.Loop() {
		p, err := Profile(src, Options{})
		if err != nil {
			b.Fatal(err)
		}
		if err := p.Write(io.Discard); err != nil {
			b.Fatal(err)
		}
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		heap, samples = max(heap, m.HeapInuse), len(p.Sample)
	}
	b.ReportMetric(float64(events)*float64(b.N)/b.Elapsed().Seconds(), "events/s")
	b.ReportMetric(float64(samples), "samples")
	b.ReportMetric(float64(heap)/(1<<20), "heap-MiB")
}
