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

// take finds the release of object nearest to at and not after end, and gives its flow away: a flow has one arrow,
// so that a broadcast's second waiter needs another.
func (r *releases) take(object uint64, at, end trace.Ns) (flow uint64) {
	best, found := trace.Ns(joinNs+1), -1
	for i := range r.ring {
		x := &r.ring[i]
		d := max(x.time-at, at-x.time)
		if x.flow != 0 && x.object == object && x.time <= end && d < best {
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
