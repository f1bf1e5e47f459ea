package testprog

// rawclone_test.go: a task that clone() left on its maker's thread pointer is nobody that is recorded: what it does is neither
// written into its maker's records nor beside them, and is counted.

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
	events := 0
	if err := src.Events(func(e *trace.Event) error {
		if src.Threads()[e.Thread-1].Proc != maker.ID {
			return nil
		}
		events++
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
	if events < 100 { // it sleeps a hundred times itself
		t.Errorf("%d events of the maker", events)
	}
}
