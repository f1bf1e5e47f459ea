package page

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/hbtrace/hbtrace/internal/synthetic"
)

// BenchmarkRead reads a recording into a model.
func BenchmarkRead(b *testing.B) {
	const events = 1_000_000
	src := synthetic.New(events, 16)
	var m *Model
	for b.Loop() {
		m = read(b, src)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/events, "ns/event")
	b.ReportMetric(float64(kept(m))/events, "spans/event")
}

// kept is the number of spans and pieces.
func kept(m *Model) (n int) {
	for _, t := range m.threads {
		n += len(t.pieces)
		for _, d := range t.spans.byDepth {
			n += len(d)
		}
	}
	return n
}

// BenchmarkZoom is what a page asks when it is zoomed or moved, on a recording of some ten million spans: the pieces
// of 16 lanes, the calls of two of them, and the charts, 1600 columns wide, at random places of each depth of zoom.
func BenchmarkZoom(b *testing.B) {
	const events = 4_000_000
	m := read(b, synthetic.New(events, 16))
	var mem runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&mem)
	length := int64(m.to - m.from)
	r := rand.New(rand.NewPCG(1, 2))
	for _, zoom := range []int64{1, 10, 100, 1000, 10_000} {
		b.Run(fmt.Sprintf("zoom=%d", zoom), func(b *testing.B) {
			bytes := 0
			for b.Loop() {
				s := selection{threads: all(m), from: r.Int64N(max(1, length-length/zoom+1))}
				s.to = s.from + length/zoom
				rows, err := m.lanes(b.Context(), s, max(1, (s.to-s.from)/1600))
				if err != nil {
					b.Fatal(err)
				}
				body, _ := rows.columns(newTable(nil)).bytes()
				calls, _ := m.calls([]int{3, 4}, s.from, s.to, (s.to-s.from)/1600*3/2).table().bytes()
				chart, err := m.chart(b.Context(), selection{from: s.from, to: s.to}, 1600)
				if err != nil {
					b.Fatal(err)
				}
				bars, _ := chart.bytes()
				bytes += len(body) + len(calls) + len(bars)
			}
			b.ReportMetric(float64(bytes)/float64(b.N), "bytes/op")
			b.ReportMetric(float64(kept(m))/1e6, "Mspans")
			b.ReportMetric(float64(mem.HeapAlloc)/(1<<20), "MiB-heap")
		})
	}
}

// BenchmarkSpent is what the view of who blocks whom asks about a selection, chains and holders, on a recording of some ten million spans
// whose waits have as many different ends as can be.
func BenchmarkSpent(b *testing.B) {
	m := read(b, synthetic.New(4_000_000, 16))
	length := int64(m.to - m.from)
	r := rand.New(rand.NewPCG(1, 2))
	for b.Loop() {
		from := r.Int64N(length / 2)
		if _, err := m.spentIn(b.Context(), selection{threads: []int{1, 2, 3}, from: from, to: from + length/2}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(len(m.spending.parts)), "parts")
	b.ReportMetric(float64(len(m.spending.edges)), "edges")
	b.ReportMetric(float64(m.spending.res)/1e6, "ms-resolution")
}
