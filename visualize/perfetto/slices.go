// Spans, waits, calls and releases as slices: the writer as a [spans.Sink].

package perfetto

import (
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/hbtrace/hbtrace/analysis/detail"
	"github.com/hbtrace/hbtrace/analysis/spans"
	"github.com/hbtrace/hbtrace/trace"
)

// Begin implements [spans.Sink].
func (w *writer) Begin(s *spans.Span) error {
	q := w.seq(s.Thread)
	n := nameFrame | name(s.Frame)
	if iid := q.names.known(n); iid != 0 {
		var notes [1]note
		if w.brief(q, s.Start, typeSliceBegin, iid, notes[:w.edge(q, &notes[0], annBegan, "here or earlier", s.StartEdge)]) {
			return w.flush(false)
		}
	}
	pkt, ev := w.event(q, s.Start, typeSliceBegin)
	if s.StartEdge == spans.EdgeSeen && !w.o.NoSupport {
		w.annString(q, annBegan, "here or earlier")
	}
	w.name(q, n)
	return w.finish(q, pkt, ev)
}

// edge notes that an edge is the first or last sighting; it returns 1 where there is something to note.
func (w *writer) edge(q *sequence, n *note, a annotation, text string, edge spans.Edge) int {
	if edge != spans.EdgeSeen || w.o.NoSupport {
		return 0
	}
	// It is interned before the packet that names it is written: what is new goes the long way.
	*n = note{a, true, uint64(q.interns(text))}
	return 1
}

// End implements [spans.Sink]. Annotations of an end are its slice's. What goes without saying is not said: one stack, nothing
// inside, no time on a CPU or blocked. Times are in µs: nanoseconds would be digits that nobody knows, and a byte or two each.
func (w *writer) End(s *spans.Span) error {
	q := w.seq(s.Thread)
	var notes [mostNotes]note
	n := 0
	if !w.o.NoSupport {
		if s.Stacks != 1 {
			notes[n] = note{annStacks, false, s.Stacks}
			n++
		}
		if s.Inner != 0 {
			notes[n] = note{annSelf, false, micros(max(int64(s.End-s.Start)-s.Inner, 0))}
			n++
		}
		if s.CPU != 0 {
			notes[n] = note{annCPU, false, micros(s.CPU)}
			n++
		}
		if s.Blocked != 0 {
			notes[n] = note{annBlocked, false, micros(s.Blocked)}
			n++
		}
		n += w.edge(q, &notes[n], annEnded, "here or later", s.EndEdge)
	}
	if w.brief(q, s.End, typeSliceEnd, 0, notes[:n]) {
		return w.flush(false)
	}
	pkt, ev := w.event(q, s.End, typeSliceEnd)
	for _, x := range notes[:n] {
		if x.text {
			w.annString(q, x.ann, "here or later")
		} else {
			w.annUint(q, x.ann, x.v)
		}
	}
	return w.finish(q, pkt, ev)
}

func micros(ns int64) uint64 { return uint64((ns + 500) / 1000) }

// Interval implements [spans.Sink].
func (w *writer) Interval(iv *spans.Interval) error {
	e := iv.Event
	q := w.seq(e.Thread)
	pkt, ev := w.event(q, iv.Start, typeSliceBegin)
	if e.Hook == 0 {
		w.name(q, otherWait)
	} else {
		w.name(q, nameHook|name(e.Hook))
	}
	if e.Kind == trace.KindCall {
		w.category(q, catCall)
	} else {
		w.category(q, catLock)
	}
	w.describeInterval(q, iv)
	return w.finish(q, pkt, ev)
}

// Return implements [spans.Sink].
func (w *writer) Return(iv *spans.Interval) error {
	q := w.seq(iv.Event.Thread)
	if iv.Event.Releaser != 0 {
		if err := w.arrow(q, iv); err != nil {
			return err
		}
	}
	if w.brief(q, iv.End, typeSliceEnd, 0, nil) {
		return w.flush(false)
	}
	pkt, ev := w.event(q, iv.End, typeSliceEnd)
	return w.finish(q, pkt, ev)
}

func (w *writer) describeInterval(q *sequence, iv *spans.Interval) {
	e := iv.Event
	h := w.hook(e.Hook)
	switch {
	case h.fd:
		w.annInt(q, annFD, int64(e.Object))
	case e.Object != 0:
		w.annObject(q, e.Object)
	}
	if e.Object2 != 0 {
		w.annPointer(q, annMutex, e.Object2)
	}
	if e.Owner != 0 {
		w.annString(q, annOwner, w.who(e.Owner))
	}
	if e.Releaser != 0 {
		w.annString(q, annReleaser, w.who(e.Releaser))
		w.annBool(q, annReleaserSure, e.Flags&trace.FlagCertain != 0)
		if e.Weight > 1 {
			w.annUint(q, annCandidates, e.Weight)
			if e.Size != 0 {
				w.annUint(q, annChance, (e.Size+5)/10)
			}
		}
		if e.Release != 0 {
			w.annInt(q, annReleased, int64(e.Time-e.Release))
		}
	}
	if w.chains != nil && e.Kind == trace.KindWait {
		x := w.chains.Of(e.Thread, e.Time)
		if x.Waker != 0 {
			w.annString(q, annWaker, w.who(x.Waker))
		}
		if x.Taken.Stack != 0 {
			w.annString(q, annTaken, w.stack(x.Taken.Stack))
		}
		if x.What != "" {
			w.annString(q, annSpent, x.What)
			if x.By != 0 {
				w.annString(q, annSpentBy, w.who(x.By))
			}
		}
	}
	w.annInt(q, annResult, e.Result)
	for _, o := range [...]struct {
		flag trace.Flags
		text string
	}{
		{trace.FlagOpen, "still waiting when the recording ended"},
		{trace.FlagInterrupted, "interrupted"},
		{trace.FlagTimedOut, "timed out"},
		{trace.FlagUnwound, "left by an exception, cancellation or longjmp"},
		{trace.FlagFailed, "failed"},
	} {
		if e.Flags&o.flag != 0 {
			w.annString(q, annOutcome, o.text)
			break
		}
	}
	if iv.Clipped {
		w.annBool(q, annClipped, true)
		w.annInt(q, annDuration, int64(e.Time-e.Start)) // which is not the slice's
	}
}

// maxStackText bounds a stack in an annotation: it is there to be read.
const maxStackText = 12

// stack is a stack in a line, leaf first.
func (w *writer) stack(id trace.StackID) string {
	var names []string
	path := w.tab.Path(nil, id)
	for i := len(path) - 1; i >= 0 && len(names) < maxStackText; i-- {
		set := w.tab.Of(path[i])
		for j := len(set) - 1; j >= 0; j-- {
			names = append(names, w.tab.Frame(set[j].ID).Name)
		}
	}
	return strings.Join(names, " ← ")
}

// annObject gives the address of a lock or the like, and its name where there is one.
func (w *writer) annObject(q *sequence, object uint64) {
	w.annPointer(q, annObject, object)
	if name := w.tab.Variable(object); name != "" {
		w.annString(q, annVariable, name)
	}
}

// arrow ends the flow from the release that ended a wait, at the wait's end.
func (w *writer) arrow(q *sequence, iv *spans.Interval) error {
	e := iv.Event
	pkt, ev := w.event(q, iv.End, typeInstant)
	w.name(q, nameWokenBy|name(e.Releaser))
	w.category(q, catLock)
	w.out.fixed64(eventFlowTerminate, iv.Tag)
	return w.finish(q, pkt, ev)
}

// created draws the flow from a thread to one that it created.
func (w *writer) created(e *trace.Event) error {
	t := w.thr[e.Thread]
	if t == nil || t.Parent == 0 || t.Parent == t.ID {
		return nil
	}
	w.flows++
	w.list(t.Parent)
	s := &w.main
	for _, x := range [...]struct {
		on   trace.ThreadID
		name name
		flow protowire.Number
	}{{t.Parent, otherCreates, eventFlow}, {t.ID, nameCreatedBy | name(t.Parent), eventFlowTerminate}} {
		pkt, ev := w.event(s, e.Time, typeInstant)
		w.out.uint(eventTrack, threadTrack(x.on))
		w.name(s, x.name)
		w.category(s, catLife)
		if x.on == t.Parent {
			w.annString(s, annThread, w.who(t.ID))
		}
		w.out.fixed64(x.flow, w.flows)
		if err := w.finish(s, pkt, ev); err != nil {
			return err
		}
	}
	return nil
}

// attached marks on the processes' tracks when hbtrace came to programs that ran already, and when it left.
func (w *writer) attached() error {
	s := &w.main
	for _, a := range w.meta.Attached {
		for _, m := range []struct {
			at   trace.Ns
			name name
		}{{a.At, otherAttached}, {a.Left, otherDetached}} {
			if a.Proc == 0 || m.at == 0 {
				continue
			}
			pkt, ev := w.event(s, m.at, typeInstant)
			w.out.uint(eventTrack, procTrack(a.Proc))
			w.name(s, m.name)
			w.category(s, catLife)
			if err := w.finish(s, pkt, ev); err != nil {
				return err
			}
		}
	}
	return nil
}

// knob marks on the first thread's process that more or less detail is recorded from here on.
func (w *writer) knob(e *trace.Event) error {
	t := w.thr[e.Thread]
	if t == nil {
		return nil
	}
	s := &w.main
	pkt, ev := w.event(s, e.Time, typeInstant)
	w.out.uint(eventTrack, procTrack(t.Proc))
	w.name(s, otherKnob)
	w.category(s, catLife)
	w.annString(s, annResult, detail.Text(trace.Knob(e.Object), e.Size))
	return w.finish(s, pkt, ev)
}

// Point implements [spans.Sink].
func (w *writer) Point(e *trace.Event, _ int, flow uint64) error {
	q := w.seq(e.Thread)
	pkt, ev := w.event(q, e.Time, typeInstant)
	if e.Kind == trace.KindLost {
		w.name(q, otherLost)
		w.category(q, catLost)
		w.annUint(q, annCount, uint64(e.Count))
		return w.finish(q, pkt, ev)
	}
	if e.Hook == 0 {
		w.name(q, otherRelease)
	} else {
		w.name(q, nameHook|name(e.Hook))
	}
	w.category(q, catRelease)
	if e.Object != 0 {
		w.annObject(q, e.Object)
	}
	if e.Owner != 0 {
		w.annString(q, annWaiter, w.who(e.Owner))
	}
	if e.Debt != 0 {
		w.annInt(q, annDebt, e.Debt)
	}
	if e.Release != 0 && e.Release <= e.Time {
		w.annInt(q, annHeld, int64(e.Time-e.Release))
	}
	w.out.fixed64(eventFlow, flow)
	return w.finish(q, pkt, ev)
}
