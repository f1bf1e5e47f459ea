package doctor

import (
	"debug/elf"
	"os"
	"path/filepath"
	"testing"
)

func openELF(t *testing.T, path string) *elf.File {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// FuzzLook: whatever is in a file, it is described or refused.
func FuzzLook(f *testing.F) {
	for _, path := range []string{"/bin/true", "/bin/sh"} {
		if b, err := os.ReadFile(path); err == nil {
			f.Add(b[:min(len(b), 4096)])
			if len(b) < 64<<10 {
				f.Add(b)
			}
		}
	}
	f.Add([]byte("#!/bin/sh\n"))
	f.Add([]byte("#!\x00"))
	path := filepath.Join(f.TempDir(), "p")
	f.Fuzz(func(t *testing.T, b []byte) {
		os.Remove(path)
		if err := os.WriteFile(path, b, 0o755); err != nil {
			t.Fatal(err)
		}
		p, err := LookProgram(path)
		if (p == nil) == (err == nil) && err == nil {
			t.Fatal("neither a program nor an error")
		}
		if err == nil && len(p.Findings) == 0 {
			t.Fatal("described by nothing")
		}
	})
}
