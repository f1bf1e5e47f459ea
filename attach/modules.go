package attach

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"
)

// module is an object that the program's loader has loaded, as its memory shows it.
type module struct {
	name    string
	bias    uint64
	dynamic uint64

	symtab, strtab, strsz   uint64
	versym, verneed, verdef uint64
	hash, gnuhash           uint64
	rela, relasz            uint64
	jmprel, pltrelsz        uint64

	symbols []byte // of symtab, read once
	strings []byte
}

const (
	symBytes    = 24
	relaBytes   = 24
	maxModules  = 4096
	maxTable    = 256 << 20
	maxSymbols  = 5 << 20
	rConsistent = 0
	glibcOldest = "2.34" // what threads' ids and libpthread were elsewhere before
)

// loader reports whether the name is a dynamic loader's of glibc, whose own calls are left alone.
func isLoader(name string) bool { return strings.HasPrefix(filepath.Base(name), "ld-linux") }

// readModules reads the loader's list. The program runs meanwhile: everything is bounded and may be nonsense.
func (t *Target) readModules() error {
	aux := auxv(t.pid)
	phdr, phnum := aux[3], aux[5]
	if phdr == 0 || phnum == 0 || phnum > 1000 {
		return fmt.Errorf("process %d: %w", t.pid, ErrGone)
	}
	head := make([]byte, 56*phnum)
	if err := t.read(phdr, head); err != nil {
		return err
	}
	var bias, dynamic uint64
	dynamicSeen := false
	for p := head; len(p) >= 56; p = p[56:] {
		switch elf.ProgType(binary.LittleEndian.Uint32(p)) {
		case elf.PT_PHDR:
			bias = phdr - binary.LittleEndian.Uint64(p[16:])
		case elf.PT_DYNAMIC:
			dynamic, dynamicSeen = binary.LittleEndian.Uint64(p[16:]), true
		}
	}
	if !dynamicSeen {
		return fmt.Errorf("process %d is a static program: it calls no function of a shared C library that could be recorded", t.pid)
	}
	debug := uint64(0)
	for at := bias + dynamic; ; at += 16 {
		var d [16]byte
		if t.read(at, d[:]) != nil || binary.LittleEndian.Uint64(d[:]) == 0 {
			break
		}
		if elf.DynTag(binary.LittleEndian.Uint64(d[:])) == elf.DT_DEBUG {
			debug = binary.LittleEndian.Uint64(d[8:])
		}
	}
	if debug == 0 {
		return fmt.Errorf("process %d: its loader keeps no list of what it loaded (it has only just started, or is no ordinary program)", t.pid)
	}
	var r [40]byte // struct r_debug
	for try := 0; ; try++ {
		if err := t.read(debug, r[:]); err != nil {
			return err
		}
		if binary.LittleEndian.Uint32(r[24:]) == rConsistent || try == 200 {
			break
		}
		time.Sleep(time.Millisecond) // a dlopen is under way
	}
	t.modules = t.modules[:0]
	link := binary.LittleEndian.Uint64(r[8:])
	for n := 0; link != 0 && n < maxModules; n++ {
		var l [40]byte // struct link_map: l_addr, l_name, l_ld, l_next
		if t.read(link, l[:]) != nil {
			break
		}
		m := module{
			bias: binary.LittleEndian.Uint64(l[0:]), name: t.text(binary.LittleEndian.Uint64(l[8:])),
			dynamic: binary.LittleEndian.Uint64(l[16:]),
		}
		if t.readDynamic(&m) == nil {
			t.modules = append(t.modules, m)
		}
		link = binary.LittleEndian.Uint64(l[24:])
	}
	if len(t.modules) == 0 {
		return fmt.Errorf("process %d: %w", t.pid, ErrGone)
	}
	return nil
}

// readDynamic reads one object's dynamic section, symbols and strings.
func (t *Target) readDynamic(m *module) error {
	abs := func(v uint64) uint64 { // glibc relocates these in place, musl and the vDSO do not
		if v < m.bias {
			return v + m.bias
		}
		return v
	}
	for at := m.dynamic; at < m.dynamic+16*512; at += 16 {
		var d [16]byte
		if err := t.read(at, d[:]); err != nil {
			return err
		}
		v := binary.LittleEndian.Uint64(d[8:])
		switch elf.DynTag(binary.LittleEndian.Uint64(d[:])) {
		case elf.DT_NULL:
			at = m.dynamic + 16*512
		case elf.DT_SYMTAB:
			m.symtab = abs(v)
		case elf.DT_STRTAB:
			m.strtab = abs(v)
		case elf.DT_STRSZ:
			m.strsz = v
		case elf.DT_VERSYM:
			m.versym = abs(v)
		case elf.DT_VERNEED:
			m.verneed = abs(v)
		case elf.DT_VERDEF:
			m.verdef = abs(v)
		case elf.DT_HASH:
			m.hash = abs(v)
		case elf.DT_GNU_HASH:
			m.gnuhash = abs(v)
		case elf.DT_RELA:
			m.rela = abs(v)
		case elf.DT_RELASZ:
			m.relasz = v
		case elf.DT_JMPREL:
			m.jmprel = abs(v)
		case elf.DT_PLTRELSZ:
			m.pltrelsz = v
		}
	}
	if m.symtab == 0 || m.strtab == 0 || m.strsz > maxTable || m.relasz > maxTable || m.pltrelsz > maxTable {
		return errors.New("no symbols")
	}
	n, err := t.countSymbols(m)
	if err != nil {
		return err
	}
	m.symbols, m.strings = make([]byte, n*symBytes), make([]byte, m.strsz)
	if err := t.read(m.symtab, m.symbols); err != nil {
		return err
	}
	return t.read(m.strtab, m.strings)
}

// countSymbols is how many symbols a table has, by its hash tables. Undefined ones lie before those that the GNU table counts.
func (t *Target) countSymbols(m *module) (uint64, error) {
	var b [16]byte
	if m.hash != 0 {
		if err := t.read(m.hash, b[:8]); err != nil {
			return 0, err
		}
		if n := uint64(binary.LittleEndian.Uint32(b[4:])); n <= maxSymbols {
			return n, nil
		}
		return 0, errors.New("a symbol table of no sensible size")
	}
	if m.gnuhash == 0 {
		return 0, errors.New("no hash table")
	}
	if err := t.read(m.gnuhash, b[:]); err != nil {
		return 0, err
	}
	buckets, first, words := uint64(binary.LittleEndian.Uint32(b[0:])), uint64(binary.LittleEndian.Uint32(b[4:])), uint64(binary.LittleEndian.Uint32(b[8:]))
	if buckets > maxSymbols || words > maxSymbols {
		return 0, errors.New("a hash table of no sensible size")
	}
	table := make([]byte, 4*buckets)
	at := m.gnuhash + 16 + 8*words
	if err := t.read(at, table); err != nil {
		return 0, err
	}
	last := uint64(0)
	for ; len(table) >= 4; table = table[4:] {
		last = max(last, uint64(binary.LittleEndian.Uint32(table)))
	}
	n := first
	if last >= first {
		for n = last; n < maxSymbols; n++ {
			var c [4]byte
			if err := t.read(at+4*buckets+4*(n-first), c[:]); err != nil {
				return 0, err
			}
			if binary.LittleEndian.Uint32(c[:])&1 != 0 {
				n++
				break
			}
		}
	}
	return n + 1, nil // first may be one that is there and undefined
}

// symbol is an entry of a module's table.
type symbol struct {
	name  string
	info  byte
	index uint16
	value uint64
}

func (m *module) symbol(i uint64) (s symbol, ok bool) {
	if (i+1)*symBytes > uint64(len(m.symbols)) {
		return s, false
	}
	b := m.symbols[i*symBytes:]
	name := binary.LittleEndian.Uint32(b)
	if uint64(name) >= uint64(len(m.strings)) {
		return s, false
	}
	return symbol{name: cstring(m.strings[name:]), info: b[4], index: binary.LittleEndian.Uint16(b[6:]), value: binary.LittleEndian.Uint64(b[8:])}, true
}

func cstring(b []byte) string {
	for i, c := range b {
		if c == 0 {
			return string(b[:i])
		}
	}
	return string(b)
}

// lookup finds a symbol by name among those that the module defines or wants.
func (m *module) each(f func(i uint64, s symbol)) {
	for i := uint64(1); (i+1)*symBytes <= uint64(len(m.symbols)); i++ {
		if s, ok := m.symbol(i); ok && s.name != "" {
			f(i, s)
		}
	}
}

// version is the name of symbol i's version, of those that the module defines or of those that it needs; "" none. hidden: kept for
// programs that were linked long ago.
func (t *Target) version(m *module, i uint64, defined bool) (name string, hidden bool) {
	if m.versym == 0 {
		return "", false
	}
	var b [20]byte
	if t.read(m.versym+2*i, b[:2]) != nil {
		return "", false
	}
	v := binary.LittleEndian.Uint16(b[:])
	hidden = v&0x8000 != 0
	if v &= 0x7fff; v < 2 {
		return "", hidden
	}
	if defined {
		for at, n := m.verdef, 0; at != 0 && n < 1000; n++ {
			if t.read(at, b[:20]) != nil {
				return "", hidden
			}
			if binary.LittleEndian.Uint16(b[4:]) == v {
				if t.read(at+uint64(binary.LittleEndian.Uint32(b[12:])), b[:8]) != nil {
					return "", hidden
				}
				return t.text(m.strtab + uint64(binary.LittleEndian.Uint32(b[:]))), hidden
			}
			next := binary.LittleEndian.Uint32(b[16:])
			if next == 0 {
				break
			}
			at += uint64(next)
		}
		return "", hidden
	}
	for at, n := m.verneed, 0; at != 0 && n < 1000; n++ {
		if t.read(at, b[:16]) != nil {
			return "", hidden
		}
		count, aux, next := binary.LittleEndian.Uint16(b[2:]), binary.LittleEndian.Uint32(b[8:]), binary.LittleEndian.Uint32(b[12:])
		for a, k := at+uint64(aux), uint16(0); k < count; k++ {
			if t.read(a, b[:16]) != nil {
				return "", hidden
			}
			if binary.LittleEndian.Uint16(b[6:]) == v {
				return t.text(m.strtab + uint64(binary.LittleEndian.Uint32(b[8:]))), hidden
			}
			a += uint64(binary.LittleEndian.Uint32(b[12:]))
		}
		if next == 0 {
			break
		}
		at += uint64(next)
	}
	return "", hidden
}

// definitions are where the program's global scope defines functions of the names wanted, by name and version: the first definition in
// the loader's order, and how many there are.
type definitions map[string][]definition

type definition struct {
	at      uint64
	version string
	hidden  bool
	kind    byte // STT_*
	module  int
}

func (t *Target) define(want map[string]bool) definitions {
	d := definitions{}
	for i := range t.modules {
		m := &t.modules[i]
		if isLoader(m.name) && !isMusl(m.name) {
			continue
		}
		m.each(func(k uint64, s symbol) {
			bind := elf.ST_BIND(s.info)
			if s.index == 0 || s.value == 0 || !want[s.name] || (bind != elf.STB_GLOBAL && bind != elf.STB_WEAK) {
				return
			}
			version, hidden := t.version(m, k, true)
			d[s.name] = append(d[s.name], definition{m.bias + s.value, version, hidden, s.info & 15, i})
		})
	}
	return d
}

func isMusl(name string) bool {
	return strings.Contains(name, "ld-musl") || strings.Contains(name, "libc.musl")
}

// find is the function that a reference to name with the version means; "" the default one. One that only old programs get is no
// default. 0: none; several: other modules define it as well.
func (d definitions) find(name, version string) (at uint64, several bool) {
	fits := func(x definition, version string) bool {
		switch elf.SymType(x.kind) {
		case elf.STT_FUNC, elf.STT_NOTYPE, elf.STT_OBJECT:
		default:
			return false // an indirect function: only the loader knows what it chose
		}
		if version == "" || x.version == "" {
			return !x.hidden
		}
		return x.version == version
	}
	for _, v := range []string{version, ""} {
		for _, x := range d[name] {
			if !fits(x, v) {
				continue
			}
			if at == 0 {
				at = x.at
			} else if x.at != at {
				several = true
			}
		}
		if at != 0 {
			break
		}
	}
	return at, several
}
