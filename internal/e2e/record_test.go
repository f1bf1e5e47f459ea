// Package e2e records programs that nobody here wrote, and bad ends, with the hbtrace that is shipped.
//
// record_test.go runs hbtrace and looks at what it wrote; each other file is one group of programs.
package e2e

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/pprof/profile"

	"github.com/hbtrace/hbtrace/internal/testprog"
	"github.com/hbtrace/hbtrace/internal/validate"
	"github.com/hbtrace/hbtrace/sampler"
	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/tracefile"
)

func TestMain(m *testing.M) {
	os.Setenv("HBTRACE_SYMBOL_CACHE", "off") // every run finds its names itself
	os.Setenv("HBTRACE_UNWIND_CACHE", "off") // and compiles its tables

	if len(os.Args) > 1 && os.Args[1] == sampler.Command { // of a process of this binary that attaches
		os.Exit(sampler.Main(os.Args[2:]))
	}
	code := m.Run()
	testprog.Clean()
	os.Exit(code)
}

// session is one `hbtrace run`.
type session struct {
	*testprog.Running
	prefix string
}

// start starts hbtrace on a command; flags go to hbtrace.
func start(t *testing.T, c testprog.Command, flags ...string) *session {
	t.Helper()
	prefix := filepath.Join(t.TempDir(), "rec")
	return startAt(t, prefix, c, flags...)
}

func startAt(t *testing.T, prefix string, c testprog.Command, flags ...string) *session {
	t.Helper()
	args := append([]string{testprog.Hbtrace(t), "run", "-q", "-o", prefix}, flags...)
	c.Args = append(append(args, "--"), c.Args...)
	return &session{testprog.Start(t, c), prefix}
}

// finish waits for the end and checks that nothing is left of it.
func (s *session) finish(t *testing.T) testprog.Result {
	t.Helper()
	res := s.Wait(t)
	s.CheckNothingLeft(t)
	return res
}

// recording is what a session wrote, checked.
type recording struct {
	*tracefile.Reader
	pprof *profile.Profile
}

// open checks everything that a session wrote: the recording against its invariants, the profile with the real
// pprof, the timeline with the real trace processor.
func (s *session) open(t *testing.T) recording {
	t.Helper()
	r := s.openTrace(t)
	if !r.Stats().Complete {
		t.Error("the recording was not closed properly")
	}
	f, err := os.Open(s.prefix + ".pb.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	p, err := profile.Parse(f)
	if err != nil {
		t.Fatalf("parsing the profile: %v", err)
	}
	if err := p.CheckValid(); err != nil {
		t.Errorf("profile: %v", err)
	}
	r.pprof = p
	if out, err := exec.Command("go", "tool", "pprof", "-top", "-sample_index=cpu", s.prefix+".pb.gz").CombinedOutput(); err != nil {
		t.Errorf("go tool pprof -top: %v\n%s", err, out)
	}
	checkPerfetto(t, s.prefix+".perfetto-trace", r)
	return r
}

// openTrace checks and opens the .hbt alone.
func (s *session) openTrace(t *testing.T) recording {
	t.Helper()
	if err := validate.File(s.prefix + ".hbt"); err != nil {
		t.Error(err)
	}
	src, err := tracefile.Open(s.prefix + ".hbt")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { src.Close() })
	for _, p := range src.Processes() {
		if p.Doubt.Disabled != "" {
			t.Errorf("process %d (%s) stopped recording: %s", p.PID, p.Exe, p.Doubt.Disabled)
		}
	}
	st := src.Stats()
	t.Logf("%d events, %d nodes, %d processes, %d threads, %d lost; collector %v, sampler %v, target %v; notes %q", st.Events, st.Nodes,
		len(src.Processes()), len(src.Threads()), st.Lost, st.CollectorCPU, st.SamplerCPU, st.TargetCPU, st.Notes)
	return recording{Reader: src}
}

// share is the part of a sample type's total in stacks that have a frame which match accepts.
func (r recording) share(t *testing.T, sampleType string, match func(function, file string) bool) float64 {
	t.Helper()
	in, total := r.sum(t, sampleType, match)
	if total == 0 {
		return 0
	}
	return float64(in) / float64(total)
}

// sum is a sample type's total in stacks that have a frame which match accepts, and in all.
func (r recording) sum(t *testing.T, sampleType string, match func(function, file string) bool) (in, total int64) {
	t.Helper()
	index := -1
	for i, st := range r.pprof.SampleType {
		if st.Type == sampleType {
			index = i
		}
	}
	if index < 0 {
		t.Fatalf("the profile has no %s", sampleType)
	}
	for _, s := range r.pprof.Sample {
		v := s.Value[index]
		total += v
		if sampleMatches(s, match) {
			in += v
		}
	}
	return in, total
}

func sampleMatches(s *profile.Sample, match func(function, file string) bool) bool {
	for _, l := range s.Location {
		file := ""
		if l.Mapping != nil {
			file = filepath.Base(l.Mapping.File)
		}
		if len(l.Line) == 0 && match("", file) {
			return true
		}
		for _, line := range l.Line {
			if line.Function != nil && match(line.Function.Name, file) {
				return true
			}
		}
	}
	return false
}

// function matches frames whose function contains a name; module those of a file, with or without symbols.
func function(name string) func(string, string) bool {
	return func(f, _ string) bool { return strings.Contains(f, name) }
}

func module(name string) func(string, string) bool {
	return func(f, file string) bool {
		return strings.HasPrefix(file, name) || strings.HasPrefix(f, name)
	}
}

// wantShare fails the test when less than least of the profile's sample type passes through match.
func (r recording) wantShare(t *testing.T, sampleType, what string, least float64, match func(function, file string) bool) {
	t.Helper()
	got := r.share(t, sampleType, match)
	t.Logf("%s: %.1f %% of %s", what, 100*got, sampleType)
	if got < least {
		var b bytes.Buffer
		fmt.Fprintf(&b, "%s has %.1f %% of %s, want at least %.0f %%; the top of it:\n", what, 100*got, sampleType, 100*least)
		top(&b, r.pprof, sampleType)
		t.Error(b.String())
	}
}

func top(b *bytes.Buffer, p *profile.Profile, sampleType string) {
	path := filepath.Join(os.TempDir(), fmt.Sprintf("hbtrace-e2e-%d.pb.gz", os.Getpid()))
	defer os.Remove(path)
	f, err := os.Create(path)
	if err != nil {
		return
	}
	defer f.Close()
	if p.Write(f) == nil {
		out, _ := exec.Command("go", "tool", "pprof", "-top", "-nodecount=25", "-sample_index="+sampleType, path).CombinedOutput()
		b.Write(out)
	}
}

// intervals counts waits and calls by hook.
func (r recording) intervals(t *testing.T) map[string]int {
	t.Helper()
	n := map[string]int{}
	hooks := r.Meta().Hooks
	if err := trace.Events(r, func(e *trace.Event) error {
		if e.Kind == trace.KindWait || e.Kind == trace.KindCall {
			n[hooks[e.Hook].Name]++
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	return n
}

// wantIntervals fails the test when none of the named hooks has an interval.
func (r recording) wantIntervals(t *testing.T, anyOf ...string) {
	t.Helper()
	n := r.intervals(t)
	for _, h := range anyOf {
		if n[h] > 0 {
			return
		}
	}
	t.Errorf("no interval of %s; there are %v", strings.Join(anyOf, ", "), n)
}

// threadsNamed counts threads by name.
func (r recording) threadsNamed(name string) int {
	n := 0
	for _, t := range r.Threads() {
		if strings.HasPrefix(t.Name, name) {
			n++
		}
	}
	return n
}

// freePort finds a TCP port on loopback that nobody listens on, below those that kernels give to clients: none is given it until
// its server has started.
func freePort(t *testing.T) int {
	t.Helper()
	for range 1000 {
		port := 10000 + rand.IntN(20000)
		l, err := net.Listen("tcp4", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			l.Close()
			return port
		}
	}
	t.Fatal("no TCP port is free")
	return 0
}

// await polls until something holds, for minutes: it does not hold at all where it takes so long.
func await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(3 * time.Minute); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within three minutes: %s", what)
		}
	}
}

// waitPort waits until something listens on a port of loopback.
func waitPort(t *testing.T, s *session, port int) {
	t.Helper()
	addr := fmt.Sprintf("127.0.0.1:%d", port)
	await(t, "somebody listens on "+addr, func() bool {
		c, err := net.Dial("tcp4", addr)
		if err == nil {
			c.Close()
			return true
		}
		if len(s.Descendants()) == 0 {
			t.Fatalf("the server ended before it listened on %s: %v", addr, s.Wait(t))
		}
		return false
	})
}

// target is the pid of the recorded process whose executable has this base name.
func (s *session) target(t *testing.T, exe string) int {
	t.Helper()
	pid := s.targetIfAny(t, exe)
	if pid == 0 {
		t.Fatalf("no process of %s: %v", exe, s.Wait(t))
	}
	return pid
}

// targetIfAny is target, or 0 when all have ended before it was seen.
func (s *session) targetIfAny(t *testing.T, exe string) (found int) {
	t.Helper()
	await(t, "a process of "+exe, func() bool {
		pids := s.Descendants()
		for _, pid := range pids {
			if link, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid)); err == nil && filepath.Base(link) == exe {
				found = pid
			}
		}
		return found != 0 || len(pids) == 0
	})
	return found
}

// demoAtWork is the pid of a recorded demo that has all its threads.
func (s *session) demoAtWork(t *testing.T) int {
	t.Helper()
	const threads = 9 // main, two chefs, four waiters, the refresher, the accountant
	pid := s.target(t, "demo")
	await(t, "the demo's threads", func() bool {
		tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
		return err != nil || len(tasks) == threads
	})
	return pid
}

// terminate asks hbtrace to end, which must pass it on.
func (s *session) terminate(t *testing.T) testprog.Result {
	t.Helper()
	if err := s.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	return s.finish(t)
}
