// Events and waits: written while the recording is read.

package tables

import (
	"github.com/hbtrace/hbtrace/analysis/edges"
	"github.com/hbtrace/hbtrace/analysis/frames"
	"github.com/hbtrace/hbtrace/analysis/weigh"
	"github.com/hbtrace/hbtrace/trace"
)

// kinds are the names of trace.Kind in the events table.
var kinds = [...]string{
	trace.KindCPU: "cpu", trace.KindGap: "gap", trace.KindSync: "sync", trace.KindEnter: "enter", trace.KindWait: "wait",
	trace.KindCall: "call", trace.KindRelease: "release", trace.KindAlloc: "alloc", trace.KindFree: "free",
	trace.KindThreadStart: "thread_start", trace.KindThreadExit: "thread_exit", trace.KindLost: "lost", trace.KindOff: "off",
	trace.KindHold: "hold", trace.KindUsage: "usage", trace.KindKnob: "knob",
}

type events struct {
	x      *export
	events *writer[eventRow]
	waits  *writer[waitRow]
}

func newEvents(x *export) (*events, error) {
	e, err := newWriter(x, "events", "ts", func(r *eventRow) int64 { return r.At })
	if err != nil {
		return nil, err
	}
	w, err := newWriter(x, "waits", "ts", func(r *waitRow) int64 { return r.At })
	if err != nil {
		return nil, err
	}
	return &events{x, e, w}, nil
}

func (s *events) addBatch(batch []trace.Event) error {
	for i := range batch {
		if err := s.add(&batch[i]); err != nil {
			return err
		}
	}
	return nil
}

func (s *events) add(e *trace.Event) error {
	x := s.x
	stack := x.stacks.of(trace.Site{Stack: e.Stack, Hook: e.Hook})
	kind := "unknown"
	if int(e.Kind) < len(kinds) && kinds[e.Kind] != "" {
		kind = kinds[e.Kind]
	}
	err := s.events.add(eventRow{
		Recording: x.id, At: x.at(e.Time), SinceNs: max(0, int64(e.Time-e.Start)), Kind: kind, Thread: int64(e.Thread), Stack: stack,
		Count: int32(e.Count), CPUNs: e.CPU, Object: e.Object, Size: e.Size, Weight: e.Weight, DebtNs: e.Debt, Result: e.Result,
		Flags: int32(e.Flags),
	})
	if err != nil || e.Kind != trace.KindWait && e.Kind != trace.KindCall {
		return err
	}
	meta := x.src.Meta()
	hook := meta.Hooks[e.Hook]
	lock := e.Kind == trace.KindWait && x.locking.Wait(e.Hook, e.Stack)
	row := waitRow{
		Recording: x.id, At: x.at(e.Time), Ns: max(0, int64(e.Time-e.Start)), Process: int32(x.proc[e.Thread]), Thread: int64(e.Thread),
		State: weigh.StateOf(e.Kind, hook, lock).Label(), Call: frames.HookName(meta, e.Hook), Object: e.Object, Stack: stack,
		Owner: int64(e.Owner), Releaser: int64(e.Releaser), Certain: e.Flags&trace.FlagCertain != 0,
		TimedOut: e.Flags&trace.FlagTimedOut != 0, Open: e.Flags&trace.FlagOpen != 0, Result: e.Result,
	}
	if e.Kind == trace.KindWait {
		row.Kind = weigh.ObjectKind(hook)
	}
	if e.Releaser != 0 {
		row.Probability = edges.Claim(e)
	}
	return s.waits.add(row)
}

func (s *events) close() error {
	if err := s.events.close(); err != nil {
		return err
	}
	return s.waits.close()
}
