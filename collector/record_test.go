// Whole recordings of small programs, read back.
package collector

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hbtrace/hbtrace/internal/validate"
	"github.com/hbtrace/hbtrace/sampler"
	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/tracefile"
)

func TestMain(m *testing.M) {
	os.Setenv("HBTRACE_SYMBOL_CACHE", "off") // every run finds its names itself
	os.Setenv("HBTRACE_UNWIND_CACHE", "off") // and compiles its tables

	if len(os.Args) > 1 && os.Args[1] == sampler.Command {
		os.Exit(sampler.Main(os.Args[2:]))
	}
	if name := os.Getenv(strangerEnv); name != "" {
		strange(name)
		return
	}
	status := m.Run()
	os.RemoveAll(binaries)
	os.Exit(status)
}

var (
	binaries string
	built    sync.Map
)

// compile makes testdata/name.c, once.
func compile(t *testing.T, name string, flags ...string) string {
	t.Helper()
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("needs gcc for the test program")
	}
	if binaries == "" {
		var err error
		if binaries, err = os.MkdirTemp("", "collector-test-"); err != nil {
			t.Fatal(err)
		}
	}
	out := filepath.Join(binaries, filepath.Base(name)+strings.Join(flags, ""))
	if _, ok := built.Load(out); ok {
		return out
	}
	args := append([]string{"-O1", "-g", "-fno-omit-frame-pointer", "-pthread", "-o", out, "testdata/" + name + ".c"}, flags...)
	if b, err := exec.Command("gcc", args...).CombinedOutput(); err != nil {
		t.Fatalf("gcc %v: %v\n%s", args, err, b)
	}
	built.Store(out, true)
	return out
}

// recordIn records a command with its output in a file, and reads both back.
func recordIn(t *testing.T, o Options) (*Result, *tracefile.Reader, string) {
	t.Helper()
	dir := t.TempDir()
	if o.Output == "" {
		o.Output = filepath.Join(dir, "out.hbt")
	}
	stdout, err := os.Create(filepath.Join(dir, "stdout"))
	if err != nil {
		t.Fatal(err)
	}
	defer stdout.Close()
	o.Stdout = stdout
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	res, err := Record(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	if ctx.Err() != nil {
		t.Fatal("it took more than five minutes")
	}
	r, err := tracefile.Open(o.Output)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	if err := r.Damage(); err != nil {
		t.Error(err)
	}
	if err := validate.Source(r); err != nil {
		t.Errorf("validator: %v", err)
	}
	b, err := os.ReadFile(stdout.Name())
	if err != nil {
		t.Fatal(err)
	}
	return res, r, string(b)
}

func allEvents(t *testing.T, r *tracefile.Reader) []trace.Event {
	t.Helper()
	var out []trace.Event
	if err := trace.Events(r, func(e *trace.Event) error { out = append(out, *e); return nil }); err != nil {
		t.Fatal(err)
	}
	return out
}

// within: the stack has a frame in the function.
func within(r *tracefile.Reader, id trace.StackID, function string) bool {
	for ; id != 0; id = r.Node(id).Parent {
		for _, f := range r.Symbols(id) {
			if f.Func == function {
				return true
			}
		}
	}
	return false
}

func TestRecordBusyProgram(t *testing.T) {
	bin := compile(t, "busy")
	res, r, out := recordIn(t, Options{Command: []string{bin}, LockThreshold: -1, CallThreshold: -1, ReleaseDebt: -1, AllocPeriod: 64 << 10})
	for _, n := range res.Notes {
		t.Log("note:", n)
	}
	t.Logf("%+v", res.Stats)
	if out != "begin\nchild 5\n" {
		t.Errorf("the program wrote %q", out)
	}
	if res.ExitStatus != 7 || res.Signal != 0 {
		t.Errorf("exit status %d, signal %v", res.ExitStatus, res.Signal)
	}
	if m := r.Meta(); m.ExitStatus != 7 || len(m.Command) != 1 || m.Freq != 499 || m.EndNs <= m.StartNs {
		t.Errorf("meta %+v", m)
	}
	if !r.Stats().Complete || r.Stats().Lost != 0 || r.Stats().Broken != 0 || r.Stats().Overwritten != 0 {
		t.Errorf("stats %+v", *r.Stats())
	}
	if n := len(r.Processes()); n != 2 {
		t.Errorf("%d processes, want 2: %+v", n, r.Processes())
	}
	for i, p := range r.Processes() {
		if p.Exe != bin || p.PID == 0 || p.Forked != (i == 1) || p.End == 0 || len(p.Cmdline) != 1 {
			t.Errorf("process %+v", p)
		}
	}
	if n := len(r.Threads()); n != 4 {
		t.Errorf("%d threads, want 4: %+v", n, r.Threads())
	}
	workers := 0
	for _, th := range r.Threads() {
		if th.Name == "worker" {
			workers++
		}
		if th.End == 0 {
			t.Errorf("thread %d has not ended: %+v", th.ID, th)
		}
	}
	if workers != 2 {
		t.Errorf("%d threads are named worker", workers)
	}
	cpu := map[trace.ThreadID]int64{}
	var total, burning, allocs, waits, calls, releases int64
	for _, e := range allEvents(t, r) {
		switch e.Kind {
		case trace.KindCPU:
			cpu[e.Thread] += e.CPU
			total += e.CPU
			if within(r, e.Stack, "burn_cpu") {
				burning += e.CPU
			}
		case trace.KindThreadExit:
			cpu[e.Thread] += e.CPU
		case trace.KindAlloc:
			if within(r, e.Stack, "allocate") {
				allocs += int64(e.Weight)
			}
		case trace.KindWait:
			if within(r, e.Stack, "hold_lock") && e.Time-e.Start > 10e6 {
				waits++
			}
		case trace.KindCall:
			if within(r, e.Stack, "hold_lock") && e.Time-e.Start > 25e6 {
				calls++
			}
		case trace.KindRelease:
			releases++
		}
	}
	t.Logf("cpu %v, sampled %v of it, in burn_cpu %v; %d alloc bytes, %d waits, %d slow calls, %d releases", cpu, time.Duration(total), time.Duration(burning), allocs, waits, calls, releases)
	if burning < 400e6 || burning > total {
		t.Errorf("%v of CPU time in burn_cpu, which used 800 ms", time.Duration(burning))
	}
	for id, ns := range cpu {
		if ns < 150e6 || ns > 600e6 {
			t.Errorf("thread %d accounts for %v, used about 200 ms", id, time.Duration(ns))
		}
	}
	if allocs < 16<<20 || allocs > 64<<20 {
		t.Errorf("%d bytes allocated, really %d", allocs, 4000*8192)
	}
	if calls < 6 {
		t.Errorf("%d slow calls under the lock, want 6", calls)
	}
	if waits < 1 { // whoever lets go takes it again at once: one wait may last for all three turns
		t.Errorf("%d long waits for the lock", waits)
	}
	if releases == 0 {
		t.Error("no release of a contended lock")
	}
}

func TestRecordExitBySignal(t *testing.T) {
	res, r, _ := recordIn(t, Options{Command: []string{"/bin/sh", "-c", "echo; kill -KILL $$"}})
	if res.Signal != syscall.SIGKILL || res.ExitStatus != -1 {
		t.Errorf("status %d, signal %v", res.ExitStatus, res.Signal)
	}
	if m := r.Meta(); m.ExitSignal != int(syscall.SIGKILL) || m.ExitStatus != -1 {
		t.Errorf("meta says status %d, signal %d", m.ExitStatus, m.ExitSignal)
	}
	if !r.Stats().Complete {
		t.Error("not complete")
	}
}

func TestRecordChildrenByExec(t *testing.T) {
	res, r, out := recordIn(t, Options{Command: []string{"/bin/sh", "-c", "cat /proc/self/comm | cat; true"}})
	if out != "cat\n" || res.ExitStatus != 0 {
		t.Errorf("%q, status %d", out, res.ExitStatus)
	}
	exes := map[string]int{}
	for _, p := range r.Processes() {
		exes[filepath.Base(p.Exe)]++
		if p.End == 0 {
			t.Errorf("process %+v has not ended", p)
		}
	}
	if exes["cat"] != 2 {
		t.Errorf("processes: %v", exes)
	}
}

// In a pid namespace of its own, a program's numbers mean nothing here: its threads are found and sampled all
// the same, its fork children too.
func TestRecordInPIDNamespace(t *testing.T) {
	if out, err := exec.Command("unshare", "-p", "-f", "true").CombinedOutput(); err != nil {
		t.Skipf("needs the right to make a pid namespace: %v %s", err, out)
	}
	bin := compile(t, "busy")
	res, r, out := recordIn(t, Options{Command: []string{"unshare", "-p", "-f", bin}})
	if out != "begin\nchild 5\n" || res.ExitStatus != 7 {
		t.Errorf("%q, status %d", out, res.ExitStatus)
	}
	procs := map[trace.ProcID]trace.Process{}
	for _, p := range r.Processes() {
		procs[p.ID] = p
	}
	threads := map[trace.ThreadID]trace.Thread{}
	for _, th := range r.Threads() {
		threads[th.ID] = th
	}
	sampled := map[trace.ThreadID]bool{}
	for _, e := range allEvents(t, r) {
		if e.Kind == trace.KindCPU && within(r, e.Stack, "burn_cpu") {
			sampled[e.Thread] = true
			if p := procs[threads[e.Thread].Proc]; p.PID < 10 {
				t.Errorf("process %+v has its own number, not ours", p)
			}
		}
	}
	if len(sampled) != 4 {
		t.Errorf("%d threads were sampled in burn_cpu, want 4; notes %q", len(sampled), res.Notes)
	}
}

// A program with the address sanitizer insists on its library being the first: it is told not to.
func TestRecordAddressSanitizer(t *testing.T) {
	if out, err := exec.Command("gcc", "-fsanitize=address", "-o", "/dev/null", "testdata/outlive.c", "-pthread").CombinedOutput(); err != nil {
		t.Skipf("needs gcc with libasan: %v %s", err, out)
	}
	bin := compile(t, "busy", "-fsanitize=address")
	res, r, out := recordIn(t, Options{Command: []string{bin}})
	if out != "begin\nchild 5\n" || res.ExitStatus != 7 {
		t.Errorf("%q, status %d, notes %q", out, res.ExitStatus, res.Notes)
	}
	if n := len(r.Processes()); n != 2 {
		t.Errorf("%d processes", n)
	}
}

// Processes that are killed in the middle of their work leave nothing in the way of those after them: their
// slots and the locks that they held are freed, and what they had written is kept.
func TestRecordKilledChildren(t *testing.T) {
	bin := compile(t, "outlive")
	// Every third one has its threads by then, however slow the machine is.
	script := "for i in {1..15}; do " + bin + " & p=$!; " +
		"while [ $((i % 3)) = 0 ] && set -- /proc/$p/task/* && [ $# -lt 4 ]; do sleep 0.01; done; " +
		"sleep 0.0$((RANDOM % 9 + 1)); kill -KILL $p; wait $p 2>/dev/null; done; echo done"
	res, r, out := recordIn(t, Options{Command: []string{"/bin/bash", "-c", script}, LockThreshold: -1, CallThreshold: -1})
	if out != "done\n" || res.ExitStatus != 0 {
		t.Errorf("%q, status %d", out, res.ExitStatus)
	}
	st := r.Stats()
	if st.ThreadsUnslotted != 0 || st.ProcsUnslotted != 0 || st.Broken != 0 || st.SignalsStuck != 0 {
		t.Errorf("stats %+v", *st)
	}
	killed := 0
	for _, p := range r.Processes() {
		if p.End == 0 {
			t.Errorf("process %+v has not ended", p)
		}
		if p.Exe == bin {
			killed++
		}
	}
	for _, th := range r.Threads() {
		if th.End == 0 {
			t.Errorf("thread %+v has not ended", th)
		}
	}
	t.Logf("%d of 15 got as far as main; %d sub-buffers freed; notes %q", killed, st.SubbufsLost, res.Notes)
	if killed < 5 {
		t.Errorf("%d processes were recorded before they were killed", killed)
	}
}

// Many short-lived fork children, most of which end before anybody looked at them: each is met, none costs
// anything of the recorder's.
func TestRecordManyForks(t *testing.T) {
	var before, after syscall.Stat_t
	if err := syscall.Fstat(0, &before); err != nil {
		t.Fatal(err)
	}
	res, r, out := recordIn(t, Options{Command: []string{"/bin/bash", "-c", "for i in {1..60}; do (exit 0); (/bin/true); done; echo done"}})
	if out != "done\n" || res.ExitStatus != 0 {
		t.Errorf("%q, status %d", out, res.ExitStatus)
	}
	if n := len(r.Processes()); n < 121 || n > 241 {
		t.Errorf("%d processes", n)
	}
	for _, p := range r.Processes() {
		if p.End == 0 {
			t.Errorf("process %+v has not ended", p)
		}
	}
	if r.Stats().ProcsRefused != 0 || r.Stats().ProcsUnslotted != 0 {
		t.Errorf("stats %+v", *r.Stats())
	}
	if err := syscall.Fstat(0, &after); err != nil || before.Ino != after.Ino || before.Dev != after.Dev {
		t.Errorf("descriptor 0 was %d:%d, is %d:%d (%v)", before.Dev, before.Ino, after.Dev, after.Ino, err)
	}
	if notes := strings.Join(res.Notes, "\n"); strings.Contains(notes, "outlived") || strings.Contains(notes, "identified") {
		t.Errorf("notes %q", notes)
	}
}

// What is recorded survives a target that is killed and a duration that ends before it does.
func TestRecordDuration(t *testing.T) {
	bin := compile(t, "busy")
	res, r, out := recordIn(t, Options{Command: []string{bin}, Duration: 150 * time.Millisecond})
	for n := 0; n < 5 && r.Meta().ExitStatus == 7; n++ {
		t.Log("once more: the program was over before the machine had the recorder look at the time")
		res, r, out = recordIn(t, Options{Command: []string{bin}, Duration: 150 * time.Millisecond})
	}
	if out != "begin\nchild 5\n" || res.ExitStatus != 7 {
		t.Errorf("%q, status %d", out, res.ExitStatus)
	}
	if m := r.Meta(); m.ExitStatus != -1 || m.EndNs-m.StartNs > 60e9 {
		t.Errorf("meta %+v", m)
	}
	if !r.Stats().Complete {
		t.Error("not complete")
	}
}

func TestRecordSignalIsPassedOn(t *testing.T) {
	dir := t.TempDir()
	go func() {
		for range 12000 {
			if _, err := os.Stat(filepath.Join(dir, "ready")); err == nil {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		syscall.Kill(os.Getpid(), syscall.SIGTERM)
	}()
	res, r, out := recordIn(t, Options{Dir: dir, Command: []string{"/bin/bash", "-c", "trap 'echo term; exit 3' TERM; touch ready; while :; do sleep 0.05; done"}})
	if out != "term\n" || res.ExitStatus != 3 || !r.Stats().Complete {
		t.Errorf("%q, status %d, complete %v", out, res.ExitStatus, r.Stats().Complete)
	}
}

func TestRecordFollow(t *testing.T) {
	// What is left behind lives until it is let go, or, for a recording that follows it, for as long as its parent and on.
	const script = "(>started; %s; echo late) & while [ ! -e started ]; do sleep 0.01; done; rm started; echo early"
	const untilLetGo = "for i in {1..3000}; do [ -e go ] && break; sleep 0.02; done"
	const untilOrphan = "while read -r _ _ _ p _ < /proc/$BASHPID/stat && [ $p = $$ ]; do sleep 0.01; done"
	dir := t.TempDir()
	command := func(wait string) []string { return []string{"/bin/bash", "-c", fmt.Sprintf(script, wait)} }
	res, _, out := recordIn(t, Options{Command: command(untilLetGo), Dir: dir})
	if !strings.Contains(strings.Join(res.Notes, "\n"), "outlived the command") {
		t.Errorf("notes %q", res.Notes)
	}
	if out != "early\n" {
		t.Errorf("%q: waited for a process that the command left behind", out)
	}
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, _, out := recordIn(t, Options{Command: command(untilOrphan), Dir: dir, Follow: true}); out != "early\nlate\n" {
		t.Errorf("%q: did not follow", out)
	}
}

func TestRecordStaticProgram(t *testing.T) {
	bin := compile(t, "busy", "-static")
	res, r, out := recordIn(t, Options{Command: []string{bin}})
	if out != "begin\nchild 5\n" || res.ExitStatus != 7 {
		t.Errorf("%q, status %d", out, res.ExitStatus)
	}
	notes := strings.Join(r.Stats().Notes, "\n")
	if !strings.Contains(notes, "statically linked") || !strings.Contains(notes, "nothing was recorded") {
		t.Errorf("notes %q", notes)
	}
}

// A file system that is full stops the recording, not the program.
func TestRecordOnAFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("needs the right to mount a tmpfs: %v", err)
	}
	t.Cleanup(func() { syscall.Unmount(dir, syscall.MNT_DETACH) })
	bin := compile(t, "busy")
	stdout, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	output := filepath.Join(dir, "x.hbt")
	taken := filepath.Join(t.TempDir(), "taken")
	// The recording's beginning is stored; then somebody else takes what is left of the disk, and only then there is more to store.
	go func() {
		for range 12000 {
			if fi, err := os.Stat(output); err == nil && fi.Size() > 0 {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		os.WriteFile(filepath.Join(dir, "other"), make([]byte, 2<<20), 0o644)
		os.WriteFile(taken, nil, 0o644)
	}()
	script := `until [ -e "$1" ]; do sleep 0.01; done; exec "$0"`
	res, err := Record(t.Context(), Options{Command: []string{"/bin/bash", "-c", script, bin, taken}, Output: output, Stdout: w, AllocPeriod: 1})
	w.Close()
	out, _ := io.ReadAll(stdout)
	if res == nil || res.ExitStatus != 7 || string(out) != "begin\nchild 5\n" {
		t.Fatalf("%q, %+v", out, res)
	}
	if err == nil || !strings.Contains(err.Error(), "incomplete") {
		t.Errorf("a full disk was not reported: %v", err)
	}
	if r, err := tracefile.Open(output); err != nil {
		t.Errorf("what was stored cannot be read: %v", err)
	} else {
		r.Close()
	}
}

// Nothing is left in the way of processes and files when a program cannot be started.
func TestRecordRefusals(t *testing.T) {
	dir := t.TempDir()
	output := filepath.Join(dir, "out.hbt")
	for _, tc := range []struct {
		o    Options
		want string
	}{
		{Options{Command: []string{"./no-such-program"}, Output: output}, "no such program"},
		{Options{Command: nil, Output: output}, "no program given"},
		{Options{Command: []string{"true"}}, "no output"},
		{Options{Command: []string{"true"}, Output: dir}, "directory"},
		{Options{Command: []string{"true"}, Output: filepath.Join(t.TempDir(), "missing", "x.hbt")}, "no such file"},
		{Options{Command: []string{"true"}, Output: output, Freq: -1}, "samples a second"},
		{Options{Command: []string{"true"}, Output: output, RingBytes: 12345}, "power of two"},
	} {
		res, err := Record(t.Context(), tc.o)
		if res != nil || err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%+v: %v, %v; want %q", tc.o, res, err, tc.want)
		}
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

// A recorder that is killed: the command runs on unharmed, the file can be read, nothing is left.
func TestRecorderIsKilled(t *testing.T) {
	if os.Getenv("HBTRACE_TEST_RECORDER") != "" {
		Record(context.Background(), Options{Command: strings.Fields(os.Getenv("HBTRACE_TEST_RECORDER")), Output: os.Getenv("HBTRACE_TEST_OUTPUT")})
		return
	}
	dir := t.TempDir()
	output := filepath.Join(dir, "out.hbt")
	bin := compile(t, "outlive")
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestRecorderIsKilled$")
	cmd.Env = append(os.Environ(), "HBTRACE_TEST_RECORDER="+bin+" "+filepath.Join(dir, "done")+" "+filepath.Join(dir, "go"), "HBTRACE_TEST_OUTPUT="+output)
	stdout, err := os.Create(filepath.Join(dir, "stdout"))
	if err != nil {
		t.Fatal(err)
	}
	defer stdout.Close()
	cmd.Stdout = stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "events in the file", func() bool {
		r, err := tracefile.Open(output)
		if err != nil {
			return false
		}
		defer r.Close()
		n := 0
		return trace.Events(r, func(*trace.Event) error { n++; return nil }) == nil && n > 20
	})
	samplers := children(cmd.Process.Pid, sampler.Command)
	if len(samplers) != 1 {
		t.Fatalf("samplers: %v", samplers)
	}
	eventually(t, "its copy, which does the work", func() bool { return len(children(samplers[0], sampler.Command)) == 1 })
	samplers = append(samplers, children(samplers[0], sampler.Command)...)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	for _, pid := range samplers {
		eventually(t, "the sampler's end", func() bool { return syscall.Kill(pid, 0) != nil })
	}
	if _, err := os.Stat(filepath.Join(dir, "done")); err == nil {
		t.Fatal("the command had ended before: the test shows nothing")
	}
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the command's end", func() bool { _, err := os.Stat(filepath.Join(dir, "done")); return err == nil })
	if b, _ := os.ReadFile(stdout.Name()); !strings.Contains(string(b), "complete\n") {
		t.Errorf("the command wrote %q", b)
	}
	r, err := tracefile.Open(output)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := r.Damage(); err != nil || r.Stats().Complete {
		t.Errorf("damage %v, complete %v", err, r.Stats().Complete)
	}
	if err := validate.Source(r); err != nil {
		t.Errorf("validator: %v", err)
	}
	if len(allEvents(t, r)) == 0 || len(r.Processes()) == 0 || len(r.Threads()) == 0 {
		t.Error("nothing was stored")
	}
}

func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	for limit := time.Now().Add(60 * time.Second); !f(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

// children are the pids of pid's children whose command line has the word.
func children(pid int, word string) (out []int) {
	tasks, _ := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/children")
	for _, f := range tasks {
		b, _ := os.ReadFile(f)
		for _, c := range strings.Fields(string(b)) {
			cmdline, _ := os.ReadFile("/proc/" + c + "/cmdline")
			if n, err := strconv.Atoi(c); err == nil && strings.Contains(string(cmdline), word) {
				out = append(out, n)
			}
		}
	}
	return out
}
