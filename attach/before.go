package attach

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Thread is what a thread did when it was looked at from outside.
type Thread struct {
	TID   int
	Name  string
	State byte          // as in /proc/PID/stat
	Call  int64         // number of the system call that it slept in; -1: it ran
	For   time.Duration // since it last ran; 0: the kernel does not say
}

// String is the thread in words.
func (x Thread) String() string {
	s := fmt.Sprintf("%s (%d)", x.Name, x.TID)
	switch {
	case x.State == 'R':
		return s + " ran"
	case x.Call >= 0:
		s += fmt.Sprintf(" slept in system call %d", x.Call)
	default:
		s += fmt.Sprintf(" was in state %c", x.State)
	}
	if x.For > 0 {
		s += fmt.Sprintf(", for %v when hbtrace came", x.For.Round(time.Millisecond))
	}
	return s
}

// maxBefore bounds how many threads are looked at when hbtrace comes.
const maxBefore = 1000

// Before are the threads as they were when hbtrace came, the first maxBefore of them.
func (t *Target) Before() []Thread { return t.before }

func (t *Target) lookBefore() {
	self := fmt.Sprintf("/proc/self/task/%d/sched", unix.Gettid())
	for i, tid := range t.threads() {
		if i == maxBefore {
			break
		}
		dir := fmt.Sprintf("/proc/%d/task/%d/", t.pid, tid)
		name, err := os.ReadFile(dir + "comm")
		if err != nil {
			continue
		}
		x := Thread{TID: tid, Name: strings.TrimSpace(string(name))}
		x.State, x.Call, _, _ = t.where(tid)
		if ran, ok := lastRan(dir + "sched"); ok && x.State == 'S' {
			if now, ok := lastRan(self); ok { // the scheduler's clock, as this thread runs now: half a tick old at most
				x.For = max(0, now-ran)
			}
		}
		t.before = append(t.before, x)
	}
}

// lastRan is when a thread last ran, by the scheduler's clock.
func lastRan(path string) (time.Duration, bool) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, false
	}
	_, rest, ok := strings.Cut(string(b), "se.exec_start")
	if !ok {
		return 0, false
	}
	_, rest, _ = strings.Cut(rest, ":")
	line, _, _ := strings.Cut(rest, "\n")
	ms, err := strconv.ParseFloat(strings.TrimSpace(line), 64)
	return time.Duration(ms * 1e6), err == nil
}
