package kernel

import (
	"testing"

	"github.com/hbtrace/hbtrace/agent/freshness"
)

// TestFresh: the committed object was made of the committed sources. No compiler is needed.
func TestFresh(t *testing.T) {
	sources, err := freshness.Sources(".", []string{"sched.bpf.c", "types.bpf.h"})
	if err != nil {
		t.Fatal(err)
	}
	object, err := freshness.File("zsched_bpfel.o")
	if err != nil {
		t.Fatal(err)
	}
	if sources != sourcesHash || object != objectHash {
		t.Errorf("the object is not that of the sources (made by %s): go generate ./kernel", madeBy)
	}
}
