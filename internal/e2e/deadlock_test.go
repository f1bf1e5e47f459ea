package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hbtrace/hbtrace/internal/testprog"
)

// TestDeadlock: a program that is stuck and stopped from outside names the two threads that wait for each other.
func TestDeadlock(t *testing.T) {
	t.Parallel()
	exe := testprog.BuildFile(t, "../../bench/locks/src/deadlock.c")
	s := start(t, testprog.Command{Args: []string{exe}})
	pid := s.target(t, filepath.Base(exe))
	for deadline := time.Now().Add(time.Minute); !stuck(t, pid, "forth", "back"); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the program is not stuck after a minute")
		}
	}
	s.terminate(t)
	out, err := exec.Command(testprog.Hbtrace(t), "report", "--locks", "--json", s.prefix+".hbt").Output()
	if err != nil {
		t.Fatal(err)
	}
	var r struct {
		Deadlocks []struct {
			LastedNs int64 `json:"lasted_ns"`
			Threads  []struct {
				Thread   struct{ Name string }
				Kind     string
				Function string
			}
		}
	}
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatal(err)
	}
	if len(r.Deadlocks) != 1 || len(r.Deadlocks[0].Threads) != 2 {
		t.Fatalf("deadlocks %+v, want one of two threads", r.Deadlocks)
	}
	for _, x := range r.Deadlocks[0].Threads {
		if x.Thread.Name != x.Function || x.Kind != "mutex" || x.Function != "forth" && x.Function != "back" {
			t.Errorf("%+v", x)
		}
	}
}

// stuck says whether the threads of these names are in a futex call.
func stuck(t *testing.T, pid int, names ...string) bool {
	t.Helper()
	calls, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/syscall", pid))
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, path := range calls {
		call, _ := os.ReadFile(path) // a thread may end meanwhile
		name, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "comm"))
		const futex = "202 " // of x86-64
		if who := strings.TrimSpace(string(name)); strings.HasPrefix(string(call), futex) && slices.Contains(names, who) {
			n++
		}
	}
	return n == len(names)
}

// TestSelfDeadlock: a thread that locks a normal mutex that it holds is a deadlock of one thread, reported while it lasts and
// afterwards.
func TestSelfDeadlock(t *testing.T) {
	t.Parallel()
	exe := testprog.Build(t, "selflock")
	s := start(t, testprog.Command{Args: []string{exe}})
	pid := s.target(t, filepath.Base(exe))
	for deadline := time.Now().Add(time.Minute); !stuck(t, pid, "self"); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the program is not stuck after a minute")
		}
	}
	s.terminate(t)
	out, err := exec.Command(testprog.Hbtrace(t), "report", "--locks", "--json", s.prefix+".hbt").Output()
	if err != nil {
		t.Fatal(err)
	}
	var r struct {
		Deadlocks []struct{ Threads []struct{ Function string } }
	}
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatal(err)
	}
	if len(r.Deadlocks) != 1 || len(r.Deadlocks[0].Threads) != 1 || r.Deadlocks[0].Threads[0].Function != "again" {
		t.Errorf("deadlocks %+v, want one of one thread, in again", r.Deadlocks)
	}
}
