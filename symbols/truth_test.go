package symbols

// Known truth on small programs: names, PLT stubs, libc, the vDSO, headers, concurrent use.

import (
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/hbtrace/hbtrace/trace"
)

// symbolAt returns the address of a function by its linkage name.
func symbolAt(t testing.TB, file, name string) uint64 {
	t.Helper()
	f, err := elf.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	syms, _ := f.Symbols()
	dyn, _ := f.DynamicSymbols()
	for _, s := range append(syms, dyn...) {
		if s.Name == name && s.Section != elf.SHN_UNDEF {
			return s.Value
		}
	}
	t.Fatalf("%s: no symbol %s", file, name)
	return 0
}

func lineOf(t testing.TB, src, text string) int {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", src))
	if err != nil {
		t.Fatal(err)
	}
	for i, l := range strings.Split(string(b), "\n") {
		if strings.Contains(l, text) {
			return i + 1
		}
	}
	t.Fatalf("%s: no line with %q", src, text)
	return 0
}

func one(r *Resolver, addr uint64) []trace.SymFrame { return r.Resolve(1, []uint64{addr})[0] }

func TestNames(t *testing.T) {
	file := compile(t, "g++", "inline.cc", "-O2", "-g")
	r := open(t, Options{}, file)
	// "@" stands for a frame that another was inlined into.
	var have []string
	f, err := elf.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	text := f.Section(".text")
	var addrs []uint64
	for a := text.Addr; a < text.Addr+text.Size; a++ {
		addrs = append(addrs, a)
	}
	for _, fs := range r.Resolve(1, addrs) {
		var chain []string
		for _, s := range fs {
			chain = append(chain, s.Func)
		}
		have = append(have, strings.Join(chain, " @ "))
	}
	slices.Sort(have)
	have = slices.Compact(have)
	for _, want := range []string{
		"shapes::innermost @ shapes::middle @ shapes::outermost",
		"shapes::outermost",
		"shapes::Box<int>::Box",
		"shapes::Box<double>::grow",
		"shapes::Box<int>::area @ shapes::Box<int>::grow",
		"shapes::(anonymous namespace)::hidden",
		"Derived::run",
		"plain_c",
		"main",
	} {
		if !slices.Contains(have, want) {
			t.Errorf("no address has frames %q", want)
		}
	}
	if t.Failed() {
		t.Logf("have:\n%s", strings.Join(have, "\n"))
	}
	got := one(r, symbolAt(t, file, "plain_c"))
	want := trace.SymFrame{Func: "plain_c", Linkage: "plain_c", File: abs(t, "testdata/inline.cc"), Line: lineOf(t, "inline.cc", "if (x < 0)")}
	if len(got) != 1 || got[0] != want {
		t.Errorf("plain_c: got %+v, want %+v", got, want)
	}
}

func abs(t testing.TB, p string) string {
	t.Helper()
	a, err := filepath.Abs(p)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestRustNames(t *testing.T) {
	for _, mangling := range []string{"legacy", "v0"} {
		t.Run(mangling, func(t *testing.T) {
			t.Setenv("RUSTC_BOOTSTRAP", "1")
			file := compile(t, "rustc", "crate.rs", "-g", "-O", "-C", "symbol-mangling-version="+mangling, "-Z", "unstable-options", "-C", "codegen-units=1")
			r := open(t, Options{}, file)
			found := map[string]bool{}
			for _, fs := range r.Resolve(1, everyFunction(t, file)) {
				for _, f := range fs {
					found[f.Func] = true
				}
			}
			for _, want := range []string{"prog::count", "prog::main", "<prog::Square as prog::Shape>::area"} {
				want = strings.Replace(want, "prog", "crate", -1)
				if !found[want] {
					var near []string
					for n := range found {
						if strings.Contains(n, "crate") {
							near = append(near, n)
						}
					}
					t.Errorf("no function %q among %q", want, near)
				}
			}
		})
	}
}

// everyFunction returns the first address of all sized functions of a file.
func everyFunction(t testing.TB, file string) []uint64 {
	t.Helper()
	f, err := elf.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	syms, _ := f.Symbols()
	if len(syms) == 0 {
		syms, _ = f.DynamicSymbols()
	}
	var as []uint64
	for _, s := range syms {
		if elf.ST_TYPE(s.Info) == elf.STT_FUNC && s.Size > 0 && s.Section != elf.SHN_UNDEF {
			as = append(as, s.Value)
		}
	}
	slices.Sort(as)
	return slices.Compact(as)
}

func TestPLT(t *testing.T) {
	for _, c := range []struct {
		name string
		args []string
	}{
		{"lazy", []string{"-Wl,-z,lazy"}},
		{"now", []string{"-Wl,-z,now"}},
		{"ibt", []string{"-fcf-protection=full", "-Wl,-z,ibtplt", "-Wl,-z,lazy"}},
		{"nopie", []string{"-no-pie"}},
		{"stripped", []string{"-s"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := compile(t, "gcc", "plain.c", append([]string{"-O2"}, c.args...)...)
			f, err := elf.Open(file)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if f.Machine != elf.EM_X86_64 {
				t.Skip("PLT stubs are named on x86-64 only")
			}
			r := open(t, Options{}, file)
			found := map[string]bool{}
			for _, s := range f.Sections {
				if !strings.HasPrefix(s.Name, ".plt") {
					continue
				}
				for a := s.Addr; a < s.Addr+s.Size; a++ {
					for _, fr := range one(r, a) {
						found[fr.Func] = true
					}
				}
			}
			for _, want := range []string{"fprintf@plt", "abort@plt"} {
				if !found[want] {
					t.Errorf("no stub %s; have %v", want, found)
				}
			}
		})
	}
}

func TestLibc(t *testing.T) {
	libc := ""
	for _, p := range []string{"/lib/x86_64-linux-gnu/libc.so.6", "/lib/aarch64-linux-gnu/libc.so.6", "/lib64/libc.so.6"} {
		if _, err := os.Stat(p); err == nil {
			libc = p
		}
	}
	if libc == "" {
		t.Skip("no glibc at the usual places")
	}
	r := open(t, Options{DebugDirs: []string{}}, libc)
	for _, name := range []string{"malloc", "pthread_mutex_lock", "read", "qsort", "printf", "pthread_cond_wait"} {
		a := symbolAt(t, libc, name)
		if got := one(r, a); len(got) != 1 || got[0].Func != name || got[0].Inlined {
			t.Errorf("%s at %#x: got %+v", name, a, got)
		}
	}
	unknown := 0
	for _, fs := range r.Resolve(1, textAddrs(t, libc, 1000)) {
		if fs == nil {
			unknown++
		}
	}
	t.Logf("%d of 1000 addresses have no exported function over them", unknown)
	checkNotes(t, r, "")
}

func TestVDSO(t *testing.T) {
	b, err := ownVDSO()
	if err != nil {
		t.Skipf("no vDSO: %v", err)
	}
	f, err := elf.NewFile(bytesReader(b))
	if err != nil {
		t.Fatal(err)
	}
	id, err := BuildID(bytesReader(b))
	if err != nil {
		t.Fatal(err)
	}
	syms, err := f.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		id    string
		found bool
		note  string
	}{{"", true, ""}, {id, true, ""}, {"0011223344", false, "another kernel"}} {
		r := NewResolver(Options{DebugDirs: []string{}})
		if err := r.Add(trace.Module{ID: 1, Path: "[vdso]", Kind: trace.ModuleVDSO, BuildID: c.id}); err != nil {
			t.Fatal(err)
		}
		checked := 0
		for _, s := range syms {
			if elf.ST_TYPE(s.Info) != elf.STT_FUNC || s.Size == 0 {
				continue
			}
			got := one(r, s.Value+s.Size/2)
			if c.found != (len(got) == 1) || c.found && strings.TrimPrefix(got[0].Func, "__vdso_") != strings.TrimPrefix(s.Name, "__vdso_") {
				t.Errorf("id %q: %s: got %+v", c.id, s.Name, got)
			}
			checked++
		}
		if checked == 0 {
			t.Error("the vDSO has no functions")
		}
		checkNotes(t, r, c.note)
		r.Close()
	}
}

func TestBuildIDAndLoads(t *testing.T) {
	for _, args := range [][]string{{"-Wl,--build-id=sha1"}, {"-Wl,--build-id=0x0102aBcd", "-no-pie"}, {"-static"}} {
		t.Run(args[0], func(t *testing.T) {
			file := compile(t, "gcc", "plain.c", args...)
			if strings.Contains(args[0], "0x") {
				if got := fileID(t, file); got != "0102abcd" {
					t.Errorf("build id %s, want 0102abcd", got)
				}
			} else if out := run(t, "readelf", "-n", file); !strings.Contains(out, "Build ID: "+fileID(t, file)+"\n") {
				t.Errorf("build id %s is not in %s", fileID(t, file), out)
			}
			f, err := os.Open(file)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			info, err := ReadLoads(f)
			if err != nil {
				t.Fatal(err)
			}
			ef, err := elf.NewFile(f)
			if err != nil {
				t.Fatal(err)
			}
			n := 0
			for _, p := range ef.Progs {
				if p.Type != elf.PT_LOAD {
					continue
				}
				want := Load{p.Vaddr, p.Memsz, p.Off, p.Filesz, p.Flags}
				if info.Loads[n] != want {
					t.Errorf("load %d: %+v, want %+v", n, info.Loads[n], want)
				}
				if p.Vaddr < info.Lo || p.Vaddr+p.Memsz > info.Hi {
					t.Errorf("load %d is outside of [%#x, %#x)", n, info.Lo, info.Hi)
				}
				n++
				// As the kernel maps it at a bias of 0x7000_0000_0000.
				const bias = 0x7000_0000_0000
				if p.Flags&elf.PF_X != 0 {
					if got, ok := info.Bias(bias+p.Vaddr&^4095, p.Off&^4095); !ok || got != bias {
						t.Errorf("bias %#x, %v, want %#x", got, ok, uint64(bias))
					}
				}
			}
			if n != len(info.Loads) || info.Entry != ef.Entry || info.Type != ef.Type {
				t.Errorf("%+v does not fit %+v", info, ef.FileHeader)
			}
		})
	}
}

// TestBias turns an address of a running program into a name by way of its /proc/self/maps, as a collector does.
func TestBias(t *testing.T) {
	for _, args := range [][]string{{"-pie", "-fPIE"}, {"-no-pie"}, {"-pie", "-fPIE", "-Wl,-z,noseparate-code"}} {
		file := compile(t, "gcc", "maps.c", append(args, "-O2")...)
		out, err := exec.Command(file).Output()
		if err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		info, err := ReadLoads(f)
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(string(out), "\n")
		var addr uint64
		if _, err := fmt.Sscanf(lines[0], "0x%x", &addr); err != nil {
			t.Fatal(err)
		}
		found := false
		for _, l := range lines[1:] {
			var lo, hi, off, ino uint64
			var perm, dev, path string
			if n, _ := fmt.Sscanf(strings.Replace(l, "-", " ", 1), "%x %x %s %x %s %d %s", &lo, &hi, &perm, &off, &dev, &ino, &path); n < 7 || addr < lo || addr >= hi {
				continue
			}
			found = true
			bias, ok := info.Bias(lo, off)
			if got := one(open(t, Options{}, path), addr-bias); !ok || len(got) != 1 || got[0].Func != "here" {
				t.Errorf("%v: bias %#x, %v: got %+v", args, bias, ok, got)
			}
		}
		if !found {
			t.Errorf("%v: no mapping holds %#x:\n%s", args, addr, out)
		}
	}
}

func TestConcurrent(t *testing.T) {
	files := []string{compile(t, "g++", "inline.cc", "-O2", "-g"), compile(t, "gcc", "plain.c", "-O2", "-g")}
	r := NewResolver(Options{})
	want := map[trace.ModuleID][][]trace.SymFrame{}
	addrs := map[trace.ModuleID][]uint64{}
	for i, f := range files {
		id := trace.ModuleID(i + 1)
		addrs[id] = textAddrs(t, f, 300)
		want[id] = open(t, Options{}, f).Resolve(1, addrs[id])
		if err := r.Add(trace.Module{ID: id, Path: f}); err != nil {
			t.Fatal(err)
		}
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for id, as := range addrs {
				for i, fs := range r.Resolve(id, as) {
					if !slices.Equal(fs, want[id][i]) {
						t.Errorf("module %d %#x: got %+v, want %+v", id, as[i], fs, want[id][i])
						return
					}
				}
				r.Notes()
				r.Module(id)
			}
		}()
	}
	wg.Wait()
	for range 4 {
		wg.Add(1)
		go func() { defer wg.Done(); r.Resolve(1, addrs[1]) }()
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	wg.Wait()
	if got := one(r, addrs[1][0]); got != nil {
		t.Errorf("after Close: %+v", got)
	}
	if err := r.Add(trace.Module{ID: 9}); err == nil {
		t.Error("Add after Close: no error")
	}
}

func TestAddErrors(t *testing.T) {
	r := NewResolver(Options{})
	defer r.Close()
	if err := r.Add(trace.Module{Path: "/x"}); err == nil {
		t.Error("a module without id: no error")
	}
	for range 2 {
		if err := r.Add(trace.Module{ID: 1, Path: "/x", BuildID: "aa"}); err != nil {
			t.Error(err)
		}
	}
	if err := r.Add(trace.Module{ID: 1, Path: "/y", BuildID: "aa"}); err == nil {
		t.Error("an id twice: no error")
	}
	if got := r.Resolve(7, []uint64{1, 2}); len(got) != 2 || got[0] != nil {
		t.Errorf("unknown module: %v", got)
	}
}
