// The kernel's scheduling of the recording's threads, where it was recorded, as the events of ftrace that Perfetto makes
// its CPU tracks, thread states and critical paths of.
//
// What is recorded are times off a CPU. A thread was on one in between: from the end of one such time to the beginning
// of the next. Of every CPU these are put in order; which other thread ran there is not known, and shown as the idle task.

package perfetto

import (
	"cmp"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/hbtrace/hbtrace/analysis/frames"
	"github.com/hbtrace/hbtrace/trace"
)

// Field numbers of protos/perfetto/trace/ftrace/*.proto.
const (
	packetFtrace = 1

	bundleCPU   = 1
	bundleEvent = 2

	ftraceTimestamp = 1 // CLOCK_BOOTTIME unless the bundle says otherwise
	ftracePID       = 2
	ftraceFlags     = 5
	ftraceSwitch    = 4
	ftraceWaking    = 20

	switchPrevComm  = 1
	switchPrevPID   = 2
	switchPrevPrio  = 3
	switchPrevState = 4
	switchNextComm  = 5
	switchNextPID   = 6
	switchNextPrio  = 7

	wakingComm      = 1
	wakingPID       = 2
	wakingPrio      = 3
	wakingSuccess   = 4
	wakingTargetCPU = 5

	flagHardIRQ  = 0x08
	stateDead    = 0x10
	priority     = 120 // SCHED_OTHER's; what each thread has is not recorded
	maxSchedMove = 8 << 20
)

// move is a thread going on or off a CPU, or being woken.
type move struct {
	at     trace.Ns
	thread trace.ThreadID
	waker  int32 // tid; wakings only
	cpu    uint16
	kind   moveKind
	state  uint8 // when it goes off
	irq    bool
}

type moveKind uint8

// In the order in which they happen at one instant.
const (
	moveOff moveKind = iota
	moveWake
	moveOn
)

// sched gathers the moves of a recording.
type sched struct {
	moves []move
	left  uint64
}

func (s *sched) add(e *trace.Event) {
	if e.Kind != trace.KindOff {
		return
	}
	if len(s.moves) >= maxSchedMove {
		s.left++
		return
	}
	if e.Weight != trace.OffNew {
		state := uint8(e.Result)
		if e.Result < 0 || e.Result > 0x7f {
			state = trace.OffInterruptible
		}
		s.moves = append(s.moves, move{at: e.Start, thread: e.Thread, cpu: uint16(e.Object), kind: moveOff, state: state})
	}
	if e.Release != 0 {
		s.moves = append(s.moves, move{at: e.Release, thread: e.Thread, waker: int32(e.Size), cpu: uint16(e.Object2), kind: moveWake, irq: e.Weight == trace.OffByInterrupt})
	}
	if e.Flags&trace.FlagOpen == 0 {
		s.moves = append(s.moves, move{at: e.Time, thread: e.Thread, cpu: uint16(e.Object2), kind: moveOn})
	}
}

// sched writes the events of all CPUs.
func (w *writer) sched(s *sched) error {
	if len(s.moves) == 0 {
		return nil
	}
	slices.SortStableFunc(s.moves, func(x, y move) int {
		return cmp.Or(cmp.Compare(x.at, y.at), cmp.Compare(x.kind, y.kind))
	})
	s.endings(w)
	slices.SortStableFunc(s.moves, func(x, y move) int {
		return cmp.Or(cmp.Compare(x.cpu, y.cpu), cmp.Compare(x.at, y.at), cmp.Compare(x.kind, y.kind))
	})
	for i := 0; i < len(s.moves); {
		j := i
		for j < len(s.moves) && s.moves[j].cpu == s.moves[i].cpu {
			j++
		}
		if err := w.cpu(s.moves[i:j]); err != nil {
			return err
		}
		i = j
	}
	return nil
}

// endings takes threads off their CPUs when they end, or the recording does.
func (s *sched) endings(w *writer) {
	on := map[trace.ThreadID]move{}
	for _, m := range s.moves {
		switch m.kind {
		case moveOn:
			on[m.thread] = m
		case moveOff:
			delete(on, m.thread)
		}
	}
	ids := make([]trace.ThreadID, 0, len(on))
	for id := range on {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for _, id := range ids {
		m := on[id]
		off := move{at: w.meta.EndNs, thread: id, cpu: m.cpu, kind: moveOff}
		if t := w.thr[id]; t != nil && t.End != 0 {
			off.at, off.state = t.End, stateDead
		}
		off.at = max(off.at, m.at)
		s.moves = append(s.moves, off)
	}
}

// cpu writes one CPU's events.
func (w *writer) cpu(moves []move) error {
	var on trace.ThreadID // 0: idle, or somebody who is not recorded
	for len(moves) > 0 {
		p := &w.out
		pkt := p.open(tracePacket)
		p.uint(packetSequenceID, mainSequence)
		bundle := p.open(packetFtrace)
		p.uint(bundleCPU, uint64(moves[0].cpu))
		begin := len(p.b)
		for len(moves) > 0 && len(p.b)-begin < batchBytes/2 {
			moves = moves[w.step(moves, &on):]
		}
		p.close(bundle)
		p.close(pkt)
		if err := w.flush(false); err != nil {
			return err
		}
	}
	return nil
}

// step writes the first event, and returns how many moves it stands for: one thread leaving and another one coming at
// the same instant are one switch. Times off a CPU below the recording's threshold are missing: where a thread leaves
// that another one had not made room for, or comes while another is there, the switch between the two is put in.
func (w *writer) step(moves []move, on *trace.ThreadID) int {
	m := &moves[0]
	switch m.kind {
	case moveWake:
		w.ftrace(m.at, int64(m.waker), ftraceWaking, func(p *buffer) {
			p.string(wakingComm, w.comm(m.thread))
			p.int(wakingPID, int64(w.tid(m.thread)))
			p.int(wakingPrio, priority)
			p.int(wakingSuccess, 1)
			p.int(wakingTargetCPU, int64(m.cpu))
		}, m.irq)
		return 1
	case moveOn:
		if *on != m.thread {
			w.change(m.at, *on, m.thread, 0)
		}
		*on = m.thread
		return 1
	}
	if *on != m.thread {
		w.change(m.at, *on, m.thread, 0)
	}
	*on = 0
	if len(moves) > 1 && moves[1].kind == moveOn && moves[1].at == m.at {
		w.change(m.at, m.thread, moves[1].thread, m.state)
		*on = moves[1].thread
		return 2
	}
	w.change(m.at, m.thread, 0, m.state)
	return 1
}

// change writes a switch. Thread 0 stands for all that are not recorded.
func (w *writer) change(at trace.Ns, prev, next trace.ThreadID, state uint8) {
	w.ftrace(at, int64(w.tid(prev)), ftraceSwitch, func(p *buffer) {
		p.string(switchPrevComm, w.comm(prev))
		p.int(switchPrevPID, int64(w.tid(prev)))
		p.int(switchPrevPrio, priority)
		p.int(switchPrevState, int64(state))
		p.string(switchNextComm, w.comm(next))
		p.int(switchNextPID, int64(w.tid(next)))
		p.int(switchNextPrio, priority)
	}, false)
}

func (w *writer) ftrace(at trace.Ns, pid int64, field protowire.Number, body func(*buffer), irq bool) {
	p := &w.out
	ev := p.open(bundleEvent)
	p.uint(ftraceTimestamp, uint64(max(int64(at)+w.meta.BoottimeOffset, 0)))
	p.int(ftracePID, pid)
	if irq {
		p.uint(ftraceFlags, flagHardIRQ)
	}
	x := p.open(field)
	body(p)
	p.close(x)
	p.close(ev)
}

func (w *writer) tid(id trace.ThreadID) int {
	if t := w.thr[id]; t != nil {
		return t.TID
	}
	return 0
}

func (w *writer) comm(id trace.ThreadID) string {
	if t := w.thr[id]; t != nil {
		return frames.Valid(t.Name)
	}
	return "swapper"
}
