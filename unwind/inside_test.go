package unwind

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Tests that run C inside a real program: testdata/inside.h is the other side.

// build compiles a file of testdata with the house's flags for hosted code; the test is skipped without a compiler.
func build(t testing.TB, compiler, source, name string, flags ...string) string {
	t.Helper()
	if _, err := exec.LookPath(compiler); err != nil {
		t.Skipf("needs %s", compiler)
	}
	// Go's test cache sees only what the test opens itself.
	for _, pattern := range []string{"*.h", "testdata/*", "../agent/*.h", "../segment/*.h"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			if _, err := os.ReadFile(f); err != nil && !errors.Is(err, syscall.EISDIR) {
				t.Fatal(err)
			}
		}
	}
	out := filepath.Join(t.TempDir(), name)
	args := []string{"-O2", "-I..", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-Wno-unused-function", "-o", out, source}
	if msg, err := exec.Command(compiler, append(args, flags...)...).CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s", compiler, source, err, msg)
	}
	return out
}

// inside is a program of a test that waits for its tables.
type inside struct {
	cmd    *exec.Cmd
	dir    string
	output bytes.Buffer
	exited chan error
}

// startInside runs a program until it has told its modules, and gives it their tables.
func startInside(t testing.TB, env []string, argv ...string) *inside {
	t.Helper()
	p := &inside{dir: t.TempDir(), exited: make(chan error, 1)}
	fifo := filepath.Join(p.dir, "go")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	p.cmd = exec.Command(argv[0], argv[1:]...)
	p.cmd.Env = append(append(os.Environ(), "HBTEST_DIR="+p.dir), env...)
	p.cmd.Stdout, p.cmd.Stderr = &p.output, &p.output
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.cmd.Process.Kill() })
	go func() { p.exited <- p.cmd.Wait() }()
	list := filepath.Join(p.dir, "modules")
	for limit := time.Now().Add(time.Minute); ; time.Sleep(2 * time.Millisecond) {
		if _, err := os.Stat(list); err == nil {
			break
		}
		select {
		case err := <-p.exited:
			t.Fatalf("%v ended before it told its modules: %v\n%s", argv, err, &p.output)
		default:
		}
		if time.Now().After(limit) {
			t.Fatalf("%v told no modules", argv)
		}
	}
	p.publish(t, list)
	f, err := os.OpenFile(fifo, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if _, err := f.Write([]byte{1}); err != nil {
		t.Fatal(err)
	}
	return p
}

// publish writes the region for a list of modules.
func (p *inside) publish(t testing.TB, list string) {
	t.Helper()
	text, err := os.ReadFile(list)
	if err != nil {
		t.Fatal(err)
	}
	mem := make([]byte, 64<<20)
	machine := elf.EM_X86_64
	if filepath.Base(p.cmd.Path) == "qemu-aarch64" {
		machine = elf.EM_AARCH64
	}
	r, err := NewRegion(mem, 1, machine)
	if err != nil {
		t.Fatal(err)
	}
	var modules []Module
	for line := range strings.Lines(string(text)) {
		var m Module
		var path string
		if _, err := fmt.Sscanf(line, "%x %x %x %s", &m.Lo, &m.Hi, &m.Bias, &path); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		f, err := os.Open(path)
		if err != nil {
			t.Logf("no table: %v", err)
		} else {
			table, err := Compile(f)
			f.Close()
			if err != nil {
				t.Logf("no table: %s: %v", path, err)
			} else if m.Table, err = r.AddTable(path, table); err != nil {
				t.Fatal(err)
			}
		}
		modules = append(modules, m)
	}
	if _, err := r.Publish(0, 1, modules, nil); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(p.dir, "region"), mem, 0o600); err != nil {
		t.Fatal(err)
	}
}

// result waits for the program's end and reads the numbers that it left; other lines are notes.
func (p *inside) result(t testing.TB) (numbers map[string]int, notes []string) {
	t.Helper()
	select {
	case err := <-p.exited:
		if err != nil {
			t.Fatalf("%v: %v\n%s", p.cmd.Args, err, tail(p.output.String()))
		}
	case <-time.After(10 * time.Minute):
		t.Fatalf("%v does not end\n%s", p.cmd.Args, tail(p.output.String()))
	}
	text, err := os.ReadFile(filepath.Join(p.dir, "result"))
	if err != nil {
		t.Fatalf("%v left no result: %v\n%s", p.cmd.Args, err, tail(p.output.String()))
	}
	numbers = map[string]int{}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if n, err := strconv.Atoi(f[len(f)-1]); len(f) == 2 && err == nil {
			numbers[f[0]] = n
		} else {
			notes = append(notes, strings.TrimSpace(line))
		}
	}
	return numbers, notes
}

func tail(s string) string {
	if len(s) > 2000 {
		return "…" + s[len(s)-2000:]
	}
	return s
}

func show(numbers map[string]int) string {
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(numbers)) {
		fmt.Fprintf(&b, "%s %d  ", k, numbers[k])
	}
	return b.String()
}
