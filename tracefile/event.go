// What of an event is stored, and in which order; batch.go says how events are put together.
//
// Numbers are varints. Start and Release are differences to Time, Stack and Object to what the caller says was before.

package tracefile

import (
	"encoding/binary"

	"github.com/hbtrace/hbtrace/trace"
)

const (
	hasStart    = 1 << iota // absent: Start == Time
	hasStack                // absent: 0, as for all the others but Count
	hasSame                 //
	hasCount                // absent: 1
	hasCPU                  //
	hasObject               //
	hasObject2              //
	hasSize                 //
	hasWeight               //
	hasDebt                 //
	hasResult               //
	hasOwner                //
	hasReleaser             //
	hasRelease              //
	hasEnd
)

// shape is what events of a kind mostly share.
type shape struct {
	kind  trace.Kind
	flags trace.Flags
	hook  trace.HookID
	mask  uint16
}

// threadBefore is what an event is coded against.
type threadBefore struct {
	stack  trace.StackID
	object uint64
}

func shapeOf(e *trace.Event) shape {
	s := shape{kind: e.Kind, flags: e.Flags, hook: e.Hook}
	set := func(present bool, bit uint16) {
		if present {
			s.mask |= bit
		}
	}
	set(e.Start != e.Time, hasStart)
	set(e.Stack != 0, hasStack)
	set(e.Same != 0, hasSame)
	set(e.Count != 1, hasCount)
	set(e.CPU != 0, hasCPU)
	set(e.Object != 0, hasObject)
	set(e.Object2 != 0, hasObject2)
	set(e.Size != 0, hasSize)
	set(e.Weight != 0, hasWeight)
	set(e.Debt != 0, hasDebt)
	set(e.Result != 0, hasResult)
	set(e.Owner != 0, hasOwner)
	set(e.Releaser != 0, hasReleaser)
	set(e.Release != 0, hasRelease)
	return s
}

// appendEventFields writes what follows the time, and updates b.
func appendEventFields(dst []byte, e *trace.Event, mask uint16, b *threadBefore) []byte {
	if mask&hasStart != 0 {
		dst = binary.AppendVarint(dst, int64(e.Time-e.Start))
	}
	if mask&hasStack != 0 {
		dst = binary.AppendVarint(dst, int64(e.Stack)-int64(b.stack))
		b.stack = e.Stack
	}
	if mask&hasSame != 0 {
		dst = binary.AppendUvarint(dst, uint64(e.Same))
	}
	if mask&hasCount != 0 {
		dst = binary.AppendUvarint(dst, uint64(e.Count))
	}
	if mask&hasCPU != 0 {
		dst = binary.AppendVarint(dst, e.CPU)
	}
	if mask&hasObject != 0 {
		dst = binary.AppendVarint(dst, int64(e.Object-b.object))
		b.object = e.Object
	}
	if mask&hasObject2 != 0 {
		dst = binary.AppendVarint(dst, int64(e.Object2-e.Object)) // a mutex is often near its condition
	}
	if mask&hasSize != 0 {
		dst = binary.AppendUvarint(dst, e.Size)
	}
	if mask&hasWeight != 0 {
		dst = binary.AppendUvarint(dst, e.Weight)
	}
	if mask&hasDebt != 0 {
		dst = binary.AppendVarint(dst, e.Debt)
	}
	if mask&hasResult != 0 {
		dst = binary.AppendVarint(dst, e.Result)
	}
	if mask&hasOwner != 0 {
		dst = binary.AppendUvarint(dst, uint64(e.Owner))
	}
	if mask&hasReleaser != 0 {
		dst = binary.AppendUvarint(dst, uint64(e.Releaser))
	}
	if mask&hasRelease != 0 {
		dst = binary.AppendVarint(dst, int64(e.Time-e.Release))
	}
	return dst
}
