// own.go: what the recording uses: the agent's CPU time in the programs, this process's, the sampler's.
package collector

import (
	"syscall"
	"time"

	"github.com/hbtrace/hbtrace/segment"
)

// agentCPU is the CPU time that agents have used in the session's processes so far, as they measured it (agent/own.h). A thread
// that is just ending may count twice or not at all for a moment.
func (s *session) agentCPU() time.Duration {
	stamps := s.ownInGone
	for i := range s.seg.HighProcs() {
		if p := s.seg.Proc(i); p.UID.Load() != 0 {
			stamps += p.OwnStamps.Load()
		}
	}
	for i := range s.seg.HighThreads() {
		if t := s.seg.Thread(i); t.UID.Load() != 0 {
			stamps += t.OwnStamps.Load()
		}
	}
	ns := segment.CyclesToNs(stamps, s.seg.Config().CyclesMult)
	return time.Duration(min(ns, uint64(maxOwn))) // what agents write may be anything
}

const maxOwn = 1 << 62

// collectorCPU is this process's CPU time since the session began.
func (s *session) collectorCPU() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano() - s.usage.Utime.Nano() - s.usage.Stime.Nano())
}
