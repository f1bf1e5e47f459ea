package e2e

// manners_test.go: what a program inherits from whoever started it, and the signals of job control, are what they are
// without a recorder in between.

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hbtrace/hbtrace/internal/testprog"
)

// TestBlockedSignalsStayBlocked: exec inherits the signal mask, too.
func TestBlockedSignalsStayBlocked(t *testing.T) {
	python := testprog.LookPath(t, "python3", "python3")
	masks := func(words ...string) string {
		args := append([]string{"-S", "-E", "-c", `import os, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1, signal.SIGTERM, signal.SIGCHLD, signal.SIGTSTP, signal.SIGRTMIN + 3])
os.execv(sys.argv[1], sys.argv[1:])`}, words...)
		out, err := exec.Command(python, append(args, "/bin/grep", "SigBlk\\|SigIgn", "/proc/self/status")...).Output()
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	bare := masks()
	if traced := masks(testprog.Hbtrace(t), "run", "-q", "-o", filepath.Join(t.TempDir(), "rec"), "--"); traced != bare {
		t.Errorf("bare %q, traced %q", bare, traced)
	}
}

// state is the letter in /proc/PID/stat.
func state(pid int) string {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "gone"
	}
	return strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))[0]
}

func awaitState(t *testing.T, what string, pid int, want string, is bool) {
	t.Helper()
	await(t, fmt.Sprintf("%s (%d) is in state %s: %v", what, pid, want, is), func() bool { return (state(pid) == want) == is })
}

// TestSuspend: kill -TSTP of the recorder stops the program and the recorder, kill -CONT continues both.
func TestSuspend(t *testing.T) {
	s := start(t, testprog.Command{Args: []string{demo(t), "3600"}})
	pid := s.demoAtWork(t)
	recordedFor(300 * time.Millisecond)
	for range 2 {
		if err := s.Signal(unix.SIGTSTP); err != nil {
			t.Fatal(err)
		}
		awaitState(t, "the program", pid, "T", true)
		asked := time.Now()
		await(t, "the recorder is stopped, too", func() bool {
			if state(s.PID()) != "T" && time.Since(asked) > 10*time.Second {
				t.Log("once more: the program took longer to stop than the recorder waits for it")
				if err := s.Signal(unix.SIGTSTP); err != nil {
					t.Fatal(err)
				}
				asked = time.Now()
			}
			return state(s.PID()) == "T"
		})
		if err := s.Signal(unix.SIGCONT); err != nil {
			t.Fatal(err)
		}
		awaitState(t, "the recorder", s.PID(), "T", false)
		awaitState(t, "the program", pid, "T", false)
		before := cpuTicks(t, pid)
		await(t, "the program works again", func() bool { return cpuTicks(t, pid) > before })
	}
	if res := s.terminate(t); res.Status() != 128+int(unix.SIGTERM) {
		t.Errorf("%v", res)
	}
	s.openTrace(t)
}

// cpuTicks is the user time of a process, in clock ticks: 10 ms each.
func cpuTicks(t *testing.T, pid int) (ticks int) {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	const utime = 11 // counted from the state
	if _, err := fmt.Sscan(strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))[utime], &ticks); err != nil {
		t.Fatal(err)
	}
	return ticks
}

// TestSuspendIsRefused: a program that ignores or handles SIGTSTP goes on, and so does the recorder.
func TestSuspendIsRefused(t *testing.T) {
	bash := testprog.LookPath(t, "bash", "bash")
	for _, trap := range []string{`trap '' TSTP`, `trap 'echo not now' TSTP`} {
		up, enough := filepath.Join(t.TempDir(), "up"), filepath.Join(t.TempDir(), "enough")
		s := start(t, testprog.Command{Args: []string{bash, "-c", trap + `; > "$0"; until [ -e "$1" ]; do sleep 0.05; done; exit 6`, up, enough}})
		await(t, "the program is up", func() bool { _, err := os.Stat(up); return err == nil })
		if err := s.Signal(unix.SIGTSTP); err != nil {
			t.Fatal(err)
		}
		recordedFor(300 * time.Millisecond)
		write(t, enough, "")
		if res := s.finish(t); res.Status() != 6 {
			t.Errorf("%s: %v", trap, res)
		}
	}
}

// TestLoaderByHand: a loader that is run by hand looks like a static program and is none.
func TestLoaderByHand(t *testing.T) {
	for _, c := range []struct {
		loader string
		build  []string
	}{
		{"/lib64/ld-linux-x86-64.so.2", nil},
		{"/lib/ld-musl-x86_64.so.1", []string{"cc=musl-gcc"}},
	} {
		t.Run(filepath.Base(c.loader), func(t *testing.T) {
			if _, err := os.Stat(c.loader); err != nil {
				t.Skip(err)
			}
			s, _ := compare(t, testprog.Command{Args: []string{c.loader, testprog.Build(t, "hello", c.build...), "x"}})
			r := s.openTrace(t)
			if notes := strings.Join(r.Stats().Notes, "\n"); strings.Contains(notes, "static") || len(r.Processes()) == 0 {
				t.Errorf("%d processes, notes %q", len(r.Processes()), notes)
			}
		})
	}
}

// TestStatusComesThrough: what becomes of our summary and our files does not keep the program's status back, nor for ever.
func TestStatusComesThrough(t *testing.T) {
	hb, bash := testprog.Hbtrace(t), testprog.LookPath(t, "bash", "bash")
	run := func(prefix, redirect string) (int, string) {
		t.Helper()
		cmd := exec.Command(bash, "-c", `"$@" `+redirect, "bash", hb, "run", "-o", prefix, "--", bash, "-c", "echo out; exit 3")
		out, err := cmd.CombinedOutput()
		if cmd.ProcessState == nil {
			t.Fatal(err)
		}
		return cmd.ProcessState.ExitCode(), string(out)
	}
	for _, redirect := range []string{"2>/dev/full", "2>&-", "2> >(exit)"} {
		if status, out := run(filepath.Join(t.TempDir(), "rec"), redirect); status != 3 || out != "out\n" {
			t.Errorf("%s: status %d, output %q", redirect, status, out)
		}
	}
	for _, suffix := range []string{".pb.gz", ".perfetto-trace"} {
		prefix := filepath.Join(t.TempDir(), "rec")
		if err := unix.Mkfifo(prefix+suffix, 0o600); err != nil {
			t.Fatal(err)
		}
		status, out := run(prefix, "")
		if status != 125 || !strings.HasPrefix(out, "out\n") || !strings.Contains(out, "nobody reads") {
			t.Errorf("a pipe at %s that nobody reads: status %d, output %q", suffix, status, out)
		}
	}
	prefix := filepath.Join(t.TempDir(), "rec")
	if err := unix.Mkfifo(prefix+".pb.gz", 0o600); err != nil {
		t.Fatal(err)
	}
	reader := exec.Command("cat", prefix+".pb.gz")
	var read bytes.Buffer
	reader.Stdout = &read
	if err := reader.Start(); err != nil {
		t.Fatal(err)
	}
	if status, out := run(prefix, ""); status != 3 {
		t.Errorf("a pipe with a reader: status %d, output %q", status, out)
		reader.Process.Kill()
	}
	if err := reader.Wait(); err != nil || read.Len() == 0 {
		t.Errorf("%d bytes came through the pipe (%v)", read.Len(), err)
	}
}

// TestSamplerStartedAgain: the recording says so.
func TestSamplerStartedAgain(t *testing.T) {
	s := start(t, testprog.Command{Args: []string{demo(t), "3600"}})
	s.demoAtWork(t)
	pid := s.samplerOf(t)
	recordedFor(100 * time.Millisecond)
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	await(t, "another sampler", func() bool { return s.samplerOf(t) != pid })
	if res := s.terminate(t); res.Status() != 128+int(syscall.SIGTERM) {
		t.Errorf("%v", res)
	}
	if notes := strings.Join(s.openTrace(t).Stats().Notes, "\n"); !strings.Contains(notes, "the sampler was started again (signal: killed)") {
		t.Errorf("notes: %q", notes)
	}
}
