package testprog

// bare_test.go: every program does, alone, what its behaviour says. What fails here is the program, not hbtrace.

import (
	"slices"
	"testing"
)

func TestBare(t *testing.T) {
	for _, b := range behaviours() {
		t.Run(b.name, func(t *testing.T) {
			r := Start(t, b.command(t))
			res := r.Wait(t)
			r.CheckNothingLeft(t)
			if res.Code != b.code || res.Signal != b.signal {
				t.Errorf("want exit status %d, signal %d; got %v", b.code, int(b.signal), res)
			}
		})
	}
}

// TestEveryProgramIsRun holds the list of behaviours against the sources.
func TestEveryProgramIsRun(t *testing.T) {
	run := map[string]bool{"plugin": true} // loaded by dlloop
	for _, b := range behaviours() {
		run[b.program] = true
	}
	for _, name := range Names() {
		if !run[name] {
			t.Errorf("src/%s is in no behaviour", name)
		}
	}
	for name := range run {
		if !slices.Contains(Names(), name) {
			t.Errorf("behaviour of %s: no such program in src", name)
		}
	}
}
