package collector

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hbtrace/hbtrace/internal/testprog"
	"github.com/hbtrace/hbtrace/trace"
)

// TestUnrecorded: processes below the command that the agent is not in are found, with their reasons and CPU time.
func TestUnrecorded(t *testing.T) {
	static, dynamic := testprog.Build(t, "spin", "-static"), testprog.Build(t, "spin")
	stop := filepath.Join(t.TempDir(), "stop")
	sh := exec.Command("/bin/sh", "-c", `"$1" until "$3" & env -i "$2" until "$3" & LD_PRELOAD= "$2" until "$3" & wait`, "sh", static, dynamic, stop)
	sh.Env = append(os.Environ(), "HBTRACE_SESSION=x", "LD_PRELOAD=/nowhere/agent-$PLATFORM.so")
	if err := sh.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		os.WriteFile(stop, nil, 0o644)
		sh.Wait()
	})
	s := &session{procs: map[uint32]*process{}, golang: map[uint32]*goProcess{}, inode: inode{ino: 1 << 60}}
	u := newUnrecorded(s, sh.Process.Pid)
	want := map[string]string{whyStatic: static, whyEnvironment: dynamic, whyPreload: dynamic}
	var found map[string]trace.Unrecorded
	for deadline := time.Now().Add(60 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		u.next = time.Time{}
		u.look(time.Now())
		found = map[string]trace.Unrecorded{}
		done := 0
		for _, x := range u.result() {
			found[x.Reason] = x
			if want[x.Reason] == x.Program && x.Count == 1 && x.CPU >= 200*time.Millisecond {
				done++
			}
		}
		if done == len(want) {
			break
		}
	}
	for why, program := range want {
		if x := found[why]; x.Program != program || x.Count != 1 || x.CPU < 200*time.Millisecond {
			t.Errorf("%s: found %+v, want one of %s with 200 ms of CPU at least; all: %v", why, x, program, found)
		}
	}
	for why, x := range found {
		if strings.Contains(why, "privileges") {
			t.Errorf("%+v", x)
		}
	}
}
