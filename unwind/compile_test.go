package unwind

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite goldens")

// TestShapes compiles testdata/functions.s and holds every row against the golden.
func TestShapes(t *testing.T) {
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("needs gcc")
	}
	object := filepath.Join(t.TempDir(), "functions.so")
	if out, err := exec.Command("gcc", "-shared", "-nostdlib", "-Wl,--build-id=none", "-o", object, "testdata/functions.s").CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	file, err := elf.Open(object)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if file.Machine != elf.EM_X86_64 {
		t.Skipf("the functions are x86-64's, the assembler is for %s", file.Machine)
	}
	table, err := CompileELF(file)
	if err != nil {
		t.Fatal(err)
	}
	symbols, err := file.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(symbols, func(a, b elf.Symbol) int { return int(int64(a.Value) - int64(b.Value)) })
	name := func(pc uint64) string {
		out := fmt.Sprintf("text%+d", int64(pc-symbols[0].Value))
		for _, s := range symbols {
			if s.Value <= pc {
				out = fmt.Sprintf("%s%+d", s.Name, pc-s.Value)
			}
		}
		return out
	}
	var got strings.Builder
	table.Each(func(lo, hi uint64, r Rule) {
		if lo >= symbols[0].Value {
			fmt.Fprintf(&got, "%s %s\n", name(lo), r)
		}
	})
	const golden = "testdata/functions.golden"
	if *update {
		if err := os.WriteFile(golden, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got.String() != string(want) {
		t.Errorf("rows differ (-update rewrites the golden):\n got\n%s want\n%s", &got, want)
	}
	if table.Stats.Bad != 0 || table.Stats.FDEs != 8 {
		t.Errorf("stats %+v", table.Stats)
	}
}

// frameBytes makes call frame information by hand.
type frameBytes struct {
	b    []byte
	addr uint64 // of b[0]
}

func (f *frameBytes) record(body []byte) (at int) {
	at = len(f.b)
	for len(body)%4 != 0 {
		body = append(body, 0)
	}
	f.b = binary.LittleEndian.AppendUint32(f.b, uint32(len(body)))
	f.b = append(f.b, body...)
	return at
}

// cie is what gcc writes, with the augmentation "zR" and pc-relative 4-byte addresses.
func (f *frameBytes) cie(code ...byte) int {
	body := []byte{0, 0, 0, 0, 1, 'z', 'R', 0, 1, 0x78, 16, 1, 0x1b}
	return f.record(append(append(body, 0x0c, 7, 8, 0x90, 1), code...)) // def_cfa rsp+8; ra at c-8
}

func (f *frameBytes) fde(cie int, begin, size uint64, code ...byte) {
	body := binary.LittleEndian.AppendUint32(nil, uint32(len(f.b)+4-cie))
	body = binary.LittleEndian.AppendUint32(body, uint32(begin-(f.addr+uint64(len(f.b))+8)))
	body = binary.LittleEndian.AppendUint32(body, uint32(size))
	f.record(append(append(body, 0), code...))
}

const (
	testText   = 0x10000
	testFrames = 0x40000
)

// elfWith is an ELF file with 64 KiB of text at testText and a section of frames at testFrames.
func elfWith(name string, frames []byte) []byte {
	const headers, names = 64 + 2*56, "\x00.shstrtab\x00.eh_frame\x00.debug_frame\x00"
	var b bytes.Buffer
	le := binary.LittleEndian
	textAt := uint64(headers)
	framesAt := textAt + testFrames - testText
	namesAt := framesAt + uint64(len(frames))
	sectionsAt := (namesAt + uint64(len(names)) + 7) &^ 7
	binary.Write(&b, le, elf.Header64{
		Ident: [16]byte{0x7f, 'E', 'L', 'F', 2, 1, 1}, Type: uint16(elf.ET_DYN), Machine: uint16(elf.EM_X86_64), Version: 1,
		Phoff: 64, Shoff: sectionsAt, Ehsize: 64, Phentsize: 56, Phnum: 2, Shentsize: 64, Shnum: 3, Shstrndx: 1,
	})
	binary.Write(&b, le, elf.Prog64{Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R | elf.PF_X), Off: textAt, Vaddr: testText,
		Filesz: testFrames - testText, Memsz: testFrames - testText, Align: 1})
	binary.Write(&b, le, elf.Prog64{Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R), Off: framesAt, Vaddr: testFrames,
		Filesz: uint64(len(frames)), Memsz: uint64(len(frames)), Align: 1})
	b.Write(make([]byte, testFrames-testText))
	b.Write(frames)
	b.WriteString(names)
	b.Write(make([]byte, sectionsAt-namesAt-uint64(len(names))))
	binary.Write(&b, le, elf.Section64{})
	binary.Write(&b, le, elf.Section64{Name: 1, Type: uint32(elf.SHT_STRTAB), Off: namesAt, Size: uint64(len(names))})
	binary.Write(&b, le, elf.Section64{Name: uint32(strings.Index(names, name)), Type: uint32(elf.SHT_PROGBITS), Addr: testFrames,
		Off: framesAt, Size: uint64(len(frames))})
	return b.Bytes()
}

func compileFrames(t testing.TB, f *frameBytes) *Table {
	t.Helper()
	table, err := Compile(bytes.NewReader(elfWith(".eh_frame", f.b)))
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func TestFDEsThatMeet(t *testing.T) {
	sp := func(n int32) Rule { return Rule{Kind: SP, Off: n} }
	up := func(n byte) []byte { return []byte{0x0e, n} } // def_cfa_offset
	type fde struct {
		begin, size uint64
		code        []byte
	}
	for _, c := range []struct {
		name string
		fdes []fde
		want map[uint64]Rule
		ok   func(Stats) bool
	}{
		{"the gap between two is padding when small", []fde{{0x100, 0x10, up(16)}, {0x120, 0x10, up(24)}},
			map[uint64]Rule{0xff: {}, 0x100: sp(16), 0x11f: sp(16), 0x120: sp(24), 0x12f: sp(24), 0x130: {}}, nil},
		{"and unknown when large", []fde{{0x100, 0x10, up(16)}, {0x130, 0x10, up(24)}},
			map[uint64]Rule{0x10f: sp(16), 0x110: {}, 0x12f: {}, 0x130: sp(24)}, nil},
		{"not in order", []fde{{0x200, 0x10, up(16)}, {0x100, 0x10, up(24)}},
			map[uint64]Rule{0x100: sp(24), 0x200: sp(16), 0x110: {}}, nil},
		{"one inside another ends it", []fde{{0x100, 0x80, up(16)}, {0x140, 0x10, up(24)}},
			map[uint64]Rule{0x13f: sp(16), 0x140: sp(24), 0x14f: sp(24), 0x150: {}}, func(s Stats) bool { return s.Overlaps == 1 }},
		{"two at one address: the longer", []fde{{0x100, 0x10, up(16)}, {0x100, 0x20, up(24)}},
			map[uint64]Rule{0x100: sp(24), 0x11f: sp(24)}, func(s Stats) bool { return s.Overlaps == 1 }},
		{"what the linker dropped is not there", []fde{{^uint64(testText) + 1, 0x100, up(16)}, {0x100, 0x10, up(24)}, {0x80000, 0x10, up(32)}},
			map[uint64]Rule{0x100: sp(24), 0x10: {}}, func(s Stats) bool { return s.Dropped == 2 && s.FDEs == 1 }},
		{"an entry point that nobody calls", []fde{{0x100, 0xc, up(16)}, {0x110, 0x10, nil}},
			map[uint64]Rule{0x10c: sp(16), 0x10e: sp(16), 0x10f: {Kind: End}, 0x110: sp(8)}, nil},
		{"rows across a KiB", []fde{{0x3f0, 0x900, up(16)}},
			map[uint64]Rule{0x3f0: sp(16), 0x400: sp(16), 0x7ff: sp(16), 0x800: sp(16), 0xcef: sp(16), 0xcf0: {}}, nil},
		{"an advance beyond the end", []fde{{0x100, 0x10, []byte{0x0e, 16, 0x03, 0xff, 0xff, 0x0e, 24}}, {0x200, 0x10, up(32)}},
			map[uint64]Rule{0x10f: sp(16), 0x110: {}, 0x200: sp(32)}, nil},
		{"an unknown instruction", []fde{{0x100, 0x10, []byte{0x0e, 16, 0x44, 0x3f}}, {0x200, 0x10, up(32)}},
			map[uint64]Rule{0x103: sp(16), 0x104: {Kind: Other}, 0x10f: {Kind: Other}, 0x200: sp(32)}, func(s Stats) bool { return s.Bad == 1 }},
		{"restore without remember", []fde{{0x100, 0x10, []byte{0x0b}}, {0x200, 0x10, up(32)}},
			map[uint64]Rule{0x100: {Kind: Other}, 0x200: sp(32)}, func(s Stats) bool { return s.Bad == 1 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := &frameBytes{addr: testFrames}
			cie := f.cie()
			for _, d := range c.fdes {
				f.fde(cie, testText+d.begin, d.size, d.code...)
			}
			table := compileFrames(t, f)
			for at, want := range c.want {
				if got := table.Lookup(testText + at); got != want {
					t.Errorf("%#x: %s, want %s", at, got, want)
				}
			}
			if c.ok != nil && !c.ok(table.Stats) {
				t.Errorf("stats %+v", table.Stats)
			}
			consistent(t, table)
		})
	}
}

// consistent checks a table by itself: its blob opens, its rows are in order and cover its text, and look-ups give them.
func consistent(t testing.TB, table *Table) {
	t.Helper()
	opened, err := Open(table.Blob())
	if err != nil {
		t.Fatal(err)
	}
	lo, hi := table.Text()
	next, rows := lo, 0
	opened.Each(func(a, b uint64, r Rule) {
		rows++
		if a != next || b <= a && b != hi || b > hi {
			t.Fatalf("row %d is [%#x, %#x), want it at %#x, in [%#x, %#x)", rows, a, b, next, lo, hi)
		}
		for _, pc := range []uint64{a, b - 1} {
			if got := opened.Lookup(pc); b > a && got != r {
				t.Fatalf("%#x: %s, its row says %s", pc, got, r)
			}
		}
		next = b
	})
	if next != hi {
		t.Fatalf("rows end at %#x, the text at %#x", next, hi)
	}
}

func TestNotCompiled(t *testing.T) {
	f := &frameBytes{addr: testFrames}
	cie := f.cie()
	f.fde(cie, testText+0x100, 16)
	good := elfWith(".eh_frame", f.b)
	for _, c := range []struct {
		name string
		file []byte
		is   error
		says string
	}{
		{"no ELF", bytes.Repeat([]byte("#!/bin/sh\n"), 20), nil, "bad magic"},
		{"nothing in it", elfWith(".eh_frame", []byte{0, 0, 0, 0}), ErrNoCFI, ""},
		{"another architecture", bytes.Replace(good, []byte{3, 0, 62, 0}, []byte{3, 0, 8, 0}, 1), nil, "no tables for EM_MIPS"},
		{"cut", good[:len(good)-100], nil, ""},
	} {
		_, err := Compile(bytes.NewReader(c.file))
		if err == nil || c.is != nil && !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestDebugFrame(t *testing.T) {
	le := binary.LittleEndian
	var f frameBytes
	fde := func(cie uint32, begin uint64, code ...byte) {
		body := le.AppendUint64(le.AppendUint64(le.AppendUint32(nil, cie), begin), 16)
		f.record(append(body, code...))
	}
	fde(28, testText+0x100, 0x0e, 16) // its CIE comes behind
	cie := []byte{0xff, 0xff, 0xff, 0xff, 3, 0, 1, 0x78, 16, 0x0c, 7, 8, 0x90, 1}
	at := f.record(cie)
	if at != 28 {
		t.Fatalf("the CIE is at %d", at)
	}
	fde(28, testText+0x200, 0x0e, 24)
	table, err := Compile(bytes.NewReader(elfWith(".debug_frame", f.b)))
	if err != nil {
		t.Fatal(err)
	}
	if a, b := table.Lookup(testText+0x100), table.Lookup(testText+0x20f); a != (Rule{Kind: SP, Off: 16}) || b != (Rule{Kind: SP, Off: 24}) {
		t.Errorf("rules %s and %s", a, b)
	}
}

// TestWithoutSections: the tables of a file that lost its section headers are the same.
func TestWithoutSections(t *testing.T) {
	files := realFiles(t)
	if len(files) == 0 {
		t.Skip("no library to compile")
	}
	whole, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	want, err := Compile(bytes.NewReader(whole))
	if err != nil {
		t.Fatal(err)
	}
	bare := bytes.Clone(whole)
	clear(bare[40:48]) // e_shoff
	clear(bare[60:64]) // e_shnum, e_shstrndx
	got, err := Compile(bytes.NewReader(bare))
	if err != nil {
		t.Fatal(err)
	}
	if got.Stats.Source != "PT_GNU_EH_FRAME" || !bytes.Equal(got.Blob(), want.Blob()) {
		t.Errorf("from %s: %d rows; with sections %d rows", got.Stats.Source, got.Stats.Rows, want.Stats.Rows)
	}
}

// FuzzCFI compiles whatever bytes as .eh_frame or .debug_frame: no panic, and a table that holds together.
func FuzzCFI(f *testing.F) {
	seed := &frameBytes{addr: testFrames}
	cie := seed.cie()
	seed.fde(cie, testText+0x100, 0x40, 0x41, 0x0e, 16, 0x86, 2, 0x43, 0x0d, 6, 0x0a, 0x50, 0x0c, 7, 8, 0x0b)
	seed.fde(cie, testText+0x180, 0x40, 0x0f, 3, 0x76, 0x78, 6, 0x10, 6, 2, 0x76, 0, 0x02, 9, 0x07, 16)
	seed.fde(cie, testText+0x200, 0x40, 0x0f, 11, 0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22)
	f.Add(seed.b, false)
	f.Add([]byte{14, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 3, 0, 1, 0x78, 16, 0x0c, 7, 8, 0x90, 1}, true)
	f.Fuzz(func(t *testing.T, frames []byte, debug bool) {
		name := ".eh_frame"
		if debug {
			name = ".debug_frame"
		}
		table, err := Compile(bytes.NewReader(elfWith(name, frames)))
		if err != nil {
			return
		}
		consistent(t, table)
		if rows := table.Stats.Rows; rows > 4*len(frames)+4 {
			t.Errorf("%d rows out of %d bytes", rows, len(frames))
		}
	})
}

// FuzzELF compiles whatever file.
func FuzzELF(f *testing.F) {
	seed := &frameBytes{addr: testFrames}
	seed.fde(seed.cie(), testText+0x100, 0x40, 0x41, 0x0e, 16)
	whole := elfWith(".eh_frame", seed.b)
	// without the empty text, or mutations seldom hit anything
	f.Add(whole[:400], whole[len(whole)-400:])
	f.Fuzz(func(t *testing.T, head, end []byte) {
		file := bytes.Clone(whole)
		copy(file, head)
		if n := len(file) - len(end); n > 0 {
			copy(file[n:], end)
		}
		if table, err := Compile(bytes.NewReader(file)); err == nil {
			consistent(t, table)
		}
	})
}

// FuzzOpen opens whatever blob and looks everything up in it.
func FuzzOpen(f *testing.F) {
	seed := &frameBytes{addr: testFrames}
	seed.fde(seed.cie(), testText+0x100, 0x40, 0x41, 0x0e, 16)
	f.Add(compileFrames(f, seed).Blob())
	f.Fuzz(func(t *testing.T, blob []byte) {
		table, err := Open(blob)
		if err != nil {
			return
		}
		lo, hi := table.Text()
		step := (hi-lo)/1000 + 1
		for pc := lo; pc < hi && pc >= lo; pc += step {
			table.Lookup(pc)
		}
		table.Each(func(lo, hi uint64, r Rule) { _ = r.String() })
	})
}
