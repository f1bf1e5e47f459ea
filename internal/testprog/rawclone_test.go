package testprog

// rawclone_test.go: a task that clone() left on its maker's thread pointer is nobody that is recorded: what it does is neither
// written into its maker's records nor next to them, and is counted.

import (
	"testing"

	"github.com/hbtrace/hbtrace/trace"
)

func TestTaskOnItsMakersThreadPointer(t *testing.T) {
	src := record(t, "-F", "10000", "--", Build(t, "rawclone"))
	maker := src.Processes()[0]
	if maker.Doubt.WalksRefused == 0 {
		t.Error("nothing was refused to the tasks that have no storage of their own")
	}
	slept := 0
	if err := trace.Events(src, func(e *trace.Event) error {
		if src.Threads()[e.Thread-1].Proc != maker.ID {
			return nil
		}
		if e.Kind == trace.KindCall && src.Meta().Hooks[e.Hook].Name == "nanosleep" {
			slept++
		}
		for id := e.Stack; id != 0; id = src.Node(id).Parent {
			if f := src.Symbols(id); len(f) > 0 && f[0].Func == "body" {
				t.Errorf("an event of kind %d at %d has a stack that is not its thread's", e.Kind, e.Time)
				break
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	const sleeps = 12 * 5 // of 300 us, itself
	if lost := int(src.Stats().Lost); slept > sleeps || slept+lost < sleeps {
		t.Errorf("%d sleeps of the maker are recorded, %d records were lost; it slept %d times", slept, lost, sleeps)
	}
}
