package page

import (
	"testing"

	"github.com/hbtrace/hbtrace/trace"
)

// TestMarks: the page has a mark where hbtrace attached and where it left, none for an end that there was not.
func TestMarks(t *testing.T) {
	m := marks(&trace.Meta{Attached: []trace.Attached{{PID: 7, At: 1005, Left: 1900}, {PID: 8, At: 1010}}}, 1000)
	want := []aboutMark{{5, "hbtrace attached to process 7"}, {900, "hbtrace left process 7"}, {10, "hbtrace attached to process 8"}}
	if len(m) != len(want) {
		t.Fatalf("marks %v", m)
	}
	for i := range want {
		if m[i] != want[i] {
			t.Errorf("mark %d is %v, not %v", i, m[i], want[i])
		}
	}
}
