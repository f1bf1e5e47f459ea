package agent

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestSanitized runs the agent's C under the compiler's sanitizers: what threads of the target share with one another, the
// sampler and the collector (the ring's producer, the state word's handshake, the table of live addresses), and what reads
// memory that others wrote (stacks, unwind tables). rules.c goes through the rules of the handshake one by one.
func TestSanitized(t *testing.T) {
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("needs gcc with libasan, libubsan and libtsan")
	}
	rounds := "3000"
	if os.Getenv("HBTRACE_STRESS") != "" {
		rounds = "100000"
	}
	for _, c := range []struct {
		source, sanitizers string
		modes              []string
	}{
		{"sanitize", "address,undefined", []string{"ring", "handshake", "signals"}},
		{"sanitize", "thread", []string{"ring", "handshake"}}, // it delays signals, so that none may come at once
		{"hostile", "address,undefined", []string{"walk", "tables", "points"}},
		{"rules", "address,undefined", []string{""}},
		{"flight", "address,undefined", []string{""}},
		{"arrival", "address,undefined", []string{""}},
		{"live", "address,undefined", []string{""}},
		{"live", "thread", []string{""}},
	} {
		t.Run(c.source+"/"+c.sanitizers, func(t *testing.T) {
			exe := filepath.Join(t.TempDir(), c.source)
			args := []string{"-std=gnu11", "-g", "-O1", "-I..", "-fsanitize=" + c.sanitizers, "-fno-sanitize-recover=all", "-fno-omit-frame-pointer",
				"-Wall", "-Wno-unused-function", "-pthread", "-o", exe, "testdata/" + c.source + ".c", "-lm"}
			if out, err := exec.Command(gcc, args...).CombinedOutput(); err != nil {
				if strings.Contains(string(out), "cannot find") {
					t.Skipf("no library for -fsanitize=%s: %s", c.sanitizers, out)
				}
				t.Fatalf("gcc -fsanitize=%s: %v\n%s", c.sanitizers, err, out)
			}
			for _, mode := range c.modes {
				args := []string{rounds}
				if mode != "" {
					args = []string{mode, rounds}
				}
				out, err := exec.Command(exe, args...).CombinedOutput()
				if err != nil {
					t.Errorf("%v: %v\n%s", args, err, out)
				}
				t.Logf("%v: %s", args, out)
			}
		})
	}
}
