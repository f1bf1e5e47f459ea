// The end of a recording: the last passes, names for addresses, the account, the file closed.
package collector

import (
	"fmt"
	"slices"
	"time"

	"github.com/hbtrace/hbtrace/sampler"
	"github.com/hbtrace/hbtrace/segment"
	"github.com/hbtrace/hbtrace/symbols"
	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/tracefile/naming"
)

// finish ends the recording and closes the file. hurry being closed cuts short what can be done later.
func (s *session) finish(c *child, hurry <-chan struct{}) error {
	s.finishing = true
	close(s.stopGo)
	if s.opt.Progress != nil {
		s.opt.Progress(s.progress(s.meta.Started))
	}
	s.onlook.close()
	s.server.close()
	s.server = nil
	s.pass() // what processes that ended had written, and their end
	left := s.alive()
	s.seg.Header().Recording.Store(0)
	samplerCPU := s.sampler.Stop()
	s.targets.unhook() // not before: calls that the agent does not see must not meet a signal
	// A record that was being written when recording was switched off is published by the time of the second
	// pass; a third has the assembler interpret it.
	for range 3 {
		time.Sleep(time.Millisecond)
		s.pass()
	}
	s.targets.leave()
	now := segment.Now()
	s.finishKernel()
	s.asm.Refresh()
	s.targets.unmet(trace.Ns(now))
	s.asm.FinishOpen(trace.Ns(now))
	s.store()

	s.meta.EndNs = trace.Ns(now)
	ended := false
	select {
	case <-c.done:
		ended = true
		s.meta.ExitStatus, s.meta.ExitSignal = c.status.ExitStatus(), int(max(c.status.Signal(), 0))
		s.stats.TargetCPU = c.cpu()
	default:
	}
	// What the recording cost while the program ran; names are looked up afterwards.
	s.stats.CollectorCPU, s.stats.AgentCPU = s.collectorCPU(), s.agentCPU()
	s.accountKernel()
	if s.keep != nil {
		s.keep.end(ended)
		s.account(samplerCPU, ended, left)
		if s.opt.KeepEnded != nil {
			s.opt.KeepEnded()
		}
		s.keep.close()
		return s.keep.w.Err()
	}
	s.symbolise(hurry)
	s.wrote(s.out.PutMeta(&s.meta))
	s.wrote(s.out.Flush())
	if s.failed == nil {
		s.failed = s.out.Err()
	}
	s.account(samplerCPU, ended, left)
	dropped := s.out.Dropped()
	if err := s.out.Close(&s.stats); s.failed == nil {
		s.failed = err
	}
	s.out = nil
	if s.failed != nil {
		return fmt.Errorf("the recording is incomplete, %d events are missing: %w", dropped, s.failed)
	}
	return nil
}

// symbolise stores the names of every address in the stack table, module by module.
func (s *session) symbolise(hurry <-chan struct{}) {
	s.forgetStacks() // with their addresses noted
	byModule := s.addresses.byModule()
	r := symbols.NewResolver(symbols.Options{Code: s.codeOf, Kept: s.keptFile, Stop: hurry, Cache: symbols.CacheDir()})
	defer r.Close()
	res := naming.Store(s.out, r, naming.Input{
		Modules: s.modules, Addresses: byModule, Waited: s.waitedIn, Kernel: s.symboliseKernel, Stop: hurry,
	}, s.wrote)
	if res.Unfinished {
		s.notes.add("interrupted while names were looked up: those that are missing are looked up when the recording is read")
	}
	s.notes.add(res.Notes...)
}

// keptFile is the file that was mapped as a module.
func (s *session) keptFile(m trace.Module) symbols.ReaderAtCloser {
	if f := s.files.Kept(m.Path, m.BuildID); f != nil {
		return f
	}
	return nil // not a nil *os.File in an interface
}

// waitedIn lists what threads waited for in a module's data, as ELF virtual addresses.
func (s *session) waitedIn(m *trace.Module) (addrs []uint64) {
	if m.Kind != trace.ModuleELF {
		return nil
	}
	for a := range s.waited {
		if a >= m.Lo && a < m.Hi {
			addrs = append(addrs, a-m.Bias)
		}
	}
	return addrs
}

// account fills in the statistics.
func (s *session) account(samplerCPU time.Duration, ended bool, left int) {
	ring, asm, counters, h := s.ring.Stats(), s.asm.Stats(), s.sampler.Counters(), s.seg.Header()
	lost := s.lostInGone
	for i := range s.seg.HighProcs() {
		if p := s.seg.Proc(i); p.UID.Load() != 0 {
			lost += p.Lost.Load()
		}
	}
	st := &s.stats
	st.Records, st.RecordBytes = ring.Records, ring.Bytes
	st.Lost = max(lost, s.lost())
	st.Samples += asm.Entered
	st.Gaps, st.Broken = asm.Gaps, asm.Broken+ring.Broken
	if s.keep != nil {
		s.keep.account(st)
	} else {
		st.Events = s.consumed - min(s.out.Dropped(), s.consumed)
		st.Overwritten = s.produced - s.consumed + min(s.out.Dropped(), s.consumed)
		st.HistoryBytes, st.HistoryNs = uint64(s.opt.BufferBytes), s.historyNs()
	}
	stacks := s.stacks.Stats()
	st.Nodes = stacks.Made // the reader knows which of them are the same, made again
	st.NodesCap = uint64(s.stacks.Cap())
	st.Ticks, st.TicksMissed, st.TicksLateNs = counters.Ticks, counters.TicksMissed, counters.TicksLateNs
	st.SignalsSent, st.SignalsFailed, st.SignalsStuck = counters.SignalsSent, counters.SignalsFailed, counters.SignalsStuck
	st.ThreadsUnslotted, st.ProcsUnslotted = h.ThreadsUnslotted.Load(), h.ProcsUnslotted.Load()
	st.SubbufsLost = ring.Reaped
	st.SamplerCPU = samplerCPU

	s.mu.Lock()
	attached, unverified := s.attachedCount, s.unverified
	s.mu.Unlock()
	n := &s.notes
	if attached == 0 && s.targets != nil {
		n.add("nothing was recorded: the program made no call that is recorded while hbtrace was attached")
	} else if attached == 0 {
		n.add("nothing was recorded: no process took the agent (a static program? a cleared environment? hbtrace doctor says more)")
	}
	if unverified > 0 {
		n.addf("%d fork children could not be identified under /proc: they have no CPU samples", unverified)
	}
	switch {
	case s.targets != nil: // they run on, which is no news
	case !ended && left > 0:
		n.add("recording was stopped while the command ran on")
	case left > 0:
		n.addf("%d processes outlived the command: they run on, unrecorded (--follow records them to their end)", left)
	}
	for _, gap := range s.sampler.Gaps() {
		n.addf("the sampler was started again (%s): no CPU samples for %v", gap.Why, gap.For.Round(time.Millisecond))
	}
	if err := s.sampler.Err(); err != nil {
		n.add(err.Error())
	}
	if counters.Mode == sampler.ModePlain && counters.Ticks > 0 && counters.TicksMissed > counters.Ticks/4 {
		n.addf("the sampler missed %d of %d ticks: samples are sparse where all CPUs were busy (run as root, or allow a negative nice value)",
			counters.TicksMissed, counters.Ticks+counters.TicksMissed)
	}
	if counters.ThreadsNoFD > 0 {
		n.addf("%d threads were not sampled for want of file descriptors: raise ulimit -n", counters.ThreadsNoFD)
	}
	if stacks.Overflow > 0 {
		n.addf("the stack table was full: %d frames are missing", stacks.Overflow)
	}
	if s.addresses.dropped > 0 {
		n.addf("more different addresses than %d: %d have no name", maxAddresses, s.addresses.dropped)
	}
	if s.failed != nil {
		n.addf("writing stopped: %v", s.failed)
	}
	n.mu.Lock()
	st.ProcsRefused = n.refused
	st.Unrecorded = s.unrecorded.result()
	st.Notes = slices.Clone(n.lines)
	n.mu.Unlock()
	st.Complete = s.failed == nil
}
