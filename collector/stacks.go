// The stack table of a session: what is taken out of it, so that a recording of weeks stays under its limit.
package collector

import (
	"maps"
	"slices"
	"time"

	"github.com/hbtrace/hbtrace/trace"
)

const (
	// The stack table is cleared of what nothing needs when it is so full, at most this often.
	collectAtRoom = 4 // one part in so many is free
	collectEvery  = time.Second
	// An address is kept for each frame that was taken back, for its name at the end. A program has no more, unless it
	// makes code for ever.
	maxAddresses = 1 << 22
)

// collectStacks takes stacks out of the table that no block of the history and no thread refers to. Everything that
// did refer to them is in the file, with its stacks; a stack that comes up again is stored again.
func (s *session) collectStacks(now time.Time) {
	room := s.stacks.Room()
	if room > s.stacks.Cap()/collectAtRoom || room > 0 && now.Sub(s.lastCollect) < collectEvery {
		return
	}
	s.lastCollect = now
	s.store()
	s.stats.NodeBytes = max(s.stats.NodeBytes, uint64(s.stacks.Stats().Bytes))
	taken := s.stacks.Collect(func(mark func(trace.StackID)) {
		s.asm.Stacks(mark)
		for _, block := range s.buf.Snapshot() {
			block.Records(func(p []byte) bool {
				s.decoder.Decode(p, func(e *trace.Event) error { mark(e.Stack); return nil })
				return true
			})
		}
	}, s.addresses.note)
	s.stats.NodesCollected += uint64(taken)
	s.storedNodes = 0
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
