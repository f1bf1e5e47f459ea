package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hbtrace/hbtrace/attach"
	"github.com/hbtrace/hbtrace/internal/testprog"
)

// TestAttachGoes: a program that is killed, exits, executes another, forks or unloads a library at some step of attaching or leaving is right, and the
// attacher ends. All steps are walked through where HBTRACE_STRESS is set.
func TestAttachGoes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	library, source := filepath.Join(dir, "nap.so"), filepath.Join(dir, "nap.c")
	if err := os.WriteFile(source, []byte("#include <unistd.h>\nint nap(void) { return usleep(200); }\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("gcc", "-shared", "-fPIC", "-o", library, source).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	exe := testprog.BuildFile(t, "../../attach/testdata/goes.c")
	for i, action := range []string{"kill", "exit", "exec", "fork", "vfork", "dlclose"} {
		steps := []attach.Step{[]attach.Step{attach.StepReleased, attach.StepHalf, attach.StepMapped}[i%3], []attach.Step{attach.StepLeaving, attach.StepQuiet}[i%2]}
		if os.Getenv("HBTRACE_STRESS") != "" {
			steps = attach.Steps
		}
		t.Run(action, func(t *testing.T) {
			t.Parallel()
			for _, step := range steps {
				goes(t, exe, library, action, step)
			}
		})
	}
}

// goes has a program do something at a step.
func goes(t *testing.T, exe, library, action string, step attach.Step) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "done")
	p := testprog.Start(t, testprog.Command{Args: []string{exe, action, file, library}})
	works := func() bool {
		if b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.PID())); strings.Contains(string(b), ") Z ") {
			t.Fatalf("%s at %s: the program has ended: %s", action, step, p.Wait(t))
		}
		return len(tasks(p.PID())) == 3
	}
	eventually(t, "its threads", works)
	c := exec.Command(os.Args[0], "-test.run=^TestAttacherProcess$")
	c.Env = append(os.Environ(), fmt.Sprintf("%s=%d:%s:%s", attacherVariable, p.PID(), step, filepath.Join(filepath.Dir(file), "x.hbt")),
		attacherActs+"="+action+":"+file)
	out, err := c.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) || exit != nil && exit.ExitCode() < 0 {
		t.Fatalf("%s at %s: the attacher: %v\n%s", action, step, err, out)
	}
	if bytes.Contains(out, []byte("may not be traced")) || bytes.Contains(out, []byte("ptrace_scope")) {
		t.Skipf("needs to be allowed to trace: %s", out)
	}
	switch action {
	case "kill":
		if r := p.Wait(t); r.Signal != syscall.SIGKILL {
			t.Errorf("%s at %s: %s", action, step, r)
		}
	case "exit":
		if r := p.Wait(t); r.Code != 0 || r.Signal != 0 {
			t.Errorf("%s at %s: %s", action, step, r)
		}
	default:
		eventually(t, action+" at "+string(step), func() bool { return acted(p.PID(), action, file) || !works() && false })
		eventually(t, "its threads", works)
		takenBack(t, p.PID())
		if err := p.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if r := p.Wait(t); r.Code != 0 || !bytes.HasPrefix(r.Stdout, []byte("RIGHT")) {
			t.Errorf("%s at %s: %s\nattacher: %s", action, step, r, out)
		}
	}
}

// attacherActs has an attacher of this binary make the program act at its step, in place of killing itself: "action:file".
const attacherActs = "HBTRACE_TEST_ATTACHER_ACTS"

// act makes the program act, and waits until it has; not for ever, since the thread that should act may be the one that is held.
func act(pid int, action, file string) {
	sig := syscall.SIGUSR1
	if action == "kill" {
		sig = syscall.SIGKILL
	}
	syscall.Kill(pid, sig)
	for begun := time.Now(); !acted(pid, action, file) && time.Since(begun) < 200*time.Millisecond; time.Sleep(time.Millisecond) {
	}
}

// acted: the program has done it.
func acted(pid int, action, file string) bool {
	switch action {
	case "kill", "exit":
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return err != nil || strings.Contains(string(b), ") Z ")
	case "exec":
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		return bytes.Contains(b, []byte("\x00done\x00"))
	}
	_, err := os.Stat(file)
	return err == nil
}
