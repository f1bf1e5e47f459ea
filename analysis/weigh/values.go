// What a weight can be: names, units and which of them a recording has.

package weigh

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hbtrace/hbtrace/trace"
)

// Value names one column of a [Table].
type Value uint8

// The columns, in the order in which a profile shows them.
const (
	Samples      Value = iota // periodic CPU samples
	CPU                       // ns on a CPU: KindCPU, and what KindThreadExit says nothing else accounts for
	Wall                      // ns: CPU + Blocked
	Blocked                   // ns in recorded waits and calls
	Contentions               // recorded waits for a lock
	Delay                     // ns of them
	AllocObjects              // allocations, estimated from the sampled ones without bias
	AllocSpace                // bytes requested by them
	InuseObjects              // those not freed by the end
	InuseSpace
	NumValues
)

var valueNames = [NumValues][2]string{
	{"samples", "count"}, {"cpu", "nanoseconds"}, {"wall", "nanoseconds"}, {"blocked", "nanoseconds"},
	{"contentions", "count"}, {"delay", "nanoseconds"},
	{"alloc_objects", "count"}, {"alloc_space", "bytes"}, {"inuse_objects", "count"}, {"inuse_space", "bytes"},
}

// String is the column's name as in pprof and on the command line.
func (v Value) String() string {
	if v >= NumValues {
		return fmt.Sprintf("value(%d)", uint8(v))
	}
	return valueNames[v][0]
}

// Unit is count, nanoseconds or bytes.
func (v Value) Unit() string {
	if v >= NumValues {
		return ""
	}
	return valueNames[v][1]
}

// ParseValue is the inverse of String.
func ParseValue(name string) (Value, error) {
	var all []string
	for v := range NumValues {
		if valueNames[v][0] == name {
			return v, nil
		}
		all = append(all, valueNames[v][0])
	}
	return 0, fmt.Errorf("unknown value %q: use one of %s", name, strings.Join(all, ", "))
}

// recorded lists the columns that the recording's features produce, and those that are there all the same.
func recorded(m *trace.Meta, total *[NumValues]int64) []Value {
	has := func(f string) bool { return slices.Contains(m.Features, f) }
	cpu, alloc, lock, call := has("cpu"), has("alloc"), has("lock"), has("syscall")
	is := [NumValues]bool{
		Samples: cpu, CPU: cpu, Wall: cpu || lock || call, Blocked: lock || call,
		Contentions: lock, Delay: lock,
		AllocObjects: alloc, AllocSpace: alloc, InuseObjects: alloc, InuseSpace: alloc,
	}
	if total[CPU] != 0 || total[Samples] != 0 {
		is[CPU], is[Samples] = true, true
	}
	if total[Contentions] != 0 {
		is[Contentions], is[Delay] = true, true
	}
	if total[AllocSpace] != 0 {
		is[AllocObjects], is[AllocSpace], is[InuseObjects], is[InuseSpace] = true, true, true, true
	}
	var vs []Value
	for v := range NumValues {
		if is[v] || total[v] != 0 {
			vs = append(vs, v)
		}
	}
	return vs
}
