// Pieces: what one thread was doing, as a list of stretches of time in order and without overlap.

package page

import (
	"cmp"
	"slices"
	"sort"

	"github.com/hbtrace/hbtrace/analysis/spans"
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

// free marks, among pending pieces, time that no interval covers: the next sample says how much of it ran.
const free = states

type stateKey struct {
	kind  trace.Kind
	hook  trace.HookID
	stack trace.StackID
}

// piece of a thread's time, in ns since the recording's start.
type piece struct {
	start, end int64
	site       uint32 // 0: none known
	wait       uint32 // index into thread.waits + 1; 0: no interval
	state      state
	late       uint32 // origin of the work whose time was noticed too late to say where it went (late.go); 0: none
	n          uint32 // pieces that were added to it (coarse.go)
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
	releases   []release
	spans      spanStore
	cover      spans.Coverage
	lost       uint64
	total      [states]int64
	counted    int64

	until     int64 // end of what was seen
	seen      int64 // last sample that counted no time
	held      []sample
	pending   []piece // since the last sample that counted time, in order; wait is set already
	settled   []piece // between the two samples before that: time still free was spent off the CPU, unless the next one says it ran
	period    int64   // of CPU time, between samples
	offs      []piece // since the last sample: time off the CPU by the kernel's word, ready or off, in order of ends
	lastStack trace.StackID

	looks []look
	ready int64 // ns ready to run, without a CPU, as far as the kernel told
}

// maxPending bounds what is kept until the next sample; beyond, the oldest free time stays unknown.
const maxPending = 4096

// pass says that no interval covers the time up to at.
func (t *thread) pass(at int64, l *load) {
	if at > t.until {
		t.pend(piece{start: t.until, end: at, state: free}, l)
		t.until = at
	}
}

func (t *thread) pend(p piece, l *load) {
	if len(t.pending) >= maxPending {
		t.settle(l)
		for _, old := range t.pending[:maxPending/2] {
			t.put(t.idle(old), l)
		}
		t.pending = t.pending[:copy(t.pending, t.pending[maxPending/2:])]
	}
	t.pending = append(t.pending, p)
}

// ran places cpu ns, counted by a sample at that time, into the youngest time that no interval covers: the sample was
// due when the time had been used. What does not fit there, up to a period, may have been used before the sample before, which
// counts whole periods. The rest of that time was spent off the CPU. It returns what found no place.
func (t *thread) ran(at, cpu int64, site, late uint32, l *load) int64 {
	t.pass(at, l)
	t.split()
	t.pending, cpu = run(t.pending, cpu, site, late)
	if before := min(cpu, t.period); before > 0 {
		cpu -= before
		t.settled, before = run(t.settled, before, site, late)
		cpu += before
	}
	t.settle(l)
	t.settled, t.pending = t.pending, t.settled
	return cpu
}

// run makes the youngest cpu ns of the free time in list running; it returns what there was no room for.
func run(list []piece, cpu int64, site, late uint32) ([]piece, int64) {
	for i := len(list) - 1; i >= 0 && cpu > 0; i-- {
		p := &list[i]
		if p.state != free {
			continue
		}
		n := min(cpu, p.end-p.start)
		cpu -= n
		ran := piece{start: p.end - n, end: p.end, state: running, site: site, late: late}
		if p.end -= n; p.end > p.start {
			list = slices.Insert(list, i+1, ran)
		} else {
			*p = ran
		}
	}
	return list, cpu
}

// settle emits what the sample before the last one left: no later one says anything about it.
func (t *thread) settle(l *load) {
	for _, p := range t.settled {
		if p.state == free {
			p.state = off
		}
		t.put(p, l)
	}
	t.settled = t.settled[:0]
}

// put emits a piece, and adds what is no interval to the load: intervals are added when they come.
func (t *thread) put(p piece, l *load) {
	switch {
	case p.wait != 0:
	case p.state == running:
		l.add(loadCPU, p.start, p.end, 1)
	case p.state != free:
		l.add(loadOff, p.start, p.end, 1)
	}
	t.emit(p)
}

// sample is CPU time that was counted by the time at.
type sample struct {
	at, cpu    int64
	site, late uint32
}

// maxHeld bounds how many samples may have been taken within one interval.
const maxHeld = 16

// hold takes a sample. An interval that began before it may still be to come, because intervals are told of when they end (a
// sample is taken where a thread comes out of a call): until the thread's next interval, or maxHeld further samples, it
// waits. It returns the CPU time that found no place.
func (t *thread) hold(s sample, l *load) (unplaced int64) {
	if len(t.held) == maxHeld {
		unplaced = t.let(1, maxNs, l)
	}
	t.held = append(t.held, s)
	return unplaced
}

// let places the oldest n held samples, those from before onwards as if they had been taken then.
func (t *thread) let(n int, before int64, l *load) (unplaced int64) {
	for _, s := range t.held[:n] {
		at := min(s.at, max(before, t.until))
		if s.cpu == 0 {
			// Less than a period was used since the sample before: where, the next one that counts says.
			t.seen = max(t.seen, at)
			continue
		}
		unplaced += t.ran(at, s.cpu, s.site, s.late, l)
	}
	t.held = t.held[:copy(t.held, t.held[n:])]
	return unplaced
}

// idle makes free time in front of a sample that counted none time off the CPU.
func (t *thread) idle(p piece) piece {
	if p.state == free && p.end <= t.seen {
		p.state = off
	}
	return p
}

// offCPU takes time off the CPU, of which the thread could have run from `could` on. Where intervals cover it, they say
// more: it is put only into time that turns out to be free.
func (t *thread) offCPU(start, could, end int64) {
	if len(t.offs) == maxPending {
		t.offs = t.offs[:copy(t.offs, t.offs[maxPending/2:])]
	}
	could = max(start, min(could, end))
	t.offs = append(t.offs, piece{start: start, end: could, state: off}, piece{start: could, end: end, state: ready})
}

// split takes the time off the CPU out of the pending free time.
func (t *thread) split() {
	if len(t.offs) == 0 {
		return
	}
	slices.SortStableFunc(t.offs, func(a, b piece) int { return cmp.Compare(a.start, b.start) })
	var out []piece
	next := 0
	for _, p := range t.pending {
		if p.state != free {
			out = append(out, p)
			continue
		}
		for next < len(t.offs) && t.offs[next].end <= p.start {
			next++
		}
		at := p.start
		for i := next; i < len(t.offs) && t.offs[i].start < p.end; i++ {
			o := t.offs[i]
			o.start, o.end = max(o.start, at), min(o.end, p.end)
			if o.end <= o.start {
				continue
			}
			if o.start > at {
				out = append(out, piece{start: at, end: o.start, state: free})
			}
			out = append(out, o)
			at = o.end
		}
		if at < p.end {
			out = append(out, piece{start: at, end: p.end, state: free})
		}
	}
	t.pending, t.offs = out, t.offs[:0]
}

func (t *thread) interval(start, end int64, st state, site uint32, w wait, l *load) (unplaced int64) {
	unplaced = t.let(len(t.held), start, l)
	t.pass(start, l)
	start = max(start, t.until)
	if end <= start {
		return unplaced
	}
	t.waits = append(t.waits, w)
	t.pend(piece{start: start, end: end, site: site, wait: uint32(len(t.waits)), state: st}, l)
	t.until = end
	if st == locked {
		l.add(loadLock, start, end, 1)
	} else {
		l.add(loadBlocked, start, end, 1)
	}
	return unplaced
}

// flush gives up waiting for a sample: free time stays unknown, unless a sample said that none of it was used.
func (t *thread) flush(l *load) (unplaced int64) {
	unplaced = t.let(len(t.held), maxNs, l)
	t.pass(t.seen, l)
	t.split()
	t.settle(l)
	for _, p := range t.pending {
		t.put(t.idle(p), l)
	}
	t.pending = t.pending[:0]
	return unplaced
}

// emit appends a piece; free time is left out.
func (t *thread) emit(p piece) {
	if p.state == free || p.end <= p.start {
		return
	}
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
	t.counted += int64(p.n) + 1
	t.pieces = append(t.pieces, p)
}

// countBefore is how many there were of what is in pieces[:i].
func (t *thread) countBefore(i int) int64 {
	if i >= len(t.pieces) {
		return t.counted
	}
	n := t.counts[i/stride]
	for _, p := range t.pieces[i/stride*stride : i] {
		n += int64(p.n) + 1
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
