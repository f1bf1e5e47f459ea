package symbols

// Comparison with addr2line -i of binutils on compiled programs.

import (
	"bytes"
	"debug/elf"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/hbtrace/hbtrace/trace"
)

// tool returns the path of a program, or skips the test.
func tool(t testing.TB, name string) string {
	t.Helper()
	if p, err := exec.LookPath(name); err == nil {
		return p
	}
	if home, err := os.UserHomeDir(); err == nil {
		if p, err := exec.LookPath(filepath.Join(home, ".cargo", "bin", name)); err == nil {
			return p
		}
	}
	t.Skipf("%s is not installed", name)
	return ""
}

func run(t testing.TB, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(tool(t, name), args...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// compile builds testdata/src with the compiler and arguments, and returns the program's path.
func compile(t testing.TB, compiler, src string, args ...string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "prog")
	abs, err := filepath.Abs(filepath.Join("testdata", src))
	if err != nil {
		t.Fatal(err)
	}
	run(t, compiler, append(args, "-o", out, abs)...)
	return out
}

// open adds a file as module 1.
func open(t testing.TB, o Options, file string) *Resolver {
	t.Helper()
	r := NewResolver(o)
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	if err := r.Add(trace.Module{ID: 1, Path: file}); err != nil {
		t.Fatal(err)
	}
	return r
}

// textAddrs returns n random addresses of the file's .text, in no order.
func textAddrs(t testing.TB, file string, n int) []uint64 {
	t.Helper()
	f, err := elf.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	text := f.Section(".text")
	rnd := rand.New(rand.NewPCG(1, 2))
	as := make([]uint64, n)
	for i := range as {
		as[i] = text.Addr + rnd.Uint64N(text.Size)
	}
	return as
}

type oracleFrame struct {
	fn, file string
	line     int
}

// addr2line returns binutils' answer per address: raw names, "" for ??.
func addr2line(t testing.TB, file string, addrs []uint64) [][]oracleFrame {
	t.Helper()
	cmd := exec.Command(tool(t, "addr2line"), "-a", "-i", "-f", "-e", file)
	var in bytes.Buffer
	for _, a := range addrs {
		fmt.Fprintf(&in, "%#x\n", a)
	}
	cmd.Stdin = &in
	b, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var out [][]oracleFrame
	lines := strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
	for i := 0; i < len(lines); {
		if strings.HasPrefix(lines[i], "0x") {
			out = append(out, nil)
			i++
			continue
		}
		fn, loc := lines[i], lines[i+1]
		i += 2
		if k := strings.Index(loc, " (discriminator"); k >= 0 {
			loc = loc[:k]
		}
		k := strings.LastIndexByte(loc, ':')
		f := oracleFrame{fn: fn, file: loc[:k]}
		f.line, _ = strconv.Atoi(loc[k+1:])
		if fn == "??" {
			f.fn = ""
		}
		if f.file == "??" {
			f.file = ""
		}
		out[len(out)-1] = append(out[len(out)-1], f)
	}
	if len(out) != len(addrs) {
		t.Fatalf("addr2line gave %d answers for %d addresses", len(out), len(addrs))
	}
	return out
}

// sameName compares a function's name. The oracle names the outermost function as DWARF does, we as the symbol table
// does; it names C++ functions that have no linkage name without their scope.
func sameName(got trace.SymFrame, want string) bool {
	return got.Linkage == want || trimClone(got.Linkage) == trimClone(want) ||
		readable(got.Linkage, false) == readable(want, false) || strings.HasSuffix(got.Func, "::"+want)
}

// verdict of one address.
type verdict int

const (
	same verdict = iota
	differs
	padding // no function is here: we say nothing, the oracle the function before
	oddName // the oracle gives an inlined function without linkage name the name of the outermost
	oddFile // the oracle gives the unit's main file, or the last one it saw, with the line of an included one
)

func judge(got []trace.SymFrame, want []oracleFrame, covered bool) verdict {
	if len(want) == 1 && want[0].fn == "" && got == nil {
		return same
	}
	if got == nil && !covered {
		return padding
	}
	if len(got) != len(want) {
		return differs
	}
	v := same
	for i, g := range got {
		w := want[i]
		if g.Inlined != (i+1 < len(got)) || g.Line != w.line {
			return differs
		}
		if !sameName(g, w.fn) {
			if !g.Inlined || mangled(g.Linkage) || w.fn != want[len(want)-1].fn {
				return differs
			}
			v = oddName
		}
		// Without a line the oracle shows the symbol table's file name.
		if w.line != 0 && g.File != path.Clean(w.file) {
			if main := path.Base(w.file); !strings.HasSuffix(g.File, ".h") || main != "inline.cc" && main != "<artificial>" {
				return differs
			}
			v = oddFile
		}
	}
	return v
}

// coverage returns whether a sized function symbol covers an address.
func coverage(t *testing.T, file string) func(uint64) bool {
	t.Helper()
	f, err := elf.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	syms, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	return func(a uint64) bool {
		for _, s := range syms {
			if elf.ST_TYPE(s.Info) == elf.STT_FUNC && a >= s.Value && a < s.Value+s.Size {
				return true
			}
		}
		return false
	}
}

// compare resolves addresses of a file and counts the verdicts against the oracle's answers for oracleFile.
func compare(t *testing.T, file, oracleFile string, addrs []uint64) (count map[verdict]int, inlined int) {
	t.Helper()
	r := open(t, Options{}, file)
	got := r.Resolve(1, addrs)
	want := addr2line(t, oracleFile, addrs)
	covered := coverage(t, file)
	count = map[verdict]int{}
	for i := range addrs {
		if len(want[i]) > 1 {
			inlined++
		}
		v := judge(got[i], want[i], got[i] != nil || covered(addrs[i]))
		if count[v]++; v == differs && count[v] <= 8 {
			t.Logf("%#x:\n got  %+v\n want %+v", addrs[i], got[i], want[i])
		}
	}
	for _, n := range r.Notes() {
		t.Errorf("note: %s", n)
	}
	t.Logf("%d addresses, %d in inlined code: %d same, %d differ, %d padding, %d oddly named, %d with an odd file", len(addrs), inlined,
		count[same], count[differs], count[padding], count[oddName], count[oddFile])
	return count, inlined
}

func TestOracle(t *testing.T) {
	for _, c := range []struct {
		name, compiler, src string
		args                []string
	}{
		{"c-v5", "gcc", "plain.c", []string{"-O2", "-g", "-gdwarf-5"}},
		{"c-v4-nopie", "gcc", "plain.c", []string{"-O2", "-g", "-gdwarf-4", "-no-pie"}},
		{"c++-v5", "g++", "inline.cc", []string{"-O2", "-g", "-gdwarf-5"}},
		{"c++-v4", "g++", "inline.cc", []string{"-O2", "-g", "-gdwarf-4"}},
		{"c++-v5-zlib", "g++", "inline.cc", []string{"-O2", "-g", "-gdwarf-5", "-gz=zlib"}},
		{"c++-v4-zlib-gnu", "g++", "inline.cc", []string{"-O2", "-g", "-gdwarf-4", "-gz=zlib-gnu"}},
		{"c++-O0", "g++", "inline.cc", []string{"-O0", "-g"}},
		{"c++-O3-lto", "g++", "inline.cc", []string{"-O3", "-g", "-flto"}},
		{"c++-types-gc", "g++", "inline.cc", []string{"-O2", "-g", "-gdwarf-4", "-fdebug-types-section", "-ffunction-sections", "-Wl,--gc-sections"}},
		{"rust-legacy", "rustc", "crate.rs", []string{"-g", "-O", "-C", "symbol-mangling-version=legacy", "-Z", "unstable-options"}},
		{"rust-v0", "rustc", "crate.rs", []string{"-g", "-O", "-C", "symbol-mangling-version=v0"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("RUSTC_BOOTSTRAP", "1") // for the legacy mangling of newer compilers
			file := compile(t, c.compiler, c.src, c.args...)
			checkCounts(t, file, file, !strings.Contains(c.name, "O0"))
		})
	}
	// binutils does not read 64-bit DWARF whole; the code is the same as with 32-bit DWARF.
	t.Run("c++-dwarf64", func(t *testing.T) {
		file := compile(t, "g++", "inline.cc", "-O2", "-g", "-gdwarf64", "-Wl,--build-id=none")
		checkCounts(t, file, compile(t, "g++", "inline.cc", "-O2", "-g", "-Wl,--build-id=none"), true)
	})
}

func checkCounts(t *testing.T, file, oracleFile string, wantInlined bool) {
	t.Helper()
	const n = 4000
	count, inlined := compare(t, file, oracleFile, textAddrs(t, file, n))
	if wantInlined && inlined == 0 {
		t.Error("no address in inlined code: the test tests nothing")
	}
	if count[differs] > 0 || count[same] < n/3 {
		t.Errorf("%d answers differ, %d are the same", count[differs], count[same])
	}
}
