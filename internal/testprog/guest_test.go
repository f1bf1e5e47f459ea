package testprog

// guest_test.go: manners that are seen in a recording, or with programs that are made for one test.

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/hbtrace/hbtrace/internal/validate"
	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/tracefile"
)

// events records a program and returns its events.
func events(t *testing.T, flags []string, args ...string) (list []trace.Event, meta *trace.Meta) {
	t.Helper()
	prefix := filepath.Join(t.TempDir(), "out")
	run := append(append([]string{Hbtrace(t), "run", "-q", "-o", prefix}, flags...), "--")
	if r := Run(t, Command{Args: append(run, args...)}); r.Status() != 0 {
		t.Fatal(r)
	}
	src, err := tracefile.Open(prefix + ".hbt")
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	if err := trace.Events(src, func(e *trace.Event) error {
		list = append(list, *e)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return list, src.Meta()
}

// TestJumpLeavesNoWaiter: who left a wait by siglongjmp does not wait any more, so that nobody is said to let it go on.
func TestJumpLeavesNoWaiter(t *testing.T) {
	list, meta := events(t, nil, Build(t, "jumpwait"))
	left, released := 0, map[string]int{}
	for i := range list {
		switch e := &list[i]; {
		case e.Kind == trace.KindWait && e.Flags&trace.FlagUnwound != 0:
			left++
		case e.Kind == trace.KindRelease:
			released[meta.Hooks[e.Hook].Name]++
		}
	}
	if left == 0 {
		t.Error("no wait was left by a jump: nothing was tested")
	}
	// One thread waits for another at the beginning, and once at the end for its lock.
	if released["sem_post"] > 1 || released["pthread_mutex_unlock"] > 1 || released["futex_wake"] > 0 {
		t.Errorf("releases of what nobody waits for: %v", released)
	}
}

// TestManyLibraries: a program whose C library stands behind 80 others does what it does without us.
func TestManyLibraries(t *testing.T) {
	dir, lib := t.TempDir(), Build(t, "plugin", "-shared", "-fPIC")
	data, err := os.ReadFile(lib)
	if err != nil {
		t.Fatal(err)
	}
	flags := []string{"-Wl,--no-as-needed"}
	for i := range 80 {
		path := filepath.Join(dir, fmt.Sprintf("lib%d.so", i))
		if err := os.WriteFile(path, data, 0o755); err != nil {
			t.Fatal(err)
		}
		flags = append(flags, path)
	}
	program := Build(t, "hello", flags...)
	bare := Run(t, Command{Args: []string{program, "x"}})
	if bare.Status() != 0 {
		t.Fatal(bare)
	}
	prefix := filepath.Join(t.TempDir(), "out")
	traced := Run(t, Command{Args: []string{Hbtrace(t), "run", "-q", "-o", prefix, "--", program, "x"}})
	if traced.Status() != 0 || string(traced.Stdout) != string(bare.Stdout) {
		t.Fatalf("bare %v\ntraced %v", bare, traced)
	}
	src, err := tracefile.Open(prefix + ".hbt")
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	if n := len(src.Processes()); n != 1 {
		t.Errorf("%d processes recorded, want 1", n)
	}
}

// TestStoppedRecorder: programs that are started while the recorder is stopped do not wait for its answer.
func TestStoppedRecorder(t *testing.T) {
	prefix := filepath.Join(t.TempDir(), "out")
	r := Run(t, Command{Args: []string{Hbtrace(t), "run", "-q", "-o", prefix, "--", Build(t, "stopped")}})
	if r.Status() != 0 || string(r.Stdout) != "stopped ok\n" {
		t.Fatal(r)
	}
	if err := validate.File(prefix + ".hbt"); err != nil {
		t.Error(err)
	}
}
