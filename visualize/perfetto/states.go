// A track under each thread that says what it did: running, waiting for a lock, reading or writing, … as far as is known
// without the kernel's help; time of which nothing is known is empty.
//
// These are slices, and no thread states as Perfetto makes them of the kernel's scheduling (sched.go): a thread state goes on
// until the next one, so that nothing could be unknown, and "Running" needs the number of a CPU, which nobody tells us.
//
// The CPU time of a sample was used since the thread's sample before, outside recorded waits and calls; how it lies in there
// is not known. As on the page, it is put up against the sample; what is left in front of it was off the CPU.

package perfetto

import (
	"github.com/hbtrace/hbtrace/analysis/weigh"
	"github.com/hbtrace/hbtrace/trace"
)

// doing is one thing that a thread did.
type doing struct {
	from, to trace.Ns
	state    weigh.State
}

// states makes the slices of one thread.
type states struct {
	thread   trace.ThreadID
	until    trace.Ns // everything before is told
	known    bool     // until is where a sample was taken, or the thread began: what follows is accounted for by the next one
	waits    []doing  // since until, in order, without overlap
	put      doing    // told, but not written: what comes next may be the same; state Unknown: nothing
	sequence sequence
}

// mostWaits without a sample are kept until one comes: 100 KB. Of the time before it is then known what was waited for, and
// no more.
const mostWaits = 4096

type stateKey struct {
	kind  trace.Kind
	hook  trace.HookID
	stack trace.StackID
}

// stateOf is what a wait or call is.
func (w *writer) stateOf(e *trace.Event) weigh.State {
	k := stateKey{e.Kind, e.Hook, 0}
	if e.Kind == trace.KindWait {
		k.stack = e.Stack
	}
	s, ok := w.stateKinds[k]
	if !ok {
		s = weigh.StateOf(e.Kind, w.meta.Hooks[e.Hook], e.Kind == trace.KindWait && w.locking.Wait(e.Hook, e.Stack))
		w.stateKinds[k] = s
	}
	return s
}

// does takes the thread's next event.
func (w *writer) does(e *trace.Event) error {
	switch e.Kind {
	case trace.KindCPU, trace.KindWait, trace.KindCall, trace.KindLost, trace.KindThreadStart, trace.KindThreadExit:
	default:
		return nil
	}
	t := w.states[e.Thread]
	if t == nil {
		t = &states{thread: e.Thread, sequence: sequence{id: statesSequence(e.Thread), track: statesTrack(e.Thread)}}
		w.states[e.Thread] = t
	}
	at := max(e.Time, t.until)
	switch e.Kind {
	case trace.KindThreadStart:
		t.until, t.known = at, true
	case trace.KindWait, trace.KindCall:
		from := e.Start
		if len(t.waits) > 0 {
			from = max(from, t.waits[len(t.waits)-1].to)
		}
		if from = max(from, t.until); from >= e.Time {
			return nil
		}
		t.waits = append(t.waits, doing{from, e.Time, w.stateOf(e)})
		if len(t.waits) < mostWaits {
			return nil
		}
		return w.account(t, at, 0, false)
	case trace.KindLost:
		return w.account(t, at, 0, false)
	case trace.KindCPU:
		cpu := trace.Ns(max(e.CPU, 0))
		if cpu == 0 {
			return nil // no sampling point was passed
		}
		return w.account(t, at, cpu, true)
	case trace.KindThreadExit:
		if err := w.account(t, at, trace.Ns(max(e.CPU, 0)), true); err != nil {
			return err
		}
		delete(w.states, e.Thread)
		return w.write(t, doing{})
	}
	return nil
}

// account tells what a thread did up to a time: its waits, and between them cpu ns of running, as late as there is room,
// in front of that off the CPU where a sample accounts for the time.
func (w *writer) account(t *states, at, cpu trace.Ns, sampled bool) error {
	// A sample within a wait was taken as the thread came out of the call: it is of the time before.
	if n := len(t.waits); n > 0 {
		at = max(at, t.waits[n-1].to)
	}
	free := at - t.until
	for i := range t.waits {
		free -= t.waits[i].to - t.waits[i].from
	}
	off := max(free-cpu, 0) // comes first
	rest := weigh.Unknown
	if sampled && t.known {
		rest = weigh.Off
	}
	between := func(from, to trace.Ns) error {
		mid := min(from+off, to)
		off -= mid - from
		if err := w.write(t, doing{from, mid, rest}); err != nil {
			return err
		}
		state := weigh.Running
		if !sampled {
			state = weigh.Unknown
		}
		return w.write(t, doing{mid, to, state})
	}
	from := t.until
	for _, d := range t.waits {
		if err := between(from, d.from); err != nil {
			return err
		}
		if err := w.write(t, d); err != nil {
			return err
		}
		from = d.to
	}
	if err := between(from, at); err != nil {
		return err
	}
	t.waits, t.until, t.known = t.waits[:0], at, sampled
	return nil
}

// write writes what came before when d is something else.
func (w *writer) write(t *states, d doing) error {
	p := &t.put
	if d.from == d.to && d.state != weigh.Unknown {
		return nil
	}
	if p.state == d.state && p.to == d.from {
		p.to = d.to
		return nil
	}
	if p.state != weigh.Unknown && p.to > p.from {
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
		}{{p.from, typeSliceBegin}, {p.to, typeSliceEnd}} {
			pkt, ev := w.event(&t.sequence, x.at, x.typ)
			if x.typ == typeSliceBegin {
				w.name(&t.sequence, nameState|name(p.state))
				w.category(&t.sequence, catState)
			}
			if err := w.finish(&t.sequence, pkt, ev); err != nil {
				return err
			}
		}
	}
	*p = d
	return nil
}

// stay writes what is left at the end of the recording.
func (w *writer) stay(id trace.ThreadID) error {
	t := w.states[id]
	if err := w.account(t, t.until, 0, false); err != nil {
		return err
	}
	return w.write(t, doing{})
}
