package tracefile

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/trace/tracetest"
)

// TestKilledRecorder kills a process that records, with SIGKILL, and reads its file: everything up to the last
// Flush that it reported must be there.
func TestKilledRecorder(t *testing.T) {
	if path := os.Getenv("TRACEFILE_TEST_RECORD"); path != "" {
		recordForEver(path)
	}
	path := filepath.Join(t.TempDir(), "x.hbt")
	cmd := exec.Command(os.Args[0], "-test.run=^TestKilledRecorder$")
	cmd.Env = append(os.Environ(), "TRACEFILE_TEST_RECORD="+path)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	flushed := 0
	lines := bufio.NewScanner(out)
	for range 20 {
		if !lines.Scan() {
			t.Fatal("the recorder ended by itself")
		}
		if _, err := fmt.Sscan(lines.Text(), &flushed); err != nil {
			t.Fatal(err)
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	r := mustOpen(t, path)
	list := events(t, r)
	if len(list) < flushed || flushed == 0 {
		t.Errorf("%d events in the file, %d were flushed", len(list), flushed)
	}
	if err := tracetest.Validate(r); err != nil {
		t.Error(err)
	}
	if r.Stats().Complete || r.Stats().Events != uint64(len(list)) || r.Meta().EndNs != list[len(list)-1].Time {
		t.Errorf("stats %+v, end %d, last event at %d", r.Stats(), r.Meta().EndNs, list[len(list)-1].Time)
	}
}

// recordForEver prints the number of events after each Flush.
func recordForEver(path string) {
	check := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	w, err := Create(path, &trace.Meta{Version: "v", Arch: "amd64", CPUs: 1, TickNs: 1_000_000})
	check(err)
	check(w.PutModule(&trace.Module{ID: 1, Path: "/bin/x"}))
	check(w.PutProcess(&trace.Process{ID: 1, PID: 100}))
	check(w.PutThread(&trace.Thread{ID: 1, Proc: 1, TID: 100, Lost: 1}))
	for n := trace.StackID(1); ; n++ {
		check(w.PutNodes(n, []trace.Node{{Addr: trace.Addr{Module: 1, Off: uint64(n)}, How: trace.HowFP}}))
		check(
			w.PutEvent(&trace.Event{Kind: trace.KindSync, Thread: 1, Time: trace.Ns(n), Start: trace.Ns(n), Stack: n, Count: 1}),
		)
		if n%100 == 0 {
			check(w.Flush())
			fmt.Println(n)
		}
	}
}

// TestConcurrentReading: everything but Events may be called from several goroutines.
func TestConcurrentReading(t *testing.T) {
	src := sample(500)
	path := filepath.Join(t.TempDir(), "x.hbt")
	w, err := Create(path, src.Meta())
	if err != nil {
		t.Fatal(err)
	}
	for id := trace.StackID(1); int(id) <= src.Nodes(); id++ {
		w.PutNodes(id, []trace.Node{src.Node(id)})
	}
	if err := w.Close(nil); err != nil {
		t.Fatal(err)
	}
	r := mustOpen(t, path)
	r.SetSymbolizer(func(m trace.ModuleID, addrs []uint64) [][]trace.SymFrame {
		out := make([][]trace.SymFrame, len(addrs))
		for i := range out {
			out[i] = []trace.SymFrame{{Func: fmt.Sprintf("%d:%x", m, addrs[i])}}
		}
		return out
	})
	var wg sync.WaitGroup
	for range 4 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for id := trace.StackID(1); int(id) <= r.Nodes(); id++ {
				n := r.Node(id)
				want := fmt.Sprintf("%d:%x", n.Addr.Module, n.Lookup())
				got := r.Symbols(id)
				if n.How == trace.HowMark && got == nil {
					continue
				}
				if len(got) != 1 || got[0].Func != want {
					t.Errorf("node %d: %v, want %s", id, got, want)
				}
			}
			r.AddressesWithoutSymbols()
		}()
	}
	wg.Wait()
}

// TestBoundedMemory reads two million events: what is allocated meanwhile must not grow with their number.
func TestBoundedMemory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.hbt")
	w, err := Create(path, &trace.Meta{})
	if err != nil {
		t.Fatal(err)
	}
	const n = 2_000_000
	e := trace.Event{Kind: trace.KindCPU, Count: 1, CPU: 1_000_000}
	for i := range n {
		e.Thread = trace.ThreadID(i % 50)
		e.Time += trace.Ns(i * 7919 % 100_003)
		e.Start, e.Object = e.Time, uint64(i)*0x9e3779b97f4a7c15>>20
		if err := w.PutEvent(&e); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(nil); err != nil {
		t.Fatal(err)
	}
	st, _ := os.Stat(path)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	r := mustOpen(t, path)
	count := 0
	if err := trace.Events(r, func(*trace.Event) error { count++; return nil }); err != nil || count != n {
		t.Fatalf("%d events, %v", count, err)
	}
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; got > 8<<20 {
		t.Errorf("reading a file of %d bytes allocated %d", st.Size(), got)
	}
}

func BenchmarkRead(b *testing.B) {
	const n = 100_000
	r := mustOpen(b, write(b, sample(n)))
	b.ReportAllocs()
	for b.Loop() {
		if err := trace.Events(r, func(*trace.Event) error { return nil }); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/event")
}
