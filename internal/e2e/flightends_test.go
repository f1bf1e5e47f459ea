package e2e

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/hbtrace/hbtrace/internal/testprog"
	"github.com/hbtrace/hbtrace/tracefile"
)

// TestRecover: what a flight recorder held when it was killed can be read.
func TestRecover(t *testing.T) {
	s := startFlight(t, "--keep", "60s")
	pid := s.target(t, "flight")
	await(t, "a dump with a wait of a reader for the writer", func() bool {
		return contended(t, s.dump(t, "a.hbt", "-q"), "reader", "reader", "writer") > 0
	})
	if err := s.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	await(t, "the recorder's end", func() bool {
		out, err := s.hbtrace(t, "ps")
		return err == nil && strings.Contains(out, " killed ")
	})
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Error(err) // the program lives on
	}
	s.Wait(t)
	if out, err := s.hbtrace(t, "dump", "-q"); err == nil {
		t.Errorf("a dump of a killed recorder: %s", out)
	}
	if out, err := s.hbtrace(t, "recover", "-q", "-o", "r.hbt"); err != nil {
		t.Fatalf("hbtrace recover: %v\n%s", err, out)
	}
	r := openDump(t, filepath.Join(s.dir, "r.hbt"))
	if contended(t, r, "reader", "reader", "writer") == 0 || r.Meta().Dump.Why != "recovered" {
		t.Errorf("what was recovered: %+v", r.Meta().Dump)
	}
	if left, _ := filepath.Glob(filepath.Join(os.Getenv("XDG_RUNTIME_DIR"), "hbtrace", "*")); len(left) > 0 {
		t.Errorf("left of the session: %q", left)
	}
}

// TestSymbolizeLater: a dump without names is given them afterwards, and is the same otherwise.
func TestSymbolizeLater(t *testing.T) {
	s := startFlight(t, "--keep", "60s")
	s.target(t, "flight")
	var before *tracefile.Reader
	await(t, "a dump with waits", func() bool {
		before = s.dump(t, "a.hbt", "-q", "--symbolize", "later")
		return contended(t, before, "reader", "", "writer") > 0
	})
	s.terminate(t)
	if n := contended(t, before, "reader", "reader", "writer"); n != 0 {
		t.Errorf("%d waits have names before hbtrace symbolize", n)
	}
	if out, err := s.hbtrace(t, "symbolize", "a.hbt"); err != nil {
		t.Fatalf("hbtrace symbolize: %v\n%s", err, out)
	}
	after := openDump(t, filepath.Join(s.dir, "a.hbt"))
	if contended(t, after, "reader", "reader", "writer") == 0 {
		t.Error("no wait has a name after hbtrace symbolize")
	}
	if a, b := before.Stats(), after.Stats(); a.Events != b.Events || a.Nodes != b.Nodes || before.Meta().Dump.Session != after.Meta().Dump.Session {
		t.Errorf("%d events and %d nodes have become %d and %d", a.Events, a.Nodes, b.Events, b.Nodes)
	}
}

// TestAttachKeep: a flight recorder of a program that runs already.
func TestAttachKeep(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	dir := t.TempDir()
	p := testprog.Start(t, testprog.Command{Args: []string{testprog.BuildFile(t, "testdata/flight.c"), filepath.Join(dir, "now")}})
	var complaint bytes.Buffer
	cmd := exec.Command(testprog.Hbtrace(t), "attach", "--keep", "60s", "-o", filepath.Join(dir, "rec"), "--", strconv.Itoa(p.PID()))
	cmd.Stderr = &complaint
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	path := filepath.Join(dir, "a.hbt")
	await(t, "a dump with a wait of a reader for the writer", func() bool {
		if err := exec.Command(testprog.Hbtrace(t), "dump", "-q", "-o", path, strconv.Itoa(p.PID())).Run(); err != nil {
			select {
			case err := <-ended:
				skipUntraceable(t, testprog.Result{Stderr: complaint.Bytes()})
				t.Fatalf("hbtrace attach: %v\n%s", err, complaint.String())
			default:
			}
			return false
		}
		return contended(t, openAny(t, path), "reader", "reader", "writer") > 0
	})
	openDump(t, path)
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil || !strings.Contains(complaint.String(), "the window held the last") {
		t.Errorf("hbtrace attach: %v\n%s", err, complaint.String())
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "rec*")); len(left) > 0 {
		t.Errorf("files: %q", left)
	}
	if err := p.Signal(syscall.SIGKILL); err != nil {
		t.Error(err)
	}
	p.Wait(t)
}
