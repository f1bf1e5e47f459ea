package flight

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/hbtrace/hbtrace/internal/validate"
	"golang.org/x/sys/unix"
)

func TestKeepText(t *testing.T) {
	for _, c := range []struct{ text, want, fails string }{
		{"60s", "1m", ""}, {"64M", "64M", ""}, {"60s,64M", "1m,64M", ""}, {"64M,1m30s", "1m30s,64M", ""}, {"1G", "1G", ""},
		{"90s", "1m30s", ""}, {"2h", "2h", ""},
		{"60", "", "no time and no size"}, {"", "", "no time and no size"}, {"5x", "", "no time and no size"}, {"10ms", "", "use 1s or more"},
		{"1K", "", "use 1M to 64G"}, {"1s,2s", "", "two times"}, {"1M,2M", "", "two sizes"}, {"-5s", "", "use 1s or more"},
	} {
		k, err := ParseKeep(c.text)
		switch {
		case c.fails != "" && (err == nil || !strings.Contains(err.Error(), c.fails)):
			t.Errorf("%q: %v, want %q", c.text, err, c.fails)
		case c.fails == "" && (err != nil || k.String() != c.want):
			t.Errorf("%q: %q, %v, want %q", c.text, k, err, c.want)
		}
	}
}

// TestTwoDumps: dumps that are made at the same time, while events come in, are whole.
func TestTwoDumps(t *testing.T) {
	p := newProducer(t, Keep{Bytes: testWindow}, 1)
	defer p.w.Close()
	for range 10_000 {
		p.step()
	}
	p.keyframe()
	stop := make(chan struct{})
	var recorder, readers sync.WaitGroup
	recorder.Go(func() {
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			default:
			}
			p.step()
			if n%2000 == 0 {
				p.keyframe()
			}
		}
	})
	dir := t.TempDir()
	var paths [4]string
	for i := range paths {
		readers.Go(func() {
			path := filepath.Join(dir, string(rune('a'+i))+".hbt")
			c, err := Read(p.w.Dir)
			if err == nil {
				_, err = c.Dump(path, Options{NoNames: true})
			}
			if err != nil {
				t.Error(err)
				return
			}
			paths[i] = path
		})
	}
	readers.Wait()
	close(stop)
	recorder.Wait()
	for _, path := range paths {
		if path == "" {
			continue
		}
		if err := validate.File(path); err != nil {
			t.Error(err)
		}
	}
}

// TestNoRoomForDump: where a dump cannot be written, no part of it stays, and the session goes on.
func TestNoRoomForDump(t *testing.T) {
	p := newProducer(t, Keep{Bytes: leastBytes}, 2)
	defer p.w.Close()
	for range 50_000 {
		p.step()
	}
	p.keyframe()
	c, err := Read(p.w.Dir)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	// A file that may not grow stands for a file system that is full.
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &old); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 16 << 10, Max: old.Max}); err != nil {
		t.Fatal(err)
	}
	_, err = c.Dump(filepath.Join(dir, "full.hbt"), Options{NoNames: true})
	if e := unix.Setrlimit(unix.RLIMIT_FSIZE, &old); e != nil {
		t.Fatal(e)
	}
	if !errors.Is(err, syscall.EFBIG) {
		t.Errorf("a dump without room: %v", err)
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	if _, err := c.Dump(filepath.Join(dir, "no", "such", "directory.hbt"), Options{NoNames: true}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a dump to nowhere: %v", err)
	}
	p.step()
	p.keyframe()
	if err := p.w.Err(); err != nil {
		t.Errorf("the session: %v", err)
	}
	if _, err := c.Dump(filepath.Join(dir, "a.hbt"), Options{NoNames: true}); err != nil {
		t.Errorf("a dump after one that failed: %v", err)
	}
}

// TestForeignDirectory: a directory of sessions that another user made, or may write to, is refused in one line.
func TestForeignDirectory(t *testing.T) {
	root := t.TempDir()
	t.Setenv("XDG_RUNTIME_DIR", root)
	dir := filepath.Join(root, "hbtrace")
	if err := os.Mkdir(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := makeSession([]string{"app"}); err == nil || !strings.Contains(err.Error(), "chmod 700") {
		t.Errorf("a directory that others may write to: %v", err)
	}
	if os.Geteuid() == 0 {
		if err := errors.Join(os.Chmod(dir, 0o700), os.Chown(dir, 65534, 65534)); err != nil {
			t.Fatal(err)
		}
		if _, err := makeSession([]string{"app"}); err == nil || !strings.Contains(err.Error(), "belongs to another user") {
			t.Errorf("a directory of another user: %v", err)
		}
	}
	if err := errors.Join(os.RemoveAll(dir), os.Symlink("/tmp", dir)); err != nil {
		t.Fatal(err)
	}
	if _, err := makeSession([]string{"app"}); err == nil || !strings.Contains(err.Error(), "not a directory") {
		t.Errorf("a link: %v", err)
	}
}

// TestTooLarge: a window that does not fit is refused before anything is made.
func TestTooLarge(t *testing.T) {
	if err := roomFor(1 << 60); err == nil || !strings.Contains(err.Error(), "half of this machine's memory") {
		t.Errorf("%v", err)
	}
	if err := roomFor(DefaultBytes); err != nil {
		t.Errorf("%v", err)
	}
}

// TestOwnUserOnly: a recorder answers its own user. Another user's client is told nothing.
func TestOwnUserOnly(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can become another user")
	}
	asked := false
	s, err := Listen(func(Request) Status { asked = true; return Status{} })
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	session := Session{Info: Info{Name: "x", Socket: s.Name}}
	c, err := Connect(session)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Ask(Request{Op: OpStatus}); err != nil || !asked {
		t.Errorf("the same user: %v", err)
	}
	c.Close()
	// The answer's side judges by the credentials of who connected: those of the thread's user at that time.
	if mayAsk(65534, 0) || !mayAsk(0, 65534) || !mayAsk(65534, 65534) {
		t.Error("who may ask")
	}
}
