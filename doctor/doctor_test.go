package doctor

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

const source = `
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>
#include <netdb.h>
static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
int main(int argc, char **argv) {
  char b[8];
  struct addrinfo *a;
  pthread_mutex_lock(&m);
  if (argc > 2) return getnameinfo(a->ai_addr, a->ai_addrlen, 0, 0, 0, 0, 0);
  free(malloc((size_t)read(0, b, sizeof b)));
  pthread_mutex_unlock(&m);
  return 0;
}
`

// compile builds source with cc, or skips.
func compile(t *testing.T, cc string, flags ...string) string {
	t.Helper()
	path, err := exec.LookPath(cc)
	if err != nil {
		t.Skipf("needs %s", cc)
	}
	dir := t.TempDir()
	src, out := filepath.Join(dir, "p.c"), filepath.Join(dir, "p")
	if err := os.WriteFile(src, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	args := append([]string{"-o", out, src, "-pthread"}, flags...)
	if b, err := exec.Command(path, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v\n%s", cc, args, err, b)
	}
	return out
}

func finding(list []Finding, name string) Finding {
	if i := slices.IndexFunc(list, func(f Finding) bool { return f.Name == name }); i >= 0 {
		return list[i]
	}
	return Finding{}
}

func names(list []Import) []string {
	var n []string
	for _, i := range list {
		n = append(n, i.Name)
	}
	return n
}

func TestDynamicProgram(t *testing.T) {
	path := compile(t, "gcc", "-g")
	p, err := LookProgram(path)
	if err != nil {
		t.Fatal(err)
	}
	if p.Static || !regexp.MustCompile(`^glibc 2\.\d+$`).MatchString(p.Libc) {
		t.Errorf("static %v, libc %q", p.Static, p.Libc)
	}
	for _, want := range []string{"malloc", "free", "read", "pthread_mutex_lock", "pthread_mutex_unlock"} {
		if !slices.Contains(names(p.Hooked), want) {
			t.Errorf("%s is not among the hooked: %v", want, names(p.Hooked))
		}
	}
	if got := names(p.Unhooked); !slices.Equal(got, []string{"getnameinfo"}) {
		t.Errorf("unhooked: %v", got)
	}
	if len(p.Libraries) == 0 || len(p.Missing) != 0 {
		t.Errorf("libraries %v, missing %v", p.Libraries, p.Missing)
	}
	if f := finding(p.Findings, "names"); f.Level != OK || !strings.Contains(f.Value, "lines") {
		t.Errorf("names: %+v", f)
	}
}

func TestStrippedProgramSaysSo(t *testing.T) {
	p, err := LookProgram(compile(t, "gcc", "-s", "-Wl,--build-id=none"))
	if err != nil {
		t.Fatal(err)
	}
	if f := finding(p.Findings, "names"); f.Level != Note || !strings.Contains(f.Value, "stripped") {
		t.Errorf("names: %+v", f)
	}
	if f := finding(p.Findings, "build id"); f.Level != Note {
		t.Errorf("build id: %+v", f)
	}
}

func TestStaticPrograms(t *testing.T) {
	for _, flags := range [][]string{{"-static"}, {"-static-pie"}} {
		t.Run(flags[0], func(t *testing.T) {
			refused(t, compile(t, "gcc", append(flags, "-Wno-all")...), "static")
		})
	}
	t.Run("this test, by Go", func(t *testing.T) {
		p, err := LookProgram(testBinary(t))
		if err != nil || !strings.HasPrefix(p.Go, "go1.") {
			t.Fatalf("%+v, %v", p, err)
		}
		want := Warn // its C side alone
		switch {
		case p.Static && strings.HasPrefix(p.Go, "go1.26") && runtime.GOARCH == "amd64":
			want = OK
		case p.Static:
			want = Note
		}
		if f := finding(p.Findings, "Go"); f.Level != want {
			t.Errorf("%+v, want level %v", f, want)
		}
	})
}

func testBinary(t *testing.T) string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return exe
}

// refused checks that nothing could be recorded of path, and why.
func refused(t *testing.T, path, why string) {
	t.Helper()
	r, err := Diagnose(path)
	if err != nil {
		t.Fatal(err)
	}
	if r.Recordable || !strings.Contains(r.Why, why) {
		t.Errorf("recordable %v, why %q", r.Recordable, r.Why)
	}
}

func TestMusl(t *testing.T) {
	p, err := LookProgram(compile(t, "musl-gcc"))
	if err != nil {
		t.Fatal(err)
	}
	if p.Libc != "musl" || len(p.Missing) != 0 {
		t.Errorf("libc %q, missing %v", p.Libc, p.Missing)
	}
	if !slices.Contains(names(p.Hooked), "pthread_mutex_lock") {
		t.Errorf("hooked %v", names(p.Hooked))
	}
}

func TestAddressSanitizer(t *testing.T) {
	if f := finding(mustLook(t, compile(t, "gcc", "-fsanitize=address")).Findings, "sanitizer"); f.Level != Warn {
		t.Errorf("sanitizer: %+v", f)
	}
}

func TestStacks(t *testing.T) {
	const none = "-fno-asynchronous-unwind-tables"
	for _, c := range []struct {
		flags []string
		level Level
		says  string
	}{
		{[]string{"-fno-omit-frame-pointer"}, OK, "whole"},
		{[]string{"-fomit-frame-pointer"}, OK, "whole"},
		{[]string{"-fno-omit-frame-pointer", none}, OK, "by frame pointers"},
		{[]string{"-fomit-frame-pointer", none}, Note, "callers may be missing"},
	} {
		var f findings
		file := openELF(t, manyFunctions(t, c.flags...))
		lookStacks(&f, file)
		if len(f) != 1 || f[0].Level != c.level || !strings.Contains(f[0].Value, c.says) {
			t.Errorf("%v: %+v, want %q", c.flags, f, c.says)
		}
	}
}

// manyFunctions builds 40 functions that are not leaves and large enough to count.
func manyFunctions(t *testing.T, flags ...string) string {
	t.Helper()
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("needs gcc")
	}
	var src strings.Builder
	src.WriteString("extern int ext(int, char *);\n")
	for i := range 40 {
		n := strconv.Itoa(i)
		src.WriteString("int f" + n + "(int a) { char b[32]; int s = 0; for (int i = 0; i < a; i++) s += ext(i, b) * b[a & 7] + ext(s, b + 1); return s + " + n + "; }\n")
	}
	dir := t.TempDir()
	in, out := filepath.Join(dir, "f.c"), filepath.Join(dir, "f.so")
	if err := os.WriteFile(in, []byte(src.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if b, err := exec.Command("gcc", append([]string{"-O2", "-shared", "-fPIC", "-o", out, in}, flags...)...).CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, b)
	}
	return out
}

func TestMissingLibrary(t *testing.T) {
	dir := t.TempDir()
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("needs gcc")
	}
	lib := filepath.Join(dir, "libgone.so")
	if b, err := exec.Command("gcc", "-shared", "-fPIC", "-x", "c", "/dev/null", "-o", lib, "-Wl,-soname,libgone.so").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, b)
	}
	// with $ORIGIN it is found; once it is gone it is not
	path := compile(t, "gcc", "-Wl,--no-as-needed", lib, "-Wl,-rpath,$ORIGIN/../lib")
	home := filepath.Join(filepath.Dir(filepath.Dir(path)), "lib")
	if err := os.MkdirAll(home, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(home) })
	if p := mustLook(t, path); !slices.Equal(p.Missing, []string{"libgone.so"}) {
		t.Errorf("missing %v", p.Missing)
	}
	if err := os.Rename(lib, filepath.Join(home, "libgone.so")); err != nil {
		t.Fatal(err)
	}
	if p := mustLook(t, path); len(p.Missing) != 0 {
		t.Errorf("missing %v", p.Missing)
	}
}

func mustLook(t *testing.T, path string) *Program {
	t.Helper()
	p, err := LookProgram(path)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestPrivilege(t *testing.T) {
	path := filepath.Join(t.TempDir(), "p")
	if err := os.WriteFile(path, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	me := self()
	other := identity{uid: me.uid + 1, euid: me.euid + 1, egid: me.egid + 1}
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		mode uint32
		who  identity
		want bool
	}{
		{"plain", 0o755, other, false},
		{"set-uid to another", unix.S_ISUID | 0o755, other, true},
		{"set-uid to myself", unix.S_ISUID | 0o755, me, false},
		{"set-gid to another", unix.S_ISGID | 0o755, identity{me.uid, me.euid, int(st.Gid) + 1}, true},
		{"set-gid to my own", unix.S_ISGID | 0o755, identity{me.uid, me.euid, int(st.Gid)}, false},
		{"mandatory locking, not set-gid", unix.S_ISGID | 0o745, other, false},
	} {
		if err := unix.Chmod(path, c.mode); err != nil {
			t.Fatal(err)
		}
		var f findings
		lookPrivilege(&f, path, c.who)
		if got := len(f) == 1 && f[0].Level == Fail; got != c.want {
			t.Errorf("%s: %+v", c.name, f)
		}
	}
}

func TestFileCapabilities(t *testing.T) {
	path := filepath.Join(t.TempDir(), "p")
	if err := os.WriteFile(path, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	// VFS_CAP_REVISION_2 with CAP_NET_RAW permitted and effective (linux/capability.h)
	capability := []byte{1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
	if err := unix.Setxattr(path, "security.capability", capability, 0); err != nil {
		t.Skipf("needs CAP_SETFCAP and a file system with it: %v", err)
	}
	for uid, want := range map[int]int{0: 0, 1000: 1} {
		var f findings
		lookPrivilege(&f, path, identity{uid, uid, uid})
		if len(f) != want {
			t.Errorf("uid %d: %+v", uid, f)
		}
	}
}

// TestBadPrograms: each is one line, names the file and says what is wrong.
func TestBadPrograms(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	exists := testBinary(t)
	b, err := os.ReadFile(exists)
	if err != nil {
		t.Fatal(err)
	}
	loop := write("loop", "", 0o755)
	write("loop", "#!"+loop+"\n", 0o755)
	for _, c := range []struct{ name, program, want string }{
		{"empty name", "", "name is empty"},
		{"no such path", filepath.Join(dir, "gone"), "no such program"},
		{"not in PATH", "hbtrace-no-such-program", "not found in $PATH"},
		{"directory", dir, "is a directory"},
		{"device", "/dev/null", "not a regular file"},
		{"below a file", exists + "/x", "not a directory"},
		{"not executable", write("plain", "#!/bin/sh\n", 0o644), "chmod +x"},
		{"interpreter missing", write("bad", "#!/no/such/interpreter -x\necho\n", 0o755), "/no/such/interpreter: no such program"},
		{"interpreter is a directory", write("baddir", "#!"+dir+"\n", 0o755), "is a directory"},
		{"interpreter unnamed", write("unnamed", "#! \n", 0o755), "names no interpreter"},
		{"scripts all the way down", loop, "interpret one another"},
		{"ELF magic only", write("magic", "\x7fELF", 0o755), "broken ELF"},
		{"ELF cut", write("cut", string(b[:100]), 0o755), "broken ELF"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := LookProgram(c.program)
			if err == nil {
				t.Fatal("no error")
			}
			if msg := err.Error(); !strings.Contains(msg, c.want) || strings.Contains(msg, "\n") || !strings.Contains(msg, c.program) {
				t.Errorf("%q does not say %q of %q in one line", msg, c.want, c.program)
			}
		})
	}
}

func TestForeignArchitecture(t *testing.T) {
	b, err := os.ReadFile(testBinary(t))
	if err != nil {
		t.Fatal(err)
	}
	b[18], b[19] = 0xb7, 0 // e_machine = EM_AARCH64
	path := filepath.Join(t.TempDir(), "arm")
	if err := os.WriteFile(path, b, 0o755); err != nil {
		t.Fatal(err)
	}
	refused(t, path, "EM_AARCH64")
}

func TestScript(t *testing.T) {
	for _, content := range []string{"#! /bin/sh -e\necho\n", "echo no first line\n", ""} {
		path := filepath.Join(t.TempDir(), "script")
		if err := os.WriteFile(path, []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
		p := mustLook(t, path)
		if p.Path != "/bin/sh" || !slices.Equal(p.Scripts, []string{path}) {
			t.Errorf("%q: path %s, scripts %v", content, p.Path, p.Scripts)
		}
	}
}

func TestMachine(t *testing.T) {
	list := Machine()
	for _, want := range []string{"kernel", "preload", "shared memory", "hand-over", "agent file", "CPU progress", "sampler clock", "limits", "privileges"} {
		f := finding(list, want)
		if f.Value == "" {
			t.Errorf("no finding on %s", want)
		}
		if f.Level != OK && f.Level != Note && f.Advice == "" && want != "CPU progress" {
			t.Errorf("%s is not well and there is no advice: %+v", want, f)
		}
	}
	left, err := filepath.Glob("/tmp/.hbtrace-doctor-*")
	if err != nil || len(left) != 0 {
		t.Errorf("left behind: %v (%v)", left, err)
	}
}

func TestProcess(t *testing.T) {
	r, err := Diagnose(strconv.Itoa(os.Getpid()))
	if err != nil {
		t.Fatal(err)
	}
	if r.Process == nil || r.Process.PID != os.Getpid() || r.Process.Threads < 1 || r.Program == nil {
		t.Fatalf("%+v", r)
	}
	// Go's runtime has a handler for SIGURG
	if f := finding(r.Process.Findings, "SIGURG"); f.Level != Note {
		t.Errorf("SIGURG: %+v", f)
	}
	if _, err := Diagnose("999999999"); err == nil || !strings.Contains(err.Error(), "no such process") {
		t.Errorf("a pid that cannot be: %v", err)
	}
}

func TestAsPID(t *testing.T) {
	for s, want := range map[string]bool{"1": true, "./1": false, "": false, "+1": false, "-1": false, "0": false, "1x": false} {
		if _, got := asPID(s); got != want {
			t.Errorf("asPID(%q) = %v", s, got)
		}
	}
}

func TestVersionLess(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{{"2.4", "2.36", true}, {"2.36", "2.4", false}, {"2.2.5", "2.2.5", false}, {"2.2", "2.2.5", true}, {"3", "2.36", false}} {
		if got := versionLess(c.a, c.b); got != c.want {
			t.Errorf("%s < %s: %v", c.a, c.b, got)
		}
	}
	if got := higher("2.9", "GLIBC_PRIVATE"); got != "2.9" {
		t.Errorf("GLIBC_PRIVATE counted: %s", got)
	}
}

func TestWrite(t *testing.T) {
	r := &Report{
		Machine: []Finding{{OK, "kernel", "6.1", ""}},
		Program: &Program{Path: "/bin/p", Real: "/bin/q", Findings: []Finding{{Fail, "linking", "static", "link it <dynamically>"}}},
	}
	r.conclude()
	var text, js bytes.Buffer
	if err := r.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	want := `machine
  ok    kernel          6.1

program /bin/p → /bin/q
  fail  linking         static
                          → link it <dynamically>

cannot be recorded: linking: static
`
	if text.String() != want {
		t.Errorf("got\n%s\nwant\n%s", text.String(), want)
	}
	if err := r.WriteJSON(&js); err != nil {
		t.Fatal(err)
	}
	var back Report
	if err := json.Unmarshal(js.Bytes(), &back); err != nil || back.Recordable || back.Program.Findings[0].Advice != "link it <dynamically>" {
		t.Errorf("%v: %s", err, js.String())
	}
}
