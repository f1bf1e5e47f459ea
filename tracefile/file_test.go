package tracefile

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/trace/tracetest"
)

// sample is a recording with something of everything.
func sample(events int) *tracetest.Source {
	b := tracetest.New()
	p := b.AddProcess(trace.Process{
		PID: 100, PPID: 1, Exe: "/bin/\xffapp", Cmdline: []string{"app", "", "-x"}, Start: 5,
		Doubt: trace.ProcDoubt{Lost: 3, SyncOnly: true, Disabled: "no clock"},
	})
	b.AddProcess(trace.Process{PID: 101, Parent: p, Forked: true})
	main := b.AddThread(trace.Thread{Proc: p, TID: 100, Name: "app", Main: true, CPU: -1, Lost: 3})
	routine := trace.Addr{}
	if events > 0 {
		routine = trace.Addr{Module: 1, Off: 77}
	}
	other := b.AddThread(trace.Thread{Proc: p, TID: 102, Parent: main, StartRoutine: routine, Waits: 9, Lost: 4})
	rng := rand.New(rand.NewPCG(1, 1))
	at := trace.Ns(1_000_000_000_000)
	for i := range events {
		at += trace.Ns(rng.IntN(2_000_000))
		f := fmt.Sprintf("f%d", rng.IntN(200))
		switch rng.IntN(5) {
		case 0:
			b.Wait(other, at-1000, at, b.Hook("pthread_mutex_lock"), 0x7f0000001000, main, "main", f, "lock|inner")
		case 1:
			b.Call(main, at-5000, at, b.Hook("read"), 3, -11, "main", f, "libc.so.6!read")
		case 2:
			b.Alloc(other, at, 0x5555_0000_0000+uint64(i), 64, 512<<10, "main", f)
		case 3:
			b.Free(other, at, 0x5555_0000_0000+uint64(i))
		default:
			b.Sample(main, at, 1_000_000, "main", f, "…9", "libx.so!?")
		}
	}
	s := b.Stats()
	b.Meta().EndNs = at + 5
	s.Lost, s.Notes, s.Complete = 7, []string{"a note"}, true
	return b.Source()
}

// copyTo writes a recording.
func copyTo(w *Writer, src trace.Source) error {
	for _, p := range src.Processes() {
		if err := w.PutProcess(&p); err != nil {
			return err
		}
	}
	for _, t := range src.Threads() {
		if err := w.PutThread(&t); err != nil {
			return err
		}
	}
	for _, m := range src.Modules() {
		if err := w.PutModule(&m); err != nil {
			return err
		}
	}
	for id := trace.StackID(1); int(id) <= src.Nodes(); id++ {
		if err := w.PutNodes(id, []trace.Node{src.Node(id)}); err != nil {
			return err
		}
	}
	if err := trace.Events(src, w.PutEvent); err != nil {
		return err
	}
	for _, m := range src.Modules() {
		var addrs []uint64
		var frames [][]trace.SymFrame
		for id := trace.StackID(1); int(id) <= src.Nodes(); id++ {
			if n := src.Node(id); n.Addr.Module == m.ID && n.How != trace.HowMark {
				addrs = append(addrs, n.Lookup())
				frames = append(frames, src.Symbols(id))
			}
		}
		if err := w.PutSymbols(m.ID, addrs, frames); err != nil {
			return err
		}
	}
	return w.Close(src.Stats())
}

func events(t testing.TB, s trace.Source) []trace.Event {
	t.Helper()
	var list []trace.Event
	if err := trace.Events(s, func(e *trace.Event) error { list = append(list, *e); return nil }); err != nil {
		t.Fatal(err)
	}
	return list
}

// same compares two recordings whole.
func same(t testing.TB, got, want trace.Source) {
	t.Helper()
	for _, c := range []struct {
		what      string
		got, want any
	}{
		{"meta", got.Meta(), want.Meta()},
		{"stats", got.Stats(), want.Stats()},
		{"processes", got.Processes(), want.Processes()},
		{"threads", got.Threads(), want.Threads()},
		{"modules", got.Modules(), want.Modules()},
		{"number of nodes", got.Nodes(), want.Nodes()},
		{"events", events(t, got), events(t, want)},
	} {
		if !reflect.DeepEqual(c.got, c.want) {
			t.Errorf("%s differ:\ngot  %+v\nwant %+v", c.what, c.got, c.want)
		}
	}
	for id := trace.StackID(0); int(id) <= want.Nodes()+1; id++ {
		if got.Node(id) != want.Node(id) {
			t.Errorf("node %d = %+v, want %+v", id, got.Node(id), want.Node(id))
		}
		if g, w := got.Symbols(id), want.Symbols(id); !reflect.DeepEqual(g, w) {
			t.Errorf("symbols of %d = %+v, want %+v", id, g, w)
		}
	}
}

func write(t testing.TB, src trace.Source) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.hbt")
	w, err := Create(path, src.Meta())
	if err != nil {
		t.Fatal(err)
	}
	if err := copyTo(w, src); err != nil {
		t.Fatal(err)
	}
	return path
}

func mustOpen(t testing.TB, path string) *Reader {
	t.Helper()
	r, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

func TestRoundTrip(t *testing.T) {
	for _, n := range []int{0, 1, 100, 100_000} {
		t.Run(fmt.Sprintf("events=%d", n), func(t *testing.T) {
			src := sample(n)
			path := write(t, src)
			r := mustOpen(t, path)
			same(t, r, src)
			if err := tracetest.Validate(r); err != nil {
				t.Error(err)
			}
			if m := r.AddressesWithoutSymbols(); len(m) != 0 {
				t.Errorf("addresses without symbols: %v", m)
			}
			if n >= 100_000 {
				st, _ := os.Stat(path)
				t.Logf("%.1f bytes an event, all told", float64(st.Size())/float64(n))
			}
		})
	}
}
