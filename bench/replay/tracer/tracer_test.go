package tracer

import (
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/hbtrace/hbtrace/bench/replay/measure"
	"github.com/hbtrace/hbtrace/bench/replay/workload"
)

// open makes a tracer, or skips where the machine has none.
func open(t *testing.T, name string, c Config) Tracer {
	t.Helper()
	tr, err := New(name, c)
	if err != nil && (errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EPERM) || errors.Is(err, fs.ErrNotExist)) {
		t.Skipf("%s cannot be had here: %v", name, err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tr.Close(); err != nil {
			t.Error(err)
		}
	})
	return tr
}

// TestNewestAreKept: a producer that goes round its tracer several times finds its newest records, sound, in
// order, and without a gap.
func TestNewestAreKept(t *testing.T) {
	for _, info := range All {
		t.Run(info.Name, func(t *testing.T) {
			const cores = 2
			c := Config{Bytes: cores << 18, Cores: cores, Threads: cores}
			tr := open(t, info.Name, c)
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			pin(t, CPU(1))
			p := tr.Producer(1, 1)
			const records = 40000 // 2.2 MB
			var buf [workload.MaxEntry]byte
			for i := range uint64(records) {
				rec := buf[:workload.Size(i)]
				measure.Encode(rec, i, 1, uint32(i))
				if !p.Write(rec) {
					t.Fatalf("record %d is refused", i)
				}
			}
			h := history(t, tr, records)
			// One core has half of a buffer that is cut up by cores.
			if want := c.Bytes / 2 * 9 / 10; h.LatestBytes < want || h.LatestBytes > c.Bytes || h.Fragments != 1 || h.NewestMissing != 0 {
				t.Errorf("%+v, want at least %d bytes", h, want)
			}
		})
	}
}

// TestManyProducers: what many threads write at a time is sound for every tracer.
func TestManyProducers(t *testing.T) {
	for _, info := range All {
		t.Run(info.Name, func(t *testing.T) {
			const cores, threads, each = 4, 32, 4000
			tr := open(t, info.Name, Config{Bytes: cores << 18, Cores: cores, Threads: threads})
			var stamp, refused atomic.Uint64
			var producers []Producer
			for th := range threads {
				producers = append(producers, tr.Producer(th%cores, th))
			}
			var wg sync.WaitGroup
			for th, p := range producers {
				wg.Go(func() {
					runtime.LockOSThread()
					pin(t, CPU(th%cores))
					var buf [workload.MaxEntry]byte
					for i := range uint32(each) {
						st := stamp.Add(1) - 1
						rec := buf[:workload.Size(st)]
						measure.Encode(rec, st, uint32(th), i)
						if !p.Write(rec) {
							refused.Add(1)
						}
					}
				})
			}
			wg.Wait()
			h := history(t, tr, threads*each)
			t.Logf("%d refused, %+v, %v", refused.Load(), h, tr.Counters())
			if h.Kept < 2000 {
				t.Errorf("%+v", h)
			}
		})
	}
}

func history(t *testing.T, tr Tracer, records uint64) measure.History {
	t.Helper()
	s := measure.NewSnapshot(records, workload.Size)
	if err := tr.Walk(s.Add); err != nil {
		t.Fatal(err)
	}
	if err := s.Err(); err != nil {
		t.Fatal(err)
	}
	return s.History(tr.Footprint)
}

func pin(t *testing.T, cpu int) {
	if err := Pin(cpu); err != nil {
		t.Error(err)
	}
}

func TestUnknownTracer(t *testing.T) {
	if _, err := New("nothing", Config{}); err == nil {
		t.Error("no error")
	}
}

// BenchmarkWrite is a record of 48 bytes, by threads that are each on a core of their own, caches warm. cpu-ns/op is
// processor time, which means something on a machine with other work, too.
func BenchmarkWrite(b *testing.B) {
	for _, info := range append(All, Null) {
		for _, threads := range []int{1, 8} {
			b.Run(fmt.Sprintf("tracer=%s/threads=%d", info.Name, threads), func(b *testing.B) {
				tr, err := New(info.Name, Config{Bytes: workload.BufferBytes, Cores: workload.Cores, Threads: threads})
				if err != nil {
					b.Skip(err)
				}
				defer tr.Close()
				var producers []Producer
				for th := range threads {
					producers = append(producers, tr.Producer(th, th))
				}
				var wg sync.WaitGroup
				var before, after syscall.Rusage
				syscall.Getrusage(syscall.RUSAGE_SELF, &before)
				b.ReportAllocs()
				b.ResetTimer()
				for th, p := range producers {
					wg.Go(func() {
						runtime.LockOSThread()
						if err := Pin(CPU(th)); err != nil {
							b.Error(err)
						}
						rec := make([]byte, 48)
						for range b.N / threads {
							p.Write(rec)
						}
					})
				}
				wg.Wait()
				syscall.Getrusage(syscall.RUSAGE_SELF, &after)
				cpu := after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano()
				b.ReportMetric(float64(cpu)/float64(b.N), "cpu-ns/op")
			})
		}
	}
}
