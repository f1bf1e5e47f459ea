package attach

import (
	"debug/elf"
	"encoding/binary"

	"github.com/hbtrace/hbtrace/hooks"
)

// slot is a place where a module keeps the address of a function that is hooked.
type slot struct {
	at  uint64
	old uint64 // what it held
	id  int    // of the hook
}

// reals are the program's functions by hook number.
type reals [thunkCount]struct {
	at      uint64
	several bool // other modules define it as well: only slots that are bound are taken
}

// resolveHooks finds the function behind each hook.
func resolveHooks(d definitions) *reals {
	r := &reals{}
	for name, h := range hooked() {
		r[h.ID].at, r[h.ID].several = d.find(name, h.Version)
	}
	return r
}

// found is called for each slot of a hooked function, with what it holds.
func (t *Target) eachSlot(found func(m *module, at, holds uint64, h hooks.Info, kind elf.R_X86_64, version string)) {
	names := hooked()
	for i := range t.modules {
		m := &t.modules[i]
		if isLoader(m.name) || isMusl(m.name) || m.name == "linux-vdso.so.1" {
			continue
		}
		for _, table := range []struct{ at, bytes uint64 }{{m.jmprel, m.pltrelsz}, {m.rela, m.relasz}} {
			if table.at == 0 || table.bytes == 0 {
				continue
			}
			b := make([]byte, table.bytes)
			if t.read(table.at, b) != nil {
				continue // unloaded meanwhile
			}
			for ; len(b) >= relaBytes; b = b[relaBytes:] {
				info := binary.LittleEndian.Uint64(b[8:])
				kind := elf.R_X86_64(info & 0xffffffff)
				switch kind {
				case elf.R_X86_64_JMP_SLOT, elf.R_X86_64_GLOB_DAT:
				case elf.R_X86_64_64:
					if binary.LittleEndian.Uint64(b[16:]) != 0 {
						continue
					}
				default:
					continue
				}
				s, ok := m.symbol(info >> 32)
				if !ok {
					continue
				}
				h, ok := names[s.name]
				at := m.bias + binary.LittleEndian.Uint64(b)
				if !ok || at%8 != 0 {
					continue
				}
				holds, ok := t.read64(at)
				if !ok {
					continue
				}
				version, _ := t.version(m, info>>32, false)
				found(m, at, holds, h, kind, version)
			}
		}
	}
}

// plan lists the slots that are to lead to thunks: those that hold the real function, and those that are not bound yet.
func (t *Target) plan(r *reals) (out []slot) {
	t.eachSlot(func(m *module, at, holds uint64, h hooks.Info, kind elf.R_X86_64, version string) {
		real := r[h.ID]
		if real.at == 0 || h.Version != "" && version != "" && version != h.Version {
			return
		}
		unbound := kind == elf.R_X86_64_JMP_SLOT && !real.several && t.inText(holds, m)
		if holds == real.at || unbound {
			out = append(out, slot{at, holds, int(h.ID)})
		}
	})
	return out
}

// slotsLeadingTo calls f for each slot whose value is an entry, with the hook that it is for.
func (t *Target) slotsLeadingTo(entry func(at uint64) (id int, ok bool), f func(at uint64, id int)) {
	t.eachSlot(func(_ *module, at, holds uint64, _ hooks.Info, _ elf.R_X86_64, _ string) {
		if id, ok := entry(holds); ok {
			f(at, id)
		}
	})
}

// inText: the address lies in the module's own code, as that of an unbound slot does, behind its PLT entry.
func (t *Target) inText(a uint64, m *module) bool {
	x, d := t.mappingAt(a), t.mappingAt(m.dynamic)
	return x != nil && d != nil && x.perms[2] == 'x' && x.inode != 0 && x.inode == d.inode
}

// patch leads the slots to thunks, each by one store of eight bytes, where they still hold what they held.
func (t *Target) patch(plan []slot, r *reals) (err error) {
	for i, s := range plan {
		if now, ok := t.read64(s.at); ok && (now == s.old || now == r[s.id].at) {
			s.old = now
			if err := t.write64(s.at, t.thunk(s.id)); err == nil {
				t.slots = append(t.slots, s)
			}
		}
		if i == len(plan)/2 {
			reached(StepHalf)
		}
	}
	return nil
}

// patchAgain takes slots that the loader has bound while they were being led to thunks.
func (t *Target) patchAgain(r *reals) (n int) {
	for i := range t.slots {
		s := &t.slots[i]
		if now, ok := t.read64(s.at); ok && now == r[s.id].at {
			s.old = now
			if t.write64(s.at, t.thunk(s.id)) == nil {
				n++
			}
		}
	}
	return n
}

// PatchNew redirects the calls of modules that were loaded since.
func (t *Target) PatchNew() error {
	if err := t.readMaps(); err != nil {
		return err
	}
	if err := t.readModules(); err != nil {
		return err
	}
	return t.patch(t.plan(t.reals), t.reals)
}

// restore gives the slots back what they held, wherever they still lead to one of our thunks: this session's, and those of one that
// died, which go to the real functions.
func (t *Target) restore(r *reals) {
	old := map[uint64]uint64{}
	for _, s := range t.slots {
		old[s.at] = s.old
	}
	n := 0
	give := func(at uint64) {
		now, ok := t.read64(at)
		id, thunk := t.isThunk(now)
		if !ok || !thunk {
			return
		}
		v, mine := old[at]
		if !mine {
			v = r[id].at
		}
		if v != 0 {
			t.write64(at, v)
		}
		if n++; n == max(len(t.slots)/2, 1) {
			reached(StepHalfBack)
		}
	}
	for _, s := range t.slots {
		give(s.at)
	}
	t.eachSlot(func(_ *module, at, _ uint64, _ hooks.Info, _ elf.R_X86_64, _ string) { give(at) })
	t.slots = nil
}
