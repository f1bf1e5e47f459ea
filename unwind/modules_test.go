package unwind

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"os/exec"
	"slices"
	"testing"
)

func TestDisjoint(t *testing.T) {
	for _, c := range []struct {
		name     string
		in, want []Module
	}{
		{"sorted", []Module{{Lo: 30, Hi: 40}, {Lo: 10, Hi: 20}}, []Module{{Lo: 10, Hi: 20}, {Lo: 30, Hi: 40}}},
		{"touching", []Module{{Lo: 10, Hi: 20}, {Lo: 20, Hi: 30}}, []Module{{Lo: 10, Hi: 20}, {Lo: 20, Hi: 30}}},
		{"the later one cuts", []Module{{Lo: 10, Hi: 30, Bias: 1}, {Lo: 20, Hi: 40, Bias: 2}}, []Module{{Lo: 10, Hi: 20, Bias: 1}, {Lo: 20, Hi: 40, Bias: 2}}},
		{"or replaces", []Module{{Lo: 10, Hi: 30, Bias: 1}, {Lo: 10, Hi: 20, Bias: 2}}, []Module{{Lo: 10, Hi: 20, Bias: 2}}},
		{"empty, upside down, kernel", []Module{{Lo: 10, Hi: 10}, {Lo: 20, Hi: 15}, {Lo: 5, Hi: 1 << 60}}, nil},
	} {
		if got := disjoint(c.in); !slices.Equal(got, c.want) {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

func TestRegion(t *testing.T) {
	f := &frameBytes{addr: testFrames}
	f.fde(f.cie(), testText+0x100, 16)
	table := compileFrames(t, f)
	mem := make([]byte, 8192)
	r, err := NewRegion(mem, 4, elf.EM_X86_64)
	if err != nil {
		t.Fatal(err)
	}
	at, err := r.AddTable("a", table)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := r.AddTable("a", table); err != nil || again != at {
		t.Errorf("the same table again: %#x, %v, want %#x", again, err, at)
	}
	if at%8 != 0 || !slices.Equal(mem[at:at+uint64(len(table.Blob()))], table.Blob()) {
		t.Errorf("the table is not at %#x", at)
	}
	if _, ok := r.Table("b"); ok {
		t.Error("there is a table b")
	}
	first, err := r.Publish(2, 77, []Module{{Lo: 0x1000, Hi: 0x2000, Table: at}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	list := binary.LittleEndian.Uint64(mem[64+2*16:])
	if list == 0 || binary.LittleEndian.Uint64(mem[list+8:]) != first || binary.LittleEndian.Uint32(mem[list+16:]) != 77 {
		t.Errorf("slot 2 has %#x", list)
	}
	second, err := r.Publish(1, 78, nil, nil)
	if err != nil || second <= first {
		t.Errorf("generations %d and %d: %v", first, second, err)
	}
	r.Withdraw(2)
	if binary.LittleEndian.Uint64(mem[64+2*16:]) != 0 {
		t.Error("slot 2 was withdrawn and has a list")
	}
	for _, c := range []struct {
		slot  int
		table uint64
	}{{4, 0}, {-1, 0}, {0, 8}, {0, 1 << 20}} {
		if _, err := r.Publish(c.slot, 1, []Module{{Lo: 1, Hi: 2, Table: c.table}}, nil); err == nil {
			t.Errorf("published to slot %d with a table at %#x", c.slot, c.table)
		}
	}
	for n := 0; ; n++ {
		if _, err := r.Publish(0, 1, make([]Module, 0), nil); err != nil {
			if !errors.Is(err, ErrRegionFull) {
				t.Error(err)
			}
			break
		}
		if n > 8192/32 {
			t.Fatal("the region never fills")
		}
	}
	if _, err := r.AddTable("c", table); !errors.Is(err, ErrRegionFull) {
		t.Errorf("a table in a full region: %v", err)
	}
	if _, err := NewRegion(mem[:100], 4, elf.EM_X86_64); !errors.Is(err, ErrRegionFull) {
		t.Errorf("a region of 100 bytes: %v", err)
	}
}

// TestFreestanding compiles the C side as the agent is compiled.
func TestFreestanding(t *testing.T) {
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("needs gcc")
	}
	cmd := exec.Command("gcc", "-std=gnu11", "-D_GNU_SOURCE", "-O2", "-nostdlib", "-ffreestanding", "-fPIC", "-fvisibility=hidden", "-ftls-model=initial-exec",
		"-fno-stack-protector", "-U_FORTIFY_SOURCE", "-fno-tree-loop-distribute-patterns", "-Wall", "-Wextra", "-Werror", "-Wconversion", "-Wshadow",
		"-Wno-unused-function", "-Wno-unused-variable", "-I..", "-c", "-o", "/dev/null", "testdata/freestanding.c")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("gcc: %v\n%s", err, out)
	}
}
