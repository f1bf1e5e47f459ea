package tracefile

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/hbtrace/hbtrace/trace"
)

// TestSummary: a summary is found again as it was, the last one of several, and the recording around it is unchanged;
// a file that ends anywhere in what was added is what it was before.
func TestSummary(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.hbt")
	whole := chunked(t)
	if err := os.WriteFile(path, whole, 0o644); err != nil {
		t.Fatal(err)
	}
	count := func(r *Reader) (n int) {
		if err := trace.Events(r, func(*trace.Event) error { n++; return nil }); err != nil {
			t.Error(err)
		}
		return n
	}
	r, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	events, notes := count(r), len(r.Stats().Notes)
	if r.Summary() != nil {
		t.Error("a summary before there is one")
	}
	r.Close()
	noise := make([]byte, 3*summarySectionBytes+17)
	rnd := rand.NewChaCha8([32]byte{1})
	rnd.Read(noise)
	for _, want := range [][]byte{noise, {}, bytes.Repeat([]byte("summary"), 1000)} {
		if err := AppendSummary(path, want); err != nil {
			t.Fatal(err)
		}
		r, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := r.Summary(); !bytes.Equal(got, want) {
			t.Errorf("%d bytes of summary, want %d", len(got), len(want))
		}
		if n := count(r); n != events || !r.Stats().Complete || len(r.Stats().Notes) != notes {
			t.Errorf("%d events, want %d; %+v", n, events, r.Stats())
		}
		r.Close()
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, end := range []int{len(whole), len(whole) + 1, len(whole) + sectionHeaderBytes + 5, len(data) - 1} {
		r, err := open("x", bytes.NewReader(data[:end]), int64(end))
		if err != nil {
			t.Fatal(err)
		}
		if n := count(r); n != events || !r.Stats().Complete || r.Summary() != nil {
			t.Errorf("cut to %d of %d bytes: %d events, want %d; %+v", end, len(data), n, events, r.Stats())
		}
	}
	// Damage among the events: what is said of all of them is not of what can be read.
	for _, s := range r.index {
		if s.kind != sectionEvents {
			continue
		}
		spoilt := bytes.Clone(data)
		spoilt[s.off+sectionHeaderBytes] ^= 1
		r, err := open("x", bytes.NewReader(spoilt), int64(len(spoilt)))
		if err != nil {
			t.Fatal(err)
		}
		if r.Summary() != nil {
			t.Errorf("a summary in spite of damage at %d", s.off)
		}
		break
	}
	if err := AppendSummary(filepath.Join(t.TempDir(), "none.hbt"), nil); err == nil {
		t.Error("a file that is not there: want an error")
	}
	if err := os.WriteFile(path, data[:len(data)-1], 0o644); err != nil {
		t.Fatal(err)
	}
	if err := AppendSummary(path, nil); err == nil {
		t.Error("a file that is not whole: want an error")
	}
}
