package tracefile

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/trace/tracetest"
)

func TestSymbolizer(t *testing.T) {
	b := tracetest.New()
	s1 := b.Stack("main", "f", "libc.so.6!read")
	s2 := b.Stack("main", "g", "…5")
	raw := b.Node(trace.Node{Addr: trace.Addr{Off: 0x1234}, How: trace.HowExact})
	src := b.Source()
	path := filepath.Join(t.TempDir(), "x.hbt")
	w, err := Create(path, src.Meta())
	if err != nil {
		t.Fatal(err)
	}
	for id := trace.StackID(1); int(id) <= src.Nodes(); id++ {
		w.PutNodes(id, []trace.Node{src.Node(id)})
	}
	main := src.Node(b.Stack("main"))
	stored := []trace.SymFrame{{Func: "stored"}}
	if err := w.PutSymbols(1, []uint64{main.Lookup()}, [][]trace.SymFrame{stored}); err != nil {
		t.Fatal(err)
	}
	w.Close(nil)

	r := mustOpen(t, path)
	missing := r.AddressesWithoutSymbols()
	if len(missing) != 2 || len(missing[1]) != 2 || len(missing[2]) != 1 {
		t.Fatalf("missing %v", missing)
	}
	if got := r.Symbols(s1); got != nil {
		t.Errorf("symbols out of nowhere: %v", got)
	}
	calls := 0
	r.SetSymbolizer(func(m trace.ModuleID, addrs []uint64) [][]trace.SymFrame {
		calls++
		var out [][]trace.SymFrame
		for _, a := range addrs {
			out = append(out, []trace.SymFrame{{Func: fmt.Sprintf("%d:%x", m, a)}})
		}
		if m == 2 {
			return nil // knows nothing
		}
		return out
	})
	f := src.Node(s1).Parent
	want := fmt.Sprintf("1:%x", src.Node(f).Lookup())
	for range 2 {
		if got := r.Symbols(f); len(got) != 1 || got[0].Func != want {
			t.Errorf("symbols of f = %v, want %s", got, want)
		}
		if got := r.Symbols(src.Node(f).Parent); len(got) != 1 || got[0].Func != "stored" {
			t.Errorf("symbols of main = %v, want those of the file", got)
		}
		if got := r.Symbols(s1); got != nil {
			t.Errorf("symbols of a module that has none = %v", got)
		}
		if r.Symbols(s2) != nil || r.Symbols(raw) != nil || r.Symbols(999) != nil {
			t.Error("symbols for a marker, an address in no module or no node")
		}
	}
	if calls != 2 {
		t.Errorf("the symbolizer was called %d times, want once for each of two modules", calls)
	}
}

// TestStopping: an error of the function ends Events and comes back as it is.
func TestStopping(t *testing.T) {
	r := mustOpen(t, write(t, sample(10)))
	stop := errors.New("enough")
	n := 0
	err := trace.Events(r, func(*trace.Event) error {
		if n++; n == 4 {
			return stop
		}
		return nil
	})
	if err != stop || n != 4 {
		t.Errorf("error %v after %d events", err, n)
	}
	if got := len(events(t, r)); got != 10 {
		t.Errorf("%d events the second time", got)
	}
}
