package outfile

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// sticky is a directory as /tmp is.
func sticky(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "tmp")
	if err := os.Mkdir(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o777|os.ModeSticky); err != nil {
		t.Fatal(err)
	}
	return dir
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, path string) {
	t.Helper()
	must(t, os.WriteFile(path, []byte("before"), 0o600))
}

// onlyRoot is for what another user has to have made.
func onlyRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to make another user's files")
	}
}

func TestNewFileIsOurs(t *testing.T) {
	old := unix.Umask(0)
	defer unix.Umask(old)
	path := filepath.Join(sticky(t), "new")
	f, err := Open(path)
	must(t, err)
	f.Close()
	if fi, err := os.Stat(path); err != nil || fi.Mode() != 0o600 {
		t.Errorf("%v, %v", fi.Mode(), err)
	}
}

func TestOwnLinkAndFile(t *testing.T) {
	dir := sticky(t)
	write(t, filepath.Join(dir, "file"))
	must(t, os.Symlink("file", filepath.Join(dir, "link")))
	must(t, os.Symlink("link", filepath.Join(dir, "chain")))
	must(t, os.Symlink("nothing yet", filepath.Join(dir, "ahead")))
	for name, want := range map[string]string{"file": "file", "link": "file", "chain": "file", "ahead": "nothing yet"} {
		f, err := Open(filepath.Join(dir, name))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		f.Close()
		if got := filepath.Base(f.Name()); got != want {
			t.Errorf("%s: opened %s, want %s", name, got, want)
		}
	}
}

func TestLinkInACircle(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x")
	must(t, os.Symlink("x", path))
	if _, err := Open(path); !errors.Is(err, unix.ELOOP) {
		t.Errorf("%v", err)
	}
}

func TestSecondName(t *testing.T) {
	dir := sticky(t)
	write(t, filepath.Join(dir, "file"))
	must(t, os.Link(filepath.Join(dir, "file"), filepath.Join(dir, "other")))
	if _, err := Open(filepath.Join(dir, "other")); !errors.Is(err, ErrForeign) {
		t.Errorf("a file with two names: %v", err)
	}
}

// As it was found: root records where nobody has put a link to root's own file, and a file, beforehand.
func TestForeign(t *testing.T) {
	onlyRoot(t)
	dir := sticky(t)
	secret := filepath.Join(t.TempDir(), "secret")
	write(t, secret)
	link, file, fifo := filepath.Join(dir, "link"), filepath.Join(dir, "file"), filepath.Join(dir, "fifo")
	must(t, os.Symlink(secret, link))
	must(t, os.Lchown(link, 65534, 65534))
	write(t, file)
	must(t, os.Chown(file, 65534, 65534))
	must(t, unix.Mkfifo(fifo, 0o600))
	must(t, os.Chown(fifo, 65534, 65534))
	for _, path := range []string{link, file, fifo} {
		if _, err := Open(path); !errors.Is(err, ErrForeign) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if b, err := os.ReadFile(secret); string(b) != "before" || err != nil {
		t.Errorf("the file behind the link: %q, %v", b, err)
	}
}

// What is open already was chosen by who opened it: >(command) of another user's shell under sudo, for example.
func TestDescriptors(t *testing.T) {
	r, w, err := os.Pipe()
	must(t, err)
	defer r.Close()
	defer w.Close()
	for _, path := range []string{"/dev/null", "/dev/stdout"} {
		_, info, err := Resolve(path)
		if err != nil || info == nil || info.Ours() != nil {
			t.Errorf("%s: %+v, %v", path, info, err)
		}
	}
}
