// Package edges adds up waits by who waited, for what, who held it, and who released it where. It joins waits with the
// releases that ended them in one pass over the events, in bounded memory.
package edges

import (
	"cmp"
	"slices"

	"github.com/hbtrace/hbtrace/analysis/blame"
	"github.com/hbtrace/hbtrace/trace"
)

// Edge is all waits with the same waiter, object, owner, releaser and stacks.
type Edge struct {
	blame.EdgeKey
	Count uint64
	Total int64 // ns
	Max   int64 // ns, the longest of them
	// Of the count: how many have a releaser who is the only candidate, ended by their time-out, or had not ended when
	// recording did.
	Sure, TimedOut, Open uint64
	// Expected is how many of the count the releaser ended, by how likely the recording says that it is, in thousandths.
	Expected uint64
}

// Certain says whether the releaser is the only candidate most of the time.
func (e *Edge) Certain() bool { return 2*e.Sure >= e.Count }

// Bounds of the join. A wait's release is stored near it (threads interleave roughly by time), so a window is
// enough; what falls out of it keeps its releaser and loses only that one's stack.
const (
	joinWindow = 1 << 15 // waits looking for their release, and releases that no wait has used
	MaxEdges   = 1 << 17 // MaxEdges different edges are kept; waits beyond are counted in Folded
)

type releaseKey struct {
	thread trace.ThreadID
	at     trace.Ns
}

// pendingWait is a wait whose release has not been met yet.
type pendingWait struct {
	key releaseKey
	blame.EdgeKey
	ns    int64
	flags trace.Flags
	claim uint64 // how likely it is that the releaser is the one, thousandths
	prev  int32  // index of the next older pending wait with the same key, -1 none
	live  bool
}

// Joiner turns wait and release events into edges. Give it every event in stored order, then call Finish.
type Joiner struct {
	edges map[blame.EdgeKey]*Edge

	releases map[releaseKey]trace.Site
	ring     [joinWindow]releaseKey // releases by age, the oldest at ringNext
	ringNext int

	waiting map[releaseKey]int32 // the youngest pending wait of a key
	queue   []pendingWait        // ring of joinWindow, oldest at queueNext once full
	next    int

	// Folded are waits that no edge is kept for, because there are too many different ones.
	Folded   uint64
	FoldedNs int64
}

func New() *Joiner {
	return &Joiner{
		edges:    map[blame.EdgeKey]*Edge{},
		releases: map[releaseKey]trace.Site{},
		waiting:  map[releaseKey]int32{},
	}
}

// Add takes one Add; others than waits and releases are ignored.
func (j *Joiner) Add(e *trace.Event) {
	switch e.Kind {
	case trace.KindRelease:
		j.released(releaseKey{e.Thread, e.Time}, trace.Site{Stack: e.Stack, Hook: e.Hook})
	case trace.KindWait:
		w := pendingWait{
			EdgeKey: blame.EdgeKey{
				Hook: e.Hook, Object: e.Object, Waiter: e.Thread, Owner: e.Owner, Releaser: e.Releaser,
				Stack: e.Stack,
			},
			key: releaseKey{e.Releaser, e.Release}, ns: max(0, int64(e.Time-e.Start)), flags: e.Flags,
			claim: uint64(1000 * Claim(e)),
		}
		if e.Releaser == 0 || e.Release == 0 {
			j.keep(w)
		} else if at, ok := j.releases[w.key]; ok {
			w.Release = at
			j.keep(w)
		} else {
			j.wait(w)
		}
	}
}

// released remembers where a release happened and settles the waits that looked for it. One release may end
// several waits (a broadcast), so it stays for later ones.
func (j *Joiner) released(key releaseKey, at trace.Site) {
	if _, ok := j.releases[key]; !ok {
		delete(j.releases, j.ring[j.ringNext])
		j.ring[j.ringNext] = key
		j.ringNext = (j.ringNext + 1) % joinWindow
	}
	j.releases[key] = at
	i, ok := j.waiting[key]
	if !ok {
		return
	}
	for i >= 0 {
		w := &j.queue[i]
		if !w.live || w.key != key {
			break // its place has been taken since
		}
		w.live, w.Release = false, at
		j.keep(*w)
		i = w.prev
	}
	delete(j.waiting, key)
}

// wait queues a wait until its release comes by, and gives up the oldest where the queue is full.
func (j *Joiner) wait(w pendingWait) {
	w.prev, w.live = -1, true
	if i, ok := j.waiting[w.key]; ok {
		w.prev = i
	}
	if len(j.queue) < joinWindow {
		j.waiting[w.key] = int32(len(j.queue))
		j.queue = append(j.queue, w)
		return
	}
	if old := &j.queue[j.next]; old.live {
		j.keep(*old)
		if j.waiting[old.key] == int32(j.next) {
			delete(j.waiting, old.key)
		}
		if w.prev == int32(j.next) {
			w.prev = -1
		}
	}
	j.queue[j.next] = w
	j.waiting[w.key] = int32(j.next)
	j.next = (j.next + 1) % joinWindow
}

func (j *Joiner) keep(w pendingWait) {
	e := j.edges[w.EdgeKey]
	if e == nil {
		if len(j.edges) >= MaxEdges {
			j.Folded++
			j.FoldedNs += w.ns
			return
		}
		e = &Edge{EdgeKey: w.EdgeKey}
		j.edges[w.EdgeKey] = e
	}
	e.Count++
	e.Total += w.ns
	e.Max = max(e.Max, w.ns)
	if w.flags&trace.FlagCertain != 0 {
		e.Sure++
	}
	if w.Releaser != 0 {
		e.Expected += w.claim
	}
	if w.flags&trace.FlagTimedOut != 0 {
		e.TimedOut++
	}
	if w.flags&trace.FlagOpen != 0 {
		e.Open++
	}
}

// Finish settles what is pending and returns the edges, the heaviest first.
func (j *Joiner) Finish() []*Edge {
	for i := range j.queue {
		if j.queue[i].live {
			j.queue[i].live = false
			j.keep(j.queue[i])
		}
	}
	edges := make([]*Edge, 0, len(j.edges))
	for _, e := range j.edges {
		edges = append(edges, e)
	}
	slices.SortFunc(edges, func(a, b *Edge) int {
		return cmp.Or(cmp.Compare(b.Total, a.Total), cmp.Compare(a.Object, b.Object),
			cmp.Compare(a.Waiter, b.Waiter), cmp.Compare(a.Releaser, b.Releaser), cmp.Compare(a.Owner, b.Owner),
			cmp.Compare(a.Hook, b.Hook), cmp.Compare(a.Stack, b.Stack), cmp.Compare(a.Release.Stack, b.Release.Stack),
			cmp.Compare(a.Release.Hook, b.Release.Hook))
	})
	return edges
}

// Claim is how likely the recording says that a wait's releaser is the one that ended it: 0 to 1.
func Claim(e *trace.Event) float64 {
	switch {
	case e.Weight <= 1:
		return 1
	case e.Size == 0:
		return 1 / float64(e.Weight)
	}
	return float64(min(e.Size, 1000)) / 1000
}
