// A track under each thread that says what it did: running, waiting for a lock, reading or writing, … as package timeline
// finds it; time of which nothing is known is empty.
//
// These are slices, and no thread states as Perfetto makes them of the kernel's scheduling (sched.go): a thread state goes on
// until the next one, so that nothing could be unknown, and "Running" needs the number of a CPU, which nobody tells us.

package perfetto

import (
	"github.com/hbtrace/hbtrace/analysis/timeline"
	"github.com/hbtrace/hbtrace/analysis/weigh"
	"github.com/hbtrace/hbtrace/trace"
)

// states makes the slices of one thread.
type states struct {
	thread   trace.ThreadID
	put      timeline.Segment // not written yet: what comes next may go on with it; state Unknown: nothing
	sequence sequence
}

// stateSink takes the segments of all threads.
type stateSink struct {
	timeline.Discard
	w *writer
}

// Segment implements [timeline.Sink].
func (k stateSink) Segment(id trace.ThreadID, s *timeline.Segment) error {
	w := k.w
	t := w.states.Get(id)
	if t == nil {
		t = &states{thread: id, sequence: sequence{id: statesSequence(id), track: statesTrack(id)}}
		w.states.Put(id, t)
	}
	if t.put.State == s.State && t.put.To == s.From {
		t.put.To = s.To
		return nil
	}
	err := w.slice(t)
	t.put = *s
	return err
}

// slice writes the segment that was put last.
func (w *writer) slice(t *states) error {
	p := &t.put
	if p.State == weigh.Unknown {
		return nil
	}
	if !t.sequence.begun {
		w.list(t.thread)
		start := w.meta.StartNs
		if th := w.thr[t.thread]; th != nil {
			start = th.Start // not before its parent, which importers would take for another thread of that number
		}
		w.track(t.sequence.track, threadTrack(t.thread), 0, start, func(b *buffer) { b.string(trackName, "state") })
	}
	for _, x := range [...]struct {
		at  trace.Ns
		typ uint64
	}{{p.From, typeSliceBegin}, {p.To, typeSliceEnd}} {
		pkt, ev := w.event(&t.sequence, x.at, x.typ)
		if x.typ == typeSliceBegin {
			w.name(&t.sequence, nameState|name(p.State))
			w.category(&t.sequence, catState)
		}
		if err := w.finish(&t.sequence, pkt, ev); err != nil {
			return err
		}
	}
	return nil
}

// stay writes what is left of a thread at its end, or the recording's.
func (w *writer) stay(id trace.ThreadID) error {
	t := w.states.Get(id)
	if t == nil {
		return nil
	}
	w.states.Delete(id)
	return w.slice(t)
}
