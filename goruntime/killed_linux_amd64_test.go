package goruntime

import (
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
)

// killEnv makes this test's binary a recorder that launches a program and is killed at that step; 0: at none. It exits with 3 if there
// are fewer steps.
const killEnv, programEnv = "HBTRACE_TEST_KILL_AT", "HBTRACE_TEST_PROGRAM"

func TestRecorderOfLaunch(t *testing.T) {
	at, err := strconv.Atoi(os.Getenv(killEnv))
	if err != nil {
		t.Skip("started by TestRecorderKilled only")
	}
	p, err := Open(os.Getenv(programEnv))
	if err != nil {
		t.Fatal(err)
	}
	_, join := session(t)
	n := 0
	step = func() {
		if n++; n == at {
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}
	started, err := Launch(p, func(sys *syscall.SysProcAttr) (int, error) {
		pid, _, err := syscall.StartProcess(p.Path, []string{p.Path}, &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, 1, 2}, Sys: sys})
		return pid, err
	}, join)
	if err != nil || started.Refused != nil {
		t.Fatal(err, started.Refused)
	}
	var ws syscall.WaitStatus
	if _, err := syscall.Wait4(started.PID, &ws, 0, nil); err != nil || ws.ExitStatus() != 5 {
		t.Fatal(err, ws)
	}
	os.Exit(3)
}

// TestRecorderKilled kills the recorder at each step of a launch. The program has run to its end, or has done nothing: its
// output ends, so nothing of it is left, neither running nor stopped.
func TestRecorderKilled(t *testing.T) {
	prog := build(t, "hello")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ran, never := 0, 0
	for at := 1; ; at++ {
		cmd := exec.Command(self, "-test.run=^TestRecorderOfLaunch$")
		cmd.Env = append(os.Environ(), killEnv+"="+strconv.Itoa(at), programEnv+"="+prog)
		out, err := cmd.Output() // up to the end of its output, which the program has too
		ws, _ := cmd.ProcessState.Sys().(syscall.WaitStatus)
		if ws.ExitStatus() == 3 {
			if string(out) != "hello\n" || at < 20 {
				t.Errorf("after %d steps nothing was left to do: %q", at-1, out)
			}
			break
		}
		if !ws.Signaled() || ws.Signal() != syscall.SIGKILL {
			t.Fatalf("step %d: the recorder was to be killed: %v, %s", at, err, out)
		}
		switch string(out) {
		case "hello\n":
			ran++
		case "":
			never++
		default:
			t.Errorf("killed at step %d: the program printed %q", at, out)
		}
	}
	t.Logf("the program ran after %d of the steps, and did nothing after %d", ran, never)
}
