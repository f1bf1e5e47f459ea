package agent

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestSanitized runs what threads of the target share with one another, the sampler and the collector (the ring's producer,
// the state word's handshake) under the compiler's sanitizers.
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
		sanitizers string
		modes      []string
	}{
		{"address,undefined", []string{"ring", "handshake", "signals"}},
		{"thread", []string{"ring", "handshake"}}, // it delays signals, so that none may come at once
	} {
		exe := filepath.Join(t.TempDir(), "sanitize")
		args := []string{"-std=gnu11", "-g", "-O1", "-I..", "-fsanitize=" + c.sanitizers, "-fno-sanitize-recover=all", "-fno-omit-frame-pointer",
			"-Wall", "-Wno-unused-function", "-pthread", "-o", exe, "testdata/sanitize.c"}
		if out, err := exec.Command(gcc, args...).CombinedOutput(); err != nil {
			if strings.Contains(string(out), "cannot find") {
				t.Logf("skipped: no library for -fsanitize=%s: %s", c.sanitizers, out)
				continue
			}
			t.Fatalf("gcc -fsanitize=%s: %v\n%s", c.sanitizers, err, out)
		}
		for _, mode := range c.modes {
			t.Run(c.sanitizers+"/"+mode, func(t *testing.T) {
				out, err := exec.Command(exe, mode, rounds).CombinedOutput()
				if err != nil {
					t.Errorf("%v\n%s", err, out)
				}
				t.Logf("%s", out)
			})
		}
	}
}
