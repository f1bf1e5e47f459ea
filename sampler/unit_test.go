// Parsing and arithmetic of the sampler, without a process.
package sampler

import (
	"math"
	"os"
	"testing"
)

func TestStatStart(t *testing.T) {
	const rest = " S 1 10 10 0 -1 4194304 100 0 0 0 1 2 0 0 20 0 1 0 98765 1000 200 18446744073709551615"
	for _, tc := range []struct {
		in   string
		want uint64
		ok   bool
	}{
		{"10 (cat)" + rest, 98765, true},
		{"10 (a) b (c d))" + rest, 98765, true},
		{"10 (cat", 0, false},
		{"10 (cat) S 1", 0, false},
		{"", 0, false},
	} {
		if got, ok := statStart([]byte(tc.in)); got != tc.want || ok != tc.ok {
			t.Errorf("statStart(%q) = %d, %v; want %d, %v", tc.in, got, ok, tc.want, tc.ok)
		}
	}
}

func TestLeadingUint(t *testing.T) {
	for _, tc := range []struct {
		in   string
		want uint64
		ok   bool
	}{
		{"123 456 7\n", 123, true}, {"0 0 0", 0, true}, {"", 0, false}, {"x", 0, false},
		{"18446744073709551599", math.MaxUint64 - 16, true}, {"99999999999999999999", 0, false},
	} {
		if got, ok := leadingUint([]byte(tc.in)); got != tc.want || ok != tc.ok {
			t.Errorf("leadingUint(%q) = %d, %v; want %d, %v", tc.in, got, ok, tc.want, tc.ok)
		}
	}
}

func TestFateOf(t *testing.T) {
	const bit = 1 << (23 - 1) // SIGURG
	for _, tc := range []struct {
		status string
		want   fate
	}{
		{"Name:\tx\nSigPnd:\t0000000000000000\nSigBlk:\t0000000000000000\nSigIgn:\t0\nSigCgt:\t0000000000400000\n", fateLost},
		{"SigPnd:\t0000000000400000\nSigBlk:\t0000000000400000\nSigCgt:\t0000000000400000\n", fatePending},
		{"SigPnd:\t0000000000000000\nSigBlk:\tfffffffffffbfeff\nSigCgt:\t0000000000400000\n", fateTaken},
		{"SigPnd:\t0000000000000000\nSigBlk:\t0000000000000000\nSigCgt:\t0000000000000000\n", fateNoHandler},
		{"SigPnd:\t0000000000000000\nSigBlk:\t00", fatePending},
		{"", fatePending},
	} {
		if got := fateOf([]byte(tc.status), bit); got != tc.want {
			t.Errorf("fateOf(%q) = %d, want %d", tc.status, got, tc.want)
		}
	}
}

func TestPath(t *testing.T) {
	var p path
	p.reset().str("task/").num(4294967295).str("/schedstat")
	if got := string(p.b[:p.n]); got != "task/4294967295/schedstat" {
		t.Error(got)
	}
	p.reset()
	for range 20 {
		p.num(4000000000)
	}
	if p.n >= len(p.b) {
		t.Errorf("%d bytes leave no room for the NUL", p.n)
	}
}

// simulate runs the pace of one thread over ticks of 1 ms. runs says whether the thread can run at a time, counter what the kernel
// would say of its CPU time then; it returns when it was sampled.
func simulate(ticks int, intervalNs uint64, runs func(ns int64) bool, counter func(ns int64) uint64) (samples []int64) {
	l := &loop{tickNs: 1e6, rng: 88172645463325252}
	chance, b, cpu := chanceOf(1e6, intervalNs), newBudget(intervalNs), uint64(0)
	for tick := range int64(ticks) {
		now := tick*l.tickNs + l.phase()
		if l.random() > chance || !runs(now) {
			continue
		}
		if !b.left(cpu) {
			cpu = counter(now)
		}
		if b.left(cpu) {
			b.spend(cpu)
			samples = append(samples, now)
		}
	}
	return samples
}

// A thread that always runs, under a kernel that counts every 4 ms, is sampled at the rate that was asked for.
func TestPaceKeepsTheRate(t *testing.T) {
	always := func(int64) bool { return true }
	counter := func(ns int64) uint64 { return uint64(ns / 4e6 * 4e6) }
	for _, tc := range []struct {
		interval uint64
		want     int
	}{{2e6, 10000}, {1e6, 20000}, {1e5, 20000}, {50e6, 400}} {
		if n := len(simulate(20000, tc.interval, always, counter)); math.Abs(float64(n-tc.want)) > 4*math.Sqrt(float64(tc.want)) {
			t.Errorf("%d samples in 20 s at one per %d ns and one per tick at most, want %d", n, tc.interval, tc.want)
		}
	}
}

// One that gets a tenth of a CPU and always looks runnable is not sampled more often than its CPU time justifies.
func TestPaceIsBoundedByCPUTime(t *testing.T) {
	n := len(simulate(20000, 2e6, func(int64) bool { return true }, func(ns int64) uint64 { return uint64(ns / 10) }))
	if want := 20000 / 10 / 2; n < want*9/10 || n > want*11/10+20e6/2e6 {
		t.Errorf("%d samples for 2 s of CPU at one per 2 ms", n)
	}
}

// Bursts of work between sleeps, whose CPU time the counter shows only when they end: every part of a burst gets
// its share of the samples.
func TestPaceIsUnbiasedInBursts(t *testing.T) {
	const burst, cycle, parts = 1_060_000, 2_371_000, 4
	in := func(ns int64) int64 { return ns % cycle }
	runs := func(ns int64) bool { return in(ns) < burst }
	counter := func(ns int64) uint64 { return uint64(ns / cycle * burst) }
	var got [parts]int
	samples := simulate(400_000, 1.1e6, runs, counter)
	for _, ns := range samples {
		got[in(ns)*parts/burst]++
	}
	for i, n := range got {
		if share := float64(n) / float64(len(samples)); math.Abs(share-1.0/parts) > 0.02 {
			t.Errorf("part %d of %d has %.1f %% of %d samples", i+1, parts, 100*share, len(samples))
		}
	}
}

// A kernel that does not say what threads sleep in must not pass for one where none sleeps.
func TestSaysWchan(t *testing.T) {
	if _, err := os.Stat("/proc/self/wchan"); err != nil {
		t.Skip("this kernel has no wchan:", err)
	}
	said := saysWchan()
	b, err := os.ReadFile("/proc/1/wchan") // init sleeps, as a rule
	t.Logf("said %v; init's: %q, %v", said, b, err)
	if !said && err == nil && len(b) > 0 && string(b) != "0" {
		t.Error("init's is told, our own was not")
	}
}
