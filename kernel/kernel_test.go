package kernel

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// open loads the program, or skips where this machine does not allow it.
func open(t *testing.T, o Options) *Tracer {
	t.Helper()
	tr, err := Open(o)
	if err != nil {
		if os.Geteuid() == 0 && os.Getenv("HBTRACE_KERNEL") == "must" {
			t.Fatal(err)
		}
		t.Skipf("needs eBPF: %v", err)
	}
	t.Cleanup(tr.Close)
	return tr
}

// A shell and its child sleep: both are seen from their first instruction, with states, times and the exit.
func TestCommandIsSeen(t *testing.T) {
	// Once in a hundred runs or so events are missing. Why is not known; the kernel leaves a program out that it would run within
	// itself, and counts that where we do not look.
	for range 3 {
		problem := commandSeen(t)
		if problem == "" {
			return
		}
		t.Log(problem)
	}
	t.Error("three times not all was seen of a command")
}

// commandSeen runs a command, and says what of it was not seen.
func commandSeen(t *testing.T) (problem string) {
	tr := open(t, Options{})
	if err := exec.Command("true").Run(); err != nil { // the first time, Go starts a process of its own to see what works
		t.Fatal(err)
	}
	begin := monotonic()
	if err := tr.Arm(); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", "-c", "sleep 0.05; exit 0")
	err := cmd.Start()
	if e := tr.Disarm(); e != nil {
		t.Fatal(e)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	var slept, exits, fresh, kernel int
	others := map[int]bool{}
	var all []string
	tr.Drain(func(o *Off) {
		all = append(all, fmt.Sprintf("%+v", o))
		if o.Exit {
			exits++
			return
		}
		if o.On < o.Off || o.Off < begin || o.Wake != 0 && (o.Wake < o.Off || o.Wake > o.On) {
			t.Errorf("times out of order: %+v", o)
		}
		if o.PID != cmd.Process.Pid {
			others[o.PID] = true
		}
		if o.New {
			fresh++
		}
		if o.State == StateInterruptible && o.On-o.Off >= 50e6 && o.PID != cmd.Process.Pid {
			slept++
			if !o.Interrupt {
				t.Errorf("a timer's wake-up is not told from a thread's: %+v", o)
			}
			kernel += len(o.Kernel)
		}
	})
	if slept != 1 || exits != 2 || fresh != 2 || len(others) != 1 || kernel == 0 {
		problem = fmt.Sprintf("%d sleeps, %d exits, %d beginnings, other processes %v, %d kernel frames; %+v; seen:\n%s",
			slept, exits, fresh, others, kernel, tr.Stats(), strings.Join(all, "\n"))
	}
	if s := tr.Stats(); s.Records == 0 || s.Lost != 0 {
		t.Errorf("stats %+v", s)
	}
	tr.StillOff(func(o *Off) { t.Errorf("still off: %+v", o) })
	return problem
}

func TestOthersAreNotSeen(t *testing.T) {
	tr := open(t, Options{})
	if err := exec.Command("true").Run(); err != nil {
		t.Fatal(err)
	}
	if n := tr.Drain(func(o *Off) { t.Logf("%+v", o) }); n != 0 {
		t.Errorf("%d records of processes that were not added", n)
	}
}

func TestSymbols(t *testing.T) {
	tr := open(t, Options{})
	if err := tr.Add(os.Getpid()); err != nil {
		t.Fatal(err)
	}
	time.Sleep(20 * time.Millisecond)
	var addrs []uint64
	tr.Drain(func(o *Off) { addrs = append(addrs, o.Kernel...) })
	names, err := Symbols(addrs)
	if err != nil {
		t.Skipf("needs /proc/kallsyms with addresses: %v", err)
	}
	found := false
	for _, n := range names {
		found = found || n == "schedule" || n == "__schedule"
	}
	if !found {
		t.Errorf("no schedule among %q", names)
	}
}

func monotonic() int64 {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) != nil {
		panic("no monotonic clock")
	}
	return ts.Nano()
}

// holds makes this test binary a process that has the program loaded until it is killed.
const holds = "HBTRACE_KERNEL_HOLDS"

func TestMain(m *testing.M) {
	if os.Getenv(holds) == "" {
		os.Exit(m.Run())
	}
	tr, err := Open(Options{})
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	info, err := tr.objects.OnSwitch.Info()
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	id, _ := info.ID()
	fmt.Println(uint32(id))
	time.Sleep(10 * time.Minute)
	tr.Close()
}

// Killed while it records, it leaves nothing in the kernel.
func TestKilled(t *testing.T) {
	open(t, Options{}).Close()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), holds+"=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	var id uint32
	if _, e := fmt.Sscan(line, &id); e != nil {
		cmd.Process.Kill()
		t.Fatalf("the process that loads the program says %q (%v)", line, err)
	}
	there := func() bool {
		p, err := ebpf.NewProgramFromID(ebpf.ProgramID(id))
		if err == nil {
			p.Close()
		}
		return !errors.Is(err, os.ErrNotExist)
	}
	if !there() {
		t.Errorf("no program %d while its process lives", id)
	}
	cmd.Process.Kill()
	cmd.Wait() // killed: no news
	for deadline := time.Now().Add(time.Minute); there(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("program %d is still in the kernel a minute after its process was killed", id)
		}
	}
}
