package goruntime

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/hbtrace/hbtrace/concurrentring"
	"github.com/hbtrace/hbtrace/segment"
)

func build(t *testing.T, name string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), name)
	cmd := exec.Command("go", "build", "-o", out, ".")
	cmd.Dir = filepath.Join("testdata", name)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if b, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, b)
	}
	return out
}

// run launches the program, and returns what it printed when it has ended as it should.
func run(t *testing.T, p *Program, join func(int) (Session, error)) (Started, string) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	started, err := Launch(p, func(sys *syscall.SysProcAttr) (int, error) {
		pid, _, err := syscall.StartProcess(p.Path, []string{p.Path}, &syscall.ProcAttr{
			Env: os.Environ(), Files: []uintptr{0, w.Fd(), 2}, Sys: sys,
		})
		return pid, err
	}, join)
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	out.ReadFrom(r)
	var ws syscall.WaitStatus
	for {
		if _, err = syscall.Wait4(started.PID, &ws, 0, nil); !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if err != nil || ws.ExitStatus() != 5 {
		t.Errorf("it ended with %#x (%v)", ws, err)
	}
	return started, out.String()
}

// session is a place for one process.
func session(t *testing.T) (Session, func(int) (Session, error)) {
	t.Helper()
	seg, err := segment.Create(segment.Config{Threads: 2, Procs: 1, CallThresholdNs: 1, LockThresholdNs: 1})
	if err != nil {
		t.Fatal(err)
	}
	table, err := NewTable()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		table.Close()
		seg.Close()
	})
	seg.Header().Recording.Store(1)
	seg.Header().HeartbeatNs.Store(1 << 62) // nothing drains the ring; the recorder is heard for ever
	s := Session{Segment: seg, ProcUID: 1, RuntimeUID: 1, Table: table}
	return s, func(int) (Session, error) { return s, nil }
}

func TestLaunch(t *testing.T) {
	p, err := Open(build(t, "hello"))
	if err != nil {
		t.Fatal(err)
	}
	s, join := session(t)
	started, out := run(t, p, join)
	if started.Refused != nil || out != "hello\n" {
		t.Errorf("refused: %v; printed %q", started.Refused, out)
	}
	h := s.Table.Head()
	if h.Events.Load() == 0 || h.Goroutines.Load() == 0 || h.Full.Load() != 0 {
		t.Errorf("%d changes of state, %d goroutines, %d without an entry", h.Events.Load(), h.Goroutines.Load(), h.Full.Load())
	}
	// Every goroutine's records are numbered from 1, which is its THREAD record.
	seqs, waits := map[uint32]map[uint32]uint8{}, 0
	concurrentring.NewReader(s.Segment).Drain(func(_ int, b []byte) {
		var r segment.Rec
		r.Decode(b)
		if seqs[r.Thread] == nil {
			seqs[r.Thread] = map[uint32]uint8{}
		}
		if was, twice := seqs[r.Thread][r.Seq]; twice {
			t.Errorf("thread %d: records of types %d and %d are both number %d", r.Thread, was, r.Type, r.Seq)
		}
		seqs[r.Thread][r.Seq] = r.Type
		if r.Type == segment.RecTypeInterval {
			waits++
		}
	})
	for thread, of := range seqs {
		if of[1] != segment.RecTypeThread {
			t.Errorf("thread %d begins with a record of type %d", thread, of[1])
		}
		for i := range of {
			if int(i) > len(of) {
				t.Errorf("thread %d has a record %d of %d", thread, i, len(of))
			}
		}
	}
	if len(seqs) < 2 || waits == 0 {
		t.Errorf("%d goroutines have %d waits", len(seqs), waits)
	}
}

// TestBeliefs: a layout that is wrong in any one field is refused, by the belief about that field, and the program runs as if
// it had not been looked at.
func TestBeliefs(t *testing.T) {
	path := build(t, "hello")
	refuse := func(int) (Session, error) {
		t.Error("it was taken into the session")
		return Session{}, errors.New("refused")
	}
	for _, tc := range []struct {
		what    string
		corrupt func(*Program)
	}{
		{"number 1", func(p *Program) { p.Layout.Status += 16 }},
		{"gopark keeps the reason", func(p *Program) { p.Layout.Reason += 16 }},
		{"began at runtime.main", func(p *Program) { p.Layout.StartPC -= 8 }},
		{"frame pointer", func(p *Program) { p.Layout.SchedBP += 16 }},
		{"its thread runs it", func(p *Program) { p.Layout.CurG += 8 }},
		{"signal stack", func(p *Program) { p.Layout.GSignal += 8 }},
		{"process's first", func(p *Program) { p.Layout.ProcID += 8 }},
		{"stopped where", func(p *Program) { p.functions["runtime.main"] = p.functions["runtime.casgstatus"] }},
	} {
		p, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		tc.corrupt(p)
		started, out := run(t, p, refuse)
		if out != "hello\n" {
			t.Errorf("%s: printed %q", tc.what, out)
		}
		if started.Refused == nil || tc.what != "stopped where" && !strings.Contains(started.Refused.Error(), tc.what) {
			t.Errorf("%s: refused for %v", tc.what, started.Refused)
		}
	}
}

// TestUnknownFunctions: where a hooked function does not begin as it is known to, nothing is changed.
func TestUnknownFunctions(t *testing.T) {
	p, err := Open(build(t, "hello"))
	if err != nil {
		t.Fatal(err)
	}
	p.functions["runtime.casgstatus"] = p.functions["runtime.main"] // begins with a check of the stack
	s, join := session(t)
	started, out := run(t, p, join)
	if started.Refused == nil || !strings.Contains(started.Refused.Error(), "casgstatus begins with") || out != "hello\n" {
		t.Errorf("refused for %v; printed %q", started.Refused, out)
	}
	if n := s.Table.Head().Events.Load(); n != 0 {
		t.Errorf("%d changes of state", n)
	}
}

// TestJoinFails: a session that has no room leaves the program alone.
func TestJoinFails(t *testing.T) {
	p, err := Open(build(t, "hello"))
	if err != nil {
		t.Fatal(err)
	}
	full := errors.New("no room")
	started, out := run(t, p, func(int) (Session, error) { return Session{}, full })
	if !errors.Is(started.Refused, full) || out != "hello\n" {
		t.Errorf("refused for %v; printed %q", started.Refused, out)
	}
}

// TestSilentRecorder: with a recorder that is not heard the hooks write nothing.
func TestSilentRecorder(t *testing.T) {
	p, err := Open(build(t, "hello"))
	if err != nil {
		t.Fatal(err)
	}
	s, join := session(t)
	s.Segment.Header().HeartbeatNs.Store(0)
	started, out := run(t, p, join)
	if started.Refused != nil || out != "hello\n" {
		t.Errorf("refused: %v; printed %q", started.Refused, out)
	}
	if n := s.Table.Head().Events.Load(); n != 0 || s.Table.Head().Silent.Load() != 1 {
		t.Errorf("%d changes of state were seen; silent: %d", n, s.Table.Head().Silent.Load())
	}
	for i := range s.Segment.Geometry().Rings {
		if n := s.Segment.Subbuf(i).Head.Load(); n != 0 {
			t.Errorf("%d bytes were written", n)
		}
	}
}

func TestRoom(t *testing.T) {
	const size = 0x4000
	for _, tc := range []struct {
		name, maps string
		near       uint64
		lo, hi     uint64 // where it has to lie
	}{
		{"below", "00400000-00500000 r-xp\n7f0000000000-7f0000010000 rw-p\n", 0x400000, 0x10000, 0x400000 - size},
		{"above", "00010000-00500000 r-xp\n00700000-00800000 rw-p\n", 0x400000, 0x500000, 0x700000 - size},
		{"none", "00010000-90500000 r-xp\n90510000-ff0000000000 rw-p\n", 0x400000, 0, 0},
		{"far", "00010000-00020000 r-xp\n7f0000000000-7f0000010000 rw-p\n7f0000011000-ff0000000000 r-xp\n", 0x7f0000000000, 0x7eff80000000, 0x7f0000000000},
	} {
		at, err := room(tc.maps, tc.near, size)
		if tc.hi == 0 {
			if err == nil {
				t.Errorf("%s: %#x", tc.name, at)
			}
		} else if err != nil || at < tc.lo || at > tc.hi || at%4096 != 0 {
			t.Errorf("%s: %#x, %v", tc.name, at, err)
		}
	}
}

// TestOpen: what is no Go program, and versions.
func TestOpen(t *testing.T) {
	if _, err := Open("/bin/sh"); !errors.Is(err, ErrNotGo) {
		t.Errorf("/bin/sh: %v", err)
	}
	for v, want := range map[string]int{"go1.26.1": 26, "go1.20": 20, "go1.25rc1": 25, "go1.24.2 X:nocoverageredesign": 24} {
		if got, err := minor(v); got != want || err != nil {
			t.Errorf("%s: %d, %v", v, got, err)
		}
	}
	for _, v := range []string{"devel go1.27-abc", "go2.0", "go1.x", ""} {
		if got, err := minor(v); err == nil {
			t.Errorf("%q: %d", v, got)
		}
	}
}
