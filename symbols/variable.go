package symbols

// This file owns variables: names for addresses of data, from symbol tables alone.

import "github.com/hbtrace/hbtrace/trace"

// Variables names addrs, ELF virtual addresses of the module's data: the variable that each lies in, without those that
// lie in none.
func (r *Resolver) Variables(mod trace.ModuleID, addrs []uint64) map[uint64]trace.Variable {
	if len(addrs) == 0 {
		return nil
	}
	m := r.locked(mod)
	if m == nil {
		return nil
	}
	defer m.mu.Unlock()
	var out map[uint64]trace.Variable
	err := guarded(func() {
		r.prepare(m)
		if m.vars == nil {
			m.vars = &symtab{data: true}
			for _, im := range m.images {
				if err := m.vars.addImage(im); err != nil {
					r.note("module %s: variables of %s: %v", m.m.Path, im.path, err)
				}
			}
			m.vars.seal()
		}
		for _, a := range addrs {
			if name, off := m.vars.find(a); name != "" {
				if out == nil {
					out = map[uint64]trace.Variable{}
				}
				out[a] = trace.Variable{Name: m.names.readable(name), Off: off}
			}
		}
	})
	if err != nil {
		r.note("module %s: variables: %v", m.m.Path, err)
		m.vars = &symtab{data: true} // the rest is not named
	}
	return out
}
