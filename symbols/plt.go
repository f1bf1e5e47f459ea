package symbols

// This file owns the names of x86-64 PLT stubs.
//
// A stub jumps through a GOT slot (ff 25 disp32), or, in the .plt of a program with IBT, pushes the index of its
// relocation (68 imm32). The slot's relocation names the symbol. The linker's forms differ in padding and
// prefixes only, so that looking for these opcodes inside each stub finds all of them. Where the relocation has no symbol but a
// resolver that chooses an implementation as the program starts (IFUNC within one object, as libc calls its own memcpy), the symbol
// at the resolver's address does.

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
)

const (
	maxRelocs     = 4 << 20 // of one section
	maxRelaTables = 16
	maxStubs      = 1 << 17
	maxStubName   = 1 << 10 // bytes
)

// addPLT adds the PLT stubs of im as name@plt. What does not look like a stub is left out.
func (t *symtab) addPLT(im *image) {
	if im.elf.Machine != elf.EM_X86_64 || im.elf.Class != elf.ELFCLASS64 {
		return
	}
	slots := map[uint64]gotSymbol{}     // by address of the GOT slot
	resolvers := map[uint64]gotSymbol{} // by address of an IFUNC's resolver; nil: not found yet
	var jumps []gotSymbol               // by index in .rela.plt
	tables := 0
	for _, s := range im.elf.Sections {
		if s.Type != elf.SHT_RELA || s.Flags&elf.SHF_ALLOC == 0 {
			continue
		}
		if tables++; tables > maxRelaTables {
			break
		}
		isPLT := s.Name == ".rela.plt"
		relocSymbols(im, s, func(slot uint64, g gotSymbol) {
			if g.strs != nil || g.resolver != 0 {
				slots[slot] = g
			}
			if g.resolver != 0 {
				resolvers[g.resolver] = gotSymbol{}
			}
			if isPLT {
				jumps = append(jumps, g)
			}
		})
	}
	if len(slots) == 0 {
		return
	}
	t.nameResolvers(resolvers)
	var ranges []span
	var names []string
	add := func(lo, hi uint64, g gotSymbol) {
		if g.resolver != 0 {
			g = resolvers[g.resolver]
		}
		if name := cstring(g.strs, uint64(g.name), maxStubName); name != "" && len(names) < maxStubs {
			ranges = append(ranges, span{lo, hi, int32(len(names))})
			names = append(names, name+"@plt")
		}
	}
	for _, s := range im.elf.Sections {
		if s.Name != ".plt" && s.Name != ".plt.sec" && s.Name != ".plt.got" {
			continue
		}
		step := 16
		if s.Entsize == 8 || s.Entsize == 0 && s.Addralign == 8 { // a static program's: they lead to IFUNCs alone
			step = 8
		}
		code, err := im.contents(s)
		if err != nil {
			continue
		}
		for off := 0; off+step <= len(code); off += step {
			stub, at := code[off:off+step], s.Addr+uint64(off)
			if i := bytes.Index(stub, []byte{0xff, 0x25}); i >= 0 && i+6 <= step {
				disp := int64(int32(binary.LittleEndian.Uint32(stub[i+2:])))
				if g, ok := slots[at+uint64(i)+6+uint64(disp)]; ok {
					add(at, at+uint64(step), g)
					continue
				}
			}
			if i := bytes.IndexByte(stub, 0x68); s.Name == ".plt" && i >= 0 && i <= 5 && i+5 <= step {
				if n := binary.LittleEndian.Uint32(stub[i+1:]); uint64(n) < uint64(len(jumps)) {
					add(at, at+uint64(step), jumps[n])
				}
			}
		}
	}
	t.addStubs(ranges, names)
}

// gotSymbol is the symbol of a GOT slot: its name's offset into a string table. strs is nil where there is none.
type gotSymbol struct {
	strs     []byte
	name     uint32
	resolver uint64 // instead of a symbol: the address of what chooses the function; 0: none
}

// nameResolvers finds the IFUNC at each address, of several the one that seal would choose.
func (t *symtab) nameResolvers(at map[uint64]gotSymbol) {
	if len(at) == 0 {
		return
	}
	best := map[uint64]*symbol{}
	for i := range t.syms {
		s := &t.syms[i]
		if _, wanted := at[s.lo]; !wanted || !s.ifunc {
			continue
		}
		if b := best[s.lo]; b == nil || t.compareAliases(b, s) < 0 {
			best[s.lo] = s
		}
	}
	for a, s := range best {
		at[a] = gotSymbol{strs: t.tabs[s.tab], name: s.name}
	}
}

// relocSymbols calls f for every relocation of s, with a symbol for those that fill GOT slots.
func relocSymbols(im *image, s *elf.Section, f func(slot uint64, g gotSymbol)) {
	if s.Link == 0 || int(s.Link) >= len(im.elf.Sections) {
		return
	}
	dyn := im.elf.Sections[s.Link]
	if dyn.Type != elf.SHT_DYNSYM && dyn.Type != elf.SHT_SYMTAB {
		return
	}
	strs, err := linked(im, dyn)
	if err != nil {
		return
	}
	rela, err := im.contents(s)
	if err != nil {
		return
	}
	syms, err := im.contents(dyn)
	if err != nil {
		return
	}
	le := binary.LittleEndian
	for n := 0; len(rela) >= 24 && n < maxRelocs; n, rela = n+1, rela[24:] {
		slot, info := le.Uint64(rela), le.Uint64(rela[8:])
		var g gotSymbol
		typ, sym := elf.R_X86_64(uint32(info)), info>>32
		if (typ == elf.R_X86_64_JMP_SLOT || typ == elf.R_X86_64_GLOB_DAT) && (sym+1)*24 <= uint64(len(syms)) {
			g = gotSymbol{strs: strs, name: le.Uint32(syms[sym*24:])}
		} else if typ == elf.R_X86_64_IRELATIVE {
			g = gotSymbol{resolver: le.Uint64(rela[16:])}
		}
		f(slot, g)
	}
}
