package symbols

import (
	"debug/elf"
	"os"
	"testing"

	"github.com/hbtrace/hbtrace/trace"
)

// TestCodeSegment: the entry of a program lies in it; files of several segments, and layouts that no mapping shows, have none.
func TestCodeSegment(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	f, err := elf.Open(exe)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if c := CodeSegment(f); f.Entry < c.Lo || f.Entry >= c.Hi {
		t.Errorf("code %#x to %#x, the entry is %#x", c.Lo, c.Hi, f.Entry)
	}
	load := func(flags elf.ProgFlag, vaddr, off, size uint64) *elf.Prog {
		return &elf.Prog{ProgHeader: elf.ProgHeader{Type: elf.PT_LOAD, Flags: flags, Vaddr: vaddr, Off: off, Memsz: size}}
	}
	code, data := load(elf.PF_R|elf.PF_X, 0x2a40, 0x1a40, 0x700), load(elf.PF_R, 0, 0, 0x1000)
	for _, tt := range []struct {
		name  string
		progs []*elf.Prog
		want  trace.Code
	}{
		{"one", []*elf.Prog{data, code}, trace.Code{Lo: 0x2000, Hi: 0x4000, Offset: 0x1000}},
		{"none", []*elf.Prog{data}, trace.Code{}},
		{"two", []*elf.Prog{code, load(elf.PF_X, 0x9000, 0x9000, 1)}, trace.Code{}},
		{"before the file's beginning", []*elf.Prog{load(elf.PF_X, 0x2a40, 0x40, 1)}, trace.Code{}},
		{"nonsense", []*elf.Prog{load(elf.PF_X, 1<<63, 0, 1<<63)}, trace.Code{}},
	} {
		if got := CodeSegment(&elf.File{Progs: tt.progs}); got != tt.want {
			t.Errorf("%s: %+v, want %+v", tt.name, got, tt.want)
		}
	}
}
