package tracefile

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/hbtrace/hbtrace/stacktable"
	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/trace/tracetest"
)

// recycled is a recording of so many events whose recorder's stack table holds few nodes: ids come again and again. It
// returns each event's stack as text.
func recycled(t testing.TB, count, nodes int) (data []byte, want []string) {
	t.Helper()
	f := &memFile{limit: 1 << 30}
	w, err := newWriter(
		"x",
		f,
		&trace.Meta{
			Version: "v",
			Arch:    "amd64",
			CPUs:    1,
			TickNs:  1_000_000,
			Hooks:   map[trace.HookID]trace.HookInfo{61: {Name: "read", Class: "CALL"}, 62: {Name: "write", Class: "CALL"}},
		},
	)
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(err)
	check(w.PutModule(&trace.Module{ID: 1, Path: "/bin/x"}))
	check(w.PutProcess(&trace.Process{ID: 1, PID: 100}))
	for id := range trace.ThreadID(3) {
		check(w.PutThread(&trace.Thread{ID: id + 1, Proc: 1, TID: 100 + int(id), Lost: 1}))
	}
	tab := stacktable.New(stacktable.Options{MaxNodes: nodes})
	rng := rand.New(rand.NewPCG(1, 2))
	var made []stacktable.Made
	var stored trace.StackID
	store := func() {
		made, stored = tab.AppendMade(made[:0], stored)
		for _, m := range made {
			check(w.PutNode(m.ID, m.Node))
		}
	}
	// Long-lived stacks keep their ids over the laps; others come back with another one.
	var kept []trace.StackID
	var keptText []string
	var batch Batch
	put := func(i int, id trace.StackID) {
		e := trace.Event{Kind: trace.KindSync, Thread: 1, Time: trace.Ns(i), Start: trace.Ns(i), Stack: id, Count: 1}
		e.Thread += trace.ThreadID(i % 3)
		if i%4 == 1 {
			e.Kind, e.Hook, e.Object, e.Result, e.CPU = trace.KindCall, trace.HookID(61+i%8/4), uint64(5+i%16/8), int64(i%5-1), 0
		}
		if i%1000 < 500 { // both ways of storing events
			check(w.PutEvent(&e))
			return
		}
		batch.Add(&e)
		_, err := w.PutBatch(batch.Bytes())
		check(err)
		batch.Reset()
	}
	for i := range count {
		if tab.Room() < 8 {
			store()
			tab.Collect(func(mark func(trace.StackID)) {
				for _, id := range kept {
					mark(id)
				}
			}, nil)
			stored = 0
		}
		if len(kept) > 0 && rng.IntN(3) == 0 {
			k := rng.IntN(len(kept))
			store()
			put(i, kept[k])
			want = append(want, keptText[k])
			continue
		}
		var id trace.StackID
		var text strings.Builder
		for d := range 3 + rng.IntN(4) {
			off := uint64(d*1000 + rng.IntN(4+d*2))
			fmt.Fprintf(&text, " %d", off)
			id = tab.Push(id, trace.Addr{Module: 1, Off: off}, trace.HowTable)
		}
		store()
		put(i, id)
		want = append(want, text.String())
		if len(kept) < 4 {
			kept, keptText = append(kept, id), append(keptText, text.String())
		} else if rng.IntN(30) == 0 {
			k := rng.IntN(4)
			kept[k], keptText[k] = id, text.String()
		}
	}
	if s := tab.Stats(); s.Overflow != 0 || s.Collected == 0 {
		t.Fatalf("table %+v", s)
	}
	s := tab.Stats()
	check(w.Close(&trace.Stats{Nodes: s.Made, Events: uint64(count), Lost: 3}))
	return f.data, want
}

// text is a stack as recycled wrote it.
func text(r *Reader, id trace.StackID) string {
	var s string
	for n := r.Node(id); id != 0; n = r.Node(id) {
		s = fmt.Sprintf(" %d", n.Addr.Off) + s
		id = n.Parent
	}
	return s
}

// TestIDsGivenAgain: every event has the stack that it had, and equal stacks are one.
func TestIDsGivenAgain(t *testing.T) {
	data, want := recycled(t, 20_000, 100)
	r, err := open("x", bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	if err := tracetest.Validate(r); err != nil {
		t.Error(err)
	}
	distinct := map[string]bool{}
	for _, s := range want {
		for at := len(s); at > 0; at = strings.LastIndexByte(s[:at], ' ') {
			distinct[s[:at]] = true
		}
	}
	for pass := range 2 {
		ids := map[string]trace.StackID{}
		i := 0
		err = trace.Events(r, func(e *trace.Event) error {
			got := text(r, e.Stack)
			if got != want[i] {
				t.Fatalf("pass %d, event %d has stack%s, want%s", pass, i, got, want[i])
			}
			if id, ok := ids[got]; ok && id != e.Stack {
				t.Fatalf("stack%s is both %d and %d", got, id, e.Stack)
			}
			ids[got] = e.Stack
			i++
			return nil
		})
		if err != nil || i != len(want) {
			t.Fatalf("%d events of %d: %v", i, len(want), err)
		}
	}
	if r.Nodes() != len(distinct) || r.Stats().Nodes != uint64(len(distinct)) {
		t.Errorf("%d nodes, stats say %d, want %d", r.Nodes(), r.Stats().Nodes, len(distinct))
	}
}

// TestCutWithIDsGivenAgain: what is there of a cut file has its stacks.
func TestCutWithIDsGivenAgain(t *testing.T) {
	data, want := recycled(t, 700, 50)
	l := layout(t, data)
	for _, s := range l[1:] {
		r, err := open("x", bytes.NewReader(data[:s.off]), s.off)
		if err != nil {
			t.Fatal(err)
		}
		list, err := use(r)
		if err != nil || len(list) != eventsBefore(l, s.off) {
			t.Fatalf("cut to %d bytes: %d events: %v", s.off, len(list), err)
		}
		for i := range list {
			if got := text(r, list[i].Stack); got != want[i] {
				t.Fatalf("cut to %d bytes: event %d has stack%s, want%s", s.off, i, got, want[i])
			}
		}
	}
}

// TestUndefinedStack: an event whose stack nobody defined gets one that is no node's, not somebody else's.
func TestUndefinedStack(t *testing.T) {
	f := &memFile{limit: 1 << 20}
	w, err := newWriter("x", f, &trace.Meta{})
	if err != nil {
		t.Fatal(err)
	}
	w.PutNodes(1, []trace.Node{{Addr: trace.Addr{Off: 1}}, {Addr: trace.Addr{Off: 2}}})
	w.PutNode(1, trace.Node{Addr: trace.Addr{Off: 3}})
	w.PutNode(2, trace.Node{Addr: trace.Addr{Off: 4}})
	w.PutEvent(&trace.Event{Kind: trace.KindSync, Stack: 1})
	w.PutEvent(&trace.Event{Kind: trace.KindSync, Stack: 3})
	w.Close(nil)
	r, err := open("x", bytes.NewReader(f.data), int64(len(f.data)))
	if err != nil {
		t.Fatal(err)
	}
	list, err := use(r)
	if err != nil || r.Nodes() != 4 || list[0].Stack != 3 || list[1].Stack != unknownStack ||
		r.Node(list[1].Stack) != (trace.Node{}) {
		t.Errorf("%d nodes, events %+v, %v", r.Nodes(), list, err)
	}
}
