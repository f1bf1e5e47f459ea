package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestRounds runs each kind for a moment, with and without kills. A round fails by itself when records are missing
// that neither the writers count as lost nor the reader has read.
func TestRounds(t *testing.T) {
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("no gcc to build the writers with")
	}
	t.Chdir("../..")
	exe, err := build()
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(filepath.Dir(exe))
	if err := round(options{rate: 50000, threads: 8, seconds: 0.3, bytes: 1 << 20}, exe, "read"); err != nil {
		t.Error(err)
	}
	if err := round(options{rate: 50000, threads: 8, seconds: 1.2, bytes: 1 << 20, kill: true}, exe, "assemble"); err != nil {
		t.Error(err)
	}
}
