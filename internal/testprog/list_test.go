package testprog

// list_test.go: the list of behaviours is whole.

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/hbtrace/hbtrace/hooks"
)

// TestEveryProgramIsRun holds the list of behaviours against the sources.
func TestEveryProgramIsRun(t *testing.T) {
	// loaded by dlloop and dlstorm; run by internal/e2e, in a root of its own; run by TestStressNoEINTR;
	// run by TestMemoryBudget; by the tests of confined programs
	// stops its parent, see TestStoppedRecorder
	run := map[string]bool{"stopped": true, "plugin": true, "outofsight": true, "noeintr": true, "budget": true, "confine": true,
		"tlsend": true, "selflock": true, "spin": true, // by internal/e2e, and by collector's TestUnrecorded
		"latch": true, "bareenv": true, "signalburst": true} // by tests of their own here
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

// TestEveryHookIsCalled: each function that is wrapped is called by one of the programs, which are all run bare and recorded
// with the same output.
func TestEveryHookIsCalled(t *testing.T) {
	entries, err := sources.ReadDir("src")
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, e := range entries {
		src, err := sources.ReadFile("src/" + e.Name())
		if err != nil {
			t.Fatal(err)
		}
		all.Write(src)
	}
	called := map[string]bool{}
	for _, m := range regexp.MustCompile(`\b(?:SYS_)?(\w+)\b`).FindAllStringSubmatch(all.String(), -1) {
		called[m[1]] = true
	}
	names := map[string]string{"futex_wait": "FUTEX_WAIT", "futex_wake": "FUTEX_WAKE"} // in syscall(SYS_futex, …)
	for _, h := range hooks.Table {
		if h.Go() || strings.HasPrefix(h.Name, "GIL") {
			continue // e2e's programs in Go and Python
		}
		name := h.Name
		if n, ok := names[name]; ok {
			name = n
		}
		if !called[name] {
			t.Errorf("no program in src calls %s", name)
		}
	}
}
