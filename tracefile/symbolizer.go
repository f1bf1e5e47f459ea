// Symbols of a recording: those that the file holds, and those of a symbolizer for what it does not.

package tracefile

import (
	"maps"
	"slices"

	"github.com/hbtrace/hbtrace/trace"
)

// Symbolizer finds the functions at addresses of one module, ELF virtual addresses as [trace.Node.Lookup]
// returns them: an element per address, innermost inlined function first, empty where nothing is known.
type Symbolizer func(trace.ModuleID, []uint64) [][]trace.SymFrame

// SetSymbolizer makes Symbols ask f for what the file holds no answer to, because its recorder died before it
// looked. f is called once per module, with all the addresses that need it, when the first of them is asked
// for.
func (r *Reader) SetSymbolizer(f Symbolizer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.symbolizer = f
	clear(r.asked)
}

// AddressesWithoutSymbols returns the addresses of stacks that nobody has looked up yet, by module, each list
// ascending. Addresses in no module are left out, as are those that were looked up in vain.
func (r *Reader) AddressesWithoutSymbols() map[trace.ModuleID][]uint64 {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.missing(func(trace.ModuleID) bool { return true })
}

// missing lists what has no symbols in the modules wanted. The caller holds mu.
func (r *Reader) missing(want func(trace.ModuleID) bool) map[trace.ModuleID][]uint64 {
	sets := map[trace.ModuleID]map[uint64]struct{}{}
	for i := range r.nodes {
		a, ok := symbolKey(r.nodes.at(trace.StackID(i + 1)))
		if !ok || a.Module == 0 || !want(a.Module) {
			continue
		}
		if _, ok := r.symbols[a]; ok {
			continue
		}
		if sets[a.Module] == nil {
			sets[a.Module] = map[uint64]struct{}{}
		}
		sets[a.Module][a.Off] = struct{}{}
	}
	lists := map[trace.ModuleID][]uint64{}
	for m, set := range sets {
		lists[m] = slices.Sorted(maps.Keys(set))
	}
	return lists
}

// symbolKey is what a node's symbols are found by; ok is false where there cannot be any.
func symbolKey(n trace.Node) (a trace.Addr, ok bool) {
	return trace.Addr{Module: n.Addr.Module, Off: n.Lookup()}, n.How != trace.HowMark && n != (trace.Node{})
}

// Symbols implements [trace.Source].
func (r *Reader) Symbols(id trace.StackID) []trace.SymFrame {
	a, ok := symbolKey(r.nodes.at(id))
	if !ok {
		return nil
	}
	r.mu.RLock()
	frames, found := r.symbols[a]
	ask := !found && a.Module != 0 && r.symbolizer != nil && !r.asked[a.Module]
	r.mu.RUnlock()
	if !ask {
		return frames
	}

	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.asked[a.Module] && r.symbolizer != nil {
		r.asked[a.Module] = true
		addrs := r.missing(func(m trace.ModuleID) bool { return m == a.Module })[a.Module]
		for i, frames := range r.symbolizer(a.Module, addrs) {
			if i < len(addrs) {
				r.symbols[trace.Addr{Module: a.Module, Off: addrs[i]}] = frames
			}
		}
	}
	return r.symbols[a]
}
