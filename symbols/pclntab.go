package symbols

// This file owns Go's own table of functions, files, lines and inlined calls, which the runtime needs and which is
// therefore there in programs that were linked with -s -w as well.
//
// The layout is that of Go 1.18 (no inlined calls) and 1.20 to 1.26: runtime/symtab.go and internal/abi/symtab.go there.
// Offsets of functions count from the module's text, and those of inline trees from go:func.*. Where the two lie is said
// in runtime.firstmoduledata only, which has no symbol in a stripped program: it is found by its first word, the address
// of the table, and proved by others that have to agree.

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"sort"

	"github.com/hbtrace/hbtrace/trace"
)

const (
	goMagic118, goMagic120 = 0xfffffff0, 0xfffffff1
	goHeaderBytes          = 8 + 8*8
	goMaxFuncs             = 16 << 20
	goMaxScan              = 256 << 20 // bytes of data that are searched
	goMaxCandidates        = 64
	goMaxSteps             = 1 << 20 // of one table of pc values
	goMaxInline            = maxInline
	goInlineBytes          = 16 // of one inlinedCall
	goFuncInlTree          = 3  // abi.FUNCDATA_InlTree
	goPCInlIndex           = 2  // abi.PCDATA_InlTreeIndex
)

// goTable is the table of one module. It does not change once it is made.
type goTable struct {
	order                             binary.ByteOrder
	quantum                           uint64
	names, cutab, files, pctab, funcs []byte // funcs: the functab, then what it points to
	n                                 int
	text                              uint64
	tree                              []byte // from go:func.* on; nil where inline trees are not known
	funcFixed                         int    // bytes of a _func before its pcdata
}

// openGoTable finds and checks the table of im; nil, nil when it has none.
func openGoTable(im *image) (*goTable, error) {
	b, addr, err := goSection(im)
	if b == nil || err != nil {
		return nil, err
	}
	t := &goTable{order: im.elf.ByteOrder, quantum: uint64(b[6])}
	word := func(i int) uint64 { return t.order.Uint64(b[8+8*i:]) }
	part := func(i int) []byte {
		if off := word(i); off <= uint64(len(b)) {
			return b[off:]
		}
		return nil
	}
	n := word(0)
	t.names, t.cutab, t.files, t.pctab, t.funcs = part(3), part(4), part(5), part(6), part(7)
	if n == 0 || n > goMaxFuncs || n*8+4 > uint64(len(t.funcs)) || t.names == nil || t.pctab == nil || t.cutab == nil || t.files == nil {
		return nil, errors.New("Go's function table makes no sense")
	}
	t.n = int(n)
	// Names must not reach into the next part, and offsets have to ascend, or a search finds anything.
	if from, to := word(3), word(4); from < to && to <= uint64(len(b)) {
		t.names = b[from:to]
	}
	for i := range t.n {
		if t.entry(i) >= t.entry(i+1) {
			return nil, errors.New("Go's function table is not in order")
		}
	}
	t.funcFixed = 44
	v120 := t.order.Uint32(b) == goMagic120
	if !v120 {
		t.funcFixed = 40 // without startLine
	}
	m, ok := goModule(im, t, addr, word)
	switch {
	case ok && v120:
		t.text, t.tree = m.text, im.bytesAt(m.gofunc)
	case ok:
		t.text = m.text
	case word(2) != 0 && im.elf.Type == elf.ET_EXEC:
		t.text = word(2) // textStart, up to Go 1.25; a linker relocates it in others
	default:
		return nil, errors.New("where Go's function table counts from is not known")
	}
	if !im.executable(t.text + t.entry(0)) {
		return nil, errors.New("Go's function table speaks of other addresses")
	}
	return t, nil
}

// goSection returns the table's bytes and address.
func goSection(im *image) ([]byte, uint64, error) {
	for _, name := range []string{".gopclntab", ".data.rel.ro.gopclntab"} {
		if s := im.elf.Section(name); s != nil && s.Type == elf.SHT_PROGBITS {
			b, err := im.contents(s)
			if err != nil {
				return nil, 0, fmt.Errorf("section %s: %w", name, err)
			}
			if !goHeader(b, im.elf.ByteOrder) {
				return nil, 0, fmt.Errorf("section %s: of a Go version that is not known (1.18 to 1.26 are)", name)
			}
			return b, s.Addr, nil
		}
	}
	// Programs that a system's linker made position-independent have it somewhere in their read-only data.
	if im.elf.Section(".note.go.buildid") == nil {
		return nil, 0, nil
	}
	for _, name := range []string{".data.rel.ro", ".rodata"} {
		s := im.elf.Section(name)
		if s == nil || s.Type != elf.SHT_PROGBITS || s.Size > goMaxScan {
			continue
		}
		b, err := im.contents(s)
		if err != nil {
			continue
		}
		for off := 0; off+goHeaderBytes <= len(b); off += 8 {
			if goHeader(b[off:], im.elf.ByteOrder) {
				return b[off:], s.Addr + uint64(off), nil
			}
		}
	}
	return nil, 0, nil
}

func goHeader(b []byte, order binary.ByteOrder) bool {
	if len(b) < goHeaderBytes || b[4] != 0 || b[5] != 0 || (b[6] != 1 && b[6] != 2 && b[6] != 4) || b[7] != 8 {
		return false
	}
	m := order.Uint32(b)
	return m == goMagic118 || m == goMagic120
}

// goModuleData is what is wanted of runtime.firstmoduledata.
type goModuleData struct{ text, gofunc uint64 }

// goModule finds runtime.firstmoduledata by its first word, the address of the table: as it stands in the data, or as the
// loader is told to write it there.
func goModule(im *image, t *goTable, table uint64, word func(int) uint64) (goModuleData, bool) {
	const size = 328 // as far as gofunc
	var at []uint64
	add := func(addr uint64) {
		if len(at) < goMaxCandidates {
			at = append(at, addr)
		}
	}
	relativeRelocs(im, func(addr, value uint64) {
		if value == table {
			add(addr)
		}
	})
	scanned := uint64(0)
	for _, s := range im.elf.Sections {
		if s.Type != elf.SHT_PROGBITS || s.Flags&(elf.SHF_WRITE|elf.SHF_ALLOC) != elf.SHF_WRITE|elf.SHF_ALLOC {
			continue
		}
		if scanned += s.Size; scanned > goMaxScan {
			break
		}
		b, err := im.contents(s)
		if err != nil {
			continue
		}
		for off := (8 - s.Addr%8) % 8; off+size <= uint64(len(b)); off += 8 {
			if t.order.Uint64(b[off:]) == table {
				add(s.Addr + off)
			}
		}
	}
	for _, at := range at {
		b := im.bytesAt(at)
		if len(b) < size {
			continue
		}
		b = bytes.Clone(b[:size])
		relativeRelocs(im, func(addr, value uint64) {
			if addr >= at && addr-at <= size-8 {
				t.order.PutUint64(b[addr-at:], value)
			}
		})
		get := func(off int) uint64 { return t.order.Uint64(b[off:]) }
		text, etext, minpc, maxpc := get(176), get(184), get(160), get(168)
		if get(0) == table && get(8) == table+word(3) && text <= minpc && minpc < maxpc && maxpc <= etext &&
			minpc == text+t.entry(0) && maxpc == text+t.entry(t.n) {
			return goModuleData{text, get(320)}, true // gofunc is behind rodata since 1.20
		}
	}
	return goModuleData{}, false
}

// relativeRelocs calls f for the words that the loader writes into a position-independent file, before its bias is added.
func relativeRelocs(im *image, f func(addr, value uint64)) {
	var kind uint32
	switch im.elf.Machine {
	case elf.EM_X86_64:
		kind = uint32(elf.R_X86_64_RELATIVE)
	case elf.EM_AARCH64:
		kind = uint32(elf.R_AARCH64_RELATIVE)
	default:
		return
	}
	tables := 0
	for _, s := range im.elf.Sections {
		if s.Type != elf.SHT_RELA || s.Flags&elf.SHF_ALLOC == 0 || im.elf.Class != elf.ELFCLASS64 {
			continue
		}
		b, err := im.contents(s)
		if tables++; err != nil || tables > maxRelaTables {
			continue
		}
		o := im.elf.ByteOrder
		for n := 0; len(b) >= 24 && n < maxRelocs; n, b = n+1, b[24:] {
			if uint32(o.Uint64(b[8:])) == kind {
				f(o.Uint64(b), o.Uint64(b[16:]))
			}
		}
	}
}

// bytesAt returns the contents from an address on to the end of its section; nil where there are none.
func (im *image) bytesAt(addr uint64) []byte {
	for _, s := range im.elf.Sections {
		if s.Type == elf.SHT_PROGBITS && s.Flags&elf.SHF_ALLOC != 0 && addr >= s.Addr && addr-s.Addr < s.Size {
			b, err := im.contents(s)
			if err != nil || addr-s.Addr >= uint64(len(b)) {
				return nil
			}
			return b[addr-s.Addr:]
		}
	}
	return nil
}

// entry is where function i begins, counted from text; that of i == n is where the last one ends.
func (t *goTable) entry(i int) uint64 { return uint64(t.order.Uint32(t.funcs[8*i:])) }

// u32 reads from b, 0 past its end.
func (t *goTable) u32(b []byte, off uint64) (uint32, bool) {
	if off > uint64(len(b)) || uint64(len(b))-off < 4 {
		return 0, false
	}
	return t.order.Uint32(b[off:]), true
}

// name returns a function's name; "" for an offset that is not the beginning of one.
func (t *goTable) name(off uint32) string {
	if off > 0 && (uint64(off) >= uint64(len(t.names)) || t.names[off-1] != 0) {
		return ""
	}
	return cstring(t.names, uint64(off), maxLinkage)
}

// goFunc is a function's record.
type goFunc struct {
	entry, end uint64 // from text
	b          []byte // _func and all that follows it
}

func (t *goTable) find(addr uint64) (f goFunc, ok bool) {
	if addr < t.text || addr-t.text < t.entry(0) || addr-t.text >= t.entry(t.n) {
		return f, false
	}
	rel := addr - t.text
	i := sort.Search(t.n, func(i int) bool { return t.entry(i) > rel }) - 1
	off := uint64(t.order.Uint32(t.funcs[8*i+4:]))
	if off > uint64(len(t.funcs)) || len(t.funcs)-int(off) < t.funcFixed {
		return f, false
	}
	f = goFunc{t.entry(i), t.entry(i + 1), t.funcs[off:]}
	// The record repeats its beginning: proof that it is one.
	if at, _ := t.u32(f.b, 0); uint64(at) != f.entry {
		return f, false
	}
	return f, true
}

// value returns what the table at off of pctab says for a pc of f, counted from text; -1 when it says nothing.
func (t *goTable) value(f goFunc, off uint32, rel uint64) int32 {
	if off == 0 || uint64(off) >= uint64(len(t.pctab)) {
		return -1
	}
	c := cursor{b: t.pctab, at: int(off)}
	pc, v := f.entry, int32(-1)
	for n := 0; n < goMaxSteps && !c.bad; n++ {
		d := uint32(c.uleb())
		if d == 0 && n > 0 {
			break
		}
		v += int32(d>>1) ^ -int32(d&1)
		if pc += c.uleb() * t.quantum; rel < pc && !c.bad {
			return v
		}
		if pc >= f.end {
			break
		}
	}
	return -1
}

// position returns file and line of a pc of f.
func (t *goTable) position(f goFunc, rel uint64) (string, int) {
	pcfile, _ := t.u32(f.b, 20)
	pcln, _ := t.u32(f.b, 24)
	cu, _ := t.u32(f.b, 32)
	file, line := "", max(t.value(f, pcln, rel), 0)
	if n := t.value(f, pcfile, rel); n >= 0 {
		if off, ok := t.u32(t.cutab, 4*(uint64(cu)+uint64(n))); ok && off != 1<<32-1 && (off == 0 || uint64(off) < uint64(len(t.files)) && t.files[off-1] == 0) {
			file = cstring(t.files, uint64(off), maxPath)
		}
	}
	return file, int(line)
}

// frames returns the functions at addr, innermost first; nil when no Go function is there.
func (t *goTable) frames(addr uint64) []trace.SymFrame {
	f, ok := t.find(addr)
	if !ok {
		return nil
	}
	nameOff, _ := t.u32(f.b, 4)
	outer := t.name(nameOff)
	if outer == "" {
		return nil
	}
	npcdata, _ := t.u32(f.b, 28)
	nfuncdata := uint64(f.b[t.funcFixed-1])
	var tree []byte
	var index uint32
	if t.tree != nil && npcdata > goPCInlIndex && npcdata < 64 && nfuncdata > goFuncInlTree {
		index, _ = t.u32(f.b, uint64(t.funcFixed)+4*goPCInlIndex)
		if off, ok := t.u32(f.b, uint64(t.funcFixed)+4*uint64(npcdata)+4*goFuncInlTree); ok && uint64(off) < uint64(len(t.tree)) {
			tree = t.tree[off:]
		}
	}
	rel := addr - t.text
	var out []trace.SymFrame
	for tree != nil && len(out) < goMaxInline-1 {
		i := t.value(f, index, rel)
		if i < 0 {
			break
		}
		at := uint64(i) * goInlineBytes
		name, ok1 := t.u32(tree, at+4)
		parent, ok2 := t.u32(tree, at+8)
		if !ok1 || !ok2 || uint64(parent) >= f.end-f.entry {
			break
		}
		n := t.name(name)
		if n == "" {
			break
		}
		file, line := t.position(f, rel)
		out = append(out, trace.SymFrame{Func: cut(n), Linkage: n, File: file, Line: line, Inlined: true})
		if next := f.entry + uint64(parent); next != rel {
			rel = next
		} else if t.value(f, index, next) == i {
			break // its own parent
		}
	}
	file, line := t.position(f, rel)
	return append(out, trace.SymFrame{Func: cut(outer), Linkage: outer, File: file, Line: line})
}
