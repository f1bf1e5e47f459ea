package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/hbtrace/hbtrace/trace"
	"golang.org/x/sys/unix"
)

// pty opens a pseudo-terminal: what is written to the terminal is read from the other side, until both are closed.
func pty(t *testing.T) (terminal *os.File, written func() string) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("no pseudo-terminal can be opened: %v", err)
	}
	fd := int(master.Fd())
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		terminal, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		master.Close()
		t.Skipf("no pseudo-terminal can be opened: %v", err)
	}
	read := make(chan string, 1)
	go func() {
		var b bytes.Buffer
		_, _ = io.Copy(&b, master) // it ends in EIO when the terminal is closed
		read <- b.String()
	}()
	t.Cleanup(func() { terminal.Close(); master.Close() })
	return terminal, func() string {
		terminal.Close()
		return <-read
	}
}

const clearLine = "\r\x1b[K"

// TestProgressOfReading: a reading that takes long says how far it is, in one line that goes away; only on a terminal.
func TestProgressOfReading(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.hbt")
	if err := writeRecording(path); err != nil {
		t.Fatal(err)
	}
	read := func(w io.Writer, stays bool) uint64 {
		src, err := openRecording(path)
		if err != nil {
			t.Fatal(err)
		}
		defer src.done()
		src.shows(newProgress(w, false), "reading a.hbt")
		src.after, src.stays = -1, stays // everything takes longer than that
		n := uint64(0)
		if err := trace.Events(src, func(*trace.Event) error { n++; return nil }); err != nil {
			t.Fatal(err)
		}
		return n
	}
	terminal, written := pty(t)
	n := read(terminal, false)
	got := written()
	said := regexp.MustCompile(`^\r\x1b\[Khbtrace: reading a\.hbt: \d+ % of \d+ events`)
	if n == 0 || !said.MatchString(got) || !strings.HasSuffix(got, clearLine) || strings.Contains(got, "\n") {
		t.Errorf("%d events were read; the terminal saw %q", n, got)
	}
	terminal, written = pty(t)
	read(terminal, true)
	if got := written(); !strings.HasSuffix(got, clearLine+"hbtrace: reading a.hbt: adding up") {
		t.Errorf("where the line stays the terminal saw %q", got)
	}
	file, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	read(file, true)
	if st, err := file.Stat(); err != nil || st.Size() != 0 {
		t.Errorf("a file saw %d bytes (%v)", st.Size(), err)
	}
}

// TestProgressOfCommands: what can take long tells what it is at on a terminal, and leaves nothing there; without one
// it says nothing.
func TestProgressOfCommands(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.hbt")
	if err := writeRecording(path); err != nil {
		t.Fatal(err)
	}
	for _, flag := range []string{"pprof", "perfetto", "html", "chrome"} {
		args := []string{"export", path, "--" + flag, filepath.Join(dir, flag)}
		terminal, written := pty(t)
		cmd := exec.Command(hbtrace(t), args...)
		cmd.Stderr = terminal
		if err := cmd.Run(); err != nil {
			t.Fatalf("%v: %v: %s", args, err, written())
		}
		got := written()
		if !strings.HasPrefix(got, clearLine+"hbtrace: writing "+filepath.Join(dir, flag)) || !strings.HasSuffix(got, clearLine) || strings.Contains(got, "\n") {
			t.Errorf("%v: the terminal saw %q", args, got)
		}
		var stderr bytes.Buffer
		cmd = exec.Command(hbtrace(t), args...)
		cmd.Stderr = &stderr
		if err := cmd.Run(); err != nil || stderr.Len() > 0 {
			t.Errorf("%v: without a terminal: %v, %q", args, err, &stderr)
		}
	}
}

// TestLate: what takes long says so once, and the result is written on a line that is clear and stays so.
func TestLate(t *testing.T) {
	tty, written := pty(t)
	p := newProgress(tty, false)
	end := p.late(0, "making tables of %s", "a.hbt")
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		p.mu.Lock()
		on := p.on
		p.mu.Unlock()
		if on {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("nothing is shown")
		}
	}
	fmt.Fprint(p.before(tty), "a table")
	p.stage("too late")
	end()
	if got, want := written(), clearLine+"hbtrace: making tables of a.hbt"+clearLine+"a table"; got != want {
		t.Errorf("the terminal saw %q, want %q", got, want)
	}
	silent := &progress{}
	silent.late(0, "x")()
	if w := silent.before(io.Discard); w != io.Discard {
		t.Errorf("without a terminal there is nothing to clear: %v", w)
	}
}

// TestProgressOfTables: tables begin on a line of their own, whatever was told before.
func TestProgressOfTables(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.hbt")
	if err := writeRecording(path); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"report", path}, {"report", "--json", path}, {"report", "--diff", path, path}} {
		tty, written := pty(t)
		cmd := exec.Command(hbtrace(t), args...)
		cmd.Stdout, cmd.Stderr = tty, tty
		if err := cmd.Run(); err != nil {
			t.Fatalf("%v: %v: %s", args, err, written())
		}
		// Where the machine is slow there was something to tell; then it is gone before the first line.
		got := written()
		got = got[strings.LastIndex(got, clearLine)+1:]
		if len(got) < 40 || regexp.MustCompile("hbtrace: (reading|making|comparing)").MatchString(got) {
			t.Errorf("%v: the terminal saw %q", args, got)
		}
	}
}
