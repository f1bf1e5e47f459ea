package symbols

// This file owns ELF symbol tables: which of the symbols around an address names it.

import (
	"bytes"
	"cmp"
	"debug/elf"
	"fmt"
	"math"
	"slices"
)

const (
	maxSymbols    = 16 << 20 // per module
	maxLinkage    = 64 << 10 // bytes of one name
	sttGNUIfunc   = elf.SymType(10)
	stbGNUUnique  = elf.SymBind(10)
	maxStringTabs = 16
)

// symbol is one function symbol or PLT stub.
type symbol struct {
	lo, hi     uint64 // hi == lo: of unknown size until seal
	name       uint32 // offset into tabs[tab]
	nameLen    uint32 // as far as ranking looks
	tab        uint8
	bind       uint8 // 0 local, 1 weak, 2 global
	underscore uint8 // leading underscores
	typed      bool  // STT_FUNC or IFUNC, not a bare label
	sized      bool
	ifunc      bool // lo is what chooses the function
}

// symtab names addresses of one module. Symbols of several tables are added, then seal builds the index.
type symtab struct {
	tabs [][]byte // string tables; slices of images
	syms []symbol
	at   flatMap // of indices into syms
	data bool    // of variables, not of functions

	stubs int // of syms, PLT stubs
}

// addImage adds the function symbols of all symbol tables of im.
func (t *symtab) addImage(im *image) error {
	for _, s := range im.elf.Sections {
		if s.Type != elf.SHT_SYMTAB && s.Type != elf.SHT_DYNSYM {
			continue
		}
		if err := t.addSection(im, s); err != nil {
			return fmt.Errorf("section %s: %w", s.Name, err)
		}
	}
	return nil
}

// symEntry is one entry of a symbol table, both ELF classes alike.
type symEntry struct {
	name        uint32
	info        uint8
	shndx       uint16
	value, size uint64
}

// symEntries calls f for the entries of a symbol table section with their index.
func symEntries(im *image, s *elf.Section, f func(i int, e symEntry) bool) error {
	b, err := im.contents(s)
	if err != nil {
		return err
	}
	o := im.elf.ByteOrder
	size := 24
	if im.elf.Class == elf.ELFCLASS32 {
		size = 16
	}
	for i := 0; len(b) >= size; i, b = i+1, b[size:] {
		var e symEntry
		if size == 24 {
			e = symEntry{o.Uint32(b), b[4], o.Uint16(b[6:]), o.Uint64(b[8:]), o.Uint64(b[16:])}
		} else {
			e = symEntry{o.Uint32(b), b[12], o.Uint16(b[14:]), uint64(o.Uint32(b[4:])), uint64(o.Uint32(b[8:]))}
		}
		if !f(i, e) {
			return nil
		}
	}
	return nil
}

// linked returns the contents of the string table of s.
func linked(im *image, s *elf.Section) ([]byte, error) {
	if s.Link == 0 || int(s.Link) >= len(im.elf.Sections) {
		return nil, fmt.Errorf("string table %d does not exist", s.Link)
	}
	return im.contents(im.elf.Sections[s.Link])
}

func (t *symtab) addSection(im *image, s *elf.Section) error {
	strs, err := linked(im, s)
	if err != nil {
		return err
	}
	if len(t.tabs) >= maxStringTabs {
		return fmt.Errorf("more than %d symbol tables", maxStringTabs)
	}
	tab := uint8(len(t.tabs))
	t.tabs = append(t.tabs, strs)
	secs := im.elf.Sections
	return symEntries(im, s, func(_ int, e symEntry) bool {
		if len(t.syms) >= maxSymbols {
			return false
		}
		typ := elf.SymType(e.info & 15)
		if e.shndx == 0 || int(e.shndx) >= len(secs) || !t.wants(typ, e.size, secs[e.shndx].Flags) {
			return true
		}
		sec := secs[e.shndx]
		if e.value < sec.Addr || e.value-sec.Addr >= sec.Size || e.value+e.size < e.value {
			return true
		}
		name := prefix(strs, e.name)
		typed := typ != elf.STT_NOTYPE
		// Bare labels: assembler temporaries and ARM's mapping symbols name no function.
		if len(name) == 0 || !typed && (name[0] == '$' || bytes.HasPrefix(name, []byte(".L"))) {
			return true
		}
		y := symbol{lo: e.value, hi: e.value + e.size, name: e.name, nameLen: uint32(len(name)), tab: tab, typed: typed, sized: e.size > 0, ifunc: typ == sttGNUIfunc}
		if !y.sized {
			y.hi = sec.Addr + sec.Size // shortened by seal
		}
		switch elf.SymBind(e.info >> 4) {
		case elf.STB_GLOBAL, stbGNUUnique:
			y.bind = 2
		case elf.STB_WEAK:
			y.bind = 1
		}
		y.underscore = uint8(min(len(name)-len(bytes.TrimLeft(name, "_")), math.MaxUint8))
		t.syms = append(t.syms, y)
		return true
	})
}

// wants says whether a symbol of a type and size, in a section with the given flags, names what the table is of. A
// variable of unknown size names nothing beyond its first byte.
func (t *symtab) wants(typ elf.SymType, size uint64, flags elf.SectionFlag) bool {
	if t.data {
		return typ == elf.STT_OBJECT && size > 0 && flags&elf.SHF_ALLOC != 0 && flags&(elf.SHF_EXECINSTR|elf.SHF_TLS) == 0
	}
	return (typ == elf.STT_FUNC || typ == sttGNUIfunc || typ == elf.STT_NOTYPE) && flags&elf.SHF_EXECINSTR != 0
}

// addStubs adds ranges that are named by us; the val of a range is its index in names.
func (t *symtab) addStubs(ranges []span, names []string) {
	if len(ranges) == 0 || len(t.tabs) >= maxStringTabs {
		return
	}
	tab := uint8(len(t.tabs))
	var strs []byte
	for _, r := range ranges {
		n := names[r.val]
		t.syms = append(t.syms, symbol{lo: r.lo, hi: r.hi, name: uint32(len(strs)), nameLen: uint32(len(n)), tab: tab, typed: true, sized: true})
		strs = append(append(strs, n...), 0)
	}
	t.tabs = append(t.tabs, strs)
	t.stubs += len(ranges)
}

// seal ranks the symbols and builds the index. A symbol without size reaches to where another begins or ends, or
// to the end of its section.
//
// Where several symbols cover an address the last of this order names it: those with a size beat those without,
// functions beat bare labels, inner beat outer ones; of aliases global beats weak beats local, then fewer leading
// underscores, then the shorter name (read, not __read; fopen, not fopen64).
func (t *symtab) seal() {
	bounds := make([]uint64, 0, 2*len(t.syms))
	for _, s := range t.syms {
		bounds = append(bounds, s.lo)
		if s.sized {
			bounds = append(bounds, s.hi)
		}
	}
	slices.Sort(bounds)
	for i := range t.syms {
		s := &t.syms[i]
		if s.sized {
			continue
		}
		if k, _ := slices.BinarySearch(bounds, s.lo+1); k < len(bounds) {
			s.hi = min(s.hi, bounds[k])
		}
	}
	slices.SortFunc(t.syms, func(a, b symbol) int {
		return cmp.Or(boolCmp(a.sized, b.sized), boolCmp(a.typed, b.typed), cmp.Compare(a.lo, b.lo), t.compareAliases(&a, &b))
	})
	spans := make([]span, len(t.syms))
	for i, s := range t.syms {
		spans[i] = span{s.lo, s.hi, int32(i)}
	}
	t.at = flatten(spans)
}

func boolCmp(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// compareAliases says which of two symbols of one address is to name it: it is the greater one.
func (t *symtab) compareAliases(a, b *symbol) int {
	if c := cmp.Or(cmp.Compare(a.bind, b.bind), cmp.Compare(b.underscore, a.underscore), cmp.Compare(b.nameLen, a.nameLen)); c != 0 {
		return c
	}
	return bytes.Compare(prefix(t.tabs[b.tab], b.name), prefix(t.tabs[a.tab], a.name))
}

// prefix returns the name at off of a string table, or the part of it that ranking looks at: names that overlap in
// the table must not make ranking slow.
func prefix(tab []byte, off uint32) []byte {
	const looked = 1024
	if uint64(off) >= uint64(len(tab)) {
		return nil
	}
	b := tab[off:min(uint64(len(tab)), uint64(off)+looked)]
	if i := bytes.IndexByte(b, 0); i >= 0 {
		b = b[:i]
	}
	return b
}

func (t *symtab) nameOf(s *symbol) string { return cstring(t.tabs[s.tab], uint64(s.name), maxLinkage) }

// part returns the linkage name at addr, "" when no symbol covers it, and what of e has the same.
func (t *symtab) part(addr uint64, e extent) (string, extent) {
	i, e := t.at.part(addr, e)
	if i < 0 {
		return "", e
	}
	return t.nameOf(&t.syms[i]), e
}

// find returns the linkage name at addr, "" when no symbol covers it, and how far addr is into the symbol.
func (t *symtab) find(addr uint64) (name string, off uint64) {
	i := t.at.find(addr)
	if i < 0 {
		return "", 0
	}
	return t.nameOf(&t.syms[i]), addr - t.syms[i].lo
}
