package e2e

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hbtrace/hbtrace/internal/testprog"
	"github.com/hbtrace/hbtrace/internal/validate"
	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/tracefile"
)

// busyThreads are those of attach/testdata/busy.c that live as long as it does.
const busyThreads = 10

// busy starts the program to attach to, and waits until all of its threads run.
func busy(t *testing.T, exe string, env ...string) *testprog.Running {
	t.Helper()
	p := testprog.Start(t, testprog.Command{Args: []string{exe}, Env: append(os.Environ(), env...)})
	eventually(t, "the program's threads", func() bool { return len(tasks(p.PID())) >= busyThreads })
	settled(t, p.PID())
	return p
}

// settled waits until busy has opened and loaded all that it will: glibc loads libgcc for the first thread that calls pthread_exit, and then
// the thread that makes threads takes another name.
func settled(t *testing.T, pid int) {
	t.Helper()
	eventually(t, "all that the program opens and loads", func() bool {
		events, begun := false, false
		fds, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
		for _, fd := range fds {
			link, _ := os.Readlink(fd)
			events = events || link == "anon_inode:[eventpoll]"
		}
		for _, tid := range tasks(pid) {
			name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/comm", pid, tid))
			begun = begun || string(name) == "begun\n"
		}
		return events && begun
	})
}

// eventually polls for a minute and more.
func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	for begun := time.Now(); !f(); time.Sleep(5 * time.Millisecond) {
		if time.Since(begun) > 90*time.Second {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

func tasks(pid int) []string {
	entries, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

// right ends the program, which must have found nothing wrong.
func right(t *testing.T, p *testprog.Running) {
	t.Helper()
	if err := p.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if r := p.Wait(t); r.Code != 0 || !bytes.HasPrefix(r.Stdout, []byte("RIGHT")) {
		t.Errorf("the program that was attached to: %s", r)
	}
}

// attachTo runs hbtrace attach to its end, and opens what it recorded.
func attachTo(t *testing.T, pid int, flags ...string) (testprog.Result, *tracefile.Reader) {
	t.Helper()
	return attachAs(t, filepath.Join(t.TempDir(), "at"), pid, flags...)
}

// attachAs is attachTo with the prefix of the files.
func attachAs(t *testing.T, prefix string, pid int, flags ...string) (testprog.Result, *tracefile.Reader) {
	t.Helper()
	args := append([]string{testprog.Hbtrace(t), "attach", "-o", prefix}, flags...)
	r := testprog.Run(t, testprog.Command{Args: append(args, strconv.Itoa(pid))})
	if r.Code != 0 {
		skipUntraceable(t, r)
		t.Fatalf("attach: %s", r)
	}
	src, err := tracefile.Open(prefix + ".hbt")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { src.Close() })
	if err := validate.Source(src); err != nil {
		t.Errorf("the recording: %v", err)
	}
	return r, src
}

// skipUntraceable skips where this machine lets nobody trace.
func skipUntraceable(t *testing.T, r testprog.Result) {
	t.Helper()
	if s := string(r.Stderr); strings.Contains(s, "ptrace_scope") || strings.Contains(s, "CAP_SYS_PTRACE") || strings.Contains(s, "x86-64 only") {
		t.Skipf("needs to be allowed to trace: %s", strings.TrimSpace(s))
	}
}

// takenBack waits until the agent's memory is given back: where a thread was late to come out of it, the next detach does that.
func takenBack(t *testing.T, pid int) {
	t.Helper()
	eventually(t, "the last of the agent to be taken back", func() bool {
		r := testprog.Run(t, testprog.Command{Args: []string{testprog.Hbtrace(t), "detach", strconv.Itoa(pid)}})
		if r.Code != 0 && !bytes.Contains(r.Stderr, []byte("hbtrace detach")) {
			t.Fatalf("detach: %s", r)
		}
		return r.Code == 0
	})
}

// TestAttach: a program that runs is recorded and left as it was.
func TestAttach(t *testing.T) {
	t.Parallel()
	p := busy(t, testprog.BuildFile(t, "../../attach/testdata/busy.c"))
	before := stateOf(t, p.PID())
	_, src := attachTo(t, p.PID(), "-d", "1s")
	takenBack(t, p.PID())
	compareStates(t, before, stateOf(t, p.PID()))
	waits, calls, allocs := 0, map[string]int{}, 0
	if err := trace.Events(src, func(e *trace.Event) error {
		switch e.Kind {
		case trace.KindWait:
			waits++
		case trace.KindCall:
			calls[src.Meta().Hooks[e.Hook].Name]++
		case trace.KindAlloc:
			allocs++
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if waits == 0 || allocs == 0 || calls["epoll_wait"] == 0 || calls["nanosleep"] == 0 || calls["sigtimedwait"] == 0 {
		t.Errorf("recorded %d waits, %d allocations, calls %v", waits, allocs, calls)
	}
	if n := len(src.Threads()); n < busyThreads {
		t.Errorf("%d threads recorded, it has %d", n, busyThreads)
	}
	right(t, p)
}

// attachState is what must be as it was when hbtrace has left.
type attachState struct {
	descriptors, maps []string
	signals           map[string]string
	relro             map[string][]byte // what the loader filled in and made read-only
}

var anonymous = regexp.MustCompile(`^[0-9a-f]+-[0-9a-f]+ (\S+) [0-9a-f]+ 00:00 0\s*$`)

func stateOf(t *testing.T, pid int) attachState {
	t.Helper()
	s := attachState{signals: map[string]string{}, relro: map[string][]byte{}}
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		link, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", pid, fd.Name()))
		s.descriptors = append(s.descriptors, fd.Name()+" "+link)
	}
	slices.Sort(s.descriptors)
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(status)) {
		if name, v, _ := strings.Cut(line, ":"); strings.HasPrefix(name, "Sig") && name != "SigQ" || name == "TracerPid" {
			s.signals[name] = strings.TrimSpace(v)
		}
	}
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		t.Fatal(err)
	}
	mem, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Close()
	for line := range strings.Lines(string(maps)) {
		line = strings.TrimSpace(line)
		f := strings.Fields(line)
		// Memory without a file comes and goes with the program's threads: what can be executed of it does not.
		if anonymous.MatchString(line) && f[1][2] != 'x' || strings.Contains(line, "[") {
			continue
		}
		s.maps = append(s.maps, line)
		if f[1] == "r--p" && len(f) > 5 {
			lo, hi, _ := strings.Cut(f[0], "-")
			a, _ := strconv.ParseInt(lo, 16, 64)
			b, _ := strconv.ParseInt(hi, 16, 64)
			at := make([]byte, b-a)
			if _, err := mem.ReadAt(at, a); err == nil {
				s.relro[line] = at
			}
		}
	}
	return s
}

// compareStates allows for one piece of executable memory more: the thunks' page.
func compareStates(t *testing.T, before, after attachState) {
	t.Helper()
	if !slices.Equal(before.descriptors, after.descriptors) {
		t.Errorf("descriptors before %q, after %q", before.descriptors, after.descriptors)
	}
	for name, v := range before.signals {
		if after.signals[name] != v {
			t.Errorf("%s was %s and is %s", name, v, after.signals[name])
		}
	}
	var more []string
	for _, line := range after.maps {
		if !slices.Contains(before.maps, line) {
			more = append(more, line)
		}
	}
	for _, line := range before.maps {
		if !slices.Contains(after.maps, line) {
			t.Errorf("no longer mapped as before: %s", line)
		}
	}
	if len(more) > 1 || len(more) == 1 && !anonymous.MatchString(more[0]) {
		t.Errorf("mapped besides the thunks: %q", more)
	}
	for line, b := range before.relro {
		if !bytes.Equal(b, after.relro[line]) {
			t.Errorf("other bytes than before: %s", line)
		}
	}
}
