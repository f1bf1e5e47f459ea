// Counters per process and per thread: CPU, time ready to run, allocation rate, memory in use, lock waiting, loss, page faults and context switches,
// summed up in equal buckets of the recording.

package perfetto

import (
	"cmp"
	"math"
	"slices"

	"github.com/hbtrace/hbtrace/trace"
)

// maxBuckets bounds memory: a long recording gets longer buckets.
const maxBuckets = 2000

const minBucketNs = 10_000_000

// maxNs bounds a recording's length, 36 years, so that a file that lies about it does no harm.
const maxNs = 1 << 60

// Threads have fewer buckets, and only the busiest have any: a process of thousands is read by its own.
const (
	maxThreadBuckets = 500
	maxThreads       = 32
	maxLive          = 1 << 20 // sampled allocations that are remembered
)

type counterKind uint8

const (
	counterCPU counterKind = iota
	counterReady
	counterAlloc
	counterLive
	counterWait
	counterLost
	counterMinor
	counterMajor
	counterVoluntary
	counterInvoluntary
	counterKinds
)

var counterNames = [counterKinds][2]string{
	{"CPU", "%"}, {"ready to run", "%"}, {"allocated", "bytes/s"}, {"live", "bytes"}, {"lock wait", "ms/s"}, {"records lost", ""},
	{"minor page faults", "/s"}, {"major page faults", "/s"}, {"voluntary context switches", "/s"}, {"involuntary context switches", "/s"},
}

// perThread are the kinds that threads have, too.
var perThread = [counterKinds]bool{counterCPU: true, counterReady: true, counterAlloc: true, counterWait: true, counterLost: true,
	counterMinor: true, counterMajor: true, counterVoluntary: true, counterInvoluntary: true}

// series are the sums of one process or thread, by bucket; nil where nothing was counted.
type series struct {
	bucketNs trace.Ns
	sums     [counterKinds][]float64
	live     float64 // bytes now
}

type address struct {
	proc trace.ProcID
	addr uint64
}

type counters struct {
	start, end trace.Ns
	procOf     map[trace.ThreadID]trace.ProcID
	by         trace.PerThread[counted]
	lockWait   map[trace.HookID]bool
	procs      map[trace.ProcID]*series
	threads    map[trace.ThreadID]*series // of the busiest alone
	live       map[address]float64        // sampled allocations: the bytes that each stands for
}

func newCounters(src trace.Source) *counters {
	m := src.Meta()
	c := &counters{
		start:  max(m.StartNs, 0),
		procOf: map[trace.ThreadID]trace.ProcID{}, procs: map[trace.ProcID]*series{}, threads: map[trace.ThreadID]*series{},
		lockWait: map[trace.HookID]bool{}, live: map[address]float64{},
	}
	c.end = min(max(m.EndNs, c.start+1), c.start+maxNs)
	ts := slices.Clone(src.Threads())
	for _, t := range ts {
		c.procOf[t.ID] = t.Proc
	}
	slices.SortStableFunc(ts, func(a, b trace.Thread) int { return cmp.Compare(active(&b), active(&a)) })
	for _, t := range ts[:min(len(ts), maxThreads)] {
		c.threads[t.ID] = c.newSeries(maxThreadBuckets)
	}
	for id, h := range m.Hooks {
		c.lockWait[id] = h.Class == trace.HookLock
	}
	return c
}

// active is how busy a thread was, for what is shown first.
func active(t *trace.Thread) int64 { return max(t.CPU, 0) + t.WaitNs }

func (c *counters) newSeries(buckets trace.Ns) *series {
	return &series{bucketNs: max((c.end-c.start+buckets-1)/buckets, minBucketNs)}
}

// counted is what a thread's events count for.
type counted struct {
	proc    *series // nil: its process is not known
	own     *series // nil: it is not among the busiest
	lastCPU trace.Ns
}

func (c *counters) counted(th trace.ThreadID) *counted {
	r := c.by.Get(th)
	if r != nil {
		return r
	}
	r = &counted{own: c.threads[th]}
	c.by.Put(th, r)
	if p := c.procOf[th]; p != 0 {
		r.proc = c.procs[p]
		if r.proc == nil {
			r.proc = c.newSeries(maxBuckets)
			c.procs[p] = r.proc
		}
	}
	return r
}

// count adds v evenly over [lo, hi] to a thread's counter and its process's.
func (c *counters) count(t *counted, k counterKind, lo, hi trace.Ns, v float64) {
	if t.proc != nil {
		c.spread(t.proc, k, lo, hi, v)
	}
	if t.own != nil && perThread[k] {
		c.spread(t.own, k, lo, hi, v)
	}
}

// of is a kind's buckets.
func (s *series) of(c *counters, k counterKind) []float64 {
	if s.sums[k] == nil {
		s.sums[k] = make([]float64, (c.end-c.start)/s.bucketNs+1)
		if k == counterLive {
			for i := range s.sums[k] {
				s.sums[k][i] = math.NaN() // as before
			}
		}
	}
	return s.sums[k]
}

// spread adds v evenly over [lo, hi], cut to the recording.
func (c *counters) spread(x *series, k counterKind, lo, hi trace.Ns, v float64) {
	if v <= 0 {
		return
	}
	s := x.of(c, k)
	lo, hi = max(lo, c.start), min(hi, c.end)
	if hi <= lo {
		i := min(max(int((hi-c.start)/x.bucketNs), 0), len(s)-1)
		s[i] += v
		return
	}
	per := v / float64(hi-lo)
	for at := lo; at < hi; {
		i := int((at - c.start) / x.bucketNs)
		next := min(c.start+trace.Ns(i+1)*x.bucketNs, hi)
		s[i] += per * float64(next-at)
		at = next
	}
}

// inUse notes that a process's sampled memory has grown by so many bytes.
func (c *counters) inUse(th trace.ThreadID, at trace.Ns, by float64) {
	if x := c.counted(th).proc; x != nil {
		s := x.of(c, counterLive)
		x.live = max(x.live+by, 0)
		s[min(max(int((at-c.start)/x.bucketNs), 0), len(s)-1)] = x.live
	}
}

func (c *counters) add(e *trace.Event) {
	switch e.Kind {
	case trace.KindCPU, trace.KindThreadExit:
		// A sample's CPU time was used up before it, since the one before at the earliest.
		t := c.counted(e.Thread)
		if e.CPU > 0 {
			lo := min(e.Start-trace.Ns(e.CPU/int64(max(e.Count, 1))), e.Time-trace.Ns(e.CPU))
			if e.Kind == trace.KindThreadExit {
				lo = e.Time - trace.Ns(e.CPU)
			}
			c.count(t, counterCPU, max(lo, t.lastCPU), e.Time, float64(e.CPU))
		}
		t.lastCPU = e.Time
		if e.Kind == trace.KindThreadExit {
			c.by.Delete(e.Thread)
		}
	case trace.KindAlloc:
		c.count(c.counted(e.Thread), counterAlloc, e.Time, e.Time, float64(e.Weight))
		if at := (address{c.procOf[e.Thread], e.Object}); len(c.live) < maxLive || c.live[at] != 0 {
			c.inUse(e.Thread, e.Time, float64(e.Weight)-c.live[at]) // a free that was lost leaves its address behind
			c.live[at] = float64(e.Weight)
		}
	case trace.KindFree:
		at := address{c.procOf[e.Thread], e.Object}
		if v, ok := c.live[at]; ok {
			delete(c.live, at)
			c.inUse(e.Thread, e.Time, -v)
		}
	case trace.KindWait:
		if c.lockWait[e.Hook] {
			c.count(c.counted(e.Thread), counterWait, e.Start, e.Time, float64(e.Time-e.Start))
		}
	case trace.KindOff:
		if could, ok := e.Runnable(); ok {
			c.count(c.counted(e.Thread), counterReady, could, e.Time, float64(e.Time-could))
		}
	case trace.KindUsage:
		t := c.counted(e.Thread)
		c.count(t, counterReady, e.Start, e.Time, float64(e.Debt))
		c.count(t, counterMinor, e.Start, e.Time, float64(e.Size))
		c.count(t, counterMajor, e.Start, e.Time, float64(e.Weight))
		c.count(t, counterVoluntary, e.Start, e.Time, float64(e.Object))
		c.count(t, counterInvoluntary, e.Start, e.Time, float64(e.Object2))
	case trace.KindLost:
		c.count(c.counted(e.Thread), counterLost, e.Time, e.Time, float64(e.Count))
	}
}

// value turns a bucket's sum into what its counter shows.
func (s *series) value(k counterKind, sum float64) float64 {
	switch k {
	case counterCPU, counterReady:
		return 100 * sum / float64(s.bucketNs)
	case counterAlloc, counterMinor, counterMajor, counterVoluntary, counterInvoluntary:
		return sum * 1e9 / float64(s.bucketNs)
	case counterWait:
		return sum * 1e3 / float64(s.bucketNs)
	}
	return sum
}
