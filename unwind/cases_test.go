package unwind

import (
	"testing"
	"time"
)

// TestOddStacks runs testdata/cases.c: threads, signals, alternate stacks, restorers and leaves without rows, JIT code,
// coroutines, frames left out, deep recursion; then made-up stacks and wrong tables between guard pages.
func TestOddStacks(t *testing.T) {
	program := build(t, "gcc", "testdata/cases.c", "cases", "-std=gnu11", "-fomit-frame-pointer", "-fno-optimize-sibling-calls", "-pthread")
	p := startInside(t, nil, program)
	select {
	case err := <-p.exited:
		t.Logf("%s", tail(p.output.String()))
		if err != nil {
			t.Errorf("%v", err)
		}
	case <-time.After(5 * time.Minute):
		t.Fatalf("it does not end: %s", tail(p.output.String()))
	}
}
