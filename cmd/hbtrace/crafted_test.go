package main

import (
	"bytes"
	"compress/gzip"
	"io"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/tracefile"
)

// writeCrafted makes a small recording whose checksums fit and whose numbers point anywhere.
func writeCrafted(path string, seed int64) error {
	r := rand.New(rand.NewSource(seed))
	any32 := func() uint32 {
		switch r.Intn(4) {
		case 0:
			return r.Uint32()
		case 1:
			return ^uint32(0) - uint32(r.Intn(3))
		case 2:
			return 1 << r.Intn(32)
		}
		return uint32(r.Intn(6))
	}
	any64 := func() uint64 { return r.Uint64() >> r.Intn(64) }
	meta := trace.Meta{
		Command: []string{"crafted"}, StartNs: 1, Freq: 499, Hooks: map[trace.HookID]trace.HookInfo{
			1: {Name: "pthread_mutex_lock", Class: "lock", Object: "ADDR"}, 2: {Name: "read", Class: "io", Object: "FD"},
			3: {Name: "malloc", Class: "alloc"}, 4: {Name: "pthread_mutex_unlock", Class: "unlock", Object: "ADDR"},
		},
	}
	w, err := tracefile.Create(path, &meta)
	if err != nil {
		return err
	}
	w.PutProcess(&trace.Process{ID: 1, PID: 7, Start: 1, Exe: "/bin/\x1b[2Jcrafted", Cmdline: []string{"\x1b]0;x\a"}})
	w.PutProcess(&trace.Process{ID: trace.ProcID(any32()), PID: -1, Parent: trace.ProcID(any32())})
	for i := range 4 {
		w.PutThread(&trace.Thread{ID: trace.ThreadID(i + 1), Proc: 1, TID: 7 + i, Name: "t\x1b[31m", Start: 1, Parent: trace.ThreadID(any32())})
	}
	w.PutThread(&trace.Thread{ID: trace.ThreadID(any32()), Proc: trace.ProcID(any32()), TID: -5})
	w.PutModule(&trace.Module{ID: 1, Path: "/nowhere/\x1b[2J"})
	for i := range 8 {
		w.PutNode(trace.StackID(i+1), trace.Node{Parent: trace.StackID(i), Addr: trace.Addr{Module: trace.ModuleID(1 + i%2*int(any32()%3)), Off: any64()}})
	}
	now := trace.Ns(1000)
	for range 400 {
		now += trace.Ns(any32() % 100000)
		e := trace.Event{
			Kind: trace.Kind(r.Intn(12)), Hook: trace.HookID(r.Intn(6)), Thread: trace.ThreadID(1 + r.Intn(4)), Time: now, Start: now - trace.Ns(r.Intn(5000)),
			Stack: trace.StackID(r.Intn(9)), Object: any64() % 5, Count: 1, Weight: any64(), Size: any64(), Owner: trace.ThreadID(r.Intn(5)), Releaser: trace.ThreadID(r.Intn(5)),
			Flags: trace.Flags(any32()),
		}
		switch r.Intn(6) {
		case 0:
			e.Thread = trace.ThreadID(any32())
		case 1:
			e.Stack = trace.StackID(any32())
		case 2:
			e.Owner, e.Releaser = trace.ThreadID(any32()), trace.ThreadID(any32())
		case 3:
			e.Hook, e.Count = trace.HookID(any32()), any32()
		case 4:
			e.Start, e.Release = trace.Ns(any64()), trace.Ns(any64())
		}
		w.PutEvent(&e)
	}
	return w.Close(nil)
}

// TestCraftedRecordings: whatever numbers stand in a small recording, no view of it needs more than a few GiB of addresses, and
// nothing panics.
func TestCraftedRecordings(t *testing.T) {
	exe := hbtrace(t)
	views := [][]string{
		{"report"}, {"report", "--locks"}, {"report", "--threads"}, {"report", "--blocked"}, {"report", "--alloc"}, {"report", "--storage"}, {"report", "--json"}, {"report", "--tree"},
		{"export", "--pprof", "OUT", "--perfetto", "OUT2", "--folded", "OUT3", "--speedscope", "OUT4", "--firefox", "OUT5", "--chrome", "OUT6",
			"--otlp", "OUT7", "--timeline-svg", "OUT8", "--flame-svg", "OUT9", "--html", "OUT10"},
		{"export", "--parquet", "OUTdir"},
	}
	for seed := range int64(crafted) {
		dir := t.TempDir()
		path := filepath.Join(dir, "crafted.hbt")
		if err := writeCrafted(path, seed); err != nil {
			t.Fatal(err)
		}
		for _, v := range views {
			args := []string{"-c", `ulimit -v 8000000; exec "$0" "$@"`, exe}
			for _, a := range v {
				if n, ok := strings.CutPrefix(a, "OUT"); ok {
					a = filepath.Join(dir, "out"+n)
				}
				args = append(args, a)
			}
			cmd := exec.Command("/bin/sh", append(args, path)...)
			out, err := cmd.CombinedOutput()
			text := string(out)
			if strings.Contains(text, "goroutine ") || strings.Contains(text, "out of memory") || (err != nil && cmd.ProcessState.ExitCode() > 2) {
				t.Errorf("seed %d, %v: %v\n%s", seed, v, err, text[:min(len(text), 1500)])
			}
			if strings.Contains(text, "\x1b") {
				t.Errorf("seed %d, %v: prints raw ESC: %q", seed, v, text[:min(len(text), 300)])
			}
		}
		for _, name := range []string{"out", "out3"} { // the profile, and folded stacks: other tools print what is in there
			b, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			if z, err := gzip.NewReader(bytes.NewReader(b)); err == nil {
				if b, err = io.ReadAll(z); err != nil {
					t.Fatal(err)
				}
			}
			if bytes.ContainsRune(b, '\x1b') && name == "out3" || bytes.Contains(b, []byte("\x1b[")) {
				t.Errorf("seed %d: raw ESC in %s", seed, name)
			}
		}
	}
}

const crafted = 2
