package blockbuf

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
)

// BenchmarkWriter writes 64 B records from goroutines that share 12 slots.
func BenchmarkWriter(b *testing.B) {
	const recordBytes = 60
	for _, mapping := range []Mapping{LateBorrowing, Paper} {
		for _, block := range []int{4096, 8192} {
			for _, producers := range []int{1, 2, 8, 64} {
				b.Run(fmt.Sprintf("tracer=blockbuf/mapping=%s/block=%d/producers=%d", mapping, block, producers), func(b *testing.B) {
					buf := mustNew(b, Options{Bytes: 12 << 20, BlockBytes: block, Slots: 12, MaxBytes: 12 << 20, Mapping: mapping, Prefault: true})
					benchmarkProducers(b, producers, recordBytes, func(i int) func([]byte) error { return buf.Writer(i).Write })
				})
			}
		}
	}
	// What a write can cost at least: bytes copied into a ring of one's own, one addition.
	for _, producers := range []int{1, 2, 8, 64} {
		b.Run(fmt.Sprintf("tracer=barering/producers=%d", producers), func(b *testing.B) {
			type ring struct {
				at  atomic.Uint64
				_   [120]byte
				mem []byte
			}
			rings := make([]ring, 12)
			for i := range rings {
				rings[i].mem = make([]byte, 1<<20)
			}
			benchmarkProducers(b, producers, recordBytes, func(i int) func([]byte) error {
				r := &rings[i%12]
				return func(p []byte) error {
					off := r.at.Add(64) - 64
					at := r.mem[off&(1<<20-1):]
					at[0], at[1] = byte(len(p)), 1
					copy(at[4:], p)
					return nil
				}
			})
		})
	}
}

func benchmarkProducers(b *testing.B, producers, recordBytes int, writer func(i int) func([]byte) error) {
	b.ReportAllocs()
	b.SetBytes(int64(recordBytes))
	b.ResetTimer()
	var wg sync.WaitGroup
	for i := range producers {
		wg.Go(func() {
			write, rec := writer(i), make([]byte, recordBytes)
			for range b.N / producers {
				if err := write(rec); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// BenchmarkReserve is Write without the copy.
func BenchmarkReserve(b *testing.B) {
	buf := mustNew(b, Options{Bytes: 12 << 20, Slots: 12, Prefault: true})
	w := buf.Writer(0)
	b.ReportAllocs()
	for b.Loop() {
		r, err := w.Reserve(60)
		if err != nil {
			b.Fatal(err)
		}
		r.Data[0] = 1
		r.Commit()
	}
}

func BenchmarkSnapshot(b *testing.B) {
	buf := mustNew(b, Options{Bytes: 12 << 20})
	w := buf.Writer(0)
	for range 12 << 20 / 32 {
		if err := w.Write(make([]byte, 32)); err != nil {
			b.Fatal(err)
		}
	}
	b.SetBytes(12 << 20)
	for b.Loop() {
		buf.Snapshot()
	}
}

// BenchmarkAllocate is why allocation is by compare-and-swap: next to an addition it costs nothing where a slot is
// a core, and an addition can overshoot the block or land in a later round of it.
func BenchmarkAllocate(b *testing.B) {
	for _, goroutines := range []int{1, 2} {
		var alloc, conf word
		b.Run(fmt.Sprintf("op=cas/goroutines=%d", goroutines), func(b *testing.B) {
			benchmarkProducers(b, goroutines, 64, func(int) func([]byte) error {
				return func([]byte) error {
					for a := alloc.load(); !alloc.cas(a, a+64); a = alloc.load() {
					}
					conf.add(64)
					return nil
				}
			})
		})
		b.Run(fmt.Sprintf("op=faa/goroutines=%d", goroutines), func(b *testing.B) {
			benchmarkProducers(b, goroutines, 64, func(int) func([]byte) error {
				return func([]byte) error {
					if alloc.load() != 0 {
						alloc.add(64)
					}
					conf.add(64)
					return nil
				}
			})
		})
	}
}
