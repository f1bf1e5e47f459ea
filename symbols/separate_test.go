package symbols

// Separate debug files, and files that changed since they were recorded.

import (
	"debug/elf"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hbtrace/hbtrace/trace"
)

// TestSeparateDebugFiles strips a program and puts its debug file where debuggers look.
func TestSeparateDebugFiles(t *testing.T) {
	full := compile(t, "g++", "inline.cc", "-O2", "-g", "-Wl,--build-id=sha1")
	other := compile(t, "gcc", "plain.c", "-O2", "-g", "-Wl,--build-id=sha1")
	id := fileID(t, full)
	want := open(t, Options{}, full).Resolve(1, everyFunction(t, full))
	addrs := everyFunction(t, full)

	// layout prepares a directory with the stripped program at bin/prog, and a debug directory.
	type tree struct{ dir, prog, debugDir, debug string }
	layout := func(t *testing.T) tree {
		dir := t.TempDir()
		tr := tree{dir, filepath.Join(dir, "bin", "prog"), filepath.Join(dir, "debug"), filepath.Join(dir, "made", "prog.debug")}
		for _, p := range []string{tr.prog, tr.debug} {
			mkdirFor(t, p)
		}
		run(t, "objcopy", "--only-keep-debug", full, tr.debug)
		run(t, "objcopy", "--strip-all", full, tr.prog)
		return tr
	}
	link := func(t *testing.T, tr tree) { run(t, "objcopy", "--add-gnu-debuglink="+tr.debug, tr.prog) }
	move := func(t *testing.T, from, to string) {
		mkdirFor(t, to)
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	buildIDPath := func(tr tree) string { return filepath.Join(tr.debugDir, ".build-id", id[:2], id[2:]+".debug") }

	for _, c := range []struct {
		name  string
		setup func(*testing.T, tree)
		found bool
		note  string // part of a note; "" none
	}{
		{"none", func(t *testing.T, tr tree) {}, false, "no symbols"},
		{"build-id", func(t *testing.T, tr tree) { move(t, tr.debug, buildIDPath(tr)) }, true, ""},
		{"build-id-compressed", func(t *testing.T, tr tree) {
			run(t, "objcopy", "--compress-debug-sections=zlib", tr.debug)
			move(t, tr.debug, buildIDPath(tr))
		}, true, ""},
		{"build-id-of-another", func(t *testing.T, tr tree) {
			mkdirFor(t, buildIDPath(tr))
			run(t, "objcopy", "--only-keep-debug", other, buildIDPath(tr))
		}, false, "not used"},
		{"link-beside", func(t *testing.T, tr tree) {
			link(t, tr)
			move(t, tr.debug, filepath.Join(tr.dir, "bin", "prog.debug"))
		}, true, ""},
		{"link-in-.debug", func(t *testing.T, tr tree) {
			link(t, tr)
			move(t, tr.debug, filepath.Join(tr.dir, "bin", ".debug", "prog.debug"))
		}, true, ""},
		{"link-in-debug-dir", func(t *testing.T, tr tree) {
			link(t, tr)
			move(t, tr.debug, filepath.Join(tr.debugDir, tr.dir, "bin", "prog.debug"))
		}, true, ""},
		{"link-wrong-crc", func(t *testing.T, tr tree) {
			link(t, tr)
			b, err := os.ReadFile(tr.debug)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(tr.dir, "bin", "prog.debug"), append(b, 0), 0o644); err != nil {
				t.Fatal(err)
			}
		}, false, "CRC"},
		{"link-wrong-build-id", func(t *testing.T, tr tree) {
			run(t, "objcopy", "--only-keep-debug", other, tr.debug)
			link(t, tr)
			move(t, tr.debug, filepath.Join(tr.dir, "bin", "prog.debug"))
		}, false, "build id"},
		{"debug-file-is-rubbish", func(t *testing.T, tr tree) {
			mkdirFor(t, buildIDPath(tr))
			if err := os.WriteFile(buildIDPath(tr), []byte("rubbish"), 0o644); err != nil {
				t.Fatal(err)
			}
		}, false, "not used"},
	} {
		t.Run(c.name, func(t *testing.T) {
			tr := layout(t)
			c.setup(t, tr)
			r := open(t, Options{DebugDirs: []string{tr.debugDir}}, tr.prog)
			got := r.Resolve(1, addrs)
			for i := range addrs {
				if c.found && !slices.Equal(got[i], want[i]) {
					t.Fatalf("%#x: got %+v, want %+v", addrs[i], got[i], want[i])
				}
				if !c.found && got[i] != nil {
					t.Fatalf("%#x: got %+v, want nothing", addrs[i], got[i])
				}
			}
			checkNotes(t, r, c.note)
		})
	}
	t.Run("program-gone", func(t *testing.T) {
		tr := layout(t)
		move(t, tr.debug, buildIDPath(tr))
		if err := os.Remove(tr.prog); err != nil {
			t.Fatal(err)
		}
		r := NewResolver(Options{DebugDirs: []string{tr.debugDir}})
		defer r.Close()
		if err := r.Add(trace.Module{ID: 1, Path: tr.prog, BuildID: id}); err != nil {
			t.Fatal(err)
		}
		got := r.Resolve(1, addrs)
		for i := range addrs {
			if !slices.Equal(got[i], want[i]) {
				t.Fatalf("%#x: got %+v, want %+v", addrs[i], got[i], want[i])
			}
		}
		checkNotes(t, r, "no such file")
	})
	t.Run("root", func(t *testing.T) {
		tr := layout(t)
		move(t, tr.debug, filepath.Join(tr.dir, "usr/lib/debug/.build-id", id[:2], id[2:]+".debug"))
		r := open(t, Options{Root: tr.dir}, "/bin/prog")
		if got := r.Resolve(1, addrs); !slices.Equal(got[0], want[0]) {
			t.Errorf("got %+v, want %+v", got[0], want[0])
		}
		checkNotes(t, r, "")
	})
}

func mkdirFor(t testing.TB, file string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
}

func fileID(t testing.TB, file string) string {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	id, err := BuildID(f)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func checkNotes(t testing.TB, r *Resolver, want string) {
	t.Helper()
	notes := strings.Join(r.Notes(), "\n")
	if want == "" && notes != "" || !strings.Contains(notes, want) {
		t.Errorf("notes %q, want %q in them", notes, want)
	}
}

// TestDwz shares debug information of two programs in one file, as Debian's debug packages do.
func TestDwz(t *testing.T) {
	tool(t, "dwz")
	one, two := compile(t, "g++", "inline.cc", "-O2", "-g", "-gdwarf-4"), compile(t, "g++", "inline.cc", "-O1", "-g", "-gdwarf-4")
	addrs := textAddrs(t, one, 3000)
	want := open(t, Options{}, one).Resolve(1, addrs)
	for _, c := range []struct {
		name string
		args []string
	}{
		{"single", []string{one}},
		{"multi", []string{"-m", filepath.Join(filepath.Dir(one), "shared.debug"), one, two}},
	} {
		t.Run(c.name, func(t *testing.T) {
			run(t, "dwz", c.args...)
			r := open(t, Options{}, one)
			got := r.Resolve(1, addrs)
			for i := range addrs {
				if !slices.Equal(got[i], want[i]) {
					t.Fatalf("%#x:\n got  %+v\n want %+v", addrs[i], got[i], want[i])
				}
			}
			checkNotes(t, r, "")
		})
	}
	if err := os.Remove(filepath.Join(filepath.Dir(one), "shared.debug")); err != nil {
		t.Fatal(err)
	}
	r := open(t, Options{}, one)
	r.Resolve(1, addrs)
	checkNotes(t, r, "shared.debug")
}

func TestReplaced(t *testing.T) {
	file := compile(t, "gcc", "plain.c", "-O2", "-g", "-Wl,--build-id=sha1")
	addr := symbolAt(t, file, "visible")
	newer := compile(t, "g++", "inline.cc", "-O2", "-g", "-Wl,--build-id=sha1")
	noID := compile(t, "gcc", "plain.c", "-O2", "-g", "-Wl,--build-id=none")
	replace := func(with string) func(*testing.T) {
		return func(t *testing.T) {
			b, err := os.ReadFile(with)
			if err == nil {
				err = os.WriteFile(file, b, 0o755)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	original, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	id := fileID(t, file)
	for _, c := range []struct {
		name   string
		module trace.Module
		after  func(*testing.T) // between Add and Resolve
		found  bool
		note   string
	}{
		{"same", trace.Module{Path: file, BuildID: id}, nil, true, ""},
		{"upper-case id", trace.Module{Path: file, BuildID: strings.ToUpper(id)}, nil, true, ""},
		{"other id", trace.Module{Path: file, BuildID: "00ff00ff"}, nil, false, "replaced"},
		{"replaced later", trace.Module{Path: file}, replace(newer), false, "replaced"},
		{"replaced by one without id", trace.Module{Path: file}, replace(noID), false, "now none"},
		{"deleted mark, same file", trace.Module{Path: file + " (deleted)", BuildID: id}, nil, true, ""},
		{"deleted mark, no id", trace.Module{Path: file + " (deleted)"}, nil, false, "deleted"},
		{"missing", trace.Module{Path: file + "x"}, nil, false, "no such file"},
		{"directory", trace.Module{Path: filepath.Dir(file)}, nil, false, "not a regular file"},
		{"not a file", trace.Module{Path: "//anon"}, nil, false, "//anon"},
		{"relative", trace.Module{Path: "prog"}, nil, false, "not a file"},
		{"JIT code", trace.Module{Path: "jit", Kind: trace.ModuleAnon}, nil, false, ""},
		{"text", trace.Module{Path: abs(t, "doc.go")}, nil, false, "not an ELF file"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := os.WriteFile(file, original, 0o755); err != nil {
				t.Fatal(err)
			}
			r := NewResolver(Options{DebugDirs: []string{}})
			defer r.Close()
			c.module.ID = 1
			if err := r.Add(c.module); err != nil {
				t.Fatal(err)
			}
			if c.after != nil {
				c.after(t)
			}
			got := one(r, addr)
			if c.found != (len(got) == 1 && got[0].Func == "visible") || !c.found && got != nil {
				t.Errorf("got %+v, found should be %v", got, c.found)
			}
			checkNotes(t, r, c.note)
		})
	}
}

// TestShrunk cuts a file while it is mapped: the fault is a note, not the end of the process.
func TestShrunk(t *testing.T) {
	file := compile(t, "gcc", "plain.c", "-O2", "-g")
	addr := symbolAt(t, file, "visible")
	// A section large enough to be mapped.
	pad := filepath.Join(t.TempDir(), "pad")
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	f, err := elf.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	str, err := f.Section(".debug_str").Data()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(pad, append(str, []byte(strings.Repeat("padding\x00", mapFrom/4))...), 0o644); err != nil {
		t.Fatal(err)
	}
	run(t, "objcopy", "--update-section", ".debug_str="+pad, file)
	r := open(t, Options{}, file)
	if got := one(r, addr); len(got) == 0 || got[0].Line == 0 {
		t.Fatalf("before: %+v, notes %q", got, r.Notes())
	}
	r.mu.Lock()
	m := r.mods[1]
	r.mu.Unlock()
	if len(m.images) == 0 || len(m.images[0].maps) == 0 {
		t.Fatal("nothing is mapped: the test tests nothing")
	}
	if err := os.Truncate(file, 100); err != nil {
		t.Fatal(err)
	}
	if got := one(r, addr); got == nil || got[0].Func != "visible" {
		t.Errorf("after: %+v, want visible from the symbol table", got)
	}
	checkNotes(t, r, "corrupt file")
	if err := os.WriteFile(file, b, 0o755); err != nil {
		t.Fatal(err)
	}
}
