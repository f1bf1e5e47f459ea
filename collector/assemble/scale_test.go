// scale_test.go: what is kept, and what a pass takes, does not depend on how many threads there are or ever were.
package assemble

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/hbtrace/hbtrace/segment"
	"github.com/hbtrace/hbtrace/stacktable"
	"github.com/hbtrace/hbtrace/trace"
)

// lives has n threads of process 1, from uid on, begin, record one sample and end, in one pass.
func lives(a *Assembler, uid uint32, n int, at trace.Ns) {
	for i := range n {
		g := newAgent(uid+uint32(i), 1)
		g.tid = uint32(1000 + i) // numbers are used again
		a.Record(g.thread(at))
		a.Record(g.sample(segment.SampleSync, 1, at+1, 0, pcs(1, 2)))
		a.Record(g.exit(at+2, 0))
	}
	a.EndPass()
}

// TestForgetsThreads: nothing stays of threads that have ended but that they were there, and their number may be any.
func TestForgetsThreads(t *testing.T) {
	gone := map[trace.ThreadID]bool{}
	k := newKit(t, Config{OnGone: func(id trace.ThreadID) {
		if gone[id] {
			t.Errorf("thread %d is gone twice", id)
		}
		gone[id] = true
	}})
	long := newAgent(1, 1)
	k.put(long.procRec(1, 0, 0), long.thread(1))
	const each, first = 500, 1<<26 - 2000
	n := 0
	for i := range 20 {
		lives(k.Assembler, first+uint32(i*each), each, trace.Ns(10+i*10))
		n += each
	}
	for range 8 {
		k.EndPass()
	}
	if len(k.active) > 2*len(k.Assembler.threads)+mostEnded {
		t.Errorf("%d threads wait to be asked about", len(k.active))
	}
	k.Usages(1000, 4, func(int, int) (Usage, bool) { return Usage{}, false })
	if len(gone) != n || k.Stats().Broken != 0 || len(k.of(trace.KindThreadExit)) != n {
		t.Errorf("%d of %d threads are gone, %d exits, %+v", len(gone), n, len(k.of(trace.KindThreadExit)), k.Stats())
	}
	p := k.Assembler.procs[1]
	if len(k.Assembler.threads) != 1 || len(p.threads) != 1 || len(p.tids) != 1 || len(k.active) != 0 || len(k.leaving) != 0 {
		t.Errorf("kept: %d threads, of their process %d and %d numbers, %d active, %d leaving",
			len(k.Assembler.threads), len(p.threads), len(p.tids), len(k.active), len(k.leaving))
	}
	if k.ref(first+5) == 0 {
		t.Error("a thread that has ended is no reference")
	}
	late := newAgent(first+5, 1)
	k.put(late.sample(segment.SampleSync, 1, 5000, 0, pcs(1)))
	k.Flush()
	if k.Stats().Broken != 1 {
		t.Errorf("a record of a thread that is gone: %+v", k.Stats())
	}
}

// BenchmarkAlive: passes of 3,200 records of 32 threads, and empty ones, while so many threads are alive.
func BenchmarkAlive(b *testing.B) {
	for _, alive := range []int{100, 10_000, 100_000} {
		a := New(Config{Stacks: stacktable.New(stacktable.Options{}), Sink: func(*trace.Event) {}})
		agents := make([]*agent, alive)
		for i := range agents {
			agents[i] = newAgent(uint32(i+1), 1)
			if i == 0 {
				a.Record(agents[i].procRec(1, 0, 0))
			}
			a.Record(agents[i].thread(1))
			a.Record(agents[i].sample(segment.SampleSync, 1, 2, 0, pcs(1, 2)))
		}
		a.Record(agents[0].sample(segment.SampleSync, 1, 1e9, 0, pcs(1, 2))) // much later: what was merged is delivered
		for range 4 {
			a.EndPass()
		}
		b.Run(fmt.Sprintf("empty/alive=%d", alive), func(b *testing.B) {
			for b.Loop() {
				a.EndPass()
			}
		})
		at := trace.Ns(2e9)
		b.Run(fmt.Sprintf("records/alive=%d", alive), func(b *testing.B) {
			n := 0
			for b.Loop() {
				for i := range 3200 {
					at += 1000
					a.Record(agents[i%32].sample(segment.SampleSync, 1, at, 0, pcs(1, uint64(i%7))))
					n++
				}
				a.EndPass()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/record")
		})
	}
}

// BenchmarkEver: threads that begin, record a sample and end, 1,000 a pass; the memory after all of them.
//
//	go test ./collector/assemble -run XXX -bench Ever -benchtime 100000x   # 100 million
func BenchmarkEver(b *testing.B) {
	a := New(Config{Stacks: stacktable.New(stacktable.Options{}), Sink: func(*trace.Event) {}})
	g := newAgent(1, 1)
	a.Record(g.procRec(1, 0, 0))
	uid, at := uint32(2), trace.Ns(10)
	const each = 1000
	for b.Loop() {
		lives(a, uid, each, at)
		uid, at = uid+each, at+10
	}
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	b.ReportMetric(float64(m.HeapAlloc)/(1<<20), "MiB")
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/each, "ns/thread")
	runtime.KeepAlive(a)
}
