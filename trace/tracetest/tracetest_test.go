package tracetest

import (
	"testing"

	"github.com/hbtrace/hbtrace/trace"
)

func TestBuilder(t *testing.T) {
	b := New()
	p := b.AddProcess(trace.Process{PID: 10})
	th := b.AddThread(trace.Thread{Proc: p, TID: 10})
	b.Sample(th, 100, 5, "main", "f", "g")
	b.Sample(th, 200, 5, "main", "f", "libc.so.6!memcpy@GLIBC_2.14")
	b.Wait(th, 250, 300, b.Hook("pthread_mutex_lock"), 0x10, 0, "main", "f@9", "h|i")
	b.Free(th, 310, 0x99)
	b.Sample(th, 400, 5, "main", "f@9", "libx.so!?")
	src := b.Source()

	if got := src.Meta().EndNs; got != 400 {
		t.Errorf("EndNs = %d, want 400", got)
	}
	wantSame := []uint32{0, 2, 1, 0, 2}
	var i int
	trace.Events(src, func(e *trace.Event) error {
		if e.Same != wantSame[i] {
			t.Errorf("event %d: Same = %d, want %d", i, e.Same, wantSame[i])
		}
		i++
		return nil
	})
	if i != len(wantSame) || src.Stats().Events != uint64(i) {
		t.Errorf("%d events, stats say %d, want %d", i, src.Stats().Events, len(wantSame))
	}

	memcpy := src.Symbols(b.Stack("main", "f", "libc.so.6!memcpy@GLIBC_2.14"))
	if len(memcpy) != 1 || memcpy[0].Func != "memcpy@GLIBC_2.14" || memcpy[0].Line != 1 {
		t.Errorf("symbols of memcpy = %+v", memcpy)
	}
	inl := src.Symbols(b.Stack("main", "f@9", "h|i"))
	if len(inl) != 2 || inl[0].Func != "i" || !inl[0].Inlined || inl[1].Func != "h" || inl[1].Inlined {
		t.Errorf("inlined symbols = %+v", inl)
	}
	unknown := b.Stack("main", "f@9", "libx.so!?")
	if s := src.Symbols(unknown); s != nil {
		t.Errorf("symbols of an unknown function = %+v", s)
	}
	if got := src.Modules()[src.Node(unknown).Addr.Module-1].Path; got != "/usr/bin/libx.so" {
		t.Errorf("module = %q", got)
	}
	if f, f9 := src.Node(b.Stack("main", "f")), src.Node(b.Stack("main", "f@9")); f.Addr == f9.Addr ||
		f.Parent != f9.Parent {
		t.Errorf("f = %+v, f@9 = %+v: want one parent and two addresses", f, f9)
	}
	if n := src.Node(b.Stack("main", "…12", "f=exact")); n != (trace.Node{}) {
		t.Errorf("a node made later shows in an earlier source: %+v", n)
	}
	src = b.Source()
	n := src.Node(b.Stack("main", "…12", "f=exact"))
	if m := src.Node(n.Parent); n.How != trace.HowExact || m.How != trace.HowMark || m.Addr.Off != 12 {
		t.Errorf("marker = %+v under %+v", m, n)
	}
}
