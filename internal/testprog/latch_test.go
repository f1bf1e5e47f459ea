package testprog

import (
	"path/filepath"
	"testing"

	"github.com/hbtrace/hbtrace/internal/validate"
	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/tracefile"
)

// TestProgramUsesSignal: a program with a use of its own for SIGURG is sampled by another signal, unasked; one that uses both is sampled
// at its hooks, and its recording says so.
func TestProgramUsesSignal(t *testing.T) {
	hb, program := Hbtrace(t), Build(t, "latch")
	for _, how := range []string{"signalfd", "handler", "threads", "both"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			prefix := filepath.Join(t.TempDir(), "out")
			r := Run(t, Command{Args: []string{hb, "run", "-q", "-o", prefix, "--", program, how}})
			if r.Status() != 0 || string(r.Stdout) != "latch ok\n" {
				t.Fatalf("got %v", r)
			}
			if err := validate.File(prefix + ".hbt"); err != nil {
				t.Fatal(err)
			}
			src, err := tracefile.Open(prefix + ".hbt")
			if err != nil {
				t.Fatal(err)
			}
			defer src.Close()
			chained := false
			for _, p := range src.Processes() {
				chained = chained || p.Doubt.HandlerChained
				if p.Doubt.SyncOnly {
					t.Error("sampling by signal was given up")
				}
			}
			if both := how == "both"; chained != both {
				t.Errorf("the recording says %v of whether samples wait for the next hook, want %v", chained, both)
			}
			// The sender's end comes after the program's first use of the signal, and before work of 120 ms without calls.
			main, ended, signalled := src.Threads()[0].ID, trace.Ns(-1), 0
			if err := trace.Events(src, func(e *trace.Event) error {
				if e.Kind == trace.KindThreadExit && ended < 0 {
					ended = e.Time
				}
				if e.Kind == trace.KindGap && e.Thread == main && ended >= 0 && e.Time > ended {
					signalled++
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			if ended < 0 || (signalled == 0) != (how == "both") {
				t.Errorf("%d samples by signal behind the sender's end (%d ns)", signalled, ended)
			}
		})
	}
}
