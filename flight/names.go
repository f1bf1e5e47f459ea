// Names for a dump's addresses.

package flight

import (
	"github.com/hbtrace/hbtrace/kernel"
	"github.com/hbtrace/hbtrace/symbols"
	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/tracefile"
	"github.com/hbtrace/hbtrace/tracefile/naming"
)

// store looks up the names of what was picked, and stores them.
func (p *pick) names(w *tracefile.Writer, stop <-chan struct{}) []string {
	r := symbols.NewResolver(symbols.Options{Stop: stop, Cache: symbols.CacheDir()})
	defer r.Close()
	var notes []string
	res := naming.Store(w, r, naming.Input{
		Modules: p.moduleList, Addresses: p.addresses(), Waited: p.waitedIn, Stop: stop,
		Kernel: func(m *trace.Module, addrs []uint64) {
			names, err := kernel.Symbols(addrs)
			if err != nil {
				notes = append(notes, err.Error())
				return
			}
			frames := make([][]trace.SymFrame, len(addrs))
			for i, n := range names {
				if n != "" {
					frames[i] = []trace.SymFrame{{Func: n, Linkage: n}}
				}
			}
			w.PutSymbols(m.ID, addrs, frames) // the writer keeps its error
		},
	}, func(error) {}) // likewise
	if res.Unfinished {
		notes = append(notes, "interrupted while names were looked up: hbtrace symbolize adds those that are missing")
	}
	return append(notes, res.Notes...)
}

// waitedIn lists what threads waited for in a module's data, as ELF virtual addresses.
func (p *pick) waitedIn(m *trace.Module) (addrs []uint64) {
	if m.Kind != trace.ModuleELF {
		return nil
	}
	for a := range p.waited {
		if a >= m.Lo && a < m.Hi {
			addrs = append(addrs, a-m.Bias)
		}
	}
	return addrs
}
