// run as a program that other programs start: descriptors, signals, what becomes of the files.

package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hbtrace/hbtrace/tracefile"
)

// generous is how long anything may take before the test gives up on it.
const generous = 60 * time.Second

// until polls for a condition.
func until(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(generous); !condition(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("gave up waiting until %s", what)
		}
	}
}

// TestStreamsPassThrough: every byte, in both directions, on all three.
func TestStreamsPassThrough(t *testing.T) {
	in := make([]byte, 3<<20)
	random := rand.New(rand.NewPCG(1, 2))
	for i := range in {
		in[i] = byte(random.Uint32())
	}
	const script = `tee /dev/stderr; printf 'no newline at the end'`
	for _, quiet := range []bool{true, false} {
		args := []string{"run", "-o", filepath.Join(t.TempDir(), "x")}
		if quiet {
			args = append(args, "-q")
		}
		out, errs, status := run(t, t.TempDir(), in, append(args, "sh", "-c", script)...)
		if status != 0 {
			t.Fatalf("quiet %v: status %d", quiet, status)
		}
		if want := string(in) + "no newline at the end"; out != want {
			t.Errorf("quiet %v: standard output: %d bytes, want %d, or other bytes", quiet, len(out), len(want))
		}
		ours, ok := strings.CutPrefix(errs, string(in))
		if !ok {
			t.Fatalf("quiet %v: standard error does not begin with the program's own", quiet)
		}
		if quiet != (ours == "") {
			t.Errorf("quiet %v: and hbtrace said %q", quiet, ours)
		}
		if strings.ContainsAny(ours, "\x1b\r") {
			t.Errorf("escape sequences where there is no terminal: %q", ours)
		}
	}
}

// TestClosedStandardInput: a program started with a closed descriptor finds it closed, or at least empty.
func TestClosedStandardInput(t *testing.T) {
	dir := t.TempDir()
	out, err := exec.Command("sh", "-c", fmt.Sprintf("%s run -q -o %s/x sh -c 'cat; echo over' <&-", hbtrace(t), dir)).Output()
	if err != nil || string(out) != "over\n" {
		t.Errorf("%q, %v", out, err)
	}
}

// TestSignalsArePassedOn: to a program that handles them and to one that does not; the files are written.
func TestSignalsArePassedOn(t *testing.T) {
	for _, c := range []struct {
		name    string
		signal  syscall.Signal
		handler string
		status  int
	}{
		{"TERM handled", syscall.SIGTERM, "trap 'echo handled; exit 7' TERM", 7},
		{"INT handled", syscall.SIGINT, "trap 'echo handled; exit 8' INT", 8},
		{"HUP handled", syscall.SIGHUP, "trap 'echo handled; exit 9' HUP", 9},
		{"TERM deadly", syscall.SIGTERM, "", 128 + 15},
		{"INT deadly", syscall.SIGINT, "", 128 + 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			if signal.Ignored(c.signal) {
				t.Skipf("%v is ignored where the tests were started (nohup?), and so by the program", c.signal)
			}
			dir := t.TempDir()
			// the shell itself must be what waits: a sleep of its own would keep the handler from running
			script := c.handler + "\n: >ready\nwhile :; do read x <hold; done"
			hold := filepath.Join(dir, "hold")
			if err := syscall.Mkfifo(hold, 0o600); err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(hbtrace(t), "run", "sh", "-c", script)
			var out, errs bytes.Buffer
			cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &out, &errs
			cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // no terminal: nobody else gets what we send
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			until(t, "the program is ready", func() bool {
				_, err := os.Stat(filepath.Join(dir, "ready"))
				return err == nil
			})
			if err := cmd.Process.Signal(c.signal); err != nil {
				t.Fatal(err)
			}
			waited(t, cmd)
			if got := cmd.ProcessState.ExitCode(); got != c.status {
				t.Errorf("exit status %d, want %d\n%s", got, c.status, errs.String())
			}
			if handled := c.handler != ""; handled != (out.String() == "handled\n") {
				t.Errorf("the program wrote %q", out.String())
			}
			complete(t, filepath.Join(dir, "hbtrace.hbt"))
			for _, f := range []string{"hbtrace.pb.gz", "hbtrace.perfetto-trace"} {
				if st, err := os.Stat(filepath.Join(dir, f)); err != nil || st.Size() == 0 {
					t.Errorf("%s: %v", f, err)
				}
			}
		})
	}
}

// waited ends a process that does not end by itself, and fails.
func waited(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	stop := time.AfterFunc(generous, func() { cmd.Process.Kill() })
	cmd.Wait() // the caller looks at ProcessState
	if !stop.Stop() {
		t.Fatal("hbtrace did not end")
	}
}

// complete checks that a recording was closed properly.
func complete(t *testing.T, path string) *tracefile.Reader {
	t.Helper()
	r, err := tracefile.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	if !r.Stats().Complete {
		t.Errorf("%s is not complete: %v", path, r.Stats().Notes)
	}
	return r
}

// TestDuration: recording stops, the program does not.
func TestDuration(t *testing.T) {
	dir := t.TempDir()
	out, errs, status := run(t, dir, nil, "run", "-d", "100ms", "sh", "-c", "sleep 0.5; echo to the end; exit 3")
	if out != "to the end\n" || status != 3 {
		t.Errorf("%q, status %d\n%s", out, status, errs)
	}
	m := complete(t, filepath.Join(dir, "hbtrace.hbt")).Meta()
	if m.EndNs-m.StartNs > 450e6 {
		t.Errorf("recorded for %d ms", (m.EndNs-m.StartNs)/1e6)
	}
}

// TestEvents: features that are not chosen are not recorded.
func TestEvents(t *testing.T) {
	dir := t.TempDir()
	if _, errs, status := run(t, dir, nil, "run", "-q", "-e", "lock,cpu", "sh", "-c", "exit 0"); status != 0 {
		t.Fatal(errs)
	}
	if got := complete(t, filepath.Join(dir, "hbtrace.hbt")).Meta().Features; strings.Join(got, ",") != "cpu,lock" {
		t.Errorf("features %v", got)
	}
}

// TestReaderOfSummaryGone: `hbtrace run … 2>&1 | head` must not change the exit status.
func TestReaderOfSummaryGone(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(hbtrace(t), "run", "sh", "-c", "exit 6")
	cmd.Dir, cmd.Stderr = t.TempDir(), w
	r.Close()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	waited(t, cmd)
	if got := cmd.ProcessState.ExitCode(); got != 6 {
		t.Errorf("exit status %d (%v)", got, cmd.ProcessState)
	}
}

// TestNothingLeftBehind: neither of a run nor of one that failed to start is there a process or a file of ours.
func TestNothingLeftBehind(t *testing.T) {
	for _, program := range []string{"true", "./nosuch"} {
		dir := t.TempDir()
		run(t, dir, nil, "run", "-q", "-o", "app", program)
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if !strings.HasPrefix(e.Name(), "app.") || program != "true" {
				t.Errorf("%s: left %s", program, e.Name())
			}
		}
	}
	me := hbtrace(t)
	until(t, "no process of hbtrace is left", func() bool {
		exes, err := filepath.Glob("/proc/[0-9]*/exe")
		if err != nil {
			t.Fatal(err)
		}
		for _, exe := range exes {
			if to, err := os.Readlink(exe); err == nil && to == me {
				return false
			}
		}
		return true
	})
}
