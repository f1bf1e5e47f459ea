package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/hbtrace/hbtrace/internal/testprog"
)

// TestUnreadableProgram: an ordinary user may run a program that he may not read. It is recorded; its addresses are kept, without a
// name (nor a wrong one), its libraries have theirs, and one line says why.
func TestUnreadableProgram(t *testing.T) {
	dir, nobody := ordinaryUser(t)
	program := filepath.Join(dir, "secret")
	code, err := os.ReadFile(demo(t))
	if err == nil {
		err = os.WriteFile(program, code, 0o600)
	}
	if err == nil {
		err = os.Chmod(program, 0o111)
	}
	if err != nil {
		t.Fatal(err)
	}
	env := []string{"PATH=/usr/bin:/bin", "HOME=" + dir}
	s := startAt(t, filepath.Join(dir, "rec"), testprog.Command{Args: []string{program, "2"}, Env: env, Dir: dir, Cred: nobody}, "-F", "499")
	res := s.finish(t)
	if res.Status() != 0 || !strings.HasPrefix(string(res.Stdout), "served ") {
		t.Fatalf("as nobody: %v", res)
	}
	files, err := filepath.Glob(filepath.Join(dir, "rec*.hbt"))
	if err != nil || len(files) != 1 {
		t.Fatalf("recordings: %v (%v)", files, err)
	}
	text, doubts := reportAs(t, nobody, env, files[0]), reportAs(t, nobody, env, "--storage", files[0])
	if !strings.Contains(text, "secret+0x") {
		t.Errorf("no address of the program in\n%s", text)
	}
	for _, name := range []string{"plate_order", "main.", "panic", "goroutine"} {
		if strings.Contains(text, name) {
			t.Errorf("%q in\n%s", name, text)
		}
	}
	if why := fmt.Sprintf("open %s: permission denied", program); strings.Count(strings.Join(strings.Fields(doubts), " "), why) != 1 {
		t.Errorf("want %q once in\n%s", why, doubts)
	}
}

// TestUnreadableLibrary: a library that its program can load and nobody can open by its path: the program is inside of a folder that it
// closed behind itself. Its addresses are kept, without a
// name, and one line each says that its stacks may be cut, and why it has no names.
func TestUnreadableLibrary(t *testing.T) {
	gcc := testprog.LookPath(t, "gcc", "gcc")
	dir, nobody := ordinaryUser(t)
	closed, program := filepath.Join(dir, "closed"), filepath.Join(dir, "program")
	inside := filepath.Join(closed, "inside")
	library := filepath.Join(inside, "libhidden.so")
	for _, d := range []string{closed, inside} {
		if err := errors.Join(os.Mkdir(d, 0o755), os.Chown(d, int(nobody.Uid), int(nobody.Gid))); err != nil {
			t.Fatal(err)
		}
	}
	for name, code := range map[string]string{"library.c": `
		__attribute__((noinline)) unsigned long hidden_inner(unsigned long n) {
			volatile unsigned long sum = 0;
			for (unsigned long i = 0; i < n; i++) sum += i * i;
			return sum;
		}
		__attribute__((noinline)) unsigned long hidden_work(unsigned long n) {
			unsigned long sum = 0;
			for (int i = 0; i < 300; i++) sum += hidden_inner(n) + 1;
			return sum;
		}`, "program.c": `
		#include <dlfcn.h>
		#include <sys/stat.h>
		#include <unistd.h>
		int main(int argc, char **argv) {
			if (argc != 3 || chdir(argv[2]) || chmod(argv[1], 0)) return 1;
			void *library = dlopen("./libhidden.so", RTLD_NOW);
			if (!library) return 2;
			unsigned long (*work)(unsigned long) = (unsigned long (*)(unsigned long))dlsym(library, "hidden_work");
			return work(1000000) == 1;
		}`} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(code), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	build := func(args ...string) {
		t.Helper()
		cmd := exec.Command(gcc, append([]string{"-O2", "-fomit-frame-pointer", "-o"}, args...)...)
		cmd.Dir, cmd.SysProcAttr = dir, &syscall.SysProcAttr{Credential: nobody}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", cmd, err, out)
		}
	}
	build(library, "-shared", "-fPIC", "library.c")
	build(program, "program.c", "-ldl")
	env := []string{"PATH=/usr/bin:/bin", "HOME=" + dir}
	s := startAt(t, filepath.Join(dir, "rec"), testprog.Command{Args: []string{program, closed, inside}, Env: env, Dir: dir, Cred: nobody}, "-F", "499")
	if res := s.finish(t); res.Status() != 0 {
		t.Fatalf("as nobody: %v", res)
	}
	files, err := filepath.Glob(filepath.Join(dir, "rec*.hbt"))
	if err != nil || len(files) != 1 {
		t.Fatalf("recordings: %v (%v)", files, err)
	}
	text := reportAs(t, nobody, env, files[0])
	if !strings.Contains(text, "libhidden.so+0x") || strings.Contains(text, "hidden_") {
		t.Errorf("want addresses of the library, without names, in\n%s", text)
	}
	doubts := strings.Join(strings.Fields(reportAs(t, nobody, env, "--storage", files[0])), " ")
	for _, why := range []string{"open " + library + ": permission denied",
		"stacks in " + library + " go by frame pointers, and may be cut there: this user may not read it"} {
		if strings.Count(doubts, why) != 1 {
			t.Errorf("want %q once in\n%s", why, doubts)
		}
	}
}

// reportAs is what report says to that user.
func reportAs(t *testing.T, who *syscall.Credential, env []string, args ...string) string {
	t.Helper()
	cmd := exec.Command(testprog.Hbtrace(t), append([]string{"report"}, args...)...)
	cmd.Env, cmd.SysProcAttr = env, &syscall.SysProcAttr{Credential: who}
	b, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("report %v: %v\n%s", args, err, b)
	}
	return string(b)
}
