package main

// This file owns what repeated rounds say of sampled allocations: whether the stated standard deviations are those that the rounds have, and
// whether what is said to be in use is.

import (
	"encoding/binary"
	"fmt"
	"math"
	"os"

	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/tracefile"
)

// spread is of one figure over rounds: its errors in percent of what is true, and the standard deviation that each round stated.
type spread struct {
	errors []float64
	stated float64 // sum of squares
}

// add takes one round's figure, what is true, and the variance that the samples state.
func (s *spread) add(got, truth, variance float64) {
	if truth > 0 {
		s.errors = append(s.errors, 100*(got/truth-1))
		s.stated += 1e4 * variance / (truth * truth)
	}
}

// String gives the mean error with its standard error over the rounds, and the standard deviation of a round next to the stated one.
func (s *spread) String() string {
	mean, deviation := meanAndDeviation(s.errors)
	n := float64(len(s.errors))
	return fmt.Sprintf("%+.2f ± %.2f; %.1f / %.1f", mean, deviation/math.Sqrt(n), deviation, math.Sqrt(s.stated/n))
}

// inUse compares the sampled objects that a recording says are in use at the end with the addresses of all that are.
func inUse(recording, kept string) (sampled, wrong int, err error) {
	b, err := os.ReadFile(kept)
	if err != nil {
		return 0, 0, err
	}
	is := map[uint64]bool{}
	for ; len(b) >= 8; b = b[8:] {
		is[binary.NativeEndian.Uint64(b)] = true
	}
	r, err := tracefile.Open(recording)
	if err != nil {
		return 0, 0, err
	}
	defer r.Close()
	live := map[uint64]bool{}
	inProgram := map[trace.StackID]bool{} // under a function of the program's that is counted
	err = trace.Events(r, func(e *trace.Event) error {
		switch {
		case e.Kind == trace.KindFree:
			delete(live, e.Object)
		case e.Kind == trace.KindAlloc && e.Size > 0:
			counted, known := inProgram[e.Stack]
			if !known {
				for id := e.Stack; id != 0; id = r.Node(id).Parent {
					for _, f := range r.Symbols(id) {
						counted = counted || f.Func == "small_objects" || f.Func == "large_objects" || f.Func == "mixed_objects"
					}
				}
				inProgram[e.Stack] = counted
			}
			if counted {
				live[e.Object] = true
			}
		}
		return nil
	})
	for a := range live {
		if !is[a] {
			wrong++
		}
	}
	return len(live), wrong, err
}
