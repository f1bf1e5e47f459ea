// Counters per process: CPU, allocation rate, lock waiting and loss, summed up in equal buckets of the recording.

package perfetto

import (
	"github.com/hbtrace/hbtrace/trace"
)

// maxBuckets bounds memory: a long recording gets longer buckets.
const maxBuckets = 2000

const minBucketNs = 10_000_000

// maxNs bounds a recording's length, 36 years, so that a file that lies about it does no harm.
const maxNs = 1 << 60

type counterKind uint8

const (
	counterCPU counterKind = iota
	counterAlloc
	counterWait
	counterLost
	counterKinds
)

var counterNames = [counterKinds][2]string{
	{"CPU", "%"}, {"allocated", "bytes/s"}, {"lock wait", "ms/s"}, {"records lost", ""},
}

type counters struct {
	start, end trace.Ns
	bucketNs   trace.Ns
	procOf     map[trace.ThreadID]trace.ProcID
	lockWait   map[trace.HookID]bool
	procs      map[trace.ProcID]*[counterKinds][]float64
	lastCPU    map[trace.ThreadID]trace.Ns
}

func newCounters(src trace.Source) *counters {
	m := src.Meta()
	c := &counters{
		start:  max(m.StartNs, 0),
		procOf: map[trace.ThreadID]trace.ProcID{}, procs: map[trace.ProcID]*[counterKinds][]float64{},
		lastCPU: map[trace.ThreadID]trace.Ns{}, lockWait: map[trace.HookID]bool{},
	}
	c.end = min(max(m.EndNs, c.start+1), c.start+maxNs)
	c.bucketNs = max((c.end-c.start+maxBuckets-1)/maxBuckets, minBucketNs)
	for _, t := range src.Threads() {
		c.procOf[t.ID] = t.Proc
	}
	for id, h := range m.Hooks {
		c.lockWait[id] = h.Class == "LOCK"
	}
	return c
}

func (c *counters) series(th trace.ThreadID, k counterKind) []float64 {
	p := c.procOf[th]
	if p == 0 {
		return nil
	}
	s := c.procs[p]
	if s == nil {
		s = &[counterKinds][]float64{}
		c.procs[p] = s
	}
	if s[k] == nil {
		s[k] = make([]float64, (c.end-c.start)/c.bucketNs+1)
	}
	return s[k]
}

// spread adds v evenly over [lo, hi], cut to the recording.
func (c *counters) spread(s []float64, lo, hi trace.Ns, v float64) {
	if len(s) == 0 || v <= 0 {
		return
	}
	lo, hi = max(lo, c.start), min(hi, c.end)
	if hi <= lo {
		i := min(max(int((hi-c.start)/c.bucketNs), 0), len(s)-1)
		s[i] += v
		return
	}
	per := v / float64(hi-lo)
	for at := lo; at < hi; {
		i := int((at - c.start) / c.bucketNs)
		next := min(c.start+trace.Ns(i+1)*c.bucketNs, hi)
		s[i] += per * float64(next-at)
		at = next
	}
}

func (c *counters) add(e *trace.Event) {
	switch e.Kind {
	case trace.KindCPU, trace.KindThreadExit:
		// A sample's CPU time was used up before it, since the one before at the earliest.
		if e.CPU > 0 {
			lo := min(e.Start-trace.Ns(e.CPU/int64(max(e.Count, 1))), e.Time-trace.Ns(e.CPU))
			if e.Kind == trace.KindThreadExit {
				lo = e.Time - trace.Ns(e.CPU)
			}
			c.spread(c.series(e.Thread, counterCPU), max(lo, c.lastCPU[e.Thread]), e.Time, float64(e.CPU))
		}
		c.lastCPU[e.Thread] = e.Time
		if e.Kind == trace.KindThreadExit {
			delete(c.lastCPU, e.Thread)
		}
	case trace.KindAlloc:
		c.spread(c.series(e.Thread, counterAlloc), e.Time, e.Time, float64(e.Weight))
	case trace.KindWait:
		if c.lockWait[e.Hook] {
			c.spread(c.series(e.Thread, counterWait), e.Start, e.Time, float64(e.Time-e.Start))
		}
	case trace.KindLost:
		c.spread(c.series(e.Thread, counterLost), e.Time, e.Time, float64(e.Count))
	}
}

// value turns a bucket's sum into what its counter shows.
func (c *counters) value(k counterKind, sum float64) float64 {
	switch k {
	case counterCPU:
		return 100 * sum / float64(c.bucketNs)
	case counterAlloc:
		return sum * 1e9 / float64(c.bucketNs)
	case counterWait:
		return sum * 1e3 / float64(c.bucketNs)
	}
	return sum
}
