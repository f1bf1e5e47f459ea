package agent

import (
	"os"
	"os/exec"
	"path/filepath"
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
