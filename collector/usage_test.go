package collector

import (
	"os"
	"runtime"
	"testing"

	"github.com/hbtrace/hbtrace/collector/assemble"
	"golang.org/x/sys/unix"
)

func TestParseUsage(t *testing.T) {
	const status = "Name:\tx\nNSpid:\t12\nvoluntary_ctxt_switches:\t44\nnonvoluntary_ctxt_switches:\t55\n"
	const stat = "12 (a) 9 9 9) R 1 2 3 4 5 6 111 7 222 8 9\n"
	if u, ok := parseUsage([]byte(stat), []byte(status)); !ok || u != (assemble.Usage{MinorFaults: 111, MajorFaults: 222, Voluntary: 44, Involuntary: 55}) {
		t.Errorf("%+v, %v", u, ok)
	}
	for name, bad := range map[string][2]string{
		"a short stat":           {"12 (a) R 1 2 3", status},
		"no switches":            {stat, "Name:\tx\n"},
		"something but a number": {"12 (a) R 1 2 3 4 5 6 x 7 222 8", status},
		"nothing":                {"", ""},
	} {
		if u, ok := parseUsage([]byte(bad[0]), []byte(bad[1])); ok {
			t.Errorf("%s: %+v", name, u)
		}
	}
}

func TestReadyNs(t *testing.T) {
	for text, want := range map[string]uint64{"12 34 5\n": 34, "": 0, "12 34": 0, "12 x 5": 0, "1 2 3 4": 0} {
		if got := readyNs([]byte(text)); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}

// TestThreadUsage holds what is read of a thread to what the kernel tells the thread itself, before and after.
func TestThreadUsage(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	own := func() (u assemble.Usage) {
		var r unix.Rusage
		if err := unix.Getrusage(unix.RUSAGE_THREAD, &r); err != nil {
			t.Fatal(err)
		}
		return assemble.Usage{MinorFaults: uint64(r.Minflt), MajorFaults: uint64(r.Majflt), Voluntary: uint64(r.Nvcsw), Involuntary: uint64(r.Nivcsw)}
	}
	before := own()
	const pages = 64
	mem, err := unix.Mmap(-1, 0, pages*os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(mem)
	unix.Madvise(mem, unix.MADV_NOHUGEPAGE)
	for i := 0; i < len(mem); i += os.Getpagesize() {
		mem[i] = 1
	}
	got, ok := threadUsage(os.Getpid(), unix.Gettid())
	after := own()
	if !ok {
		t.Fatal("a thread did not find itself")
	}
	within := func(name string, lo, x, hi uint64) {
		if x < lo || x > hi {
			t.Errorf("%s: %d, not from %d to %d", name, x, lo, hi)
		}
	}
	within("minor faults", before.MinorFaults+pages, got.MinorFaults, after.MinorFaults)
	within("major faults", before.MajorFaults, got.MajorFaults, after.MajorFaults)
	within("voluntary switches", before.Voluntary, got.Voluntary, after.Voluntary)
	within("involuntary switches", before.Involuntary, got.Involuntary, after.Involuntary)
	if _, ok := threadUsage(os.Getpid(), 1<<30); ok {
		t.Error("a thread that is none was found")
	}
}

// BenchmarkThreadUsage is what a look at one thread costs.
func BenchmarkThreadUsage(b *testing.B) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for b.Loop() {
		if _, ok := threadUsage(os.Getpid(), unix.Gettid()); !ok {
			b.Fatal("a thread did not find itself")
		}
	}
}
