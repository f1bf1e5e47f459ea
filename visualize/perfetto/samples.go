// Samples of CPU time as those of Perfetto's own profiler (PerfSample), of which its page makes flame graphs of whatever is selected.

package perfetto

import (
	"encoding/hex"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/hbtrace/hbtrace/analysis/frames"
	"github.com/hbtrace/hbtrace/trace"
)

// samples is what the samples' packets have interned. Their sequence is one for all threads, since threads share their stacks.
type samples struct {
	sequence sequence
	stacks   map[trace.Site]uint64
	frames   map[sampleFrame]uint64
	funcs    map[string]uint64
	modules  map[trace.ModuleID]bool
	taken    uint64
	path     []trace.StackID
	ids      []uint64
}

type sampleFrame struct {
	module trace.ModuleID
	pc     uint64
	frame  frames.ID    // of several that were inlined at pc
	hook   trace.HookID // instead of it
}

// maxRun is more samples than a recorder merges into an event: one of a damaged file may say anything.
const maxRun = 1000

// unmapped is the mapping of what is in no module: frames need one.
const unmapped = 1

func mappingID(m trace.ModuleID) uint64 { return uint64(m) + unmapped }

// sample writes the samples that an event stands for, evenly over its time.
func (w *writer) sample(e *trace.Event) error {
	if e.Kind != trace.KindCPU || !w.tab.Valid(e.Stack) || e.Flags&trace.FlagNoStack != 0 {
		return nil
	}
	s := &w.samples
	if s.stacks == nil {
		*s = samples{
			sequence: sequence{id: samplesSequence}, stacks: map[trace.Site]uint64{}, frames: map[sampleFrame]uint64{},
			funcs: map[string]uint64{}, modules: map[trace.ModuleID]bool{},
		}
		w.startSamples(max(e.Start, 0))
	}
	pid, tid := 0, 0
	if t := w.thr[e.Thread]; t != nil {
		pid, tid = t.ExportTID(), t.ExportTID()
		if p := w.procs[t.Proc]; p != nil {
			pid = p.PID
		}
	}
	p := &w.out
	n := min(max(e.Count, 1), maxRun)
	for i := range n {
		at := e.Time
		if n > 1 {
			at = e.Start + (e.Time-e.Start)/trace.Ns(n-1)*trace.Ns(i)
		}
		pkt := w.packet(&s.sequence, max(at, 0))
		iid, interned := s.stacks[trace.Site{Stack: e.Stack, Hook: e.Hook}]
		if !interned {
			iid = w.internStack(e.Stack, e.Hook)
		}
		s.taken++
		ev := p.open(packetPerfSample)
		p.uint(samplePID, uint64(pid))
		p.uint(sampleTID, uint64(tid))
		p.uint(sampleCallstack, iid)
		p.uint(sampleCPUMode, cpuModeUser)
		p.uint(sampleCount, s.taken)
		p.close(ev)
		p.close(pkt)
		if err := w.flush(false); err != nil {
			return err
		}
	}
	return nil
}

// startSamples writes what the samples' packets rely on.
func (w *writer) startSamples(at trace.Ns) {
	w.clocked(&w.samples.sequence, at, func(p *buffer) {
		x := p.open(defaultsPerfSample)
		t := p.open(sampleTimebase)
		p.uint(timebaseFreq, uint64(max(w.meta.Freq, 1)))
		p.uint(timebaseCounter, counterTaskClock)
		p.string(timebaseName, "samples of CPU time")
		p.close(t)
		p.close(x)
	})
}

// internStack writes the interned data of a stack into the packet that is open, and returns its number.
func (w *writer) internStack(stack trace.StackID, h trace.HookID) uint64 {
	s, p := &w.samples, &w.out
	in := p.open(packetInternedData)
	s.ids = s.ids[:0]
	s.path = w.tab.Path(s.path[:0], stack)
	for _, id := range s.path {
		n := w.src.Node(id)
		at := sampleFrame{module: n.Addr.Module, pc: n.Lookup()}
		if n.How == trace.HowMark {
			at.pc = 0 // a number of frames, and no address
		}
		for _, f := range w.tab.Of(id) {
			at.frame = f.ID
			s.ids = append(s.ids, w.internFrame(at, w.tab.Frame(f.ID).Name, f.Line))
		}
	}
	if h != 0 {
		s.ids = append(s.ids, w.internFrame(sampleFrame{hook: h}, w.hook(h).name, 0))
	}
	iid := uint64(len(s.stacks) + 1)
	s.stacks[trace.Site{Stack: stack, Hook: h}] = iid
	c := p.open(internedCallstacks)
	p.uint(internedIID, iid)
	for _, id := range s.ids {
		p.uint(callstackFrame, id)
	}
	p.close(c)
	p.close(in)
	return iid
}

func (w *writer) internFrame(f sampleFrame, function string, line int32) uint64 {
	s, p := &w.samples, &w.out
	if iid := s.frames[f]; iid != 0 {
		return iid
	}
	w.internMapping(f.module)
	fn := s.funcs[function]
	if fn == 0 {
		fn = uint64(len(s.funcs) + 1)
		s.funcs[function] = fn
		w.interned(internedFunctions, fn, function)
	}
	iid := uint64(len(s.frames) + 1)
	s.frames[f] = iid
	at := p.open(internedFrames)
	p.uint(internedIID, iid)
	p.uint(frameFunction, fn)
	p.uint(frameMapping, mappingID(f.module))
	p.uint(frameRelPC, f.pc)
	if line > 0 {
		p.uint(frameLine, uint64(line))
	}
	p.close(at)
	return iid
}

// internMapping writes a module, or the one of what is in none, once.
func (w *writer) internMapping(id trace.ModuleID) {
	s, p := &w.samples, &w.out
	if s.modules[id] {
		return
	}
	s.modules[id] = true
	iid := mappingID(id)
	path, m := "[no file]", w.tab.Module(id)
	if m != nil && m.Path != "" {
		path = frames.Valid(m.Path)
	}
	w.interned(internedPaths, iid, path)
	var build []byte
	if m != nil {
		build, _ = hex.DecodeString(m.BuildID) // one that is odd is left out
	}
	if len(build) > 0 {
		w.internedBytes(internedBuildIDs, iid, build)
	}
	at := p.open(internedMappings)
	p.uint(internedIID, iid)
	if len(build) > 0 {
		p.uint(mappingBuildID, iid)
	}
	if m != nil {
		p.uint(mappingStart, m.Lo)
		p.uint(mappingEnd, m.Hi)
	}
	p.uint(mappingLoadBias, 0)
	p.uint(mappingPath, iid)
	p.close(at)
}

func (w *writer) internedBytes(field protowire.Number, iid uint64, b []byte) {
	p := &w.out
	at := p.open(field)
	p.uint(internedIID, iid)
	p.string(internedString, string(b))
	p.close(at)
}
