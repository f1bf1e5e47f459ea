package collector

import (
	"runtime"
	"slices"
	"strings"
	"testing"
)

// TestTurns: with more slots than one call looks at, calls go on where the last one ended.
func TestTurns(t *testing.T) {
	from := 0
	var got []int
	for i := range turn(&from, 3) {
		got = append(got, i)
	}
	if !slices.Equal(got, []int{0, 1, 2}) {
		t.Errorf("of 3 slots: %v", got)
	}
	seen := map[int]int{}
	from = 0
	const n = slotsAtOnce*2 + 100
	for range 3 {
		calls := 0
		for i := range turn(&from, n) {
			seen[i]++
			calls++
		}
		if calls != slotsAtOnce {
			t.Errorf("%d slots at once", calls)
		}
	}
	for i := range n {
		if seen[i] == 0 {
			t.Fatalf("slot %d was not looked at", i)
		}
	}
	for i := range turn(&from, 5) { // fewer slots than before
		if i >= 5 {
			t.Errorf("slot %d of 5", i)
		}
	}
}

// TestRecordLeavesNoGoroutine: a session leaves no goroutine that waits for signals.
func TestRecordLeavesNoGoroutine(t *testing.T) {
	recordIn(t, Options{Command: []string{"/bin/true"}})
	eventually(t, "the end of the goroutine that passes signals on", func() bool {
		buf := make([]byte, 1<<20)
		return !strings.Contains(string(buf[:runtime.Stack(buf, true)]), "(*child).pass")
	})
}
