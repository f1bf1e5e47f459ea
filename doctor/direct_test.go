package doctor

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestDirectCalls: a program that makes a sleeping system call itself is told from one that calls libc.
func TestDirectCalls(t *testing.T) {
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("needs gcc")
	}
	for _, c := range []struct{ name, body, want string }{
		{"libc", `poll(0, 0, 1);`, ""},
		{"own", `long r; __asm__ volatile("syscall" : "=a"(r) : "a"(7L), "D"(0L), "S"(0L), "d"(1L) : "rcx", "r11", "memory");`, "own: poll"},
		{"getpid", `long r; __asm__ volatile("syscall" : "=a"(r) : "a"(39L) : "rcx", "r11", "memory");`, ""},
	} {
		dir := t.TempDir()
		exe := filepath.Join(dir, c.name)
		src := exe + ".c"
		if err := os.WriteFile(src, []byte("#include <poll.h>\nint main(void) { "+c.body+" return 0; }\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command(gcc, "-O1", "-o", exe, src).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		p, err := LookProgram(exe)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, f := range p.Findings {
			if f.Name == "direct calls" {
				got = f.Value
			}
		}
		if (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
