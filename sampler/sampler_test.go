// The sampler process against a small C program that keeps the target's side of the handshake.
package sampler

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hbtrace/hbtrace/segment"
)

func TestMain(m *testing.M) {
	if how := os.Getenv(aloneHelper); how != "" {
		os.Exit(aloneHelps(how))
	}
	if len(os.Args) > 1 && os.Args[1] == Command {
		os.Exit(Main(os.Args[2:]))
	}
	status := m.Run()
	os.RemoveAll(targetDir)
	os.Exit(status)
}

var targetDir string

var buildTarget = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "sampler-target-")
	if err != nil {
		return "", err
	}
	targetDir = dir
	out := filepath.Join(dir, "target")
	cmd := exec.Command("gcc", "-O1", "-Wall", "-Werror", "-pthread", "-I..", "-o", out, "testdata/target.c")
	cmd.Stderr = os.Stderr
	return out, cmd.Run()
})

// target starts the program in a mode; the segment records.
func target(t *testing.T, mode string) (*segment.Segment, *exec.Cmd) {
	t.Helper()
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("needs gcc for the test target")
	}
	bin, err := buildTarget()
	if err != nil {
		t.Fatal(err)
	}
	seg, err := segment.Create(segment.Config{Threads: 64, Procs: 8, RingBytes: 1 << 16})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { seg.Close() })
	seg.Header().Recording.Store(1)
	cmd := exec.Command(bin, mode)
	f, err := dupFile(seg.FD(), "segment")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	cmd.ExtraFiles = []*os.File{f}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "ready\n" {
		t.Fatalf("target said %q, %v", line, err)
	}
	return seg, cmd
}

func start(t *testing.T, seg *segment.Segment, freq int) *Sampler {
	t.Helper()
	s, err := Start(seg, freq)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func startTicks(t *testing.T, pid int) uint64 {
	t.Helper()
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		t.Fatal(err)
	}
	v, ok := statStart(b)
	if !ok {
		t.Fatalf("no start time in %q", b)
	}
	return v
}

func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	for limit := time.Now().Add(3 * time.Minute); !f(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatalf("not within three minutes: %s", what)
		}
	}
}

func TestBusyThreadIsSampledByItsCPUTime(t *testing.T) {
	seg, cmd := target(t, "busy")
	s := start(t, seg, 499)
	s.Verify(0, 1, cmd.Process.Pid, startTicks(t, cmd.Process.Pid), false)
	slot := seg.Thread(0)
	eventually(t, "300 periodic samples", func() bool { return slot.Reserved3[0].Load() >= 300 })
	n := slot.Reserved3[0].Load() - 1
	cpu := slot.Reserved3[4].Load() - slot.Reserved3[3].Load()
	rate := float64(n) / (float64(cpu) / 1e9)
	c := s.Counters()
	t.Logf("%d samples in %v of CPU: %.0f/s; %d gap; %+v, %v", n, time.Duration(cpu), rate, slot.Reserved3[1].Load(), c, c.Mode)
	if rate > 499*1.25 {
		t.Errorf("%.0f samples per second of CPU, asked for 499", rate)
	}
	// Where the machine's own load or its host's makes the sampler miss ticks, there are as many fewer samples.
	if met := float64(c.Ticks) / float64(c.Ticks+c.TicksMissed); c.Mode == ModeFIFO && rate < 499*0.7*met {
		t.Errorf("%.0f samples per second of CPU, asked for 499, %.0f %% of the ticks were met", rate, 100*met)
	}
	if stray := slot.Reserved3[2].Load(); stray != 0 {
		t.Errorf("%d signals that were not ours or came unasked", stray)
	}
	uid, sent := s.Sent(0)
	if c.SignalsFailed != 0 || c.SignalsStuck != 0 || c.SignalsSent == 0 || uid != 1 || sent == 0 {
		t.Errorf("counters %+v, %d sent to thread %d", c, sent, uid)
	}
	if tick := seg.Header().Tick.Load(); tick > uint64(segment.Now()/1e6) || tick < uint64(segment.Now()/1e6)-30000 {
		t.Errorf("tick %d is not CLOCK_MONOTONIC in ms (%d)", tick, segment.Now()/1e6)
	}
	if cpu := s.Stop(); cpu <= 0 {
		t.Errorf("the sampler used no CPU: %v", cpu)
	}
	if err := s.Err(); err != nil {
		t.Errorf("a sampler that was stopped: %v", err)
	}
}

func TestGapSamplesComeBetweenPeriodicOnes(t *testing.T) {
	seg, cmd := target(t, "busy")
	s := start(t, seg, 20)
	s.Verify(0, 1, cmd.Process.Pid, startTicks(t, cmd.Process.Pid), false)
	slot := seg.Thread(0)
	eventually(t, "20 gap samples", func() bool { return slot.Reserved3[1].Load() >= 20 })
	if p, g := slot.Reserved3[0].Load(), slot.Reserved3[1].Load(); p >= g {
		t.Errorf("%d periodic samples at 20 a second, %d gap samples", p, g)
	}
}

// Nothing that the segment says makes the sampler signal a process which the collector has not verified.
func TestUnverifiedIsNeverSignalled(t *testing.T) {
	for _, tc := range []struct {
		name   string
		verify func(s *Sampler, pid int, start uint64)
	}{
		{"not verified", func(*Sampler, int, uint64) {}},
		{"another uid", func(s *Sampler, pid int, start uint64) { s.Verify(0, 2, pid, start, false) }},
		{"pid used again", func(s *Sampler, pid int, start uint64) { s.Verify(0, 1, pid, start+1, false) }},
		{"pid of a stranger", func(s *Sampler, pid int, start uint64) { s.Verify(0, 1, os.Getpid(), start, false) }},
		{"forgotten", func(s *Sampler, pid int, start uint64) { s.Verify(0, 1, pid, start, false); s.Forget(0) }},
		{"not translated", func(s *Sampler, pid int, start uint64) { s.Verify(0, 1, pid, start, true) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			seg, cmd := target(t, "busy")
			s := start(t, seg, 499)
			tc.verify(s, cmd.Process.Pid, startTicks(t, cmd.Process.Pid))
			// One tick may be under way: the forgotten process may have been signalled in it.
			from := s.Counters().Ticks
			eventually(t, "2 ticks", func() bool { return s.Counters().Ticks > from+2 })
			before := s.Counters()
			if tc.name != "forgotten" && before.SignalsSent != 0 {
				t.Errorf("%d signals sent", before.SignalsSent)
			}
			eventually(t, "200 ticks", func() bool { return s.Counters().Ticks > before.Ticks+200 })
			if c := s.Counters(); c.SignalsSent != before.SignalsSent {
				t.Errorf("%d signals sent", c.SignalsSent-before.SignalsSent)
			}
		})
	}
}

func TestTranslatedThreadIsSampled(t *testing.T) {
	seg, cmd := target(t, "busy")
	seg.Thread(0).TID.Store(1) // as in a pid namespace of its own
	s := start(t, seg, 499)
	s.Verify(0, 1, cmd.Process.Pid, startTicks(t, cmd.Process.Pid), true)
	s.Translate(0, 1, cmd.Process.Pid)
	eventually(t, "a sample", func() bool { return seg.Thread(0).Samples.Load() > 0 })
}

func TestBlockedThreadIsNotDisturbed(t *testing.T) {
	seg, cmd := target(t, "blocked")
	s := start(t, seg, 499)
	s.Verify(0, 1, cmd.Process.Pid, startTicks(t, cmd.Process.Pid), false)
	from := s.Counters().Ticks
	eventually(t, "300 ticks", func() bool { return s.Counters().Ticks > from+300 })
	if c := s.Counters(); c.SignalsSent != 0 {
		t.Errorf("%d signals to a thread inside a slow call", c.SignalsSent)
	}
}

// A thread that sleeps in a system call which nobody wraps is asked when it runs, not in its sleep.
func TestSleepInRawSystemCall(t *testing.T) {
	seg, cmd := target(t, "asleep")
	s := start(t, seg, 499)
	s.Verify(0, 1, cmd.Process.Pid, startTicks(t, cmd.Process.Pid), false)
	calls, eintr := &seg.Thread(0).Reserved2[0], &seg.Thread(0).Reserved2[1]
	eventually(t, "1000 calls", func() bool { return calls.Load() > 1000 })
	t.Logf("%d calls, %d interrupted, %d signals", calls.Load(), eintr.Load(), s.Counters().SignalsSent)
	if eintr.Load() > calls.Load()/10 {
		t.Errorf("%d of %d calls interrupted", eintr.Load(), calls.Load())
	}
}

func TestMaskedSignalWaitsUntilItIsTaken(t *testing.T) {
	seg, cmd := target(t, "masked")
	s := start(t, seg, 499)
	s.Verify(0, 1, cmd.Process.Pid, startTicks(t, cmd.Process.Pid), false)
	slot := seg.Thread(0)
	eventually(t, "samples after unmasking", func() bool { return slot.Samples.Load() > 10 })
	if slot.Reserved2[0].Load() != 1 {
		t.Error("the sampler did not wait for a masked signal")
	}
	if c := s.Counters(); c.SignalsStuck != 0 {
		t.Errorf("%d signals given up", c.SignalsStuck)
	}
}

func TestProcessWithoutHandlerIsLeftAlone(t *testing.T) {
	seg, cmd := target(t, "nohandler")
	s := start(t, seg, 499)
	s.Verify(0, 1, cmd.Process.Pid, startTicks(t, cmd.Process.Pid), false)
	eventually(t, "quiet", func() bool { return s.Quiet(0, 1) == QuietNoHandler })
	c := s.Counters()
	if c.SignalsStuck != 1 || c.SignalsSent != 1 {
		t.Errorf("%d signals, %d stuck; want one of each", c.SignalsSent, c.SignalsStuck)
	}
	if st := seg.Thread(0).State.Load(); st != segment.StateRunning {
		t.Errorf("state %d was not put back", st)
	}
	from := c.Ticks
	eventually(t, "200 ticks", func() bool { return s.Counters().Ticks > from+200 })
	if c := s.Counters(); c.SignalsSent != 1 {
		t.Errorf("%d more signals to a process with no handler", c.SignalsSent-1)
	}
}

func TestThreadThatIsGoneIsReported(t *testing.T) {
	seg, cmd := target(t, "thread")
	s := start(t, seg, 499)
	s.Verify(0, 1, cmd.Process.Pid, startTicks(t, cmd.Process.Pid), false)
	eventually(t, "report", func() bool { return s.Gone(1) == 2 })
	cmd.Process.Kill()
	cmd.Wait()
	eventually(t, "report of the main thread", func() bool { return s.Gone(0) == 1 })
}

// The target scribbles over everything that the sampler reads.
func TestScribbledSegment(t *testing.T) {
	seg, cmd := target(t, "busy")
	s := start(t, seg, 499)
	s.Verify(0, 1, cmd.Process.Pid, startTicks(t, cmd.Process.Pid), false)
	seg.Header().ThreadsHigh.Store(1 << 31)
	seg.Header().ThreadsCap.Store(1 << 31)
	x := uint64(88172645463325252)
	from := s.Counters().Ticks
	for s.Counters().Ticks < from+200 {
		for i := 1; i < seg.Geometry().Threads; i++ {
			x ^= x << 13
			x ^= x >> 7
			x ^= x << 17
			th := seg.Thread(i)
			th.Proc.Store(uint32(x) % 3 * 0x7fffffff)
			th.ProcUID.Store(uint32(x>>8) % 3)
			th.TID.Store(uint32(x >> 16))
			th.UID.Store(uint32(x>>3) % 5)
			th.State.Store(uint32(x>>40) % 5)
		}
		time.Sleep(time.Millisecond)
	}
	if err := s.Err(); err != nil {
		t.Error(err)
	}
	sent := seg.Thread(0).Samples.Load()
	eventually(t, "thread 0 still sampled", func() bool { return seg.Thread(0).Samples.Load() > sent })
}

func TestSamplerIsStartedAgain(t *testing.T) {
	seg, cmd := target(t, "busy")
	s := start(t, seg, 499)
	s.Verify(0, 1, cmd.Process.Pid, startTicks(t, cmd.Process.Pid), false)
	kill := func() {
		t.Helper()
		pid := samplerPID(t)
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		eventually(t, "its end", func() bool {
			b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
			return err != nil || len(b) == 0
		})
	}
	for range maxStarts - 1 {
		kill()
		n := s.Counters().Ticks
		eventually(t, "ticks again", func() bool { return s.Counters().Ticks > n+3 })
		samples := seg.Thread(0).Samples.Load()
		eventually(t, "samples again", func() bool { return seg.Thread(0).Samples.Load() > samples })
	}
	kill()
	eventually(t, "an error", func() bool { return s.Err() != nil })
}

// samplerPID finds the child of this process that is a sampler.
func samplerPID(t *testing.T) int {
	t.Helper()
	found := 0
	eventually(t, "a sampler process", func() bool {
		tasks, _ := filepath.Glob("/proc/self/task/*/children")
		for _, f := range tasks {
			b, _ := os.ReadFile(f)
			for _, pid := range strings.Fields(string(b)) {
				cmdline, _ := os.ReadFile("/proc/" + pid + "/cmdline")
				if bytes.Contains(cmdline, []byte(Command)) {
					found, _ = strconv.Atoi(pid)
					return true
				}
			}
		}
		return false
	})
	return found
}
