// The stack table of a session: what is taken out of it, so that a recording of weeks stays under its limit.
package collector

import (
	"maps"
	"slices"
	"time"

	"github.com/hbtrace/hbtrace/stacktable"
	"github.com/hbtrace/hbtrace/trace"
)

const (
	// The stack table is cleared of what nothing needs, between two passes, when one part in so many is free, and amid
	// one when none is.
	collectAtRoom = 4
	// After that did not help, not so soon again.
	collectPause = time.Second
	// An address is kept for each frame that was taken back, for its name at the end. A program has no more, unless it
	// makes code for ever.
	maxAddresses = 1 << 22
)

// stacks is the session's stack table as the assembler uses it: when it is full, room is made.
type stacks struct {
	*stacktable.Table
	s *session
}

// Push implements [assemble.Stacks]. What is pushed upon stays: the assembler may not have taken it down yet.
func (t stacks) Push(parent trace.StackID, addr trace.Addr, how trace.How) trace.StackID {
	if t.Room() == 0 {
		t.s.collectStacks(0, parent)
	}
	return t.Table.Push(parent, addr, how)
}

// collectStacks takes out of the table what nothing needs, if there is no more room than that. What the file has needs no
// node any more: a stack that comes up again is stored again. What it has not, because a block could not be read yet,
// keeps its nodes, as do the stacks that threads are in, and building.
func (s *session) collectStacks(room int, building trace.StackID) {
	now := time.Now()
	if s.stacks.Room() > room || now.Sub(s.lastCollect) < s.collectPause {
		return
	}
	s.lastCollect, s.collectPause = now, 0
	if s.keep != nil {
		s.keep.collect(building)
		if s.stacks.Room() <= room {
			s.collectPause = collectPause
		}
		return
	}
	s.store()
	s.stats.NodeBytes = max(s.stats.NodeBytes, uint64(s.stacks.Stats().Bytes))
	taken := s.stacks.Collect(func(mark func(trace.StackID)) {
		s.asm.Stacks(mark)
		mark(building)
		if s.consumed == s.produced {
			return
		}
		for _, block := range s.buf.Snapshot() {
			block.Records(func(p []byte) bool {
				s.decoder.Decode(p, func(e *trace.Event) error { mark(e.Stack); return nil })
				return true
			})
		}
	}, s.addresses.note)
	s.stats.NodesCollected += uint64(taken)
	s.storedNodes = 0
	if s.stacks.Room() <= room {
		s.collectPause = collectPause // most of it lives: looking again at once would not help
	}
}

// historyNs is from the first event that is in the history to the last.
func (s *session) historyNs() uint64 {
	var first, last trace.Ns
	for _, block := range s.buf.Snapshot() {
		block.Records(func(p []byte) bool {
			s.decoder.Decode(p, func(e *trace.Event) error {
				if first == 0 || e.Start < first {
					first = e.Start
				}
				last = max(last, e.Time)
				return nil
			})
			return true
		})
	}
	return uint64(max(0, last-first))
}

// forgetStacks empties the table, when the recording has ended.
func (s *session) forgetStacks() {
	s.stats.NodeBytes = max(s.stats.NodeBytes, uint64(s.stacks.Stats().Bytes))
	s.stacks.Collect(func(func(trace.StackID)) {}, s.addresses.note)
}

// addresses are places in modules that need names. The zero value is ready.
type addresses struct {
	sets    map[trace.ModuleID]map[uint64]struct{}
	count   int
	dropped uint64
}

// note takes in the address of a node that is taken out of the stack table.
func (a *addresses) note(_ trace.StackID, n trace.Node) {
	if n.How == trace.HowMark || n.Addr.Module == 0 {
		return
	}
	set := a.sets[n.Addr.Module]
	if set == nil {
		if a.sets == nil {
			a.sets = map[trace.ModuleID]map[uint64]struct{}{}
		}
		set = map[uint64]struct{}{}
		a.sets[n.Addr.Module] = set
	}
	at := n.Lookup()
	if _, ok := set[at]; ok {
		return
	}
	if a.count == maxAddresses {
		a.dropped++
		return
	}
	set[at] = struct{}{}
	a.count++
}

// byModule lists them, ascending.
func (a *addresses) byModule() map[trace.ModuleID][]uint64 {
	lists := make(map[trace.ModuleID][]uint64, len(a.sets))
	for m, set := range a.sets {
		lists[m] = slices.Sorted(maps.Keys(set))
	}
	return lists
}
