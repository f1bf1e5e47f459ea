package sampler

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// aloneHelper is the environment variable that makes this test binary one of aloneHelpers.
const aloneHelper = "HBTRACE_TEST_ALONE"

// aloneShared is memory that copies share with the process that they are copies of.
type aloneShared struct {
	ran     [2]int64 // in the process itself, in copies
	parent  int64    // what f was told
	late    int64    // copies that are to say that they were made too late
	suicide int64
}

// aloneHelps runs alone with an f that counts, and prints what came of it.
func aloneHelps(how string) int {
	page, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANONYMOUS)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	s := (*aloneShared)(unsafe.Pointer(&page[0]))
	switch how {
	case "late":
		s.late = 3
	case "always-late":
		s.late = 1000
	case "killed":
		s.suicide = 1
	case "no-processes":
		runtime.LockOSThread() // as alone does: the runtime makes a thread of its own for that
		if err := unix.Setrlimit(unix.RLIMIT_NPROC, &unix.Rlimit{}); err != nil {
			fmt.Println(err)
			return 1
		}
		if os.Getuid() == 0 { // whom no such limit holds
			if err := syscall.Setuid(65534); err != nil {
				fmt.Println(err)
				return 1
			}
		}
	}
	self := os.Getpid()
	status := alone(func(parent int) {
		pid, _, _ := syscall.RawSyscall(unix.SYS_GETPID, 0, 0, 0)
		s.parent = int64(parent)
		if int(pid) == self {
			s.ran[0]++
			return
		}
		s.ran[1]++
		if s.suicide != 0 {
			syscall.RawSyscall(unix.SYS_KILL, pid, uintptr(unix.SIGKILL), 0)
		}
		if s.ran[1] <= s.late {
			syscall.RawSyscall(unix.SYS_EXIT_GROUP, triedLate, 0, 0)
		}
	})
	// A copy says the same of itself when it was late of its own accord; then it has not run f.
	fmt.Printf("%d %d %d %d\n", status, s.ran[0], s.ran[1], s.parent)
	return 0
}

// TestAlone: f runs in a copy of the process; in another when the first was made too late; in the process itself where no copy can be made.
func TestAlone(t *testing.T) {
	for _, c := range []struct {
		how    string
		ran    [2]int64 // as in aloneShared; with several copies, at most as many
		signal syscall.Signal
	}{
		{how: "copy", ran: [2]int64{0, 1}},
		{how: "late", ran: [2]int64{0, 4}},
		{how: "always-late", ran: [2]int64{1, copies}},
		{how: "no-processes", ran: [2]int64{1, 0}},
		{how: "killed", signal: syscall.SIGKILL},
	} {
		t.Run(c.how, func(t *testing.T) {
			exe, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(exe)
			cmd.Env = append(os.Environ(), aloneHelper+"="+c.how)
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			out, err := cmd.Output()
			if c.signal != 0 {
				var exit *exec.ExitError
				if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != c.signal {
					t.Errorf("what kills the copy is not done to the process: %v %q %s", err, out, &stderr)
				}
				return
			}
			var status int
			var ran [2]int64
			var parent int
			if _, err2 := fmt.Sscan(string(out), &status, &ran[0], &ran[1], &parent); err != nil || err2 != nil {
				t.Fatalf("%v, %v: %q %s", err, err2, out, &stderr)
			}
			// On a busy machine a copy may really be late: it ends before it runs f, and the next one does. After as many as are
			// tried the process goes on without.
			given := ran[0] == 1 && ran[1] < c.ran[1]
			if status != 0 || (ran != c.ran && !given) {
				t.Errorf("status %d; f ran %d times in the process and %d times in copies, want 0; %d and %d", status, ran[0], ran[1], c.ran[0], c.ran[1])
			}
			want := cmd.Process.Pid
			if ran[0] != 0 { // its own parent, with which it ends, too
				want = os.Getpid()
			}
			if parent != want {
				t.Errorf("f was told that its parent is %d, want %d", parent, want)
			}
		})
	}
}
