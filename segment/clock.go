// clock.go relates the cycle counter that agents stamp waits with to CLOCK_MONOTONIC.
package segment

import (
	"bytes"
	"math/bits"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// CyclesToNs turns a number of cycles into nanoseconds: (cycles * mult) >> 32, in 128-bit arithmetic, so that
// it is exact for any count. A result above 64 bits saturates. mult 0 means that cycles are nanoseconds.
func CyclesToNs(cycles, mult uint64) uint64 {
	if mult == 0 {
		return cycles
	}
	hi, lo := bits.Mul64(cycles, mult)
	if hi>>32 != 0 {
		return ^uint64(0)
	}
	return hi<<32 | lo>>32
}

// Calibrate gives the Config.CyclesMult of this machine, measuring for about 20 ms; 0 where the cycle counter
// is no clock: no constant and non-stop counter, or one that the kernel itself does not keep time by (it
// watches the counters of all CPUs and drops them when they disagree).
func Calibrate() uint64 {
	clocksource, err := os.ReadFile("/sys/devices/system/clocksource/clocksource0/current_clocksource")
	if err != nil {
		return 0
	}
	cpuinfo, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return 0
	}
	if !haveCycles || !cyclesAreTime(string(clocksource), cpuinfo) {
		return 0
	}
	return calibrate(20 * time.Millisecond)
}

// cyclesAreTime judges by the kernel's own clock source and, on x86-64, by the flags of every CPU. Arm's counter is of constant rate and
// the same on all CPUs by definition.
func cyclesAreTime(clocksource string, cpuinfo []byte) bool {
	switch strings.TrimSpace(clocksource) {
	case "arch_sys_counter":
		return true
	case "tsc", "kvm-clock":
	default:
		return false
	}
	cpus := 0
	for line := range bytes.Lines(cpuinfo) {
		key, value, _ := bytes.Cut(line, []byte(":"))
		if string(bytes.TrimSpace(key)) != "flags" {
			continue
		}
		have := map[string]bool{}
		for _, f := range strings.Fields(string(value)) {
			have[f] = true
		}
		if !have["constant_tsc"] || !have["nonstop_tsc"] {
			return false
		}
		cpus++
	}
	return cpus > 0
}

// calibrate compares the counter with the clock at both ends of a span. 0 if the two make no sense together.
func calibrate(span time.Duration) uint64 {
	c0, n0 := bracket()
	time.Sleep(span)
	c1, n1 := bracket()
	if c1 <= c0 || n1 <= n0 {
		return 0
	}
	cycles, ns := c1-c0, uint64(n1-n0)
	if ns >= 1<<31 || ns>>32 >= cycles {
		return 0 // slept for seconds: the machine was stopped, or the quotient would not fit
	}
	mult, _ := bits.Div64(ns>>32, ns<<32, cycles)
	// Counters of real machines run between 10 MHz (Arm's; the kernel's clock is no finer there) and 10 GHz.
	if hz := float64(cycles) * 1e9 / float64(ns); hz < 1e7 || hz > 1e10 {
		return 0
	}
	return mult
}

// bracket reads the clock between two reads of the counter, and of 64 tries keeps the one whose reads lie
// closest together: an interrupt or a preemption in between makes a try wide, and so not kept.
func bracket() (cyclesAtClock uint64, ns int64) {
	best := ^uint64(0)
	for range 64 {
		a := cycles()
		var ts unix.Timespec
		if unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) != nil {
			return 0, 0
		}
		b := cycles()
		if b > a && b-a < best {
			best, cyclesAtClock, ns = b-a, a+(b-a)/2, ts.Nano()
		}
	}
	return cyclesAtClock, ns
}

// Now is CLOCK_MONOTONIC in nanoseconds, the clock of every "_ns" in the segment.
func Now() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return 0 // cannot fail for this clock and a valid pointer
	}
	return ts.Nano()
}
