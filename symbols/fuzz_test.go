package symbols

// Hostile input: fuzz targets, damaged programs, and files made to explode.

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/hbtrace/hbtrace/trace"
)

// memFile serves bytes through the Open hook.
func memFile(b []byte) Options {
	return Options{DebugDirs: []string{}, Open: func(path string) (ReaderAtCloser, error) {
		if path != "/mem" {
			return nil, os.ErrNotExist
		}
		return nopCloser{bytes.NewReader(b)}, nil
	}}
}

// resolveBytes resolves addresses in a file made of b. It fails the test on a panic by not recovering.
func resolveBytes(t testing.TB, b []byte, addrs []uint64) (*Resolver, [][]trace.SymFrame) {
	t.Helper()
	r := NewResolver(memFile(b))
	defer r.Close()
	if err := r.Add(trace.Module{ID: 1, Path: "/mem"}); err != nil {
		t.Fatal(err)
	}
	out := r.Resolve(1, addrs)
	r.Variables(1, addrs)
	if len(out) != len(addrs) {
		t.Fatalf("%d results for %d addresses", len(out), len(addrs))
	}
	for _, fs := range out {
		for i, f := range fs {
			if f.Func == "" || f.Inlined != (i+1 < len(fs)) || f.Line < 0 || len(fs) > maxInline {
				t.Fatalf("frames make no sense: %+v", fs)
			}
		}
	}
	return r, out
}

func smallAddrs() []uint64 {
	as := []uint64{0, 1, 1<<64 - 1, 1 << 63}
	for a := uint64(0x1000); a < 0x1400; a += 7 {
		as = append(as, a, a+0x400000)
	}
	return as
}

// seedELF is a small ELF file with DWARF 5 made by hand, so that the corpus needs no compiler.
func seedELF() []byte {
	le := binary.LittleEndian
	abbrev := []byte{
		1, 0x11, 1, 0x03, 0x08, 0x10, 0x17, 0x11, 0x01, 0x12, 0x06, 0, 0, // compile_unit: name, stmt_list, low_pc, high_pc
		2, 0x2e, 1, 0x03, 0x08, 0x11, 0x01, 0x12, 0x06, 0, 0, // subprogram: name, low_pc, high_pc
		3, 0x1d, 0, 0x31, 0x13, 0x11, 0x01, 0x12, 0x06, 0x58, 0x0b, 0x59, 0x0b, 0, 0, // inlined_subroutine: origin, pcs, call file and line
		4, 0x2e, 0, 0x03, 0x08, 0, 0, // subprogram: name
		0,
	}
	var die []byte
	die = append(die, 1)
	die = append(die, "a.c\x00"...)
	die = le.AppendUint32(die, 0)
	die = le.AppendUint32(le.AppendUint64(die, 0x1000), 0x100)
	inlinee := uint32(12 + len(die))
	die = append(die, 4)
	die = append(die, "inlinee\x00"...)
	die = append(die, 2)
	die = append(die, "outer\x00"...)
	die = le.AppendUint32(le.AppendUint64(die, 0x1010), 0x40)
	die = append(die, 3)
	die = le.AppendUint32(die, inlinee)
	die = le.AppendUint32(le.AppendUint64(die, 0x1020), 0x10)
	die = append(die, 1, 7, 0, 0)
	info := le.AppendUint32(nil, uint32(8+len(die)))
	info = append(info, 5, 0, 1, 8, 0, 0, 0, 0)
	info = append(info, die...)

	var hdr []byte // after header_length
	hdr = append(hdr, 1, 1, 1, 0xfb, 14, 13, 0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1)
	hdr = append(hdr, 1, 1, 0x08, 1, '/', 's', 0)                                       // directories: one path
	hdr = append(hdr, 2, 1, 0x08, 2, 0x0b, 2, 'a', '.', 'c', 0, 0, 'b', '.', 'c', 0, 0) // files: path, directory
	prog := append([]byte{0, 9, 2}, le.AppendUint64(nil, 0x1000)...)
	// Row 0x1000 file 1 line 5; row 0x1020 file 0 line 10; end at 0x1100.
	prog = append(prog, 3, 4, 1, 2, 0x20, 4, 0, 3, 5, 1, 2, 0x20, 1, 2, 0xc0, 1, 0, 1, 1)
	line := []byte{5, 0, 8, 0}
	line = le.AppendUint32(line, uint32(len(hdr)))
	line = append(append(line, hdr...), prog...)
	line = append(le.AppendUint32(nil, uint32(len(line))), line...)

	strtab := []byte("\x00sym\x00_ZN1a1bEv\x00")
	symtab := make([]byte, 24)
	for _, s := range [][4]uint64{{1, 0x12, 0x1000, 0x10}, {5, 0x12, 0x1060, 0x20}} {
		symtab = le.AppendUint32(symtab, uint32(s[0]))
		symtab = append(symtab, byte(s[1]), 0, 1, 0)
		symtab = le.AppendUint64(le.AppendUint64(symtab, s[2]), s[3])
	}
	text := make([]byte, 0x100)
	return buildELF([]section{
		{".text", elf.SHT_PROGBITS, elf.SHF_ALLOC | elf.SHF_EXECINSTR, 0x1000, 0, text, 0},
		{".symtab", elf.SHT_SYMTAB, 0, 0, 3, symtab, 0},
		{".strtab", elf.SHT_STRTAB, 0, 0, 0, strtab, 0},
		{".debug_abbrev", elf.SHT_PROGBITS, 0, 0, 0, abbrev, 0},
		{".debug_info", elf.SHT_PROGBITS, 0, 0, 0, info, 0},
		{".debug_line", elf.SHT_PROGBITS, 0, 0, 0, line, 0},
	})
}

type section struct {
	name  string
	typ   elf.SectionType
	flags elf.SectionFlag
	addr  uint64
	link  uint32
	data  []byte
	size  uint64 // of the header, if not len(data)
}

// buildELF lays out an x86-64 file with one executable segment over the address range of the first section.
func buildELF(secs []section) []byte {
	le := binary.LittleEndian
	names := []byte{0}
	off := uint64(64 + 56)
	var body, heads []byte
	heads = make([]byte, 64)
	secs = append(secs, section{name: ".shstrtab", typ: elf.SHT_STRTAB})
	for i := range secs {
		s := &secs[i]
		nameAt := uint32(len(names))
		names = append(append(names, s.name...), 0)
		if s.name == ".shstrtab" {
			s.data = names
		}
		size := s.size
		if size == 0 {
			size = uint64(len(s.data))
		}
		h := le.AppendUint32(le.AppendUint32(nil, nameAt), uint32(s.typ))
		for _, v := range []uint64{uint64(s.flags), s.addr, off + uint64(len(body)), size} {
			h = le.AppendUint64(h, v)
		}
		h = le.AppendUint32(le.AppendUint32(h, s.link), 0)
		h = le.AppendUint64(le.AppendUint64(h, 1), 0)
		if s.typ == elf.SHT_SYMTAB {
			le.PutUint64(h[56:], 24)
		}
		heads = append(heads, h...)
		body = append(body, s.data...)
	}
	b := append([]byte(elf.ELFMAG), 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0)
	b = le.AppendUint16(le.AppendUint16(b, uint16(elf.ET_EXEC)), uint16(elf.EM_X86_64))
	b = le.AppendUint32(b, 1)
	b = le.AppendUint64(le.AppendUint64(b, 0x1000), 64)
	b = le.AppendUint64(b, off+uint64(len(body)))
	b = le.AppendUint32(b, 0)
	for _, v := range []int{64, 56, 1, 64, len(secs) + 1, len(secs)} {
		b = le.AppendUint16(b, uint16(v))
	}
	b = le.AppendUint32(le.AppendUint32(b, uint32(elf.PT_LOAD)), uint32(elf.PF_R|elf.PF_X))
	for _, v := range []uint64{off, 0x1000, 0x1000, uint64(len(secs[0].data)), 1 << 20, 0x1000} {
		b = le.AppendUint64(b, v)
	}
	return append(append(b, body...), heads...)
}

func TestHandMade(t *testing.T) {
	r, got := resolveBytes(t, seedELF(), []uint64{0x1000, 0x1010, 0x1020, 0x1030, 0x1050, 0x1060})
	want := [][]trace.SymFrame{
		{{Func: "sym", Linkage: "sym", File: "/s/b.c", Line: 5}},
		{{Func: "outer", Linkage: "outer", File: "/s/b.c", Line: 5}},
		{{Func: "inlinee", Linkage: "inlinee", File: "/s/a.c", Line: 10, Inlined: true}, {Func: "outer", Linkage: "outer", File: "/s/b.c", Line: 7}},
		{{Func: "outer", Linkage: "outer", File: "/s/a.c", Line: 10}},
		nil,
		{{Func: "a::b", Linkage: "_ZN1a1bEv", File: "/s/a.c", Line: 10}},
	}
	for i := range want {
		if len(got[i]) != len(want[i]) {
			t.Fatalf("address %d: got %+v, want %+v", i, got[i], want[i])
		}
		for k := range want[i] {
			if got[i][k] != want[i][k] {
				t.Errorf("address %d frame %d: got %+v, want %+v", i, k, got[i][k], want[i][k])
			}
		}
	}
	if n := r.Notes(); len(n) > 0 {
		t.Errorf("notes %q", n)
	}
}

func FuzzResolve(f *testing.F) {
	f.Add(seedELF())
	f.Fuzz(func(t *testing.T, b []byte) {
		resolveBytes(t, b, smallAddrs())
	})
}

// FuzzSections puts hostile contents into the sections that lead to other files or to other tables.
func FuzzSections(f *testing.F) {
	names := []string{".gnu_debuglink", ".gnu_debugaltlink", ".gnu_debugdata", ".gopclntab", ".note.gnu.build-id", ".plt.sec"}
	f.Add(uint8(0), []byte("prog.debug\x00\x00\x01\x02\x03\x04"))
	f.Add(uint8(0), []byte("../../../etc/passwd\x00\x01\x02\x03\x04"))
	f.Add(uint8(1), []byte("/usr/lib/debug/.dwz/x.debug\x00\x01\x02\x03\x04\x05\x06\x07\x08"))
	f.Add(uint8(2), []byte(xzMagic+"\x00\x04\xe6\xd6\xb4F"))
	f.Add(uint8(3), append([]byte{0xf1, 0xff, 0xff, 0xff, 0, 0, 1, 8, 1}, make([]byte, 100)...))
	f.Add(uint8(4), []byte("\x04\x00\x00\x00\x08\x00\x00\x00\x03\x00\x00\x00GNU\x0012345678"))
	f.Fuzz(func(t *testing.T, which uint8, b []byte) {
		name := names[int(which)%len(names)]
		typ := elf.SHT_PROGBITS
		if name == ".note.gnu.build-id" {
			typ = elf.SHT_NOTE
		}
		text := section{".text", elf.SHT_PROGBITS, elf.SHF_ALLOC | elf.SHF_EXECINSTR, 0x1000, 0, make([]byte, 64), 0}
		opened := 0
		o := memFile(buildELF([]section{text, {name, typ, elf.SHF_ALLOC, 0x2000, 0, b, 0}}))
		main := o.Open
		o.DebugDirs = []string{"/debug"}
		o.Open = func(path string) (ReaderAtCloser, error) {
			if opened++; opened > 100 {
				t.Fatalf("%d files were opened", opened)
			}
			// A debug link names a file next to the program or in a directory of debug files, nothing else.
			if name == ".gnu_debuglink" && path != "/mem" && filepath.Dir(path) != "/" && filepath.Dir(path) != "/.debug" && !strings.HasPrefix(path, "/debug/") {
				t.Fatalf("%q was opened", path)
			}
			return main(path)
		}
		r := NewResolver(o)
		defer r.Close()
		if err := r.Add(trace.Module{ID: 1, Path: "/mem"}); err != nil {
			t.Fatal(err)
		}
		for _, fs := range r.Resolve(1, smallAddrs()) {
			if fs != nil && name != ".gopclntab" && name != ".gnu_debugdata" {
				t.Fatalf("a name out of nowhere: %+v", fs)
			}
		}
	})
}

func FuzzLineTable(f *testing.F) {
	r, _ := elf.NewFile(bytes.NewReader(seedELF()))
	line, _ := r.Section(".debug_line").Data()
	f.Add(line, []byte("dir\x00file\x00"))
	f.Fuzz(func(t *testing.T, line, str []byte) {
		work := meter{until: time.Now().Add(time.Minute)}
		tab, err := readLineTable(lineSections{line, str, str}, cursor{order: binary.LittleEndian}, 0, "/d", 8, func(uint64) bool { return true }, &work)
		if errors.Is(err, errBudget) {
			t.Fatal(err)
		}
		for _, s := range tab.seqs {
			if s.lo >= s.hi || len(s.rows) == 0 {
				t.Fatalf("sequence %+v", s)
			}
			for _, a := range []uint64{s.lo, s.hi - 1} {
				if n, _, ok := tab.find(a); ok {
					tab.fileName(n)
				}
			}
		}
	})
}

func FuzzReadable(f *testing.F) {
	for _, s := range []string{"_ZN6shapes3BoxIiE4growEi", "_RNvNtCs1234_7mycrate3foo3bar", "foo.part.0", "_ZN4core3fmt9Formatter3pad17h0123456789abcdefE"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if got := readable(s, false); len(got) > maxReadable+len("…") || got == "" && s != "" {
			t.Errorf("readable(%q) = %q", s, got)
		}
	})
}

func FuzzHeader(f *testing.F) {
	f.Add(seedELF()[:256])
	f.Fuzz(func(t *testing.T, b []byte) {
		id, err := BuildID(bytes.NewReader(b))
		if (id == "") != (err != nil) {
			t.Errorf("build id %q, error %v", id, err)
		}
		info, err := ReadLoads(bytes.NewReader(b))
		if err == nil && info.Lo > info.Hi {
			t.Errorf("%+v", info)
		}
		info.Bias(0x1000, 0)
	})
}

// TestManyProblems counts the units that could not be read beyond those that are told of.
func TestManyProblems(t *testing.T) {
	le := binary.LittleEndian
	var info []byte
	for range 10 { // entries of an abbreviation that does not exist
		info = append(le.AppendUint32(info, 8), 4, 0, 0, 0, 0, 0, 8, 9)
	}
	r := NewResolver(memFile(buildELF([]section{
		{".text", elf.SHT_PROGBITS, elf.SHF_ALLOC | elf.SHF_EXECINSTR, 0x1000, 0, make([]byte, 64), 0},
		{".debug_abbrev", elf.SHT_PROGBITS, 0, 0, 0, []byte{1, 0x11, 0, 0, 0, 0}, 0},
		{".debug_info", elf.SHT_PROGBITS, 0, 0, 0, info, 0},
	})))
	defer r.Close()
	if err := r.Add(trace.Module{ID: 1, Path: "/mem"}); err != nil {
		t.Fatal(err)
	}
	r.Resolve(1, []uint64{0x1000})
	checkNotes(t, r, "7 more problems")
}

// TestDamaged flips, cuts and overwrites real programs.
func TestDamaged(t *testing.T) {
	for _, args := range [][]string{{"-gdwarf-5"}, {"-gdwarf-4"}, {"-gdwarf-5", "-gz=zlib"}} {
		t.Run(args[len(args)-1], func(t *testing.T) {
			file := compile(t, "gcc", "plain.c", append(args, "-O2", "-g")...)
			whole, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			addrs := textAddrs(t, file, 50)
			rnd := rand.New(rand.NewPCG(5, 6))
			rounds := 400
			if testing.Short() {
				rounds = 50
			}
			named := 0
			for range rounds {
				b := bytes.Clone(whole)
				switch rnd.IntN(3) {
				case 0:
					b = b[:rnd.IntN(len(b))]
				case 1:
					for range 1 + rnd.IntN(40) {
						b[rnd.IntN(len(b))] = byte(rnd.Uint32())
					}
				case 2: // one region of rubbish
					at := rnd.IntN(len(b))
					for i := at; i < min(at+rnd.IntN(600), len(b)); i++ {
						b[i] = byte(rnd.Uint32())
					}
				}
				_, out := resolveBytes(t, b, addrs)
				for _, f := range out {
					if f != nil {
						named++
					}
				}
			}
			if named == 0 {
				t.Error("no address was ever named: the test tests nothing")
			}
		})
	}
}

// TestExplosive feeds files that would take unbounded memory or time if sizes and counts were trusted.
func TestExplosive(t *testing.T) {
	le := binary.LittleEndian
	text := section{".text", elf.SHT_PROGBITS, elf.SHF_ALLOC | elf.SHF_EXECINSTR, 0x1000, 0, make([]byte, 64), 0}
	dwarf := func(abbrev, info, line, str []byte) []byte {
		return buildELF([]section{text,
			{".debug_abbrev", elf.SHT_PROGBITS, 0, 0, 0, abbrev, 0},
			{".debug_info", elf.SHT_PROGBITS, 0, 0, 0, info, 0},
			{".debug_line", elf.SHT_PROGBITS, 0, 0, 0, line, 0},
			{".debug_str", elf.SHT_PROGBITS, 0, 0, 0, str, 0},
		})
	}
	unit := func(abbrevOff uint32, die []byte) []byte {
		b := le.AppendUint32(nil, uint32(7+len(die)))
		b = le.AppendUint32(append(b, 4, 0), abbrevOff)
		return append(append(b, 8), die...)
	}
	// Compile unit with low_pc, high_pc and stmt_list 0.
	cu := []byte{1, 0x11, 1, 0x11, 0x01, 0x12, 0x06, 0x10, 0x17, 0, 0}
	cuDie := append(le.AppendUint32(le.AppendUint64([]byte{1}, 0x1000), 64), 0, 0, 0, 0)

	compressed := func(claim uint64) section {
		h := le.AppendUint32(le.AppendUint32(nil, 1), 0)
		h = le.AppendUint64(le.AppendUint64(h, claim), 1)
		return section{".debug_info", elf.SHT_PROGBITS, elf.SHF_COMPRESSED, 0, 0, append(h, make([]byte, 100)...), 0}
	}
	overlapping := []byte{}
	for range 40000 {
		overlapping = append(overlapping, 1, 0x11, 0, 3, 8, 0, 0)
	}
	var manyUnits []byte
	for i := range uint32(40000) {
		manyUnits = append(manyUnits, unit(i*7, []byte{1, 'x', 0})...)
	}
	circle := append(append([]byte{}, cu...), 2, 0x2e, 0, 0x31, 0x13, 0x47, 0x13, 0x11, 0x01, 0x12, 0x06, 0, 0, 0)
	at := uint32(11 + len(cuDie))
	circleDie := le.AppendUint32(le.AppendUint32(append(bytes.Clone(cuDie), 2), at), at)
	circleDie = append(le.AppendUint32(le.AppendUint64(circleDie, 0x1000), 64), 0)

	wide := []byte{1, 0x11, 1}
	for range 60000 {
		wide = append(wide, 0x03, 0x19) // flag_present takes no bytes
	}
	wide = append(wide, 0, 0, 0)

	deepAbbrev := append(append([]byte{}, cu...), 2, 0x2e, 1, 0x11, 0x01, 0x12, 0x06, 0, 0, 3, 0x1d, 1, 0x11, 0x01, 0x12, 0x06, 0, 0, 0)
	deep := bytes.Clone(cuDie)
	deep = le.AppendUint32(le.AppendUint64(append(deep, 2), 0x1000), 64)
	for range 100000 {
		deep = le.AppendUint32(le.AppendUint64(append(deep, 3), 0x1000), 64)
	}

	// Version 5 line header: no format, 2^62 directories.
	line5 := []byte{5, 0, 8, 0, 100, 0, 0, 0, 1, 1, 1, 0xfb, 14, 13, 0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x3f}
	line5 = append(line5, make([]byte, 100)...)
	line5 = append(le.AppendUint32(nil, uint32(len(line5))), line5...)

	// Symbols whose names are all the tails of one long string, at one address.
	var tails []byte
	for i := range uint32(200000) {
		tails = append(le.AppendUint32(tails, i%60000), 0x12, 0, 1, 0)
		tails = le.AppendUint64(le.AppendUint64(tails, 0x1000), 64)
	}

	strUnit := append(append([]byte{}, cu...), 0)
	longStr := bytes.Repeat([]byte{'s'}, 8<<20)

	for _, c := range []struct {
		name string
		file []byte
		note string
	}{
		{"section claims 1 TiB", buildELF([]section{text, {".debug_info", elf.SHT_PROGBITS, 0, 0, 0, nil, 1 << 40}}), "module"},
		{"compressed section claims 1 TiB", buildELF([]section{text, compressed(1 << 40)}), "claims to expand"},
		{".zdebug claims 1 TiB", buildELF([]section{text, {".zdebug_info", elf.SHT_PROGBITS, 0, 0, 0, append([]byte("ZLIB\x00\x00\x01\x00\x00\x00\x00\x00"), make([]byte, 50)...), 0}}), "claims to expand"},
		{"overlapping abbreviation tables", dwarf(overlapping, manyUnits, nil, nil), ""},
		{"attributes without bytes", dwarf(wide, unit(0, []byte{1, 1, 1, 1}), nil, nil), "attributes"},
		{"circle of origins", dwarf(circle, unit(0, circleDie), nil, nil), "lies outside"},
		{"100,000 inlined calls deep", dwarf(deepAbbrev, unit(0, deep), nil, nil), "deep"},
		{"line header of 2^62 directories", dwarf(strUnit, unit(0, cuDie), line5, nil), "make no sense"},
		{"names that are tails of one string", buildELF([]section{text, {".symtab", elf.SHT_SYMTAB, 0, 0, 3, tails, 0}, {".strtab", elf.SHT_STRTAB, 0, 0, 0, longStr[:1<<17], 0}}), ""},
		{"string of 8 MiB", dwarf(strUnit, unit(0, cuDie), nil, longStr), "lies outside"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			r, _ := resolveBytes(t, c.file, []uint64{0x1000, 0x1010, 0x103f})
			runtime.ReadMemStats(&after)
			if mib := (after.TotalAlloc - before.TotalAlloc) >> 20; mib > 300 {
				t.Errorf("%d MiB were allocated", mib)
			}
			checkNotes(t, r, c.note)
		})
	}
}
