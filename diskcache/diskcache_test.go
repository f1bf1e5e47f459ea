package diskcache

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"
)

const buildID = "abcdef0123456789abcdef0123456789"

func store(dir string) Store {
	return Store{Dir: dir, Suffix: ".x", MaxFile: 1 << 20, Limit: 3000, Kept: 1500}
}

func names(t *testing.T, s Store) (out []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(s.Dir, "*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		out = append(out, filepath.Base(f))
	}
	return out
}

func TestWriteAndRead(t *testing.T) {
	s := store(filepath.Join(t.TempDir(), "a", "b"))
	p := s.Path(buildID, "1")
	if want := filepath.Join(s.Dir, "ab", buildID[2:]+"-1.x"); p != want {
		t.Fatalf("path %q, want %q", p, want)
	}
	if b := s.Read(p); b != nil {
		t.Fatalf("%d bytes of a file that is not there", len(b))
	}
	for _, b := range []string{"one", "another"} {
		if err := s.Write(p, []byte(b)); err != nil {
			t.Fatal(err)
		}
		if got := s.Read(p); string(got) != b {
			t.Fatalf("read %q, want %q", got, b)
		}
	}
	for dir := filepath.Dir(p); dir != filepath.Dir(filepath.Dir(s.Dir)); dir = filepath.Dir(dir) {
		if st, err := os.Stat(dir); err != nil || st.Mode().Perm() != 0o700 {
			t.Errorf("%s: %v, %v, want for nobody else", dir, st.Mode(), err)
		}
	}
	if st, err := os.Stat(p); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v, want for nobody else", st.Mode(), err)
	}
	if err := s.Write(p, make([]byte, s.MaxFile+1)); err != nil || string(s.Read(p)) != "another" {
		t.Errorf("a file that is too large: %v, and there is %q", err, s.Read(p))
	}
	if n := names(t, s); len(n) != 1 {
		t.Errorf("files %q, want one", n)
	}
}

// TestNothingKept: no directory, and modules that have no proper build id.
func TestNothingKept(t *testing.T) {
	for _, c := range []struct{ dir, id string }{
		{"", buildID}, {"/x", ""}, {"/x", "abcd"}, {"/x", "../../../../etc/passwd0"}, {"/x", "ABCDEF0123456789"},
	} {
		s := store(c.dir)
		p := s.Path(c.id, "1")
		if p != "" || s.Read(p) != nil || s.Write(p, []byte("x")) != nil {
			t.Errorf("directory %q, build id %q: kept at %q", c.dir, c.id, p)
		}
	}
}

// TestUntrusted: files that somebody else wrote, or may have, are not read, nor is what is no file.
func TestUntrusted(t *testing.T) {
	s := store(t.TempDir())
	p := s.Path(buildID, "1")
	write := func() {
		t.Helper()
		os.RemoveAll(p)
		if err := s.Write(p, []byte("content")); err != nil {
			t.Fatal(err)
		}
	}
	for name, change := range map[string]func() error{
		"writable by the group": func() error { return os.Chmod(p, 0o620) },
		"writable by all":       func() error { return os.Chmod(p, 0o602) },
		"too large":             func() error { return os.Truncate(p, s.MaxFile+1) },
		"a symbolic link":       func() error { return errors.Join(os.Rename(p, p+"2"), os.Symlink(p+"2", p)) },
		"a FIFO":                func() error { os.Remove(p); return syscall.Mkfifo(p, 0o600) },
		"a directory":           func() error { os.Remove(p); return os.Mkdir(p, 0o700) },
	} {
		write()
		if err := change(); err != nil {
			t.Fatal(err)
		}
		if b := s.Read(p); b != nil {
			t.Errorf("%s: read", name)
		}
	}
	write()
	if os.Geteuid() != 0 {
		t.Log("files of another user: not looked at, since only root can make them")
		return
	}
	if err := os.Chown(p, 12345, -1); err != nil {
		t.Fatal(err)
	}
	if s.Read(p) != nil {
		t.Error("another user's file was read")
	}
	home := t.TempDir()
	if err := os.Chown(home, 12345, -1); err != nil {
		t.Fatal(err)
	}
	theirs := store(filepath.Join(home, ".cache", "hbtrace", "kind"))
	if err := theirs.Write(theirs.Path(buildID, "1"), []byte("x")); err == nil {
		t.Error("written into another user's home")
	}
	if left, err := os.ReadDir(home); err != nil || len(left) != 0 {
		t.Errorf("left in another user's home: %v, %v", left, err)
	}
}

// TestCannotWrite: an error, and nothing is left.
func TestCannotWrite(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s := store(filepath.Join(dir, "file"))
	if err := s.Write(s.Path(buildID, "1"), []byte("x")); err == nil {
		t.Error("written below a file")
	}
	s = store(dir)
	p := s.Path(buildID, "1")
	if err := os.MkdirAll(filepath.Join(p, "in the way"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := s.Write(p, []byte("x")); err == nil {
		t.Error("a directory was replaced")
	}
	if n := names(t, s); len(n) != 1 {
		t.Errorf("left %q", n)
	}
}

// TestShared: several writers and readers of one file at once see whole contents only.
func TestShared(t *testing.T) {
	s := store(t.TempDir())
	p := s.Path(buildID, "1")
	var wait sync.WaitGroup
	for n := range 8 {
		wait.Go(func() {
			mine := bytes.Repeat([]byte{byte('a' + n)}, 1000*(n+1))
			for range 5 {
				if err := s.Write(p, mine); err != nil {
					t.Error(err)
				}
				b := s.Read(p)
				if len(b) == 0 || len(b) != 1000*(int(b[0]-'a')+1) || len(bytes.Trim(b, string(b[:1]))) != 0 {
					t.Errorf("%d bytes that nobody wrote", len(b))
				}
			}
		})
	}
	wait.Wait()
	if n := names(t, s); len(n) != 1 {
		t.Errorf("left %q", n)
	}
}

func TestSweep(t *testing.T) {
	s := store(t.TempDir())
	now := time.Now()
	for i := range 3 {
		p := s.Path(buildID, fmt.Sprint(i))
		if err := s.Write(p, make([]byte, 1000)); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(p, now, now.Add(time.Duration(i-10)*time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	s.Sweep()
	if n := names(t, s); len(n) != 3 {
		t.Errorf("%d files, want all 3: they are no more than the limit", len(n))
	}
	s.Used(s.Path(buildID, "0"))
	s.Limit = 2999
	s.Sweep()
	if n := names(t, s); len(n) != 1 || n[0] != buildID[2:]+"-0.x" {
		t.Errorf("left %q, want what was used last", n)
	}
}

func TestDir(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", "/x")
	for v, want := range map[string]string{"": "/x/hbtrace/kind", "off": "", "0": "", "no": "", "/elsewhere": "/elsewhere"} {
		t.Setenv("HBTRACE_KIND_CACHE", v)
		if got := Dir("HBTRACE_KIND_CACHE", "kind"); got != want {
			t.Errorf("%q: %q, want %q", v, got, want)
		}
	}
}
