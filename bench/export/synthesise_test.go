package main

import (
	"path/filepath"
	"testing"

	"github.com/hbtrace/hbtrace/internal/validate"
)

// TestSynthesise: what the benchmark measures on is a sound recording of the size asked for.
func TestSynthesise(t *testing.T) {
	path := filepath.Join(t.TempDir(), "small.hbt")
	m, err := synthesise(path, 20_000, 7)
	if err != nil {
		t.Fatal(err)
	}
	if m.samples != 20_000 || m.events < m.samples || m.nodes < 1000 {
		t.Errorf("made %+v", m)
	}
	if err := validate.File(path); err != nil {
		t.Error(err)
	}
	if _, err := synthesise(path, 10, 1); err == nil {
		t.Error("one thread: want an error")
	}
}
