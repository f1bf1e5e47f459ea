// usage.go reads what the kernel counts of threads: page faults, context switches, and how long they had no CPU.
package collector

import (
	"bytes"
	"os"
	"strconv"

	"github.com/hbtrace/hbtrace/collector/assemble"
	"github.com/hbtrace/hbtrace/segment"
	"github.com/hbtrace/hbtrace/trace"
)

// mostUsages bounds what a look costs: 180 us a thread on a machine with four times as much to do as it has CPUs (BenchmarkThreadUsage),
// so 0.3 % of a CPU, however many threads there are. Of more threads that ran, each is looked at every so many seconds.
const mostUsages = 16

// lookAtUsage takes up what threads that ran used since the last look. The last second of a thread's life is missing: its
// counters go with it.
func (s *session) lookAtUsage() {
	s.asm.Usages(trace.Ns(segment.Now()), mostUsages, func(pid, tid int) (assemble.Usage, bool) {
		if s.isGo(pid) { // its tracks are goroutines, not threads
			return assemble.Usage{}, false
		}
		u, ok := threadUsage(pid, tid)
		if s.kernel != nil {
			u.ReadyNs = 0 // its events tell exactly
		}
		return u, ok
	})
}

// threadUsage reads a thread's counters. A thread of another pid namespace has other numbers than ours: it is not found
// below its process, and where a number happens to be there, its status names another one.
func threadUsage(pid, tid int) (u assemble.Usage, ok bool) {
	dir := "/proc/" + strconv.Itoa(pid) + "/task/" + strconv.Itoa(tid) + "/"
	status, err := os.ReadFile(dir + "status")
	if err != nil {
		return u, false
	}
	if ids := nsPIDs(status); len(ids) > 0 && ids[len(ids)-1] != tid {
		return u, false
	}
	stat, err := os.ReadFile(dir + "stat")
	if err != nil {
		return u, false
	}
	if u, ok = parseUsage(stat, status); ok {
		if b, err := os.ReadFile(dir + "schedstat"); err == nil { // a kernel without it: CONFIG_SCHED_INFO
			u.ReadyNs = readyNs(b)
		}
	}
	return u, ok
}

// readyNs reads the text of a thread's schedstat: ns on a CPU, ns ready to run without one, and how often it was given one
// (Documentation/scheduler/sched-stats.rst). 0 for what makes no sense.
func readyNs(text []byte) (ns uint64) {
	if f := bytes.Fields(text); len(f) != 3 || !number(f[1], &ns) {
		return 0
	}
	return ns
}

// parseUsage reads the text of a thread's stat and status: proc_pid_stat(5), proc_pid_status(5).
func parseUsage(stat, status []byte) (u assemble.Usage, ok bool) {
	f := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:]) // the name before it may hold anything
	if len(f) < 10 {
		return u, false
	}
	ok = number(f[7], &u.MinorFaults) && number(f[9], &u.MajorFaults)
	found := 0
	for line := range bytes.Lines(status) {
		name, value, _ := bytes.Cut(line, []byte(":"))
		switch string(name) {
		case "voluntary_ctxt_switches":
			ok = number(bytes.TrimSpace(value), &u.Voluntary) && ok
			found++
		case "nonvoluntary_ctxt_switches":
			ok = number(bytes.TrimSpace(value), &u.Involuntary) && ok
			found++
		}
	}
	return u, ok && found == 2
}

func number(text []byte, to *uint64) bool {
	n, err := strconv.ParseUint(string(text), 10, 64)
	*to = n
	return err == nil
}
