// Package testprog builds and runs the programs that hbtrace is tested on: one small program per behaviour
// (src/), compiled on demand and kept between runs (here); run.go runs a program to its end,
// however it ends, and leaves nothing behind.
package testprog

import (
	"crypto/sha256"
	"embed"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/hbtrace/hbtrace/agent/freshness"
)

//go:embed src
var sources embed.FS

// Names lists the programs of src, without their suffixes.
func Names() []string {
	entries, err := sources.ReadDir("src")
	if err != nil {
		panic(err) // embedded: cannot fail
	}
	var names []string
	for _, e := range entries {
		if ext := filepath.Ext(e.Name()); ext != ".h" {
			names = append(names, strings.TrimSuffix(e.Name(), ext))
		}
	}
	return names
}

// language is how one kind of source is compiled.
type language struct {
	ext      string
	compiler string
	flags    []string
}

var languages = []language{
	{".c", "gcc", []string{"-std=gnu11", "-O1", "-g", "-fno-omit-frame-pointer", "-pthread", "-D_GNU_SOURCE", "-Wall",
		"-Wno-infinite-recursion", "-Wno-stringop-overflow"}},
	{".cc", "g++", []string{"-std=c++20", "-O1", "-g", "-fno-omit-frame-pointer", "-pthread", "-D_GNU_SOURCE", "-Wall",
		"-Wno-infinite-recursion"}},
	{".rs", "rustc", []string{"--edition=2021", "-O", "-g", "-C", "force-frame-pointers=yes"}},
}

var buildLock sync.Mutex

// Build compiles the program src/NAME and returns the path of the executable, which everybody may execute. Flags
// are added to the compiler's; "cc=PROGRAM" chooses another compiler. The test is skipped when the compiler is
// missing, and fails when the program does not compile.
func Build(t testing.TB, name string, flags ...string) string {
	t.Helper()
	for _, l := range languages {
		src, err := sources.ReadFile("src/" + name + l.ext)
		if err == nil {
			return compile(t, name, src, l, flags)
		}
	}
	t.Fatalf("testprog: no program is called %q; there are %s", name, strings.Join(Names(), " "))
	return ""
}

// Build32 is Build for a 32-bit x86 program. The test is skipped where the compiler or its libraries cannot make one.
func Build32(t testing.TB, name string) string {
	t.Helper()
	probe := exec.Command("gcc", "-m32", "-x", "c", "-o", filepath.Join(t.TempDir(), "probe"), "-")
	probe.Stdin = strings.NewReader("#include <stdio.h>\nint main(void) { return 0; }\n")
	if out, err := probe.CombinedOutput(); err != nil {
		line, _, _ := strings.Cut(string(out), "\n")
		t.Skipf("needs gcc -m32 and 32-bit libraries (Debian packages libc6-dev-i386, lib32gcc-12-dev): %v: %s", err, line)
	}
	return Build(t, name, "-m32")
}

// BuildFile is Build for a source file outside this package.
func BuildFile(t testing.TB, path string, flags ...string) string {
	t.Helper()
	src, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("testprog: %v", err)
	}
	ext := filepath.Ext(path)
	for _, l := range languages {
		if l.ext == ext {
			return compile(t, strings.TrimSuffix(filepath.Base(path), ext), src, l, flags)
		}
	}
	t.Fatalf("testprog: %s: no compiler for %q", path, ext)
	return ""
}

func compile(t testing.TB, name string, src []byte, l language, extra []string) string {
	t.Helper()
	compiler := l.compiler
	flags := append([]string(nil), l.flags...)
	for _, f := range extra {
		if c, ok := strings.CutPrefix(f, "cc="); ok {
			compiler = c
		} else {
			flags = append(flags, f)
		}
	}
	path, err := exec.LookPath(compiler)
	if err != nil {
		t.Skipf("needs the compiler %s (%v)", compiler, err)
	}
	st, err := os.Stat(path)
	if err != nil {
		t.Fatalf("testprog: %v", err)
	}
	check, err := sources.ReadFile("src/check.h")
	if err != nil {
		t.Fatalf("testprog: %v", err)
	}
	h := sha256.New()
	fmt.Fprintf(h, "%s %s %d %d\n%q\n%s\n%s", name, path, st.Size(), st.ModTime().UnixNano(), flags, check, src)
	dir := filepath.Join(cacheDir(t), fmt.Sprintf("%x", h.Sum(nil)[:8]))
	exe := filepath.Join(dir, name)

	buildLock.Lock()
	defer buildLock.Unlock()
	if _, err := os.Stat(exe); err == nil {
		return exe
	}
	// Built next to its place and renamed: other test processes may want the same one now.
	tmp, err := os.MkdirTemp(cacheDir(t), "building-")
	if err != nil {
		t.Fatalf("testprog: %v", err)
	}
	defer os.RemoveAll(tmp)
	if err := os.Chmod(tmp, 0o755); err != nil {
		t.Fatalf("testprog: %v", err)
	}
	for file, data := range map[string][]byte{name + l.ext: src, "check.h": check} {
		if err := os.WriteFile(filepath.Join(tmp, file), data, 0o644); err != nil {
			t.Fatalf("testprog: %v", err)
		}
	}
	// Source before the flags: libraries (-lm) must come after what needs them.
	args := append([]string{name + l.ext, "-o", name}, flags...)
	cmd := exec.Command(path, args...)
	cmd.Dir = tmp
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("testprog: compiling %s: %s %s: %v\n%s", name, compiler, strings.Join(args, " "), err, out)
	}
	if err := os.Rename(tmp, dir); err != nil {
		if _, lost := os.Stat(exe); lost != nil { // another process was first: its result is as good
			t.Fatalf("testprog: %v", err)
		}
	}
	return exe
}

// cacheDir is where programs are kept between runs: readable by everybody (some tests run as another user), and
// refused when another user owns it.
func cacheDir(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("hbtrace-testprog-%d", os.Getuid()))
	if err := os.Mkdir(dir, 0o755); err != nil && !os.IsExist(err) {
		t.Fatalf("testprog: %v", err)
	}
	var st syscall.Stat_t
	if err := syscall.Lstat(dir, &st); err != nil {
		t.Fatalf("testprog: %s: %v", dir, err)
	}
	if st.Mode&syscall.S_IFMT != syscall.S_IFDIR || int(st.Uid) != os.Getuid() {
		t.Fatalf("testprog: %s belongs to somebody else: remove it or set TMPDIR", dir)
	}
	return dir
}

// LookPath is exec.LookPath that skips the test when a program is missing, saying which package has it.
func LookPath(t testing.TB, program, pkg string) string {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		// Debian keeps servers where an ordinary user's PATH does not look.
		for _, dir := range []string{"/usr/sbin", "/sbin", "/usr/local/sbin"} {
			if st, err := os.Stat(filepath.Join(dir, program)); err == nil && st.Mode()&0o111 != 0 {
				return filepath.Join(dir, program)
			}
		}
		t.Skipf("needs %s (Debian package %s)", program, pkg)
	}
	return path
}

var hbtrace struct {
	once sync.Once
	path string
	err  error
}

// Hbtrace builds cmd/hbtrace as it is shipped (CGO_ENABLED=0) and returns its path; HBTRACE_BIN names another one.
func Hbtrace(t testing.TB) string {
	t.Helper()
	if p := os.Getenv("HBTRACE_BIN"); p != "" {
		return p
	}
	hbtrace.once.Do(func() {
		root, err := freshness.Root()
		if err != nil {
			hbtrace.err = err
			return
		}
		if _, err := fs.Stat(os.DirFS(root), "cmd/hbtrace/main.go"); err != nil {
			hbtrace.err = err
			return
		}
		out := filepath.Join(cacheDir(t), fmt.Sprintf("hbtrace-%d", os.Getpid()))
		cmd := exec.Command("go", "build", "-o", out, "./cmd/hbtrace")
		cmd.Dir = root
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if msg, err := cmd.CombinedOutput(); err != nil {
			hbtrace.err = fmt.Errorf("building hbtrace: %w\n%s", err, msg)
			return
		}
		hbtrace.path = out
	})
	if hbtrace.err != nil {
		t.Fatalf("testprog: %v", hbtrace.err)
	}
	return hbtrace.path
}

// Clean removes the hbtrace that this test process built. Call it at the end of TestMain.
func Clean() {
	if hbtrace.path != "" {
		os.Remove(hbtrace.path)
	}
}
