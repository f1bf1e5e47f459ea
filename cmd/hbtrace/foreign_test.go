package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/hbtrace/hbtrace/outfile"
)

// As it was found: nobody has put a link to root's own file, and a file, where root's hbtrace is about to write.
func TestOutputsOfOthers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to make another user's files")
	}
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777|os.ModeSticky); err != nil {
		t.Fatal(err)
	}
	secret, link, file := filepath.Join(dir, "secret"), filepath.Join(dir, "link"), filepath.Join(dir, "file")
	err := errors.Join(os.WriteFile(secret, []byte("before"), 0o600), os.Symlink(secret, link), os.Lchown(link, 65534, 65534),
		os.WriteFile(file, nil, 0o666), os.Chown(file, 65534, 65534))
	if err != nil {
		t.Fatal(err)
	}
	write := func(w io.Writer) error { _, err := io.WriteString(w, "after"); return err }
	for _, path := range []string{link, file} {
		if err := writeFile(path, nil, write); !errors.Is(err, outfile.ErrForeign) {
			t.Errorf("%s: %v", path, err)
		}
		if err := writeRecording(path); !errors.Is(err, outfile.ErrForeign) {
			t.Errorf("a recording to %s: %v", path, err)
		}
	}
	if b, err := os.ReadFile(secret); string(b) != "before" || err != nil {
		t.Errorf("%q, %v", b, err)
	}
}

// Files are their owner's alone, unless the owner wants it otherwise.
func TestOutputModes(t *testing.T) {
	dir := t.TempDir()
	write := func(w io.Writer) error { _, err := io.WriteString(w, "after"); return err }
	shared, private, fresh := filepath.Join(dir, "shared"), filepath.Join(dir, "private"), filepath.Join(dir, "fresh")
	err := errors.Join(os.WriteFile(shared, nil, 0o600), os.Chmod(shared, 0o644), os.WriteFile(private, nil, 0o600))
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]os.FileMode{shared: 0o644, private: 0o600, fresh: 0o600} {
		if err := writeFile(path, nil, write); err != nil {
			t.Fatal(err)
		}
		if fi, err := os.Stat(path); err != nil || fi.Mode() != want {
			t.Errorf("%s: %v, %v; want %v", path, fi.Mode(), err, want)
		}
	}
	path := filepath.Join(dir, "recording")
	if err := writeRecording(path); err != nil {
		t.Fatal(err)
	}
	if fi, err := os.Stat(path); err != nil || fi.Mode() != 0o600 {
		t.Errorf("a recording: %v, %v", fi.Mode(), err)
	}
}
