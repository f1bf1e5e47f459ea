// Pieces: what one thread was doing, as a list of stretches of time in order and without overlap. Package timeline makes them.

package page

import (
	"slices"
	"sort"

	"github.com/hbtrace/hbtrace/analysis/spans"
	"github.com/hbtrace/hbtrace/analysis/timeline"
	"github.com/hbtrace/hbtrace/analysis/weigh"
	"github.com/hbtrace/hbtrace/trace"
)

// The numbers of states are those of web/colours.ts.
type state = weigh.State

const (
	unknown  = weigh.Unknown // no piece has it: it is what lies between pieces
	running  = weigh.Running
	off      = weigh.Off
	locked   = weigh.Locked
	sleeping = weigh.Sleeping
	ready    = weigh.Ready
	states   = weigh.NumStates
)

// piece of a thread's time, in ns since the recording's start.
type piece struct {
	start, end int64
	site       uint32 // 0: none known
	wait       uint32 // index into thread.waits + 1; 0: no interval
	state      state
	again      bool   // of an interval that an earlier piece counts, before what a signal handler did
	late       uint32 // origin of the work whose time was noticed too late to say where it went (late.go); 0: none
	n          uint32 // pieces that were added to it (coarse.go)
}

// count is how many intervals, and pieces of none, it stands for.
func (p *piece) count() uint32 {
	if p.again {
		return p.n
	}
	return p.n + 1
}

// wait is what an interval knows beyond its piece.
type wait struct {
	release  int64  // when the releaser let go; -1 unknown
	owner    uint32 // index of the thread + 1; 0 unknown
	releaser uint32
	object   uint32 // into Model.objects; 0 none
	flags    trace.Flags

	releaseSite uint32 // where resolved: the place where it was let go
	resolved    bool
	longest     int64 // ns of the longest of several that were added up; 0: it is one
}

type alloc struct {
	at      int64
	site    uint32
	bytes   float64 // that it stands for
	objects float64
}

// end is that of an allocation: how much of what was allocated at a time was freed at another.
type end struct {
	alloc
	freed int64
}

type release struct {
	at     int64
	site   uint32
	object uint32
}

// stride is how many pieces lie between two sums: a query adds up less than twice as many one by one.
const stride = 64

// thread is one lane.
type thread struct {
	info       *trace.Thread
	start, end int64 // end -1: it did not end
	pieces     []piece
	sums       [][states]int64 // before pieces[i*stride], ns by state
	counts     []int64         // likewise, how many there were before they were added up
	waits      []wait
	allocs     []alloc
	ends       []end // of its allocations
	releases   []release
	spans      spanStore
	cover      spans.Coverage
	lost       uint64
	total      [states]int64
	counted    int64

	begun    uint32       // intervals
	coming   []comingWait // of intervals whose pieces are still to come, in the order in which they began
	unplaced []unplaced

	looks []look
	ready int64 // ns runnable without a CPU, as far as the kernel told
}

// unplaced is CPU time, in ns, for which its thread's time has no room: it is in sums, and in no lane.
type unplaced struct {
	at         int64
	site, late uint32
	ns         int64
}

// unplace keeps CPU time that has no place. What is no further than near from its like is added to that.
func (t *thread) unplace(u unplaced, near int64) {
	if n := len(t.unplaced); n > 0 {
		if l := &t.unplaced[n-1]; l.site == u.site && l.late == u.late && u.at-l.at <= near {
			l.ns += u.ns
			return
		}
	}
	t.unplaced = append(t.unplaced, u)
}

// comingWait is one that has the number in [timeline.Segment.Wait].
type comingWait struct {
	wait
	number uint32
	end    trace.Ns
	come   bool // a piece of it
}

// arrived is the wait of a segment, and whether it had one before.
func (t *thread) arrived(s *timeline.Segment) (w wait, again bool) {
	i := slices.IndexFunc(t.coming, func(c comingWait) bool { return c.number == s.Wait })
	c := &t.coming[i]
	w, again, c.come = c.wait, c.come, true
	past := 0
	for past < len(t.coming) && t.coming[past].end <= s.To {
		past++
	}
	if t.coming = t.coming[past:]; len(t.coming) == 0 {
		t.coming = nil
	}
	return w, again
}

// emit appends a piece, or makes the last one longer.
func (t *thread) emit(p piece) {
	if n := len(t.pieces); n > 0 && p.wait == 0 {
		if q := &t.pieces[n-1]; q.wait == 0 && q.state == p.state && q.site == p.site && q.late == p.late && q.end == p.start && q.n == 0 {
			t.total[p.state] += p.end - p.start
			q.end = p.end
			return
		}
	}
	t.append(p)
}

func (t *thread) append(p piece) {
	if len(t.pieces)%stride == 0 {
		t.sums = append(t.sums, t.total)
		t.counts = append(t.counts, t.counted)
	}
	t.total[p.state] += p.end - p.start
	t.counted += int64(p.count())
	t.pieces = append(t.pieces, p)
}

// countBefore is how many there were of what is in pieces[:i].
func (t *thread) countBefore(i int) int64 {
	if i >= len(t.pieces) {
		return t.counted
	}
	n := t.counts[i/stride]
	for _, p := range t.pieces[i/stride*stride : i] {
		n += int64(p.count())
	}
	return n
}

// first is the index of the first piece that ends after at.
func (t *thread) first(at int64) int {
	return sort.Search(len(t.pieces), func(i int) bool { return t.pieces[i].end > at })
}

// before is ns by state in pieces[:i].
func (t *thread) before(i int) [states]int64 {
	if i >= len(t.pieces) {
		return t.total // what is pending is in neither
	}
	sum := t.sums[i/stride]
	for _, p := range t.pieces[i/stride*stride : i] {
		sum[p.state] += p.end - p.start
	}
	return sum
}

// letGo is the place where the thread let go of an object within [from, to], the first time; 0 where that was not
// recorded.
func (t *thread) letGo(object uint32, from, to int64) uint32 {
	i := sort.Search(len(t.releases), func(i int) bool { return t.releases[i].at >= from })
	for n := 0; i < len(t.releases) && t.releases[i].at <= to && n < mostReleases; i, n = i+1, n+1 {
		if t.releases[i].object == object {
			return t.releases[i].site
		}
	}
	return 0
}

// mostReleases bounds the search through the releases of a thread during one wait.
const mostReleases = 256
