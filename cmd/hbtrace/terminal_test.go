package main

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hbtrace/hbtrace/visualize/terminal"
)

// onTerminal runs hbtrace with a terminal of so many columns for its output and returns what it wrote.
func onTerminal(t *testing.T, columns uint16, env []string, args ...string) string {
	t.Helper()
	tty, written := pty(t)
	if err := unix.IoctlSetWinsize(int(tty.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: columns}); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(hbtrace(t), args...)
	cmd.Env = append(append(os.Environ(), "TERM=xterm", "NO_COLOR="), env...)
	var stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = tty, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %v\n%s", args, err, &stderr)
	}
	return strings.ReplaceAll(written(), "\r\n", "\n")
}

// plain is text without colours.
func plain(s string) string {
	var b strings.Builder
	for {
		before, after, found := strings.Cut(s, "\x1b[")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		_, s, _ = strings.Cut(after, "m")
	}
}

// TestOnATerminal: tables are as wide as the terminal lets them be and no wider, in colour unless that is not wanted.
func TestOnATerminal(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.hbt")
	if err := writeRecording(path); err != nil {
		t.Fatal(err)
	}
	for _, view := range []string{"", "--cpu", "--blocked", "--locks", "--alloc", "--threads", "--storage"} {
		args := []string{"report", path}
		if view != "" {
			args = append(args, view)
		}
		widest := map[uint16]int{}
		for _, columns := range []uint16{80, 160} {
			out := onTerminal(t, columns, nil, args...)
			for line := range strings.Lines(plain(out)) {
				widest[columns] = max(widest[columns], terminal.Columns(strings.TrimSuffix(line, "\n")))
			}
			if widest[columns] > int(columns) || widest[columns] == 0 {
				t.Errorf("%v: %d columns on a terminal of %d:\n%s", args, widest[columns], columns, out)
			}
			if !strings.Contains(out, "\x1b[") {
				t.Errorf("%v: no colour on a terminal", args)
			}
		}
		if widest[160] < widest[80] {
			t.Errorf("%v: %d columns of 160, %d of 80", args, widest[160], widest[80])
		}
		for _, env := range []string{"NO_COLOR=1", "TERM=dumb"} {
			if out := onTerminal(t, 80, []string{env}, args...); strings.Contains(out, "\x1b") || out == "" {
				t.Errorf("%v with %s: %q", args, env, out)
			}
		}
	}
}

// TestViewPerfetto: the trace is served to Perfetto's page, once, under the address that is printed, and then the command ends.
func TestViewPerfetto(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.hbt")
	if err := writeRecording(path); err != nil {
		t.Fatal(err)
	}
	exported := filepath.Join(dir, "exported")
	if out, err := exec.Command(hbtrace(t), "export", path, "--perfetto", exported).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	want, err := os.ReadFile(exported)
	if err != nil {
		t.Fatal(err)
	}
	// A port that is free now; another may be quicker, so that it is tried more than once.
	for attempt := 0; ; attempt++ {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		port := l.Addr().(*net.TCPAddr).Port
		l.Close()
		cmd := exec.Command(hbtrace(t), "view", "--perfetto", "--no-browser", "--port", strconv.Itoa(port), path)
		cmd.Env = append(os.Environ(), "TMPDIR="+dir)
		stdout, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		line, _ := bufio.NewReader(stdout).ReadString('\n')
		page, url, found := strings.Cut(strings.TrimSpace(line), "?url=")
		if !found {
			if err := cmd.Wait(); attempt < 5 && strings.Contains(stderr.String(), "address already in use") {
				continue
			} else {
				t.Fatalf("it printed %q: %v\n%s", line, err, &stderr)
			}
		}
		if page != "https://ui.perfetto.dev/#!/" {
			t.Errorf("it names %s", page)
		}
		answer, err := http.Get(url)
		if err != nil {
			cmd.Process.Kill()
			cmd.Wait()
			t.Fatal(err)
		}
		got, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if err != nil || !bytes.Equal(got, want) || answer.Header.Get("Access-Control-Allow-Origin") != "https://ui.perfetto.dev" {
			t.Errorf("%d bytes, %v, of %d; %v", len(got), err, len(want), answer.Header)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("after the trace was fetched: %v\n%s", err, &stderr)
		}
		if left, _ := filepath.Glob(filepath.Join(dir, "hbtrace-view-*")); len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
		return
	}
}
