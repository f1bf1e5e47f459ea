package tracetest

// accounts.go checks sums: CPU time against wall time and the threads' own totals, allocations against frees,
// the statistics against what is there.

import (
	"math"
	"slices"

	"github.com/hbtrace/hbtrace/trace"
)

func (c *checker) checkThreadEnds() {
	for i := range c.threads {
		t, s := &c.threads[i], &c.state[i+1]
		if s.events > 0 && !s.started && c.stats.Overwritten == 0 && s.lostEvents == 0 && t.Lost == 0 {
			c.addf("thread %d has %d events and none is its start", t.ID, s.events)
		}
		if s.exited && t.End == 0 {
			c.addf("thread %d has an exit event and no end", t.ID)
		}
		if s.exited && c.settled(t) && t.Samples < s.async {
			c.addf("thread %d took %d samples, %d are stored", t.ID, t.Samples, s.async)
		}
	}
}

// settled says whether a thread's own totals are its last. A recording that was cut off holds threads that were still
// alive as they were when they were last stored, before its last events; those that had ended were stored again.
func (c *checker) settled(t *trace.Thread) bool { return c.stats.Complete || t.End != 0 }

// checkAllocations matches frees with allocations by process and address. Events of different threads are not
// stored in the order they happened, so this waits for all of them.
func (c *checker) checkAllocations() {
	lossy := c.stats.Lost > 0 || c.stats.Overwritten > 0 || c.stats.Gaps > 0
	for k, ms := range c.live {
		// An address may be freed and given out again within one tick of the clock: then frees come first.
		slices.SortStableFunc(ms, func(a, b moment) int {
			switch {
			case a.time != b.time:
				return int(min(max(a.time-b.time, -1), 1))
			case a.alloc == b.alloc:
				return 0
			case b.alloc:
				return -1
			}
			return 1
		})
		var p trace.Process
		if k.proc > 0 && int(k.proc) <= len(c.procs) {
			p = c.procs[k.proc-1]
		}
		live := p.Forked && !ms[0].alloc // the parent's allocation
		for _, m := range ms {
			switch {
			case m.alloc && live && !lossy && p.Doubt.AllocTableFull == 0:
				c.addf("address %#x of process %d was allocated twice, again at %d", k.addr, k.proc, m.time)
			case !m.alloc && !live && !lossy:
				c.addf("address %#x of process %d was freed at %d, when it was not allocated", k.addr, k.proc, m.time)
			}
			live = m.alloc
		}
	}
}

func (c *checker) checkCPU() {
	var total int64
	wall := int64(c.meta.EndNs - c.meta.StartNs)
	others := map[trace.ProcID]int{} // threads of a process
	for i := range c.threads {
		others[c.threads[i].Proc]++
	}
	for i := range c.threads {
		t, s := &c.threads[i], &c.state[i+1]
		sum := s.cpuSampled + s.cpuRest
		total += sum
		end := t.End
		if end == 0 {
			end = c.meta.EndNs
		}
		// A goroutine's CPU time is an estimate: a sample stands for what its thread used since its last one, for others too.
		if life := int64(end - t.Start); !t.Goroutine && sum > life+cpuSlackNs+c.period() {
			c.addf("thread %d used %d ns of CPU in a life of %d", t.ID, sum, life)
		}
		if t.CPU < 0 || !c.settled(t) {
			continue
		}
		tolerance := cpuSlackNs + t.CPU/20 + 2*c.period() // a sampling point stands for a period, wherever in it it lies
		// what others' points fell short of is booked here; each is off by half a period at most, at random
		if t.Main {
			tolerance += int64(3 * math.Sqrt(float64(others[t.Proc])) * float64(c.period()) / 2)
		}
		if sum > t.CPU+tolerance {
			c.addf("thread %d: events account for %d ns of CPU, it used %d", t.ID, sum, t.CPU)
		}
		// Without an exit event the rest is nowhere; after a loss a sample may be missing.
		if s.exited && s.cpuSampled > 0 && c.stats.Overwritten == 0 && t.Lost == 0 && sum < t.CPU-tolerance {
			c.addf("thread %d: events account for only %d ns of CPU, it used %d", t.ID, sum, t.CPU)
		}
	}
	if c.meta.CPUs > 0 && wall >= 0 {
		if most := wall*int64(c.meta.CPUs) + cpuSlackNs*int64(c.meta.CPUs); total > most {
			c.addf("events account for %d ns of CPU, in %d ns on %d CPUs", total, wall, c.meta.CPUs)
		}
	}
}

func (c *checker) checkStats() {
	s := c.stats
	if s.Complete && s.Events != c.events {
		c.addf("statistics say %d events, there are %d", s.Events, c.events)
	}
	if s.Complete && s.Nodes != uint64(c.nnodes) {
		c.addf("statistics say %d nodes, there are %d", s.Nodes, c.nnodes)
	}
	var lost uint64
	for i := range c.threads {
		lost += c.threads[i].Lost
	}
	if s.Complete && lost > s.Lost {
		c.addf("threads lost %d records, statistics say %d", lost, s.Lost)
	}
	if s.CollectorCPU < 0 || s.SamplerCPU < 0 || s.AgentCPU < 0 || s.TargetCPU < 0 {
		c.addf("statistics say CPU times of %v, %v, %v, %v", s.CollectorCPU, s.SamplerCPU, s.AgentCPU, s.TargetCPU)
	}
}

// period is the CPU time that a sampling point stands for at most, ns.
func (c *checker) period() int64 { return max(int64(1e9/max(c.meta.Freq, 1)), c.longest) }
