package report

import (
	"strings"
	"testing"

	"github.com/hbtrace/hbtrace/internal/synthetic"
)

// TestEstimatedWaits: chains that are estimates are said to be, in text and in JSON.
func TestEstimatedWaits(t *testing.T) {
	src := synthetic.Queue(3000, 2).Source()
	text := render(t, src, ViewLocks, Options{Width: 100})
	if !strings.Contains(text, "are followed at some instants only") {
		t.Errorf("not said that waits are estimated:\n%s", text)
	}
	if s := render(t, src, ViewLocks, Options{JSON: true}); !strings.Contains(s, `"waits_estimated"`) || strings.Contains(s, `"waits_estimated": 0`) {
		t.Errorf("not in JSON:\n%.3000s", s)
	}
}
