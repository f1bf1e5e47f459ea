// What is known of the program's CPU time: by samples, by threads' clocks, and by the kernel's account of all processes.

package report

import (
	"fmt"

	"github.com/hbtrace/hbtrace/analysis/weigh"
	"github.com/hbtrace/hbtrace/visualize/number"
)

// cpuAccount is the CPU time of a recording, in ns.
type cpuAccount struct {
	used      int64 // by the larger of the kernel's account of all processes, and of threads' clocks; -1 unknown
	accounted int64 // that has a place, or is known to be after a thread's last sample
	outside   int64 // of used, in no recorded thread's clock and in no process that is known to be unrecorded
}

func (f *facts) cpuAccount() cpuAccount {
	c := cpuAccount{used: -1, accounted: f.weights.Total[weigh.CPU]}
	used, known := f.cpuUsed()
	if !known {
		return c
	}
	c.used = used
	if clocks := f.weights.Doubt.ThreadCPU; clocks >= 0 && f.stats.TargetCPU > 0 {
		rest := used - max(clocks, c.accounted)
		for i := range f.stats.Unrecorded {
			rest -= int64(f.stats.Unrecorded[i].CPU)
		}
		c.outside = max(0, rest)
	}
	return c
}

// From these shares of the CPU time on, the first lines say so.
const (
	someOutside = 0.05
	someBeyond  = 1.05
)

// lines are the account for the first lines of a view.
func (c cpuAccount) lines(f *facts) []string {
	if c.used < 0 {
		if c.accounted > 0 {
			return []string{"CPU " + inline(duration(c.accounted)) + " sampled"}
		}
		return nil
	}
	if float64(c.accounted) > someBeyond*float64(c.used) {
		// Threads that were killed, or ended by a system call of their own, leave their clock as it was when it was last read.
		return []string{fmt.Sprintf("CPU %s by samples, %s by clocks: more than clocks show, since processes ended without a last reading",
			inline(duration(c.accounted)), inline(duration(c.used)))}
	}
	text := fmt.Sprintf("CPU %s used, %s accounted for", inline(duration(c.used)), inline(duration(c.accounted)))
	if p := number.Percent(float64(c.accounted), float64(c.used)); p != "" {
		text += " (" + p + ")"
	}
	out := []string{text}
	if float64(c.outside) > someOutside*float64(c.used) {
		text := fmt.Sprintf("%s (%s) known but not sampled, in no thread's clock: starts and ends of %s and %s in the kernel, children of vfork",
			inline(duration(c.outside)), number.Percent(float64(c.outside), float64(c.used)),
			number.Plural(uint64(len(f.src.Threads())), "thread"), number.Plural(uint64(len(f.procs)), "process"))
		off := uint64(0)
		for _, p := range f.src.Processes() {
			if p.Doubt.Disabled != "" {
				off++
			}
		}
		if off > 0 {
			text += ", and " + number.Plural(off, "process") + " after recording had ended in it"
		}
		out = append(out, text)
	}
	return out
}
