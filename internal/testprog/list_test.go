package testprog

// list_test.go: the list of behaviours is whole.

import (
	"slices"
	"testing"
)

// TestEveryProgramIsRun holds the list of behaviours against the sources.
func TestEveryProgramIsRun(t *testing.T) {
	// loaded by dlloop and dlstorm; run by internal/e2e, in a root of its own; run by TestStressNoEINTR;
	// run by TestMemoryBudget
	run := map[string]bool{"plugin": true, "outofsight": true, "noeintr": true, "budget": true}
	for _, b := range behaviours() {
		run[b.program] = true
		if b.preload != "" {
			run[b.preload] = true
		}
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
