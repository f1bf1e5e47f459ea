package python

import (
	"debug/elf"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// interpreters are the files of this machine that may hold one: Debian's, and those that pyenv built.
func interpreters(t *testing.T) (files []string) {
	t.Helper()
	home, _ := os.UserHomeDir()
	for _, pattern := range []string{"/usr/bin/python3.*", filepath.Join(home,
		".pyenv/versions/3.*/lib/libpython3.*.so.1.0")} {
		m, _ := filepath.Glob(pattern)
		files = append(files, m...)
	}
	return files
}

func TestFind(t *testing.T) {
	number := regexp.MustCompile(`python3\.(\d+)m?(\.so\.1\.0)?$`)
	found := 0
	for _, f := range interpreters(t) {
		m := number.FindStringSubmatch(f)
		if m == nil {
			continue // python3.11-config
		}
		e, err := elf.Open(f)
		if err != nil {
			t.Fatal(err)
		}
		in, err := Find(e)
		e.Close()
		if m[1] == "6" || m[1] == "7" {
			if err == nil || errors.Is(err, ErrNone) && m[1] == "7" {
				t.Errorf("%s: %v, want an error that says the version", f, err)
			}
			continue
		}
		found++
		if err != nil {
			t.Errorf("%s: %v", f, err)
			continue
		}
		if in.Version != "3."+m[1] {
			t.Errorf("%s is said to be %s", f, in.Version)
		}
	}
	if found == 0 {
		t.Skip("there is no Python 3 here: apt-get install python3")
	}
}
