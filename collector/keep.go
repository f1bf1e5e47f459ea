// A session that keeps its newest events in memory instead of writing all of them: the flight recorder.
package collector

import (
	"fmt"
	"sync"
	"syscall"
	"time"

	"github.com/hbtrace/hbtrace/flight"
	"github.com/hbtrace/hbtrace/segment"
	"github.com/hbtrace/hbtrace/trace"
)

const (
	keyframeEvery = time.Second
	rateOver      = 3 * time.Second // that the rate of events is told over
)

// keeping is the flight recorder's part of a session. Unless said otherwise it belongs to the session's goroutine.
type keeping struct {
	s      *session
	w      *flight.Window
	server *flight.Server
	fire   *firing

	lastKey  time.Time
	rateFrom time.Time // since when rate counts
	rateAt   uint64    // events then
	rate     float64
	held     flight.Held    // at the end
	open     []trace.Event  // of a keyframe
	counted  []trace.Thread // likewise

	ask  chan keepRequest
	quit chan struct{}
	once sync.Once
}

type keepRequest struct {
	flight.Request
	answer chan flight.Status
}

// openKeep makes the window, and lets others ask for dumps.
func (s *session) openKeep() error {
	k := &keeping{s: s, ask: make(chan keepRequest), quit: make(chan struct{})}
	var err error
	if k.server, err = flight.Listen(k.request); err != nil {
		return err
	}
	k.w, err = flight.Create(flight.Config{Keep: s.opt.Keep, Meta: &s.meta, Stacks: s.stacks, Socket: k.server.Name})
	if err != nil {
		k.close()
		return err
	}
	if text, err := flight.Room(s.opt.Keep.Size()); err == nil {
		s.remark("flight recorder " + k.w.Info().Name + ": " + text)
	}
	k.fire = newFiring(k, s.opt.Dumps)
	s.keep = k
	return nil
}

// began says that the session can be read, and which process is its program.
func (k *keeping) began(pid int) {
	if k == nil {
		return
	}
	if err := k.w.SetProgram(pid); err != nil {
		k.s.notes.add(err.Error())
	}
	if k.s.opt.KeepBegun != nil {
		k.s.opt.KeepBegun(k.w.Info().Name)
	}
}

// request passes a client's request on to the session's goroutine. Called from the server.
func (k *keeping) request(r flight.Request) flight.Status {
	ended := flight.Status{Error: "the recording has ended"}
	answer := make(chan flight.Status, 1)
	select {
	case k.ask <- keepRequest{r, answer}:
	case <-k.quit:
		return ended
	}
	return <-answer
}

// asks is where requests come from; nil without a window.
func (k *keeping) asks() chan keepRequest {
	if k == nil {
		return nil
	}
	return k.ask
}

// serve answers a request.
func (k *keeping) serve(r keepRequest) {
	if r.Op == flight.OpDump {
		k.complete()
	}
	r.answer <- k.status()
}

// complete writes down everything up to now.
func (k *keeping) complete() {
	k.s.pass()
	k.s.pass() // the second makes events of what the first took in
	k.s.asm.Refresh()
	k.keyframe()
}

func (k *keeping) status() flight.Status {
	s := k.s
	st := flight.Status{
		Held: k.w.Held(), Lost: s.lost(), EventsPerSecond: k.rate, Processes: s.alive(), Now: segment.Now(),
		Triggers: k.fire.engine.List(), Dumps: k.fire.paths(),
	}
	if err := k.w.Err(); err != nil {
		st.Error = err.Error()
	}
	if past := time.Since(s.begun); past > 0 {
		var u syscall.Rusage
		if syscall.Getrusage(syscall.RUSAGE_SELF, &u) == nil {
			used := u.Utime.Nano() + u.Stime.Nano() - s.usage.Utime.Nano() - s.usage.Stime.Nano()
			st.Overhead = float64(used) / float64(past)
		}
	}
	return st
}

// keyframe writes down what threads are in, and what they have used.
func (k *keeping) keyframe() {
	k.open, k.counted = k.open[:0], k.counted[:0]
	now := k.s.asm.Open(
		func(t *trace.Thread) { k.counted = append(k.counted, *t) },
		func(e *trace.Event) { k.open = append(k.open, *e) },
	)
	k.w.Keyframe(flight.State{Time: now, Lost: k.s.lost(), Threads: k.counted, Open: k.open})
	k.lastKey = time.Now()
}

// tend does what is due now and then.
func (k *keeping) tend(now time.Time) {
	if now.Sub(k.lastKey) >= keyframeEvery {
		k.keyframe()
		if k.w.DueCollect() {
			k.collect(0)
		}
	}
	k.fire.tend(now)
	if d := now.Sub(k.rateFrom); d >= rateOver {
		k.rate = float64(k.s.produced-k.rateAt) / d.Seconds()
		k.rateFrom, k.rateAt = now, k.s.produced
	}
}

// collect takes out of the stack table what the window does not need.
func (k *keeping) collect(building trace.StackID) {
	s := k.s
	taken := k.w.Collect(trace.Ns(segment.Now()), func(mark func(trace.StackID)) {
		s.asm.Stacks(mark)
		mark(building)
	}, func(t trace.ThreadID) {
		delete(s.samples, t)
		delete(s.sent, t)
	})
	s.stats.NodesCollected += uint64(taken)
}

// event takes in an event.
func (k *keeping) event(e *trace.Event) {
	k.w.Event(e)
	k.fire.event(e)
}

// end writes down the end, and what the window holds then. known says that the program has ended. The session's files
// are there until close.
func (k *keeping) end(known bool) {
	k.w.PutMeta(&k.s.meta)
	k.w.Keyframe(flight.State{Time: k.s.meta.EndNs, Lost: k.s.lost()})
	k.held = k.w.Held()
	k.fire.ended(&k.s.meta, known)
}

// close ends the session. Clients that read its files may finish.
func (k *keeping) close() {
	if k == nil {
		return
	}
	k.once.Do(func() {
		close(k.quit)
		if k.server != nil {
			k.server.Close()
		}
		if k.w != nil {
			k.w.Close()
		}
	})
}

// account says what was kept.
func (k *keeping) account(st *trace.Stats) {
	st.Events, st.Overwritten = k.held.Events, k.held.Overwritten
	st.HistoryBytes, st.HistoryNs = uint64(k.held.Bytes), uint64(max(0, k.held.End-k.held.Begin))
	if err := k.w.Err(); err != nil {
		k.s.notes.add(fmt.Sprintf("keeping events stopped: %v", err))
	}
}

// putThread, putProcess and putModule store what events refer to.
func (s *session) putThread(t *trace.Thread) {
	if s.keep != nil {
		s.keep.w.PutThread(t)
		return
	}
	s.wrote(s.out.PutThread(t))
}

func (s *session) putProcess(p *trace.Process) {
	if s.keep != nil {
		s.keep.w.PutProcess(p)
		return
	}
	s.wrote(s.out.PutProcess(p))
}

func (s *session) putModule(m *trace.Module) {
	if s.keep != nil {
		s.keep.w.PutModule(m)
		return
	}
	s.wrote(s.out.PutModule(m))
}

// written is how many bytes the recording's file has.
func (s *session) written() uint64 {
	if s.out == nil {
		return 0
	}
	return uint64(max(s.out.Size(), 0))
}

// lost is how many records are known to be lost so far.
func (s *session) lost() uint64 {
	st := s.asm.Stats()
	return max(st.Lost, st.ThreadsLost)
}
