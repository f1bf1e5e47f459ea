// Package tracer has the tracers that package replay compares: block buffer, ring per core, ring per thread,
// one global block queue, and the kernel's own rings, behind one interface.
package tracer

import (
	"fmt"
	"slices"
	"strings"
)

// Tracer keeps the newest records of many producers in a buffer of fixed size.
type Tracer interface {
	// Producer is a handle for records that a thread writes on a core. Threads are numbered over all cores. A
	// handle is for one goroutine at a time. All handles are made before the first Write.
	Producer(core, thread int) Producer
	// Walk calls f with every record that is kept, each producer's oldest first. p is valid until f returns.
	// Unless the tracer is Live, nobody writes meanwhile.
	Walk(f func(p []byte)) error
	// Footprint is how many bytes of the buffer a record of n bytes takes, its framing included.
	Footprint(n int) int
	// Counters are the tracer's own, for the curious.
	Counters() map[string]int
	Close() error
}

// Producer writes records.
type Producer interface {
	// Write stores a record, and says whether it did: false when the tracer drops the newest.
	Write(p []byte) bool
}

// Reserver is a Producer whose room can be taken long before it is filled: a writer that is preempted, or dies,
// in the middle.
type Reserver interface {
	Reserve(n int) (room []byte, commit func(), ok bool)
}

// Live is a Tracer whose Walk may run while others write.
type Live interface{ WalkLive(f func(p []byte)) error }

// Resizer is a Tracer whose buffer changes size while others write.
type Resizer interface{ Resize(bytes int) error }

// Config is what all tracers are told.
type Config struct {
	Bytes   int // of the whole buffer
	Cores   int
	Threads int // over all cores

	// Of the block buffer only.
	BlockBytes int    // 0: its default
	Active     int    // active blocks for each core; 0: its default
	Mapping    string // "": its default; else one of Mappings
}

// Info is a tracer that can be made.
type Info struct {
	Name, Is string
	New      func(Config) (Tracer, error)
}

// All are the tracers by name, the block buffer first.
var All = []Info{
	{"blockbuf", "this project's block buffer, after BTrace", newBlockbuf},
	{"percore", "a ring for each core, in sub-buffers, after LTTng and ftrace", newPerCore},
	{"perthread", "a ring for each thread, after VampirTrace", newPerThread},
	{"bbq", "one global queue of blocks, after BBQ", newBBQ},
	{"ftrace", "the kernel's ring buffer for each core, through trace_marker_raw", newFtrace},
}

// New makes the tracer of that name.
func New(name string, c Config) (Tracer, error) {
	if name == Null.Name {
		return Null.New(c)
	}
	i := slices.IndexFunc(All, func(i Info) bool { return i.Name == name })
	if i < 0 {
		var names []string
		for _, i := range All {
			names = append(names, i.Name)
		}
		return nil, fmt.Errorf("there is no tracer %q: take one of %s", name, strings.Join(names, ", "))
	}
	return All[i].New(c)
}

func align(n, to int) int { return (n + to - 1) &^ (to - 1) }
