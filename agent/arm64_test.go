package agent

import (
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestArm64 builds for arm64 what the agent's C does with memory that threads, the sampler and the collector share, and with memory
// that others wrote, and runs it under qemu-user. That shows that the code means the same there. It cannot show that barriers suffice:
// qemu runs on this machine's memory, and x86 keeps stores in order.
func TestArm64(t *testing.T) {
	gcc, err := exec.LookPath("aarch64-linux-gnu-gcc")
	if err != nil {
		t.Skip("needs aarch64-linux-gnu-gcc (gcc-aarch64-linux-gnu, libc6-dev-arm64-cross)")
	}
	qemu, err := exec.LookPath("qemu-aarch64")
	if err != nil {
		t.Skip("needs qemu-aarch64 (qemu-user)")
	}
	rounds := "300"
	if os.Getenv("HBTRACE_STRESS") != "" {
		rounds = "10000"
	}
	for _, c := range []struct {
		source string
		modes  []string
	}{
		{"sanitize", []string{"ring", "handshake", "signals"}},
		{"hostile", []string{"walk", "tables", "points"}},
		{"live", []string{""}},
	} {
		t.Run(c.source, func(t *testing.T) {
			exe := filepath.Join(t.TempDir(), c.source)
			if out, err := exec.Command(gcc, "-std=gnu11", "-O2", "-I..", "-static", "-mbranch-protection=pac-ret+leaf", "-Wall", "-Wextra", "-Wno-unused-function",
				"-pthread", "-o", exe, "testdata/"+c.source+".c").CombinedOutput(); err != nil {
				t.Fatalf("%s: %v\n%s", gcc, err, out)
			}
			for _, mode := range c.modes {
				args := []string{"-cpu", "max,pauth-impdef=on", exe} // signatures that are quick to emulate
				if mode != "" {
					args = append(args, mode)
				}
				out, err := exec.Command(qemu, append(args, rounds)...).CombinedOutput()
				if err != nil {
					t.Errorf("%s: %v\n%s", mode, err, out)
				}
				t.Logf("%s: %s", mode, out)
			}
		})
	}
}

// TestSystemCallNumbers holds the numbers of arch_*.h against the system's headers.
func TestSystemCallNumbers(t *testing.T) {
	for _, c := range []struct{ header, gcc, pkg string }{
		{"arch_amd64.h", "gcc", "gcc, linux-libc-dev"},
		{"arch_arm64.h", "aarch64-linux-gnu-gcc", "gcc-aarch64-linux-gnu, linux-libc-dev-arm64-cross"},
	} {
		t.Run(c.header, func(t *testing.T) {
			gcc, err := exec.LookPath(c.gcc)
			if err != nil {
				t.Skipf("needs %s (%s)", c.gcc, c.pkg)
			}
			src, err := os.ReadFile(c.header)
			if err != nil {
				t.Fatal(err)
			}
			// Hooks go by the C library's names; the kernel's are others for these.
			kernel := map[string]string{"pselect": "pselect6", "sigtimedwait": "rt_sigtimedwait", "sigsuspend": "rt_sigsuspend", "futex_wait": "futex_waitv"}
			unit, n := "#include <asm/unistd.h>\n", 0
			for _, m := range regexp.MustCompile(`HB_SYS_(\w+) = (\d+)|X\((\d+), (\w+)\)`).FindAllStringSubmatch(string(src), -1) {
				name, number := m[1]+m[4], m[2]+m[3]
				if k, ok := kernel[name]; ok {
					name = k
				}
				unit += fmt.Sprintf("_Static_assert(__NR_%s == %s, \"%s\");\n", name, number, name)
				n++
			}
			if n < 60 {
				t.Fatalf("%d numbers found", n)
			}
			cmd := exec.Command(gcc, "-x", "c", "-fsyntax-only", "-")
			cmd.Stdin = strings.NewReader(unit)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// TestArm64ExportsTheSame: what is wrapped is wrapped everywhere.
func TestArm64ExportsTheSame(t *testing.T) {
	var exports [2]map[string]bool
	for i, object := range []string{"hbagent_linux_amd64.so", "hbagent_linux_arm64.so"} {
		f, err := elf.Open(object)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		symbols, err := f.DynamicSymbols()
		if err != nil {
			t.Fatal(err)
		}
		exports[i] = map[string]bool{}
		for _, s := range symbols {
			if s.Section != elf.SHN_UNDEF && elf.ST_TYPE(s.Info) == elf.STT_FUNC {
				exports[i][s.Name] = true
			}
		}
	}
	if len(exports[0]) < 150 {
		t.Fatalf("%d functions exported", len(exports[0]))
	}
	for i := range exports {
		for name := range exports[i] {
			if !exports[1-i][name] {
				t.Errorf("%s is exported by one of the two", name)
			}
		}
	}
}
