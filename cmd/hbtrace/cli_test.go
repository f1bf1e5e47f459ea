// The command line as a user meets it: scripts under testdata/script, run against a binary built as it is shipped.

package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/trace/tracetest"
	"github.com/hbtrace/hbtrace/tracefile"
	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"
)

// binary builds hbtrace once, static as it is shipped.
var binary = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "hbtrace-cli-")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "hbtrace")
	cmd := exec.Command("go", "build", "-o", path, ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return path, fmt.Errorf("go build: %w\n%s", err, out)
	}
	return path, nil
})

func TestMain(m *testing.M) {
	os.Setenv("HBTRACE_SYMBOL_CACHE", "off") // every run finds its names itself
	os.Setenv("HBTRACE_UNWIND_CACHE", "off") // and compiles its tables

	status := m.Run()
	if path, _ := binary(); path != "" {
		os.RemoveAll(filepath.Dir(path))
	}
	os.Exit(status)
}

func hbtrace(t testing.TB) string {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func TestScripts(t *testing.T) {
	bin := filepath.Dir(hbtrace(t))
	testscript.Run(t, testscript.Params{
		Dir: filepath.Join("testdata", "script"),
		Setup: func(env *testscript.Env) error {
			env.Setenv("PATH", bin+string(filepath.ListSeparator)+env.Getenv("PATH"))
			env.Setenv("HOME", env.WorkDir)
			return os.Chmod(env.WorkDir, 0o755)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"status": cmdStatus, "oneline": cmdOneLine, "record": cmdRecord, "damage": cmdDamage, "only": cmdOnly,
			"asuser": cmdAsUser, "smalldisk": cmdSmallDisk,
		},
		Condition: func(cond string) (bool, error) {
			switch cond {
			case "root":
				return os.Geteuid() == 0, nil
			}
			return false, fmt.Errorf("unknown condition %q", cond)
		},
		RequireUniqueNames: true,
	})
}

// status N command… runs a command that must exit with N.
func cmdStatus(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: status N command [argument…]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	got := 0
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("exit status %d, want %d\nstderr: %s", got, want, ts.ReadFile("stderr"))
	}
}

// oneline REGEXP: standard error is exactly one line, of hbtrace, that matches.
func cmdOneLine(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: oneline REGEXP")
	}
	got := ts.ReadFile("stderr")
	if strings.Count(got, "\n") != 1 || !strings.HasPrefix(got, "hbtrace: ") || !strings.HasSuffix(got, "\n") {
		ts.Fatalf("not one line of hbtrace: %q", got)
	}
	if !regexp.MustCompile(args[0]).MatchString(got) {
		ts.Fatalf("%q does not match %s", got, args[0])
	}
}

// record FILE writes a recording of known content, made by hand.
func cmdRecord(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: record FILE")
	}
	ts.Check(writeRecording(ts.MkAbs(args[0])))
}

// damage cut|flip FILE N OUT copies a file and loses what is behind N % of it, or inverts the byte there.
func cmdDamage(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 4 {
		ts.Fatalf("usage: damage cut|flip FILE PERCENT OUT")
	}
	b := []byte(ts.ReadFile(args[1]))
	percent, err := strconv.Atoi(args[2])
	ts.Check(err)
	at := len(b) * percent / 100
	switch args[0] {
	case "cut":
		b = b[:at]
	case "flip":
		b[at] ^= 0xff
	default:
		ts.Fatalf("damage: %s?", args[0])
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[3]), b, 0o644))
}

// only DIR NAME…: the directory holds exactly these.
func cmdOnly(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 {
		ts.Fatalf("usage: only DIR [NAME…]")
	}
	entries, err := os.ReadDir(ts.MkAbs(args[0]))
	ts.Check(err)
	want := map[string]bool{}
	for _, n := range args[1:] {
		want[n] = true
	}
	for _, e := range entries {
		if !want[e.Name()] {
			ts.Fatalf("%s is in %s", e.Name(), args[0])
		}
		delete(want, e.Name())
	}
	for n := range want {
		ts.Fatalf("%s is not in %s", n, args[0])
	}
}

// asuser command… is status for a command run as nobody, for whom permissions count. It needs root.
func cmdAsUser(ts *testscript.TestScript, neg bool, args []string) {
	path, err := exec.LookPath("setpriv")
	if err != nil {
		ts.Fatalf("needs setpriv")
	}
	if neg || len(args) < 2 {
		ts.Fatalf("usage: asuser N command [argument…]")
	}
	cmdStatus(ts, false, append([]string{args[0], path, "--reuid=65534", "--regid=65534", "--clear-groups"}, args[1:]...))
}

// smalldisk DIR SIZE mounts a file system of that size there until the script ends. It needs root.
func cmdSmallDisk(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: smalldisk DIR SIZE")
	}
	dir := ts.MkAbs(args[0])
	ts.Check(os.MkdirAll(dir, 0o777))
	ts.Check(unix.Mount("hbtrace-test", dir, "tmpfs", unix.MS_NOSUID, "size="+args[1]))
	ts.Defer(func() { unix.Unmount(dir, unix.MNT_DETACH) })
}

// writeRecording makes a recording in which main!work burns CPU, main!slow reads, and one thread waits for another.
func writeRecording(path string) error {
	b := tracetest.New()
	b.Meta().Command = []string{"./sample", "with argument"}
	p := b.AddProcess(trace.Process{PID: 4242, PPID: 1, Start: 1, Exe: "/bin/sample", Cmdline: []string{"./sample"}})
	one := b.AddThread(trace.Thread{Proc: p, TID: 4242, Name: "sample", Start: 1, Main: true, CPU: 30e6})
	two := b.AddThread(trace.Thread{Proc: p, TID: 4243, Name: "helper", Start: 1, CPU: 1e6})
	at := trace.Ns(1e6)
	for range 200 {
		b.Sample(one, at, 150_000, "start", "work", "inner")
		b.Call(one, at+1e6, at+3e6, b.Hook("read"), 3, 17, "start", "slow")
		b.Wait(two, at, at+2e6, b.Hook("pthread_mutex_lock"), 0xabc0, one, "helper_main", "wait_for_it")
		b.Alloc(one, at+4e6, uint64(at), 4096, 512<<10, "start", "allocate")
		at += 5e6
	}
	return saveSource(path, b.Source())
}

func saveSource(path string, src trace.Source) error {
	w, err := tracefile.Create(path, src.Meta())
	if err != nil {
		return err
	}
	for _, p := range src.Processes() {
		w.PutProcess(&p)
	}
	for _, t := range src.Threads() {
		w.PutThread(&t)
	}
	for _, m := range src.Modules() {
		w.PutModule(&m)
	}
	var nodes []trace.Node
	for id := range src.Nodes() {
		nodes = append(nodes, src.Node(trace.StackID(id+1)))
	}
	w.PutNodes(1, nodes)
	for id := range src.Nodes() {
		n := src.Node(trace.StackID(id + 1))
		w.PutSymbols(n.Addr.Module, []uint64{n.Lookup()}, [][]trace.SymFrame{src.Symbols(trace.StackID(id + 1))})
	}
	i := 0
	if err := trace.Events(src, func(e *trace.Event) error {
		if i++; i%100 == 0 { // several sections, so that damage to one leaves others
			if err := w.Flush(); err != nil {
				return err
			}
		}
		return w.PutEvent(e)
	}); err != nil {
		return err
	}
	return w.Close(src.Stats()) // the first error of all
}

// run runs hbtrace and returns what it wrote and its exit status, -1 for a death by signal.
func run(t *testing.T, dir string, stdin []byte, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	cmd := exec.Command(hbtrace(t), args...)
	var out, errs bytes.Buffer
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = dir, bytes.NewReader(stdin), &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}
