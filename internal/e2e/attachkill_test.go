package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hbtrace/hbtrace/attach"
	"github.com/hbtrace/hbtrace/collector"
	"github.com/hbtrace/hbtrace/internal/testprog"
)

// attacherVariable makes this test binary an attacher: "pid:step:output"; at the step it kills itself, or calls the program
// named in attacherCalls.
const attacherVariable = "HBTRACE_TEST_ATTACHER"

// TestAttacherProcess is what a process of this binary is that attaches for another test.
func TestAttacherProcess(t *testing.T) {
	f := strings.SplitN(os.Getenv(attacherVariable), ":", 3)
	if len(f) != 3 {
		t.Skip("runs as a process of TestAttacherKilled's")
	}
	pid, err := strconv.Atoi(f[0])
	if err != nil {
		t.Fatal(err)
	}
	done := false
	attach.OnStep(func(s attach.Step) {
		if string(s) != f[1] || done {
			return
		}
		done = true // some steps come again when hbtrace leaves
		if action, file, ok := strings.Cut(os.Getenv(attacherActs), ":"); ok {
			act(pid, action, file)
		} else {
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	})
	if _, err := collector.Attach(context.Background(), collector.Options{Output: f[2], Duration: 50 * time.Millisecond}, []int{pid}); err != nil {
		t.Fatal(err)
	}
}

// TestAttacherKilled: whenever the attacher is killed, the program goes on and is right, and the next hbtrace takes back what was
// left.
func TestAttacherKilled(t *testing.T) {
	t.Parallel()
	p := busy(t, testprog.BuildFile(t, "../../attach/testdata/busy.c"))
	attachTo(t, p.PID(), "-d", "10ms") // the page that stays
	takenBack(t, p.PID())
	killedAt(t, p, attach.Steps)
}

// killedAt kills an attacher at each step, and ends the program.
func killedAt(t *testing.T, p *testprog.Running, steps []attach.Step) {
	t.Helper()
	before := stateOf(t, p.PID())
	dir := t.TempDir()
	for _, step := range steps {
		c := exec.Command(os.Args[0], "-test.run=^TestAttacherProcess$")
		c.Env = append(os.Environ(), fmt.Sprintf("%s=%d:%s:%s", attacherVariable, p.PID(), step, filepath.Join(dir, string(step)+".hbt")))
		out, err := c.CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
			t.Fatalf("%s: the attacher was not killed there: %v\n%s", step, err, out)
		}
		eventually(t, "the end of a detach after "+string(step), func() bool {
			r := testprog.Run(t, testprog.Command{Args: []string{testprog.Hbtrace(t), "detach", strconv.Itoa(p.PID())}})
			if r.Code != 0 && !bytes.Contains(r.Stderr, []byte("hbtrace detach")) { // a thread is in the agent still
				t.Fatalf("%s: detach: %s", step, r)
			}
			return r.Code == 0
		})
		t.Run(string(step), func(t *testing.T) { compareStates(t, before, stateOf(t, p.PID())) })
	}
	right(t, p)
}
