package assemble

import (
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hbtrace/hbtrace/segment"
	"github.com/hbtrace/hbtrace/stacktable"
	"github.com/hbtrace/hbtrace/trace"
)

// BenchmarkPass takes in and interprets passes of 32,768 samples of 64 threads, which write 32 at a time: stacks of 16
// frames of which the last `changed` are new each time, among 48 functions, as bench/ring writes them. With changed=0
// samples are merged.
func BenchmarkPass(b *testing.B) {
	const threads, bursts, burst = 64, 16, 32
	for _, changed := range []int{2, 0} {
		b.Run(fmt.Sprintf("changed=%d", changed), func(b *testing.B) {
			events := 0
			a := New(Config{Stacks: stacktable.New(stacktable.Options{}), Sink: func(e *trace.Event) { events++ }})
			agents := make([]*agent, threads)
			const begin = trace.Ns(1e9)
			for i := range agents {
				agents[i] = newAgent(uint32(i+1), 1)
				a.Record(agents[i].thread(begin))
				if i == 0 {
					a.Record(agents[i].procRec(begin, 0, 0))
					a.Record(agents[i].module(begin, "/mod", 0x400000, 0x800000, 0))
				}
			}
			stack := func(n int) []uint64 {
				list := make([]uint64, 16)
				for i := range list {
					which := i
					if i >= 16-changed {
						which = 16 + (n*7+i)%48
					}
					list[i] = 0x400000 + uint64(which)*64
				}
				return pcs(list...)
			}
			at := begin + 1
			for _, g := range agents { // each thread's first stack is whole
				a.Record(g.sample(segment.SampleSync, 0, at, 0, stack(0)))
			}
			a.EndPass()
			var pass [][]byte
			n := 0
			for range bursts {
				for _, g := range agents {
					at += 1000
					for i := range burst {
						n++
						pass = append(pass, g.sample(segment.SampleSync, 0, at+trace.Ns(i), 0, stack(n)))
					}
				}
			}
			took := uint64(at - begin)
			b.ReportAllocs()
			from := used()
			for b.Loop() {
				for _, rec := range pass {
					a.Record(rec)
					// The next pass: the same again, later.
					binary.LittleEndian.PutUint32(rec[seqOffset:], binary.LittleEndian.Uint32(rec[seqOffset:])+bursts*burst)
					binary.LittleEndian.PutUint64(rec[timeOffset:], binary.LittleEndian.Uint64(rec[timeOffset:])+took)
				}
				a.EndPass()
			}
			b.ReportMetric(float64((used()-from).Nanoseconds())/float64(b.N*len(pass)), "cpu-ns/record")
			if s := a.Stats(); s.Broken != 0 || s.Lost != 0 || changed > 0 && events < (b.N-1)*len(pass) {
				b.Fatalf("%d passes, %d events: %+v", b.N, events, s)
			}
		})
	}
}

// Where a record keeps its number and its time.
const (
	seqOffset  = 12
	timeOffset = 16
)

// used is the processor time of this process so far.
func used() time.Duration {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
