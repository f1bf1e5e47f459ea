package tables

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/hbtrace/hbtrace/internal/synthetic"
)

// BenchmarkWrite is how many events a second become tables, and how many bytes one takes there.
func BenchmarkWrite(b *testing.B) {
	const n = 1_000_000
	src := synthetic.New(n, 64)
	dir := b.TempDir()
	for b.Loop() {
		if err := Write(dir, src); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)*n/b.Elapsed().Seconds(), "events/s")
	var size int64
	for _, table := range Names {
		st, err := os.Stat(filepath.Join(dir, table, ID(src)+".parquet"))
		if err != nil {
			b.Fatal(err)
		}
		size += st.Size()
	}
	b.ReportMetric(float64(size)/n, "bytes/event")
}
