// Flow arrows: which release ended which wait.

package perfetto

import "github.com/hbtrace/hbtrace/trace"

// Recent releases that are remembered per thread, to be joined with the waits that they ended.
const recentReleases = 16

// joinNs is how far the time in a wait may lie from that of the release it names.
const joinNs = 20_000

type release struct {
	object uint64
	time   trace.Ns
	flow   uint64 // 0: empty, or an arrow leaves it already
}

type releases struct {
	ring [recentReleases]release
	next int
}

func (r *releases) add(x release) {
	r.ring[r.next] = x
	r.next = (r.next + 1) % recentReleases
}

// flow is the number of the arrow that a stored event begins or ends: a release's own, and for an interval that of the
// release that ended it, 0 where none is remembered. It is asked in stored order, which is that of the releases.
func (w *writer) flow(e *trace.Event) uint64 {
	switch {
	case e.Kind == trace.KindRelease:
		w.flows++
		r := w.rel.Get(e.Thread)
		if r == nil {
			r = &releases{}
			w.rel.Put(e.Thread, r)
		}
		r.add(release{e.Object, e.Time, w.flows})
		return w.flows
	case e.Releaser != 0 && (e.Kind == trace.KindWait || e.Kind == trace.KindCall):
		if r := w.rel.Get(e.Releaser); r != nil {
			return r.take(e.Object, releasedAt(e), e.Time)
		}
	}
	return 0
}

// releasedAt is when the wait's own account says that it was let go: before it ended, or readers do not know which way the
// arrow goes.
func releasedAt(e *trace.Event) trace.Ns {
	if e.Release == 0 || e.Release >= e.Time {
		return e.Time - 1
	}
	return e.Release
}

// given is the release of an interval that no recorded one is joined with, as an event of the releaser. Owner is whom it let go.
func given(e *trace.Event) *trace.Event {
	at := releasedAt(e)
	return &trace.Event{
		Kind: trace.KindRelease, Flags: trace.FlagNoStack, Thread: e.Releaser, Time: at, Start: at, Object: e.Object, Owner: e.Thread,
	}
}

// take finds the release of object nearest to at and before end, and gives its flow away: a flow has one arrow,
// so that a broadcast's second waiter needs another.
func (r *releases) take(object uint64, at, end trace.Ns) (flow uint64) {
	best, found := trace.Ns(joinNs+1), -1
	for i := range r.ring {
		x := &r.ring[i]
		d := max(x.time-at, at-x.time)
		if x.flow != 0 && x.object == object && x.time < end && d < best {
			best, found = d, i
		}
	}
	if found < 0 {
		return 0
	}
	flow = r.ring[found].flow
	r.ring[found].flow = 0
	return flow
}
