// Parsing and arithmetic of the sampler, without a process.
package sampler

import (
	"math"
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

// A thread that always runs, under a kernel that counts every 4 ms, is sampled at the rate that was asked for.
func TestChosenKeepsTheRate(t *testing.T) {
	l := &loop{tickNs: 1e6, intervalNs: 2e6, elapsed: 1}
	th := &thread{uid: 1}
	asks := 0
	for ms := int64(1); ms <= 20000; ms++ {
		th.progress(uint64(ms/4*4)*1e6, ms*1e6, l.intervalNs)
		if l.chosen(th) {
			asks++
			th.advanceDue(l.intervalNs)
		}
	}
	if asks < 9300 || asks > 10100 {
		t.Errorf("%d samples in 20 s at one per 2 ms", asks)
	}
}

// One that gets a tenth of a CPU and always looks runnable is not sampled more often than its CPU time justifies.
func TestChosenIsBoundedByCPUTime(t *testing.T) {
	l := &loop{tickNs: 1e6, intervalNs: 2e6, elapsed: 1}
	th := &thread{uid: 2}
	asks := 0
	for ms := int64(1); ms <= 20000; ms++ {
		th.progress(uint64(ms/10)*1e6, ms*1e6, l.intervalNs)
		if l.chosen(th) {
			asks++
			th.advanceDue(l.intervalNs)
		}
	}
	if want := 20000 / 10 / 2; asks < want*9/10 || asks > want*11/10+2*kernelTickNs/2e6 {
		t.Errorf("%d samples for 2 s of CPU at one per 2 ms", asks)
	}
}

// Bursts of work between sleeps, whose CPU time the counter shows only when they end: every part of a burst gets
// its share of the samples.
func TestChosenIsUnbiasedInBursts(t *testing.T) {
	l := &loop{tickNs: 1e6, intervalNs: 1.1e6, elapsed: 1}
	th := &thread{uid: 3}
	const burst, parts = 1_060_000, 4
	var got [parts]int
	now, counted, total := int64(0), uint64(0), 0
	for range 200_000 {
		begin := now
		for tick := (now/1e6 + 1) * 1e6; tick < begin+burst; tick += 1e6 {
			th.progress(counted, tick, l.intervalNs)
			if l.chosen(th) {
				th.advanceDue(l.intervalNs)
				got[(tick-begin)*parts/burst]++
				total++
			}
		}
		counted += burst
		now = begin + burst + 300_000 + int64(th.random()%2_000_000)
	}
	for i, n := range got {
		if share := float64(n) / float64(total); math.Abs(share-1.0/parts) > 0.02 {
			t.Errorf("part %d of %d has %.1f %% of %d samples", i+1, parts, 100*share, total)
		}
	}
}

// A thread that does not run is never due, whatever it did before.
func TestProgressStops(t *testing.T) {
	th := thread{uid: 7, backoff: 1}
	for ms := int64(1); ms <= 100; ms++ {
		th.progress(uint64(ms)*1e6, ms*1e6, 2e6)
	}
	var ran uint64
	for ms := int64(101); ms <= 1000; ms++ {
		ran += th.progress(100e6, ms*1e6, 2e6)
	}
	if ran > kernelTickNs {
		t.Errorf("%d ns credited to a thread that stood still", ran)
	}
	if got := th.progress(5, 2000e6, 2e6); got != 0 {
		t.Errorf("a counter that went back credited %d ns", got)
	}
}
