package symbols

// Split DWARF made by hand: units and packages that no compiler makes, and damage.

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/hbtrace/hbtrace/trace"
)

const splitID = 0x1122334455667788

// skeletonELF is a program of one skeleton (DWARF 5) for 0x1000 to 0x1100, whose unit is in /a.dwo.
func skeletonELF() []byte {
	le := binary.LittleEndian
	abbrev := []byte{1, 0x4a, 0, 0x76, 0x08, 0x1b, 0x08, 0x11, 0x01, 0x12, 0x06, 0, 0, 0} // skeleton_unit: dwo_name, comp_dir, low_pc, high_pc
	die := append([]byte{1}, "a.dwo\x00/\x00"...)
	die = le.AppendUint32(le.AppendUint64(die, 0x1000), 0x100)
	info := append(unitHeader(4, len(die)), die...)
	return buildELF([]section{
		{".text", elf.SHT_PROGBITS, elf.SHF_ALLOC | elf.SHF_EXECINSTR, 0x1000, 0, make([]byte, 0x100), 0},
		{".debug_abbrev", elf.SHT_PROGBITS, 0, 0, 0, abbrev, 0},
		{".debug_info", elf.SHT_PROGBITS, 0, 0, 0, info, 0},
	})
}

// unitHeader is of a DWARF 5 unit with an id, of so many bytes behind it.
func unitHeader(typ byte, size int) []byte {
	le := binary.LittleEndian
	h := le.AppendUint32(nil, uint32(16+size))
	h = append(h, 5, 0, typ, 8, 0, 0, 0, 0)
	return le.AppendUint64(h, splitID)
}

// splitELF is a .dwo file with outer from 0x1000 to 0x1100 and inlinee in it from 0x1010 to 0x1020; with an index it is a package.
func splitELF(index []byte) []byte {
	le := binary.LittleEndian
	abbrev := []byte{
		1, 0x11, 1, 0x03, 0x08, 0, 0, // compile_unit: name
		2, 0x2e, 1, 0x03, 0x25, 0x11, 0x01, 0x12, 0x06, 0, 0, // subprogram: name (strx1), low_pc, high_pc
		3, 0x1d, 0, 0x31, 0x13, 0x11, 0x01, 0x12, 0x06, 0, 0, // inlined_subroutine: origin, pcs
		4, 0x2e, 0, 0x03, 0x08, 0, 0, // subprogram: name
		0,
	}
	die := append([]byte{1}, "a.c\x00"...)
	inlinee := uint32(20 + len(die))
	die = append(append(die, 4), "inlinee\x00"...)
	die = le.AppendUint32(le.AppendUint64(append(die, 2, 0), 0x1000), 0x100)
	die = le.AppendUint32(append(die, 3), inlinee)
	die = le.AppendUint32(le.AppendUint64(die, 0x1010), 0x10)
	die = append(die, 0, 0)
	offsets := append(le.AppendUint32(nil, 8), 5, 0, 0, 0, 1, 0, 0, 0) // length, version, padding; string 0 at 1
	return buildELF([]section{
		{".debug_info.dwo", elf.SHT_PROGBITS, 0, 0, 0, append(unitHeader(5, len(die)), die...), 0},
		{".debug_abbrev.dwo", elf.SHT_PROGBITS, 0, 0, 0, abbrev, 0},
		{".debug_str.dwo", elf.SHT_PROGBITS, 0, 0, 0, []byte("\x00outer\x00"), 0},
		{".debug_str_offsets.dwo", elf.SHT_PROGBITS, 0, 0, 0, offsets, 0},
		{".debug_cu_index", elf.SHT_PROGBITS, 0, 0, 0, index, 0},
	})
}

// unitIndex is a .debug_cu_index of version 5 that has one unit, with these parts of .debug_info, .debug_abbrev and .debug_str_offsets.
func unitIndex(id uint64, parts [3][2]uint32) []byte {
	le := binary.LittleEndian
	b := []byte{5, 0, 0, 0, 3, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0}
	b = le.AppendUint64(append(b, make([]byte, 8)...), id)
	b = append(b, 0, 0, 0, 0, 1, 0, 0, 0)
	b = append(b, 1, 0, 0, 0, 3, 0, 0, 0, 6, 0, 0, 0)
	for k := range 2 {
		for _, p := range parts {
			b = le.AppendUint32(b, p[k])
		}
	}
	return b
}

// wholeParts are those of splitELF's sections, all of them.
func wholeParts() (parts [3][2]uint32) {
	f, err := elf.NewFile(bytes.NewReader(splitELF(nil)))
	if err != nil {
		panic(err)
	}
	for i, n := range []string{"info", "abbrev", "str_offsets"} {
		parts[i] = [2]uint32{0, uint32(f.Section(".debug_" + n + ".dwo").Size)}
	}
	return parts
}

// emptyPackage is one without units, such as binutils 2.40 makes of DWARF 5.
func emptyPackage() []byte { return splitELF(make([]byte, 16, 32)) }

// resolveSplit resolves addresses of skeletonELF with a file at path.
func resolveSplit(t testing.TB, path string, b []byte, addrs []uint64) ([]string, [][]trace.SymFrame) {
	t.Helper()
	o := memFile(skeletonELF())
	program := o.Open
	o.Open = func(p string) (ReaderAtCloser, error) {
		switch p {
		case path:
			return nopCloser{bytes.NewReader(b)}, nil
		case "/mem", "/a.dwo", "/mem.dwp":
			return program(p)
		}
		t.Errorf("%q was opened", p)
		return nil, os.ErrNotExist
	}
	r := NewResolver(o)
	defer r.Close()
	if err := r.Add(trace.Module{ID: 1, Path: "/mem"}); err != nil {
		t.Fatal(err)
	}
	out := r.Resolve(1, addrs)
	for _, fs := range out {
		for i, f := range fs {
			if f.Func == "" || f.Inlined != (i+1 < len(fs)) || len(fs) > maxInline {
				t.Fatalf("frames make no sense: %+v", fs)
			}
		}
	}
	return r.Notes(), out
}

func TestHandMadeSplit(t *testing.T) {
	whole := wholeParts()
	moved := whole
	moved[0][0] = 1 << 20
	long := whole
	long[1][1] = 1<<32 - 1
	index := unitIndex(splitID, whole)
	for _, c := range []struct {
		name, path string
		file       []byte
		note       string // "": the names are there
	}{
		{"loose", "/a.dwo", splitELF(nil), ""},
		{"packed", "/mem.dwp", splitELF(index), ""},
		{"no file", "/nothing", nil, "file does not exist"},
		{"no unit in the package", "/mem.dwp", emptyPackage(), "version 0 is unknown"},
		{"another unit in the package", "/mem.dwp", splitELF(unitIndex(splitID+1, whole)), "not in /mem.dwp, and "},
		{"another unit than the index says", "/mem.dwp", bytes.Replace(splitELF(index), unitHeader(5, 0)[12:], make([]byte, 8), 1), "/mem.dwp is of another build"},
		{"another build", "/a.dwo", bytes.Replace(splitELF(nil), unitHeader(5, 0)[12:], make([]byte, 8), 1), "/a.dwo is of another build"},
		{"a part outside", "/mem.dwp", splitELF(unitIndex(splitID, moved)), "outside of .debug_info.dwo"},
		{"a part too long", "/mem.dwp", splitELF(unitIndex(splitID, long)), "outside of .debug_abbrev.dwo"},
		{"an index cut off", "/mem.dwp", splitELF(index[:len(index)-1]), "makes no sense"},
		{"an index of a billion units", "/mem.dwp", splitELF([]byte{5, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 64, 0, 0, 0, 128}), "makes no sense"},
		{"no ELF file", "/a.dwo", []byte("nothing"), "/a.dwo: "},
	} {
		t.Run(c.name, func(t *testing.T) {
			notes, got := resolveSplit(t, c.path, c.file, []uint64{0x1014, 0x1040})
			if c.note == "" {
				if len(notes) > 0 || len(got[0]) != 2 || got[0][0].Func != "inlinee" || got[0][1].Func != "outer" || len(got[1]) != 1 || got[1][0].Func != "outer" {
					t.Errorf("%+v, notes %q", got, notes)
				}
				return
			}
			if got[0] != nil || got[1] != nil {
				t.Errorf("names out of nowhere: %+v", got)
			}
			if !strings.Contains(strings.Join(notes, "\n"), c.note) {
				t.Errorf("notes %q, want one that says %q", notes, c.note)
			}
		})
	}
}

func TestDamagedSplit(t *testing.T) {
	rnd := rand.New(rand.NewPCG(7, 8))
	addrs := []uint64{0x1000, 0x1014, 0x1040, 0x10ff}
	named := 0
	for i := range 1000 {
		path, b := "/a.dwo", splitELF(nil)
		if i%2 == 1 {
			path, b = "/mem.dwp", splitELF(unitIndex(splitID, wholeParts()))
		}
		for range 1 + rnd.IntN(6) {
			b[64+rnd.IntN(len(b)-64)] = byte(rnd.Uint32())
		}
		_, out := resolveSplit(t, path, b, addrs)
		for _, fs := range out {
			if fs != nil {
				named++
			}
		}
	}
	if named == 0 {
		t.Error("no address was ever named: the test tests nothing")
	}
}

// FuzzSplit reads hostile .dwo files and packages.
func FuzzSplit(f *testing.F) {
	f.Add(false, splitELF(nil))
	f.Add(true, splitELF(unitIndex(splitID, wholeParts())))
	f.Add(true, emptyPackage())
	f.Fuzz(func(t *testing.T, packed bool, b []byte) {
		path := "/a.dwo"
		if packed {
			path = "/mem.dwp"
		}
		resolveSplit(t, path, b, []uint64{0x1000, 0x1014, 0x1040, 0x10ff})
	})
}
