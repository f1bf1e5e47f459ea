package tracefile

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/hbtrace/hbtrace/trace"
)

// memFile is a file in memory that is full at a size.
type memFile struct {
	data   []byte
	limit  int
	writes int // that failed
}

func (f *memFile) WriteAt(p []byte, off int64) (int, error) {
	if int(off) > len(f.data) {
		return 0, errors.New("a hole")
	}
	n := min(len(p), max(f.limit-int(off), 0))
	f.data = append(f.data[:off], p[:n]...)
	if n < len(p) {
		f.writes++
		return n, syscall.ENOSPC
	}
	return n, nil
}

func (f *memFile) Truncate(n int64) error { f.data = f.data[:n]; return nil }
func (f *memFile) Sync() error            { return nil }
func (f *memFile) Close() error           { return nil }

// TestFullDisk lets the disk be full at every size: the error comes once, and the file is readable.
func TestFullDisk(t *testing.T) {
	src := sample(2000)
	all := events(t, src)
	f := &memFile{limit: 1 << 30}
	whole := recordInto(t, f, src)
	if whole.errors != 0 || len(whole.events) != len(all) {
		t.Fatalf("without a limit: %+v", whole)
	}
	size := len(f.data)
	var opened int
	for limit := 0; limit < size; limit += 37 {
		got := recordInto(t, &memFile{limit: limit}, src)
		if got.errors != 1 {
			t.Fatalf("limit %d: %d errors, want one", limit, got.errors)
		}
		if got.reader == nil {
			continue
		}
		opened++
		n := len(got.events)
		if uint64(n)+got.dropped != uint64(len(all)) {
			t.Fatalf("limit %d: %d events read and %d dropped of %d", limit, n, got.dropped, len(all))
		}
		if n > 0 && got.events[n-1] != all[n-1] || got.reader.Stats().Complete {
			t.Fatalf("limit %d: %d events, stats %+v", limit, n, got.reader.Stats())
		}
	}
	if opened < size/37/2 {
		t.Errorf("only %d files could be opened", opened)
	}
}

type outcome struct {
	errors  int
	dropped uint64
	reader  *Reader
	events  []trace.Event
}

// recordInto records src, flushing every 50 events, and reads what came of it.
func recordInto(t *testing.T, f *memFile, src trace.Source) (o outcome) {
	t.Helper()
	check := func(err error) {
		if err == nil {
			return
		}
		o.errors++
		if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "free some space") {
			t.Fatalf("error %v", err)
		}
	}
	w, err := newWriter("x", f, src.Meta())
	check(err)
	if err != nil {
		return o
	}
	for id := trace.StackID(1); int(id) <= src.Nodes(); id++ {
		check(w.PutNodes(id, []trace.Node{src.Node(id)}))
	}
	n := 0
	trace.Events(src, func(e *trace.Event) error {
		check(w.PutEvent(e))
		if n++; n%50 == 0 {
			check(w.Flush())
		}
		return nil
	})
	check(w.Close(src.Stats()))
	o.dropped = w.Dropped()
	r, err := open("x", bytes.NewReader(f.data), int64(len(f.data)))
	if err != nil {
		if len(f.data) > 1000 {
			t.Fatalf("%d bytes written: %v", len(f.data), err)
		}
		return o
	}
	o.reader = r
	if o.events, err = use(r); err != nil {
		t.Fatalf("%d bytes written: %v", len(f.data), err)
	}
	return o
}

// TestResume: the disk is full for some time. What events rest on is kept, writing goes on when there is room, and the
// account says what is missing.
func TestResume(t *testing.T) {
	f := &memFile{limit: 1 << 20}
	w, err := newWriter("x", f, &trace.Meta{Version: "v"})
	if err != nil {
		t.Fatal(err)
	}
	f.limit = len(f.data) + 40
	for i := range 1000 {
		w.PutEvent(&trace.Event{Kind: trace.KindCPU, Thread: 1, Time: trace.Ns(i * i * 7919), CPU: int64(i), Count: 1})
	}
	if err := w.Flush(); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("Flush: %v", err)
	}
	if err := w.PutThread(&trace.Thread{ID: 1, Name: "late"}); err != nil {
		t.Errorf("the error came twice: %v", err)
	}
	w.PutEvent(&trace.Event{Kind: trace.KindCPU, Thread: 1, Count: 1})
	f.limit = 1 << 20
	if err := w.Flush(); err != nil || w.Err() != nil {
		t.Errorf("there is room, and Flush does not go on: %v, %v", err, w.Err())
	}
	w.PutThread(&trace.Thread{ID: 2, Name: "later"})
	w.PutEvent(&trace.Event{Kind: trace.KindCPU, Thread: 2, Count: 1})
	if err := w.Close(nil); err != nil {
		t.Errorf("the error came twice: %v", err)
	}
	if w.Err() != nil || w.Dropped() != 1001 {
		t.Errorf("Err %v, %d dropped", w.Err(), w.Dropped())
	}
	r, err := open("x", bytes.NewReader(f.data), int64(len(f.data)))
	if err != nil {
		t.Fatal(err)
	}
	st := r.Stats()
	n := 0
	trace.Events(r, func(e *trace.Event) error { n++; return nil })
	if !st.Complete || len(st.Notes) != 1 || !strings.Contains(st.Notes[0], "1001 events were dropped") ||
		len(r.Threads()) != 2 ||
		n != 1 {
		t.Errorf("stats %+v, threads %+v", st, r.Threads())
	}
}

func TestUpserts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.hbt")
	w, err := Create(path, &trace.Meta{ExitStatus: -1})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		for _, err := range []error{
			w.PutProcess(&trace.Process{ID: 2, PID: i}),
			w.PutProcess(&trace.Process{ID: trace.ProcID(7 - i)}),
			w.PutThread(&trace.Thread{ID: 1, TID: i}),
			w.PutModule(&trace.Module{ID: 1, Lo: uint64(i)}),
			w.PutMeta(&trace.Meta{ExitStatus: i}),
			w.Flush(),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(nil); err != nil {
		t.Fatal(err)
	}
	r := mustOpen(t, path)
	var ids []trace.ProcID
	for _, p := range r.Processes() {
		ids = append(ids, p.ID)
	}
	if fmt.Sprint(ids) != "[2 5 6 7]" || r.Processes()[0].PID != 2 || r.Threads()[0].TID != 2 || r.Modules()[0].Lo != 2 ||
		r.Meta().ExitStatus != 2 {
		t.Errorf("processes %+v, threads %+v, modules %+v, meta %+v", r.Processes(), r.Threads(), r.Modules(), r.Meta())
	}
}

func TestWriterRefuses(t *testing.T) {
	w, err := newWriter("x", &memFile{limit: 1 << 30}, nil)
	if err != nil {
		t.Fatal(err)
	}
	fp := trace.Addr{Module: 1}
	for _, c := range []struct {
		first trace.StackID
		node  trace.Node
		want  string
	}{
		{2, trace.Node{Addr: fp}, "nodes from 2 on where 1 is next"},
		{1, trace.Node{Parent: 1, Addr: fp}, "parents come first"},
		{1, trace.Node{How: 8}, "no room for how 8"},
		{1, trace.Node{Addr: trace.Addr{Module: 1 << 30}}, "no room for module"},
	} {
		if err := w.PutNodes(c.first, []trace.Node{c.node}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c, err, c.want)
		}
	}
	if err := w.PutSymbols(1, []uint64{1}, nil); err == nil {
		t.Error("an address without its frames was taken")
	}
	huge := strings.Repeat("x", maxSectionBytes)
	if err := w.PutProcess(&trace.Process{ID: 1, Exe: huge}); err == nil || !strings.Contains(err.Error(), "too large") {
		t.Errorf("a huge process: %v", err)
	}
	if err := w.PutNodes(1, []trace.Node{{Addr: fp}}); err != nil || w.Err() != nil {
		t.Errorf("after refusals: %v, %v", err, w.Err())
	}
}

// TestTwoRecorders: whoever comes second is refused, and what the first one writes stays whole.
func TestTwoRecorders(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.hbt")
	if err := os.WriteFile(path, []byte("an older file, longer than what comes"+strings.Repeat(".", 4096)), 0o600); err != nil {
		t.Fatal(err)
	}
	first, err := Create(path, &trace.Meta{Version: "first"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Create(path, &trace.Meta{Version: "second"}); err == nil ||
		!strings.Contains(err.Error(), "another hbtrace") ||
		!strings.Contains(err.Error(), path) {
		t.Errorf("a second recorder: %v", err)
	}
	if err := first.Close(&trace.Stats{}); err != nil {
		t.Fatal(err)
	}
	if r := mustOpen(t, path); r.Meta().Version != "first" || !r.Stats().Complete {
		t.Errorf("version %q, complete: %v", r.Meta().Version, r.Stats().Complete)
	}
	again, err := Create(path, &trace.Meta{Version: "third"})
	if err != nil {
		t.Fatalf("after the first has ended: %v", err)
	}
	if err := again.Close(&trace.Stats{}); err != nil {
		t.Fatal(err)
	}
}
