// Deadlocks: threads that wait for each other to the end of the recording.

package blame

import (
	"math"
	"slices"

	"github.com/hbtrace/hbtrace/analysis/weigh"
	"github.com/hbtrace/hbtrace/trace"
)

// deadlocks finds cycles among the waits that had not ended. Who holds what is judged at the end of the wait: an
// owner that was seen to let go since is none.
func (a *Analyser) deadlocks() {
	open := map[trace.ThreadID]*interval{}
	for i := range a.line.intervals {
		iv := &a.line.intervals[i]
		if iv.wait && iv.flags&trace.FlagOpen != 0 {
			open[iv.thread] = iv
		}
	}
	holder := map[trace.ThreadID]trace.ThreadID{}
	var pieces []piece
	for t, iv := range open {
		pieces = a.pieces(pieces[:0], iv, iv.end-1, iv.end, math.MaxInt)
		n := len(pieces)
		if n == 0 || pieces[n-1].holder == 0 {
			continue
		}
		h := pieces[n-1].holder
		if a.gone[goneKey{Object{a.procOf[t], iv.object}, h}] >= iv.start {
			continue // let go in a window that is forgotten
		}
		holder[t] = h
	}
	var threads []trace.ThreadID
	for t := range holder {
		threads = append(threads, t)
	}
	slices.Sort(threads)
	done := map[trace.ThreadID]bool{}
	for _, t := range threads {
		var path []trace.ThreadID
		at := map[trace.ThreadID]int{} // in path
		for x := t; !done[x]; x = holder[x] {
			if holder[x] == 0 {
				break
			}
			if i, ok := at[x]; ok {
				a.res.Deadlocks = append(a.res.Deadlocks, a.deadlock(path[i:], open))
				break
			}
			at[x] = len(path)
			path = append(path, x)
		}
		for _, x := range path {
			done[x] = true
		}
	}
}

func (a *Analyser) deadlock(threads []trace.ThreadID, open map[trace.ThreadID]*interval) Deadlock {
	var d Deadlock
	for _, t := range threads {
		iv := open[t]
		d.Threads = append(d.Threads, Held{
			t, trace.Site{Stack: iv.stack, Hook: iv.hook}, weigh.ObjectKind(a.src.Meta().Hooks[iv.hook]), Object{a.procOf[t], iv.object}, iv.start,
		})
		d.Since = max(d.Since, iv.start)
		d.Until = max(d.Until, iv.end)
	}
	return d
}
