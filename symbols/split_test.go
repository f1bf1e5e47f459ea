package symbols

// Split DWARF: programs whose debug information lies in .dwo files or in a .dwp package, made by real compilers.

import (
	"debug/elf"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// TestSplitDWARF: a program built with -gsplit-dwarf gets the functions, inlined calls and lines that the same program has with its debug
// information in it: with the .dwo files where they were made, next to a program that was moved, and packed. Without them, or with those of
// another build, it gets the physical functions and lines, and a note that says so; never another name.
func TestSplitDWARF(t *testing.T) {
	for _, c := range [][3]string{
		{"gcc", "-gdwarf-4", "plain.c"}, {"gcc", "-gdwarf-5", "plain.c"}, {"g++", "-gdwarf-5", "inline.cc"},
		{"clang", "-gdwarf-4", "plain.c"}, {"clang", "-gdwarf-5", "plain.c"},
	} {
		t.Run(c[0]+c[1]+" "+c[2], func(t *testing.T) { splitDWARF(t, c[0], c[1], c[2]) })
	}
}

func splitDWARF(t *testing.T, compiler, version, src string) {
	whole := compile(t, compiler, src, "-O2", "-g", version)
	split := compileSplit(t, compiler, src, version)
	if !slices.Equal(text(t, whole), text(t, split)) {
		t.Skip("the compiler makes other code with -gsplit-dwarf: nothing to compare")
	}
	addrs := textAddrs(t, whole, 2000)
	want := open(t, Options{}, whole).Resolve(1, addrs)
	same := func(t *testing.T, program string) {
		t.Helper()
		r := open(t, Options{}, program)
		for i, got := range r.Resolve(1, addrs) {
			if !reflect.DeepEqual(got, want[i]) {
				t.Fatalf("%#x: %+v, want %+v", addrs[i], got, want[i])
			}
		}
		if n := r.Notes(); len(n) > 0 {
			t.Errorf("notes: %q", n)
		}
	}
	// No inlined calls: the outermost function, the innermost line.
	without := func(t *testing.T, program, note string) {
		t.Helper()
		r := open(t, Options{}, program)
		inlined, lines := 0, 0
		for i, g := range r.Resolve(1, addrs) {
			w := want[i]
			if len(w) == 0 != (len(g) == 0) {
				t.Fatalf("%#x: %v, want %v", addrs[i], g, w)
			}
			if len(w) == 0 {
				continue
			}
			if outer := w[len(w)-1]; len(g) != 1 || g[0].Linkage != outer.Linkage || g[0].Func != outer.Func {
				t.Fatalf("%#x: %+v, want one frame of %+v", addrs[i], g, w)
			}
			if g[0].File != w[0].File || g[0].Line != w[0].Line {
				t.Fatalf("%#x: %s:%d, want %s:%d", addrs[i], g[0].File, g[0].Line, w[0].File, w[0].Line)
			}
			if len(w) > 1 {
				inlined++
			}
			if g[0].Line > 0 {
				lines++
			}
		}
		if inlined == 0 || lines == 0 {
			t.Errorf("%d addresses in inlined calls, %d with a line: the program tests nothing", inlined, lines)
		}
		if n := r.Notes(); len(n) != 1 || !strings.Contains(n[0], note) || !strings.HasSuffix(n[0], ": no inlined functions there") {
			t.Errorf("notes: %q, want one that says %q", n, note)
		}
	}
	dwo, err := filepath.Glob(filepath.Join(filepath.Dir(split), "*.dwo"))
	if err != nil || len(dwo) != 1 {
		t.Fatalf("%q beside %s (%v)", dwo, split, err)
	}
	t.Run("where it was made", func(t *testing.T) { same(t, split) })
	t.Run("of another build", func(t *testing.T) {
		other := filepath.Join(filepath.Dir(split), "other")
		move(t, dwo[0], other)
		defer move(t, other, dwo[0])
		b, err := os.ReadFile(other)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(dwo[0], otherID(t, other, b), 0o600); err != nil {
			t.Fatal(err)
		}
		without(t, split, "is of another build: not used")
	})
	// The program's link to the place where it was made is dead from here on.
	moved := filepath.Join(t.TempDir(), "program")
	move(t, split, moved)
	kept := filepath.Join(t.TempDir(), filepath.Base(dwo[0]))
	move(t, dwo[0], kept)
	t.Run("gone", func(t *testing.T) { without(t, moved, "no such file or directory") })
	t.Run("packed", func(t *testing.T) {
		packSplit(t, version, moved+".dwp", kept)
		defer os.Remove(moved + ".dwp")
		same(t, moved)
	})
	t.Run("not in the package", func(t *testing.T) {
		if err := os.WriteFile(moved+".dwp", splitELF(unitIndex(splitID, wholeParts())), 0o600); err != nil {
			t.Fatal(err)
		}
		defer os.Remove(moved + ".dwp")
		without(t, moved, "not in "+moved+".dwp, and ")
	})
	t.Run("beside the program", func(t *testing.T) {
		move(t, kept, filepath.Join(filepath.Dir(moved), filepath.Base(kept)))
		same(t, moved)
	})
}

// compileSplit compiles with the object, and so the .dwo, in a directory of the test's.
func compileSplit(t *testing.T, compiler, src, version string) string {
	t.Helper()
	object := compile(t, compiler, src, "-O2", "-g", version, "-gsplit-dwarf", "-c")
	program := filepath.Join(filepath.Dir(object), "linked")
	run(t, compiler, "-o", program, object)
	return program
}

func move(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

// otherID returns a .dwo file with another id in it: in the header of its unit (DWARF 5), or in its first entry.
func otherID(t *testing.T, path string, b []byte) []byte {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s := f.Section(".debug_info.dwo")
	info := b[s.Offset:][:s.Size]
	at := 12
	if binary.LittleEndian.Uint16(info[4:]) < 5 {
		units, err := scanUnits(info, f.ByteOrder)
		if err != nil {
			t.Fatal(err)
		}
		abbrev, err := f.Section(".debug_abbrev.dwo").Data()
		if err != nil {
			t.Fatal(err)
		}
		d := &dwarfInfo{info: info, order: f.ByteOrder}
		table, err := readAbbrevs(abbrev, units[0].abbrevOff, units[0].shape, 0)
		if err != nil {
			t.Fatal(err)
		}
		var e entry
		if err := d.readEntry(&units[0], table, units[0].die, &e); err != nil {
			t.Fatal(err)
		}
		id, ok := e.get(attrDwoID)
		if !ok {
			t.Fatal("no id")
		}
		var want [8]byte
		f.ByteOrder.PutUint64(want[:], id.v)
		at = strings.Index(string(info), string(want[:]))
	}
	info[at]++
	return b
}

// packSplit puts .dwo files into a package, as distributions ship them.
func packSplit(t *testing.T, version, to string, dwo ...string) {
	t.Helper()
	var said []byte
	tools := []string{"dwp", "llvm-dwp", "llvm-dwp-14"}
	if version == "-gdwarf-5" {
		tools = tools[1:] // binutils' 2.40 makes packages of it that have no units in them
	}
	for _, tool := range tools {
		path, err := exec.LookPath(tool)
		if err != nil {
			continue
		}
		out, err := exec.Command(path, append([]string{"-o", to}, dwo...)...).CombinedOutput()
		if err == nil {
			return
		}
		said = append(said, out...)
	}
	t.Skipf("needs dwp (binutils) or llvm-dwp that packs such files: %s", said)
}

// text is the code of a file.
func text(t *testing.T, file string) []byte {
	t.Helper()
	f, err := elf.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b, err := f.Section(".text").Data()
	if err != nil {
		t.Fatal(err)
	}
	return b
}
