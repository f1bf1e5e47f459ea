// Edges: who waited for what, who had it, who let it go and where. Waits are joined with the releases that
// ended them in one pass over the events, in bounded memory.

package report

import (
	"cmp"
	"slices"

	"github.com/hbtrace/hbtrace/trace"
)

// edge is all waits with the same waiter, object, owner, releaser and stacks.
type edge struct {
	edgeKey
	count uint64
	total int64 // ns
	max   int64 // ns, the longest of them
	// Of the count: how many have a releaser who is the only candidate, ended by their time-out, or had not ended when
	// recording did.
	sure, timedOut, open uint64
	// expected is how many of the count the releaser ended, by how likely the recording says that it is, in thousandths.
	expected uint64
}

// certain says whether the releaser is the only candidate most of the time.
func (e *edge) certain() bool { return 2*e.sure >= e.count }

type edgeKey struct {
	hook     trace.HookID
	object   uint64
	waiter   trace.ThreadID
	owner    trace.ThreadID
	releaser trace.ThreadID
	stack    trace.StackID // where the waiter waited
	release  site          // where the releaser let go; zero where no release record matches
}

// site is a place in the program: a stack and the hooked function that its leaf called.
type site struct {
	stack trace.StackID
	hook  trace.HookID
}

// Bounds of the join. A wait's release is stored near it (threads interleave roughly by time), so a window is
// enough; what falls out of it keeps its releaser and loses only that one's stack.
const (
	joinWindow = 1 << 15 // waits looking for their release, and releases not yet asked for
	maxEdges   = 1 << 17 // different edges; waits beyond are counted in folded
)

type releaseKey struct {
	thread trace.ThreadID
	at     trace.Ns
}

// pendingWait is a wait whose release has not been met yet.
type pendingWait struct {
	key releaseKey
	edgeKey
	ns    int64
	flags trace.Flags
	claim uint64 // how likely it is that the releaser is the one, thousandths
	prev  int32  // index of the next older pending wait with the same key, -1 none
	live  bool
}

// joiner turns wait and release events into edges. Give it every event in stored order, then call finish.
type joiner struct {
	edges map[edgeKey]*edge

	releases map[releaseKey]site
	ring     [joinWindow]releaseKey // releases by age, the oldest at ringNext
	ringNext int

	waiting map[releaseKey]int32 // the youngest pending wait of a key
	queue   []pendingWait        // ring of joinWindow, oldest at queueNext once full
	next    int

	// folded are waits that no edge is kept for, because there are too many different ones.
	folded   uint64
	foldedNs int64
}

func newJoiner() *joiner {
	return &joiner{
		edges:    map[edgeKey]*edge{},
		releases: map[releaseKey]site{},
		waiting:  map[releaseKey]int32{},
	}
}

// event takes one event; others than waits and releases are ignored.
func (j *joiner) event(e *trace.Event) {
	switch e.Kind {
	case trace.KindRelease:
		j.released(releaseKey{e.Thread, e.Time}, site{e.Stack, e.Hook})
	case trace.KindWait:
		w := pendingWait{
			edgeKey: edgeKey{
				hook: e.Hook, object: e.Object, waiter: e.Thread, owner: e.Owner, releaser: e.Releaser,
				stack: e.Stack,
			},
			key: releaseKey{e.Releaser, e.Release}, ns: max(0, int64(e.Time-e.Start)), flags: e.Flags,
			claim: uint64(1000 * claimOf(e)),
		}
		if e.Releaser == 0 || e.Release == 0 {
			j.keep(w)
		} else if at, ok := j.releases[w.key]; ok {
			w.release = at
			j.keep(w)
		} else {
			j.wait(w)
		}
	}
}

// released remembers where a release happened and settles the waits that looked for it. One release may end
// several waits (a broadcast), so it stays for later ones.
func (j *joiner) released(key releaseKey, at site) {
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
		w.live, w.release = false, at
		j.keep(*w)
		i = w.prev
	}
	delete(j.waiting, key)
}

// wait queues a wait until its release comes by, and gives up the oldest where the queue is full.
func (j *joiner) wait(w pendingWait) {
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

func (j *joiner) keep(w pendingWait) {
	e := j.edges[w.edgeKey]
	if e == nil {
		if len(j.edges) >= maxEdges {
			j.folded++
			j.foldedNs += w.ns
			return
		}
		e = &edge{edgeKey: w.edgeKey}
		j.edges[w.edgeKey] = e
	}
	e.count++
	e.total += w.ns
	e.max = max(e.max, w.ns)
	if w.flags&trace.FlagCertain != 0 {
		e.sure++
	}
	if w.releaser != 0 {
		e.expected += w.claim
	}
	if w.flags&trace.FlagTimedOut != 0 {
		e.timedOut++
	}
	if w.flags&trace.FlagOpen != 0 {
		e.open++
	}
}

// finish settles what is pending and returns the edges, the heaviest first.
func (j *joiner) finish() []*edge {
	for i := range j.queue {
		if j.queue[i].live {
			j.queue[i].live = false
			j.keep(j.queue[i])
		}
	}
	edges := make([]*edge, 0, len(j.edges))
	for _, e := range j.edges {
		edges = append(edges, e)
	}
	slices.SortFunc(edges, func(a, b *edge) int {
		return cmp.Or(cmp.Compare(b.total, a.total), cmp.Compare(a.object, b.object),
			cmp.Compare(a.waiter, b.waiter), cmp.Compare(a.releaser, b.releaser), cmp.Compare(a.owner, b.owner),
			cmp.Compare(a.hook, b.hook), cmp.Compare(a.stack, b.stack), cmp.Compare(a.release.stack, b.release.stack),
			cmp.Compare(a.release.hook, b.release.hook))
	})
	return edges
}
