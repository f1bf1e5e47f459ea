package perfetto

import (
	"os"
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/hbtrace/hbtrace/internal/synthetic"
)

// TestStressMemory exports 300 thousand events, or 10 million where HBTRACE_STRESS is set, and holds the heap against what must not
// depend on their number.
func TestStressMemory(t *testing.T) {
	events := 300_000
	if os.Getenv("HBTRACE_STRESS") != "" {
		events = 10_000_000
	}
	defer debug.SetGCPercent(debug.SetGCPercent(50))
	src := synthetic.New(events, 64)
	runtime.GC()
	var before runtime.MemStats
	runtime.ReadMemStats(&before)
	var c counting
	if err := Write(&c, src, Options{}); err != nil {
		t.Fatal(err)
	}
	if c.heap == 0 {
		t.Fatal("too little was written to look at the heap")
	}
	used := int64(c.heap) - int64(before.HeapInuse)
	t.Logf("%d events: %d MiB written, %d MiB of heap above the recording's own", events, c.bytes>>20, used>>20)
	if used > 40<<20 {
		t.Errorf("%d MiB of heap: it must not grow with the recording", used>>20)
	}
}
