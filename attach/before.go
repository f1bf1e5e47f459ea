package attach

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Thread is what a thread did when it was looked at from outside.
type Thread struct {
	TID   int
	Inner int // the thread id as the process sees it: another one in a pid namespace of its own
	Name  string
	State byte          // as in /proc/PID/stat
	Call  int64         // number of the system call that it slept in; -1: it ran
	Arg   uint64        // the first argument of that
	For   time.Duration // since it last ran, at least; 0: the kernel does not say

	ran   time.Duration // when it last ran, by its CPU's scheduler clock, once hbtrace had attached
	noted bool
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
	var clocks schedulerClocks
	for i, tid := range t.threads() {
		if i == maxBefore {
			break
		}
		dir := fmt.Sprintf("/proc/%d/task/%d/", t.pid, tid)
		name, err := os.ReadFile(dir + "comm")
		if err != nil {
			continue
		}
		x := Thread{TID: tid, Inner: tid, Name: strings.TrimSpace(string(name))}
		if ids := strings.Fields(threadStatus(t.pid, tid)["NSpid"]); len(ids) > 1 {
			x.Inner, _ = strconv.Atoi(ids[len(ids)-1])
		}
		x.State, x.Call, _, _ = t.where(tid)
		x.Arg = t.firstArgument(tid)
		if ran, ok := lastRan(dir + "sched"); ok && x.State == 'S' {
			if now, ok := clocks.now(lastCPU(dir + "stat")); ok {
				x.For = max(0, now-ran)
			}
		}
		t.before = append(t.before, x)
	}
}

// noteAsleep notes when the threads last ran that sleep, once hbtrace has attached: it may have made one of them run itself.
func (t *Target) noteAsleep() {
	const limit = 2 * time.Second // of waiting for the thread that ran the stub to sleep again: it may have been preempted behind it
	for i := range t.before {
		x := &t.before[i]
		for begun := time.Now(); x.TID == t.diverted && x.State == 'S' && time.Since(begun) < limit; time.Sleep(time.Millisecond) {
			if state, _, _, _ := t.where(x.TID); state != 'R' {
				break
			}
		}
		x.ran, x.noted = lastRan(fmt.Sprintf("/proc/%d/task/%d/sched", t.pid, x.TID))
	}
}

// StillAsleep are those of Before that have not run since hbtrace attached.
func (t *Target) StillAsleep() (out []Thread) {
	for _, x := range t.before {
		if x.State != 'S' || x.Call < 0 || !x.noted {
			continue
		}
		state, nr, _, _ := t.where(x.TID)
		ran, ok := lastRan(fmt.Sprintf("/proc/%d/task/%d/sched", t.pid, x.TID))
		if ok && state == 'S' && nr == x.Call && ran == x.ran {
			out = append(out, x)
		}
	}
	return out
}

// schedulerClocks are the clocks by which the scheduler says when a thread last ran. Each CPU has its own, which leaves out what a
// hypervisor took; so a time between two readings of one is a lower bound. They are read by running on each CPU once.
type schedulerClocks struct {
	ahead map[int]time.Duration // by CPU: of this process's clock
	begun time.Time
}

// now is the clock of a CPU; false where this process may not run there.
func (c *schedulerClocks) now(cpu int) (time.Duration, bool) {
	if cpu < 0 {
		return 0, false
	}
	if c.ahead == nil {
		c.ahead, c.begun = map[int]time.Duration{}, time.Now()
	}
	const unknown = time.Duration(-1 << 62)
	ahead, read := c.ahead[cpu]
	if !read {
		ahead = unknown
		if at, ok := clockOn(cpu); ok {
			ahead = at - time.Since(c.begun)
		}
		c.ahead[cpu] = ahead
	}
	return ahead + time.Since(c.begun), ahead != unknown
}

// clockOn reads the scheduler's clock of a CPU by when this thread was last put on it, which is now.
func clockOn(cpu int) (at time.Duration, ok bool) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var old, one unix.CPUSet
	if unix.SchedGetaffinity(0, &old) != nil {
		return 0, false
	}
	one.Set(cpu)
	if unix.SchedSetaffinity(0, &one) != nil {
		return 0, false
	}
	defer unix.SchedSetaffinity(0, &old)
	unix.Nanosleep(&unix.Timespec{Nsec: 1}, nil) // it is put there anew
	return lastRan(fmt.Sprintf("/proc/self/task/%d/sched", unix.Gettid()))
}

// lastCPU is the CPU that a thread last ran on; -1 unknown.
func lastCPU(path string) int {
	f, err := statFields(path)
	if err != nil || len(f) < 37 {
		return -1
	}
	cpu, err := strconv.Atoi(f[36])
	if err != nil {
		return -1
	}
	return cpu
}

// firstArgument is that of the system call in which a thread sleeps.
func (t *Target) firstArgument(tid int) uint64 {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/syscall", t.pid, tid))
	f := strings.Fields(string(b))
	if len(f) < 9 {
		return 0
	}
	v, _ := strconv.ParseUint(strings.TrimPrefix(f[1], "0x"), 16, 64)
	return v
}

// lastRan is when a thread last ran, by the scheduler's clock of its CPU.
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
