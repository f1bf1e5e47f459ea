// Delivery: what is trusted, what is not, and what happens when the file system says no.
package agent

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

var testFiles = map[string][]byte{"agent-x86_64.so": []byte("one"), preloadName: []byte("one"), "agent-i686.so": []byte("two")}

// base is a directory as /tmp is.
func base(t *testing.T) string {
	t.Helper()
	d := filepath.Join(t.TempDir(), "base")
	if strings.ContainsAny(d, " :$") {
		t.Fatalf("temporary directory %q does not suit", d)
	}
	if err := os.Mkdir(d, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(d, 0o777|os.ModeSticky); err != nil {
		t.Fatal(err)
	}
	return d
}

func mustDeliver(t *testing.T, bases ...string) string {
	t.Helper()
	p, err := deliver(testFiles, "hash", bases)
	if err != nil {
		t.Fatal(err)
	}
	if filepath.Base(p) != preloadName {
		t.Fatalf("LD_PRELOAD would be %s", p)
	}
	for name, want := range testFiles {
		got, err := os.ReadFile(filepath.Join(filepath.Dir(p), name))
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%s holds %q, %v", name, got, err)
		}
	}
	return filepath.Dir(p)
}

func TestDeliverTwiceIsTheSameDirectory(t *testing.T) {
	old := syscall.Umask(0o077)
	defer syscall.Umask(old)
	b := base(t)
	first := mustDeliver(t, b)
	fi, err := os.Stat(filepath.Join(first, preloadName))
	if err != nil {
		t.Fatal(err)
	}
	if fi.Mode().Perm()&0o555 != 0o555 {
		t.Errorf("mode %v: others cannot load it", fi.Mode())
	}
	again := mustDeliver(t, b)
	fi2, err := os.Stat(filepath.Join(again, preloadName))
	if err != nil {
		t.Fatal(err)
	}
	if first != again || !os.SameFile(fi, fi2) {
		t.Error("the second delivery wrote anew")
	}
	left, err := filepath.Glob(filepath.Join(b, ".hbtrace-new-*"))
	if err != nil || len(left) != 0 {
		t.Errorf("left behind: %v (%v)", left, err)
	}
}

func TestDeliverConcurrently(t *testing.T) {
	b := base(t)
	var wg sync.WaitGroup
	got := make([]string, 8)
	for i := range got {
		wg.Go(func() { got[i], _ = deliver(testFiles, "hash", []string{b}) })
	}
	wg.Wait()
	for _, p := range got {
		if p == "" || p != got[0] {
			t.Fatalf("deliveries differ: %q", got)
		}
	}
}

func TestDeliverTrusts(t *testing.T) {
	if os.Getuid() != 0 {
		t.Log("not root: ownership cases are left out")
	}
	for _, tc := range []struct {
		name     string
		tamper   func(dir string) error
		same     bool // the directory is used all the same
		needRoot bool
	}{
		{"nothing wrong", func(string) error { return nil }, true, false},
		{"a cleaner took a file", func(d string) error { return os.Remove(filepath.Join(d, preloadName)) }, true, false},
		{"content", func(d string) error { return os.WriteFile(filepath.Join(d, preloadName), []byte("eno"), 0o755) }, false, false},
		{"truncated", func(d string) error { return os.Truncate(filepath.Join(d, preloadName), 1) }, false, false},
		{"file writable by others", func(d string) error { return os.Chmod(filepath.Join(d, preloadName), 0o777) }, false, false},
		{"file unreadable for others", func(d string) error { return os.Chmod(filepath.Join(d, preloadName), 0o700) }, false, false},
		{"directory writable by others", func(d string) error { return os.Chmod(d, 0o777) }, false, false},
		{"symbolic link to the file", func(d string) error {
			p := filepath.Join(d, preloadName)
			return errors.Join(os.Rename(p, p+".real"), os.Symlink(p+".real", p))
		}, false, false},
		{"symbolic link to the directory", func(d string) error {
			return errors.Join(os.Rename(d, d+".real"), os.Symlink(d+".real", d))
		}, false, false},
		{"file instead of the directory", func(d string) error {
			return errors.Join(os.RemoveAll(d), os.WriteFile(d, nil, 0o644))
		}, false, false},
		{"fifo", func(d string) error {
			p := filepath.Join(d, preloadName)
			return errors.Join(os.Remove(p), unix.Mkfifo(p, 0o755))
		}, false, false},
		{"another user's directory", func(d string) error { return os.Chown(d, 12345, 12345) }, false, true},
		{"another user's file", func(d string) error { return os.Chown(filepath.Join(d, preloadName), 12345, 12345) }, false, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.needRoot && os.Getuid() != 0 {
				t.Skip("needs root to give files away")
			}
			b := base(t)
			dir := mustDeliver(t, b)
			if err := tc.tamper(dir); err != nil {
				t.Fatal(err)
			}
			if again := mustDeliver(t, b); (again == dir) != tc.same {
				t.Errorf("used %s, tampered with %s", again, dir)
			}
		})
	}
}

func TestDeliverGoesOnToTheNextBase(t *testing.T) {
	good := base(t)
	open := filepath.Join(t.TempDir(), "open")
	if err := errors.Join(os.Mkdir(open, 0o777), os.Chmod(open, 0o777)); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	spaced := filepath.Join(t.TempDir(), "a b")
	if err := os.Mkdir(spaced, 0o755); err != nil {
		t.Fatal(err)
	}
	dir := mustDeliver(t, "/nonexistent", file, open, spaced, "relative", good)
	if filepath.Dir(dir) != good {
		t.Errorf("delivered to %s", dir)
	}
	_, err := deliver(testFiles, "hash", []string{"/nonexistent", file})
	if err == nil || !strings.Contains(err.Error(), "noexec") || !strings.Contains(err.Error(), "/nonexistent") {
		t.Errorf("nowhere to go: %v", err)
	}
}

func TestDeliverAvoidsNoexec(t *testing.T) {
	b, good := base(t), base(t)
	if err := unix.Mount("tmpfs", b, "tmpfs", unix.MS_NOEXEC, "mode=1777"); err != nil {
		t.Skipf("needs the right to mount a tmpfs: %v", err)
	}
	t.Cleanup(func() { unix.Unmount(b, unix.MNT_DETACH) })
	if dir := mustDeliver(t, b, good); filepath.Dir(dir) != good {
		t.Errorf("delivered to %s, mounted noexec", dir)
	}
}

func TestDeliverOnAFullDisk(t *testing.T) {
	b, good := base(t), base(t)
	if err := unix.Mount("tmpfs", b, "tmpfs", 0, "mode=1777,nr_blocks=1"); err != nil {
		t.Skipf("needs the right to mount a tmpfs: %v", err)
	}
	t.Cleanup(func() { unix.Unmount(b, unix.MNT_DETACH) })
	big := map[string][]byte{preloadName: bytes.Repeat([]byte{1}, 1<<16)}
	p, err := deliver(big, "hash", []string{b, good})
	if err != nil || filepath.Dir(filepath.Dir(p)) != good {
		t.Errorf("delivered to %q, %v", p, err)
	}
	if left, _ := filepath.Glob(filepath.Join(b, ".*new*")); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

// The delivered agent itself: a program that exits at once loads it without a word.
func TestDeliveredAgentLoads(t *testing.T) {
	start := time.Now()
	preload, err := Deliver()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s in %v", preload, time.Since(start))
	if strings.ContainsAny(preload, " :") {
		t.Errorf("%q would be split by the loader", preload)
	}
	cmd := exec.Command("/bin/sh", "-c", `grep -c "$0" /proc/self/maps`, fmt.Sprintf("hbtrace-%d-%s", os.Geteuid(), Hash()))
	cmd.Env = append(os.Environ(), "LD_PRELOAD="+preload)
	out, err := cmd.CombinedOutput()
	if err != nil || strings.TrimSpace(string(out)) == "0" || strings.Contains(string(out), "cannot") {
		t.Errorf("grep's maps: %q, %v", out, err)
	}
}

// TestPrivatePlaces: what outlives a session in other programs' environments lies where nobody else can make it anew.
func TestPrivatePlaces(t *testing.T) {
	env := func(vars map[string]string) func(string) string { return func(k string) string { return vars[k] } }
	for _, c := range []struct {
		uid  int
		env  map[string]string
		want []string
	}{
		{0, map[string]string{"HOME": "/home/u", "XDG_RUNTIME_DIR": "/run/user/1000"}, []string{"/run/hbtrace", "/var/lib/hbtrace"}},
		{1000, map[string]string{"HOME": "/home/u", "XDG_RUNTIME_DIR": "/run/user/1000"}, []string{"/home/u/.cache/hbtrace", "/run/user/1000/hbtrace"}},
		{1000, map[string]string{"HOME": "/home/u", "XDG_CACHE_HOME": "/c"}, []string{"/c/hbtrace"}},
		{1000, nil, nil},
	} {
		if got := private(c.uid, env(c.env)); !slices.Equal(got, c.want) {
			t.Errorf("user %d, %v: %q, want %q", c.uid, c.env, got, c.want)
		}
	}
	preload, err := Deliver()
	if err != nil {
		t.Fatal(err)
	}
	for dir := filepath.Dir(preload); dir != "/"; dir = filepath.Dir(dir) {
		fi, err := os.Stat(dir)
		if err != nil {
			t.Fatal(err)
		}
		if st := fi.Sys().(*syscall.Stat_t); fi.Mode().Perm()&0o022 != 0 || st.Uid != 0 && int(st.Uid) != os.Geteuid() {
			if os.Geteuid() == 0 {
				t.Errorf("%s lies in %s (%v, user %d), which others may write to", preload, dir, fi.Mode(), st.Uid)
			} else {
				t.Skipf("%s lies in %s: this user has no place of its own", preload, dir)
			}
		}
	}
}
