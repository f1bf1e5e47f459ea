// Package perfetto writes a recording as a Perfetto trace: a track per thread with the spans of stack diffing, waits
// and blocking calls as slices at their place in the stack, arrows from the release that ended a wait to the waiter,
// and counters per process.
//
// How it is laid out:
//   - Every thread is a packet sequence of its own, so that track and clock are defaults and a packet holds only the
//     time since the sequence's last one, the kind and an interned name. Packets are deflated in batches.
//   - Begin and end of a slice are two packets, in the order of time within a thread. Importers sort all packets by
//     time and keep the file's order among equals, which nesting at one instant relies on.
//   - An arrow goes between two instants: the release on the releaser's track, and "woken by" at the very end of the
//     wait. Bound to the wait itself it would point back in time, to the wait's beginning.
//   - Time that nobody observed has no slice.
//   - Samples of CPU time are there a second time as call stacks, as Perfetto's own profiler has them, so that what shows
//     flame graphs of a selection can.
//
// Memory is bounded by the live threads and the recording's tables; events are read once and not kept, but for waits,
// calls and samples while the ends of chains are found (package blame bounds them), and the
// kernel's scheduling where that was recorded: 32 bytes for each time on a CPU.
package perfetto

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"math"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/hbtrace/hbtrace/analysis/blame"
	"github.com/hbtrace/hbtrace/analysis/feed"
	"github.com/hbtrace/hbtrace/analysis/frames"
	"github.com/hbtrace/hbtrace/analysis/spans"
	"github.com/hbtrace/hbtrace/analysis/timeline"
	"github.com/hbtrace/hbtrace/trace"
)

// Options for Write. The zero value is what users want.
type Options struct {
	Raw        bool // do not deflate packets: several times as big, readable by simpler tools
	NoCounters bool
	NoChains   bool // leave out what waits were spent on in the end: saves a reading of the events
	NoSupport  bool // leave out how many stacks support a span and how its edges are known

	maxStated uint64 // for tests; 0: the constant
}

// maxStated is how many events a recording may have for its threads to get tracks of their states, and call stacks of their
// samples: these make a trace half as large again, and one of so many events is at the limit of what a viewer can show.
const maxStated = 2_000_000

// Packets are written, and deflated, in batches of about this size.
const batchBytes = 256 << 10

// Sequence ids: of thread n, which may be 0 in odd recordings. They are small where it is: each packet has one.
const (
	mainSequence     = 1
	samplesSequence  = 2
	countersSequence = 3
)

func threadSequence(id trace.ThreadID) uint32 { return 2*uint32(id) + 4 }
func statesSequence(id trace.ThreadID) uint32 { return 2*uint32(id) + 5 }

type writer struct {
	o        Options
	src      trace.Source
	meta     *trace.Meta
	tab      *frames.Table
	procs    map[trace.ProcID]*trace.Process
	thr      map[trace.ThreadID]*trace.Thread
	unlisted map[trace.ThreadID]bool // threads met in events alone
	seqs     trace.PerThread[sequence]
	rel      trace.PerThread[releases]
	whos     map[trace.ThreadID]string
	hooks    map[trace.HookID]*hook
	chains   blame.Accounts // nil: not asked
	states   trace.PerThread[states]
	samples  samples

	stateless bool // there are too many events for tracks of states
	flows     uint64
	main      sequence // what is out of a thread's order
	counts    sequence // counters
	out       buffer
	pack      *packer
}

// Write writes src to w. It reads the events once and keeps none. Errors are those of src and w.
func Write(w io.Writer, src trace.Source, o Options) error {
	x := &writer{
		o: o, src: src, meta: src.Meta(), tab: frames.New(src),
		procs: map[trace.ProcID]*trace.Process{}, thr: map[trace.ThreadID]*trace.Thread{},
		whos: map[trace.ThreadID]string{}, hooks: map[trace.HookID]*hook{},
		unlisted: map[trace.ThreadID]bool{},
	}
	x.stateless = src.Stats().Events > cmp.Or(o.maxStated, maxStated)
	ps, ts := src.Processes(), src.Threads()
	for i := range ps {
		x.procs[ps[i].ID] = &ps[i]
	}
	for i := range ts {
		x.thr[ts[i].ID] = &ts[i]
	}
	if !o.NoChains && slices.Contains(x.meta.Features, "lock") {
		r, err := blame.Analyse(src, x.tab, blame.Export())
		if err != nil {
			return fmt.Errorf("perfetto: %w", err)
		}
		x.chains = r.Accounts()
		runtime.GC() // of what the analysis needed, much more than the writing will
	}
	level := thoroughly
	if x.stateless {
		level = quickly
	}
	x.pack = newPacker(w, o.Raw, level)
	defer x.pack.close() // whatever happens: w is the caller's again
	x.preamble()
	x.describe()
	c := newCounters(src)
	var cpus sched
	// States have a Nest of their own: that of the spans takes the releases that given makes up, which would move what is
	// around them.
	b, line := spans.New(src, x.tab, x), timeline.New(src, x.tab, stateSink{w: x})
	err := feed.Events(src, func(e *trace.Event) error {
		if !o.NoCounters {
			c.add(e)
		}
		cpus.add(e)
		return nil
	}, func(e *trace.Event) error {
		if e.Kind == trace.KindThreadStart {
			if err := x.created(e); err != nil {
				return err
			}
		}
		if e.Kind == trace.KindKnob {
			return x.knob(e)
		}
		tag := x.flow(e)
		if tag == 0 && e.Releaser != 0 && (e.Kind == trace.KindWait || e.Kind == trace.KindCall) {
			x.flows++
			tag = x.flows
			if err := b.AddTagged(given(e), tag); err != nil {
				return err
			}
		}
		if err := b.AddTagged(e, tag); err != nil {
			return err
		}
		if !x.stateless {
			if err := line.Add(e); err != nil {
				return err
			}
			if err := x.sample(e); err != nil {
				return err
			}
		}
		if e.Kind == trace.KindThreadExit {
			if err := x.stay(e.Thread); err != nil {
				return err
			}
			x.seqs.Delete(e.Thread)
			x.rel.Delete(e.Thread)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("perfetto: %w", err)
	}
	cov, err := b.Close()
	if err != nil {
		return fmt.Errorf("perfetto: %w", err)
	}
	if err := line.Close(); err != nil {
		return fmt.Errorf("perfetto: %w", err)
	}
	for id := range x.states.All() {
		if err := x.stay(id); err != nil {
			return fmt.Errorf("perfetto: %w", err)
		}
	}
	if err := x.attached(); err != nil {
		return fmt.Errorf("perfetto: %w", err)
	}
	if err := x.about(cov); err != nil {
		return fmt.Errorf("perfetto: %w", err)
	}
	if err := x.sched(&cpus); err != nil {
		return fmt.Errorf("perfetto: %w", err)
	}
	if err := x.counters(c); err != nil {
		return fmt.Errorf("perfetto: %w", err)
	}
	if err := x.flush(true); err != nil {
		return fmt.Errorf("perfetto: %w", err)
	}
	return nil
}

// flush writes the batch when it is full, or whatever there is when it is the last. It is called between packets.
func (w *writer) flush(last bool) error {
	if len(w.out.b) < batchBytes && !last {
		return nil
	}
	if len(w.out.b) == 0 {
		return w.pack.close()
	}
	next, err := w.pack.put(w.out.b)
	w.out.b = next
	if err != nil || !last {
		return err
	}
	return w.pack.close()
}

// preamble relates the clocks and starts the sequence of what is no thread's.
func (w *writer) preamble() {
	p := &w.out
	w.main = sequence{id: mainSequence, absolute: true}
	pkt := p.open(tracePacket)
	p.uint(packetSequenceID, mainSequence)
	p.uint(packetSequenceFlags, sequenceStateCleared)
	d := p.open(packetDefaults)
	p.uint(defaultsTimestampClock, clockMonotonic)
	p.close(d)
	c := p.open(packetClockSnapshot)
	w.clockValue(clockMonotonic, uint64(w.meta.StartNs), false)
	w.clockValue(clockBoottime, uint64(int64(w.meta.StartNs)+w.meta.BoottimeOffset), false)
	if !w.meta.Started.IsZero() {
		w.clockValue(clockRealtime, uint64(w.meta.Started.UnixNano()), false)
	}
	p.close(c)
	p.close(pkt)
}

// Track numbers. 0 is taken by Perfetto.
func procTrack(id trace.ProcID) uint64     { return 1<<32 | uint64(id) }
func threadTrack(id trace.ThreadID) uint64 { return 2<<32 | uint64(id) }
func statesTrack(id trace.ThreadID) uint64 { return 5<<32 | uint64(id) }
func counterTrack(id trace.ProcID, k counterKind) uint64 {
	return 3<<32 | uint64(k)<<40 | uint64(id)
}
func threadCounterTrack(id trace.ThreadID, k counterKind) uint64 {
	return 4<<32 | uint64(k)<<40 | uint64(id)
}

// describe writes the processes and threads, the busiest first.
func (w *writer) describe() {
	sum := map[trace.ProcID]int64{}
	threads := make([]*trace.Thread, 0, len(w.thr))
	for _, t := range w.thr {
		threads = append(threads, t)
		sum[t.Proc] += active(t)
	}
	procs := make([]*trace.Process, 0, len(w.procs))
	for _, p := range w.procs {
		procs = append(procs, p)
	}
	slices.SortFunc(procs, func(x, y *trace.Process) int {
		return cmp.Or(cmp.Compare(sum[y.ID], sum[x.ID]), cmp.Compare(x.ID, y.ID))
	})
	slices.SortFunc(threads, func(x, y *trace.Thread) int {
		return cmp.Or(cmp.Compare(active(y), active(x)), cmp.Compare(x.ID, y.ID))
	})
	for i, p := range procs {
		w.track(procTrack(p.ID), 0, i, p.Start, func(b *buffer) {
			d := b.open(trackProcess)
			b.int(processPID, int64(p.PID))
			for _, a := range p.Cmdline {
				b.string(processCmdline, frames.Valid(a))
			}
			b.string(processName, processLabel(p))
			b.int(processSortRank, int64(i))
			b.close(d)
		})
	}
	for i, t := range threads {
		pid, parent := t.ExportTID(), uint64(0)
		if p := w.procs[t.Proc]; p != nil {
			pid, parent = p.PID, procTrack(p.ID)
		}
		w.track(threadTrack(t.ID), parent, i, t.Start, func(b *buffer) {
			d := b.open(trackThread)
			b.int(threadPID, int64(pid))
			b.int(threadTID, int64(t.ExportTID()))
			b.string(threadName, frames.Valid(t.ExportName()))
			b.int(threadSortRank, int64(i))
			b.close(d)
		})
	}
}

// track writes a track descriptor. rank orders it among its siblings.
func (w *writer) track(uuid, parent uint64, rank int, at trace.Ns, body func(*buffer)) {
	p := &w.out
	pkt := p.open(tracePacket)
	p.uint(packetTimestamp, uint64(max(at, w.meta.StartNs)))
	p.uint(packetSequenceID, mainSequence)
	d := p.open(packetTrackDescriptor)
	p.uint(trackUUID, uuid)
	if parent != 0 {
		p.uint(trackParent, parent)
	}
	p.int(trackOrderRank, int64(rank))
	body(p)
	p.close(d)
	p.close(pkt)
}

func processLabel(p *trace.Process) string {
	if title := frames.Title(p); title != "" {
		return title
	}
	switch {
	case p.Exe != "":
		return frames.Valid(filepath.Base(p.Exe))
	case len(p.Cmdline) > 0:
		return frames.Valid(filepath.Base(p.Cmdline[0]))
	}
	return fmt.Sprintf("process %d", p.PID)
}

// who names a thread in annotations.
func (w *writer) who(id trace.ThreadID) string {
	text, ok := w.whos[id]
	if !ok {
		if t := w.thr[id]; t == nil {
			text = fmt.Sprintf("thread #%d", id)
		} else if t.Goroutine {
			text = frames.Valid(t.ExportName())
		} else {
			text = strings.TrimSpace(fmt.Sprintf("%s %d", frames.Valid(t.Name), t.TID))
		}
		w.whos[id] = text
	}
	return text
}

// hook is what intervals need to know of a hooked function.
type hook struct {
	name string
	fd   bool // its object is a descriptor
}

func (w *writer) hook(id trace.HookID) *hook {
	h := w.hooks[id]
	if h == nil {
		h = &hook{frames.HookName(w.meta, id), w.meta.Hooks[id].Object == trace.HookFD}
		w.hooks[id] = h
	}
	return h
}

// list sees to it that a thread has a track. One that the recording does not list gets a name and no more.
func (w *writer) list(id trace.ThreadID) {
	if w.thr[id] != nil || w.unlisted[id] {
		return
	}
	w.unlisted[id] = true
	w.track(threadTrack(id), 0, len(w.thr)+len(w.unlisted), w.meta.StartNs, func(b *buffer) { b.string(trackName, fmt.Sprintf("thread #%d", id)) })
}

// seq returns a thread's sequence.
func (w *writer) seq(id trace.ThreadID) *sequence {
	s := w.seqs.Get(id)
	if s == nil {
		w.list(id)
		s = &sequence{id: threadSequence(id), track: threadTrack(id)}
		w.seqs.Put(id, s)
	}
	return s
}

// counters writes the series, each change once.
func (w *writer) counters(c *counters) error {
	w.counts = sequence{id: countersSequence}
	w.clocked(&w.counts, c.start, func(*buffer) {})
	for _, id := range slices.Sorted(maps.Keys(c.procs)) {
		p := w.procs[id]
		if p == nil {
			continue
		}
		if s := c.procs[id]; w.meta.CPUs > 0 {
			timeline.Level(s.sums[counterCPU], float64(s.bucketNs)*float64(w.meta.CPUs))
		}
		for k := range counterKinds {
			if err := w.series(c, c.procs[id], k, counterTrack(id, k), procTrack(id), p.Start, p.End); err != nil {
				return err
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(c.threads)) {
		t := w.thr[id]
		timeline.Level(c.threads[id].sums[counterCPU], float64(c.threads[id].bucketNs))
		for k := range counterKinds {
			if err := w.series(c, c.threads[id], k, threadCounterTrack(id, k), threadTrack(id), t.Start, t.End); err != nil {
				return err
			}
		}
	}
	return nil
}

// series writes a counter's track and its values while its process or thread lived: the first, each change, and 0 at
// the end.
func (w *writer) series(c *counters, s *series, k counterKind, track, parent uint64, start, end trace.Ns) error {
	if s.sums[k] == nil {
		return nil
	}
	w.track(track, parent, int(k), start, func(b *buffer) {
		b.string(trackName, counterNames[k][0])
		d := b.open(trackCounter)
		if u := counterNames[k][1]; u != "" {
			b.string(counterUnitName, u)
		}
		b.close(d)
	})
	from, to := max(start, c.start), c.end
	if end != 0 {
		to = min(max(end, from), to)
	}
	last := -1.0
	for i, sum := range s.sums[k] {
		at := c.start + trace.Ns(i)*s.bucketNs
		if at+s.bucketNs <= from || at >= to {
			continue
		}
		v := s.value(k, sum)
		if math.IsNaN(v) {
			v = max(last, 0)
		}
		if v == last {
			continue
		}
		last = v
		if err := w.counter(track, max(at, from), v); err != nil {
			return err
		}
	}
	if last > 0 {
		return w.counter(track, to, 0)
	}
	return nil
}

// counter writes a value, as a whole number where it is one, and otherwise with the 24 bits that a picture is more than well
// served with: the other bits of a float64 do not deflate.
func (w *writer) counter(track uint64, at trace.Ns, v float64) error {
	p := &w.out
	pkt := w.packet(&w.counts, at)
	e := p.open(packetTrackEvent)
	p.uint(eventType, typeCounter)
	p.uint(eventTrack, track)
	if v == math.Trunc(v) && math.Abs(v) < 1<<53 {
		p.int(eventCounter, int64(v))
	} else {
		p.double(eventCounterDouble, float64(float32(v)))
	}
	p.close(e)
	p.close(pkt)
	return w.flush(false)
}
