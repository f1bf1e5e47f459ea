package perfetto

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/hbtrace/hbtrace/analysis/frames"
	"github.com/hbtrace/hbtrace/analysis/spans"
	"github.com/hbtrace/hbtrace/internal/synthetic"
	"github.com/hbtrace/hbtrace/trace"
)

type counting struct {
	bytes int64
	heap  uint64 // highest seen
}

func (c *counting) Write(b []byte) (int, error) {
	c.bytes += int64(len(b))
	if c.bytes>>20 != (c.bytes-int64(len(b)))>>20 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		c.heap = max(c.heap, m.HeapInuse)
	}
	return len(b), nil
}

type spanCount struct{ n int64 }

func (s *spanCount) Begin(*spans.Span) error               { return nil }
func (s *spanCount) End(*spans.Span) error                 { s.n++; return nil }
func (s *spanCount) Interval(*spans.Interval) error        { s.n++; return nil }
func (s *spanCount) Return(*spans.Interval) error          { return nil }
func (s *spanCount) Point(*trace.Event, int, uint64) error { s.n++; return nil }

func BenchmarkWrite(b *testing.B) {
	const events = 2_000_000
	src := synthetic.New(events, 32)
	var n spanCount
	bl := spans.New(src, frames.New(src), &n)
	if err := trace.Events(src, bl.Add); err != nil {
		b.Fatal(err)
	}
	if _, err := bl.Close(); err != nil {
		b.Fatal(err)
	}
	for _, o := range []Options{{}, {Raw: true}, {NoSupport: true}} {
		b.Run(fmt.Sprintf("raw=%v/support=%v", o.Raw, !o.NoSupport), func(b *testing.B) {
			b.ReportAllocs()
			var c counting
			for b.Loop() {
				c.bytes = 0
				if err := Write(&c, src, o); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(events)*float64(b.N)/b.Elapsed().Seconds(), "events/s")
			b.ReportMetric(float64(c.bytes)/float64(n.n), "bytes/slice")
			b.ReportMetric(float64(c.heap)/(1<<20), "peak-MiB")
		})
	}
}
