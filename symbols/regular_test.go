package symbols

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestOpenRegular: what is no regular file is refused without being opened, which the kernel would tell of.
func TestOpenRegular(t *testing.T) {
	dir := t.TempDir()
	fifo, file, link := filepath.Join(dir, "fifo"), filepath.Join(dir, "file"), filepath.Join(dir, "link")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	watch, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(watch)
	for _, path := range []string{fifo, file} {
		if _, err := unix.InotifyAddWatch(watch, path, unix.IN_OPEN); err != nil {
			t.Fatal(err)
		}
	}
	opened := func() bool {
		n, _ := unix.Read(watch, make([]byte, 4096))
		return n > 0
	}
	for _, path := range []string{fifo, dir, "/dev/zero"} {
		if f, err := OpenRegular(path); err == nil {
			f.Close()
			t.Errorf("%s was opened", path)
		}
	}
	if opened() {
		t.Error("the FIFO was opened before it was refused")
	}
	for _, path := range []string{file, link} {
		f, err := OpenRegular(path)
		if err != nil {
			t.Fatal(err)
		}
		text := make([]byte, 5)
		if n, _ := f.ReadAt(text, 0); string(text[:n]) != "text" || f.Name() != path {
			t.Errorf("%s: read %q from %s", path, text[:n], f.Name())
		}
		f.Close()
		if !opened() {
			t.Errorf("the kernel did not tell that %s was opened", path)
		}
	}
	if _, err := OpenRegular(filepath.Join(dir, "none")); !os.IsNotExist(err) {
		t.Errorf("no file: %v", err)
	}
}
