package symbols

// Split DWARF: what is said of inlined calls lies in files that are not read.

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestSplitDWARF: a program built with -gsplit-dwarf gets the lines and the physical functions that the same program has with its debug
// information in it, no inlined calls, and a note that says so; never another name. Also with the files packed beside it.
func TestSplitDWARF(t *testing.T) {
	for _, version := range []string{"-gdwarf-4", "-gdwarf-5"} {
		t.Run(version, func(t *testing.T) { splitDWARF(t, version, false) })
		t.Run(version+" dwp", func(t *testing.T) { splitDWARF(t, version, true) })
	}
}

func splitDWARF(t *testing.T, version string, pack bool) {
	whole := compile(t, "gcc", "plain.c", "-O2", "-g", version)
	split := compile(t, "gcc", "plain.c", "-O2", "-g", version, "-gsplit-dwarf")
	if !slices.Equal(text(t, whole), text(t, split)) {
		t.Skip("the compiler makes other code with -gsplit-dwarf: nothing to compare")
	}
	if pack {
		packSplit(t, split)
	}
	addrs := textAddrs(t, whole, 2000)
	rw, rs := open(t, Options{}, whole), open(t, Options{}, split)
	want, got := rw.Resolve(1, addrs), rs.Resolve(1, addrs)
	inlined, lines := 0, 0
	for i, w := range want {
		g := got[i]
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
	if !slices.ContainsFunc(rs.Notes(), func(n string) bool { return strings.Contains(n, "split debug information") }) {
		t.Errorf("no note on split debug information: %q", rs.Notes())
	}
}

// packSplit puts the .dwo files of a program into one package, PROGRAM.dwp, as distributions ship them, and takes them away.
func packSplit(t *testing.T, program string) {
	t.Helper()
	dwo, err := filepath.Glob(filepath.Join(filepath.Dir(program), "*.dwo"))
	if err != nil || len(dwo) == 0 {
		t.Fatalf("no .dwo beside %s (%v)", program, err)
	}
	var said []byte
	for _, tool := range []string{"dwp", "llvm-dwp", "llvm-dwp-14"} { // binutils' knows DWARF 5 since 2.41
		path, err := exec.LookPath(tool)
		if err != nil {
			continue
		}
		out, err := exec.Command(path, append([]string{"-o", program + ".dwp"}, dwo...)...).CombinedOutput()
		if err == nil {
			for _, f := range dwo {
				if err := os.Remove(f); err != nil {
					t.Fatal(err)
				}
			}
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
