// A small importer: what a trace says, checked without the trace processor and shown as text for goldens.

package perfetto

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/klauspost/compress/zlib"
	"google.golang.org/protobuf/encoding/protowire"
)

type field struct {
	num protowire.Number
	typ protowire.Type
	v   uint64
	b   []byte
}

func fields(b []byte) ([]field, error) {
	var out []field
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return nil, protowire.ParseError(n)
		}
		b = b[n:]
		f := field{num: num, typ: typ}
		switch typ {
		case protowire.VarintType:
			f.v, n = protowire.ConsumeVarint(b)
		case protowire.Fixed64Type:
			f.v, n = protowire.ConsumeFixed64(b)
		case protowire.BytesType:
			f.b, n = protowire.ConsumeBytes(b)
		default:
			return nil, fmt.Errorf("field %d has wire type %d", num, typ)
		}
		if n < 0 {
			return nil, protowire.ParseError(n)
		}
		b = b[n:]
		out = append(out, f)
	}
	return out, nil
}

type importedTrack struct {
	uuid, parent uint64
	name, kind   string
	pid, tid     uint64
	rank         uint64
}

type importedEvent struct {
	ts           uint64
	track        uint64
	typ          uint64
	name, cat    string
	anns         []string
	starts, ends []uint64
	counter      float64
}

type sequenceState struct {
	cleared bool
	clock   uint64
	deltaAt uint64 // MONOTONIC of the delta clock
	track   uint64
	names   map[protowire.Number]map[uint64]string // by field of the interned data: categories, event names, annotation names, …
	stacks  map[uint64][]uint64                    // interned call stacks
	frames  map[uint64]uint64                      // interned frames: their functions
}

type importedSample struct {
	ts, pid, tid uint64
	stack        []string
}

type imported struct {
	tracks  []importedTrack
	events  []importedEvent
	samples []importedSample
	boot    uint64
	seqs    map[uint64]*sequenceState
}

// load reads a trace and checks all that a packet relies on.
func load(data []byte) (*imported, error) {
	im := &imported{seqs: map[uint64]*sequenceState{}}
	if err := im.packets(data); err != nil {
		return nil, err
	}
	slices.SortStableFunc(im.events, func(a, b importedEvent) int { return cmp.Compare(a.ts, b.ts) })
	slices.SortStableFunc(im.samples, func(a, b importedSample) int { return cmp.Compare(a.ts, b.ts) })
	return im, im.check()
}

func (im *imported) packets(data []byte) error {
	ps, err := fields(data)
	if err != nil {
		return err
	}
	for i, p := range ps {
		if p.num != tracePacket || p.typ != protowire.BytesType {
			return fmt.Errorf("packet %d: field %d", i, p.num)
		}
		fs, err := fields(p.b)
		if err != nil {
			return fmt.Errorf("packet %d: %w", i, err)
		}
		if len(fs) == 1 && fs[0].num == packetCompressed {
			z, err := zlib.NewReader(bytes.NewReader(fs[0].b))
			if err != nil {
				return err
			}
			inner, err := io.ReadAll(z)
			if err != nil {
				return err
			}
			if err := im.packets(inner); err != nil {
				return fmt.Errorf("in packet %d: %w", i, err)
			}
			continue
		}
		if err := im.packet(fs); err != nil {
			return fmt.Errorf("packet %d: %w", i, err)
		}
	}
	return nil
}

func first(fs []field, n protowire.Number) (field, bool) {
	i := slices.IndexFunc(fs, func(f field) bool { return f.num == n })
	if i < 0 {
		return field{}, false
	}
	return fs[i], true
}

func (im *imported) packet(fs []field) error {
	id, ok := first(fs, packetSequenceID)
	if !ok {
		return fmt.Errorf("no sequence")
	}
	s := im.seqs[id.v]
	if s == nil {
		s = &sequenceState{}
		im.seqs[id.v] = s
	}
	if f, ok := first(fs, packetSequenceFlags); ok && f.v&sequenceStateCleared != 0 {
		*s = sequenceState{cleared: true, clock: clockBoottime, names: map[protowire.Number]map[uint64]string{},
			stacks: map[uint64][]uint64{}, frames: map[uint64]uint64{}}
	}
	if !s.cleared {
		return fmt.Errorf("sequence %d was not started", id.v)
	}
	if f, ok := first(fs, packetDefaults); ok {
		ds, err := fields(f.b)
		if err != nil {
			return err
		}
		for _, d := range ds {
			switch d.num {
			case defaultsTimestampClock:
				s.clock = d.v
			case defaultsPerfSample:
			case defaultsTrackEvent:
				es, err := fields(d.b)
				if err != nil {
					return err
				}
				s.track = es[0].v
			}
		}
	}
	if f, ok := first(fs, packetClockSnapshot); ok {
		cs, err := fields(f.b)
		if err != nil {
			return err
		}
		at := map[uint64]uint64{}
		for _, c := range cs {
			c2, err := fields(c.b)
			if err != nil {
				return err
			}
			at[c2[0].v] = c2[1].v
		}
		im.boot = at[clockBoottime] - at[clockMonotonic]
		s.deltaAt = at[clockMonotonic] - at[clockDelta]
	}
	if f, ok := first(fs, packetInternedData); ok {
		in, err := fields(f.b)
		if err != nil {
			return err
		}
		for _, x := range in {
			kv, err := fields(x.b)
			if err != nil {
				return err
			}
			switch x.num {
			case internedMappings:
				continue
			case internedFrames:
				fn, _ := first(kv, frameFunction)
				s.frames[kv[0].v] = fn.v
				continue
			case internedCallstacks:
				for _, f := range kv[1:] {
					s.stacks[kv[0].v] = append(s.stacks[kv[0].v], f.v)
				}
				continue
			}
			m := s.names[x.num]
			if m == nil {
				m = map[uint64]string{}
				s.names[x.num] = m
			}
			if old, ok := m[kv[0].v]; ok {
				return fmt.Errorf("interned %d %q twice", kv[0].v, old)
			}
			m[kv[0].v] = string(kv[1].b)
			if !utf8.Valid(kv[1].b) && x.num != internedBuildIDs || len(kv[1].b) == 0 && x.num != internedTexts {
				return fmt.Errorf("name %q", kv[1].b)
			}
		}
	}
	if f, ok := first(fs, packetTrackDescriptor); ok {
		return im.descriptor(f.b)
	}
	f, ok := first(fs, packetTrackEvent)
	sample := false
	if !ok {
		if f, sample = first(fs, packetPerfSample); !sample {
			return nil
		}
	}
	ts, ok := first(fs, packetTimestamp)
	if !ok {
		return fmt.Errorf("an event without a time")
	}
	clock := s.clock
	if c, ok := first(fs, packetTimestampClock); ok {
		clock = c.v
	}
	e := importedEvent{track: s.track}
	switch clock {
	case clockDelta:
		s.deltaAt += ts.v
		e.ts = s.deltaAt
	case clockMonotonic:
		e.ts = ts.v
	default:
		return fmt.Errorf("clock %d", clock)
	}
	if sample {
		return im.sample(s, e.ts, f.b)
	}
	return im.event(s, e, f.b)
}

// sample takes a call stack: its functions, root first.
func (im *imported) sample(s *sequenceState, ts uint64, b []byte) error {
	fs, err := fields(b)
	if err != nil {
		return err
	}
	x := importedSample{ts: ts}
	for _, f := range fs {
		switch f.num {
		case samplePID:
			x.pid = f.v
		case sampleTID:
			x.tid = f.v
		case sampleCallstack:
			for _, id := range s.stacks[f.v] {
				fn, ok := s.names[internedFunctions][s.frames[id]]
				if !ok {
					return fmt.Errorf("frame %d of call stack %d is not defined", id, f.v)
				}
				x.stack = append(x.stack, fn)
			}
		}
	}
	if len(x.stack) == 0 {
		return fmt.Errorf("a sample without a call stack at %d", ts)
	}
	im.samples = append(im.samples, x)
	return nil
}

func (im *imported) descriptor(b []byte) error {
	fs, err := fields(b)
	if err != nil {
		return err
	}
	t := importedTrack{kind: "track"}
	for _, f := range fs {
		var sub []field
		if f.typ == protowire.BytesType && f.num != trackName {
			if sub, err = fields(f.b); err != nil {
				return err
			}
		}
		switch f.num {
		case trackUUID:
			t.uuid = f.v
		case trackParent:
			t.parent = f.v
		case trackOrderRank:
			t.rank = f.v
		case trackName:
			t.name = string(f.b)
		case trackCounter:
			t.kind = "counter"
			if u, ok := first(sub, counterUnitName); ok {
				t.name += " " + string(u.b)
			}
		case trackProcess, trackThread:
			t.kind = map[protowire.Number]string{trackProcess: "process", trackThread: "thread"}[f.num]
			for _, x := range sub {
				switch {
				case x.num == processPID:
					t.pid = x.v
				case f.num == trackThread && x.num == threadTID:
					t.tid = x.v
				case f.num == trackThread && x.num == threadName, f.num == trackProcess && x.num == processName:
					t.name = string(x.b)
				}
			}
		}
	}
	if !utf8.ValidString(t.name) {
		return fmt.Errorf("track name %q", t.name)
	}
	im.tracks = append(im.tracks, t)
	return nil
}

func (im *imported) event(s *sequenceState, e importedEvent, b []byte) error {
	fs, err := fields(b)
	if err != nil {
		return err
	}
	known := func(kind protowire.Number, iid uint64) (string, error) {
		n, ok := s.names[kind][iid]
		if !ok {
			return "", fmt.Errorf("iid %d of kind %d is not defined", iid, kind)
		}
		return n, nil
	}
	for _, f := range fs {
		switch f.num {
		case eventType:
			e.typ = f.v
		case eventTrack:
			e.track = f.v
		case eventNameIID:
			e.name, err = known(internedNames, f.v)
		case eventCategoryIID:
			e.cat, err = known(internedCategories, f.v)
		case eventFlow:
			e.starts = append(e.starts, f.v)
		case eventFlowTerminate:
			e.ends = append(e.ends, f.v)
		case eventCounter:
			e.counter = float64(int64(f.v))
		case eventCounterDouble:
			e.counter = math.Float64frombits(f.v)
		case eventAnnotation:
			kv, err := fields(f.b)
			if err != nil {
				return err
			}
			k := string(kv[0].b)
			if kv[0].num == annotationNameIID {
				if k, err = known(internedAnnotations, kv[0].v); err != nil {
					return err
				}
			}
			if !utf8.ValidString(k) || !utf8.Valid(kv[1].b) {
				return fmt.Errorf("annotation %q: %q", k, kv[1].b)
			}
			v := fmt.Sprint(int64(kv[1].v))
			switch kv[1].num {
			case annotationPointer:
				v = fmt.Sprintf("%#x", kv[1].v)
			case annotationString:
				v = string(kv[1].b)
			case annotationStringIID:
				if v, err = known(internedTexts, kv[1].v); err != nil {
					return err
				}
			}
			e.anns = append(e.anns, k+"="+v)
		default:
			return fmt.Errorf("unexpected field %d in an event", f.num)
		}
		if err != nil {
			return err
		}
	}
	im.events = append(im.events, e)
	return nil
}

// check walks the events in the order of time.
func (im *imported) check() error {
	tracks := map[uint64]bool{}
	for _, t := range im.tracks {
		if tracks[t.uuid] {
			return fmt.Errorf("track %#x was described twice", t.uuid)
		}
		if t.parent != 0 && !tracks[t.parent] {
			return fmt.Errorf("track %#x has an unknown parent", t.uuid)
		}
		tracks[t.uuid] = true
	}
	open := map[uint64]int{}
	flows := map[uint64]bool{}
	for _, e := range im.events {
		if !tracks[e.track] {
			return fmt.Errorf("event on unknown track %#x", e.track)
		}
		switch e.typ {
		case typeSliceBegin:
			open[e.track]++
		case typeSliceEnd:
			if open[e.track]--; open[e.track] < 0 {
				return fmt.Errorf("track %#x: an end without a begin at %d", e.track, e.ts)
			}
		}
		if e.typ != typeSliceEnd && e.typ != typeCounter && e.name == "" {
			return fmt.Errorf("track %#x: an event without a name at %d", e.track, e.ts)
		}
		for _, f := range e.starts {
			if flows[f] {
				return fmt.Errorf("flow %d starts twice", f)
			}
			flows[f] = true
		}
		for _, f := range e.ends {
			if !flows[f] {
				return fmt.Errorf("flow %d ends before it starts, or twice", f)
			}
			delete(flows, f)
		}
	}
	for t, n := range open {
		if n != 0 {
			return fmt.Errorf("track %#x: %d slices are still open", t, n)
		}
	}
	return nil
}

// text shows the trace with times in ms since start.
func (im *imported) text(start uint64) string {
	var b strings.Builder
	names := map[uint64]string{}
	for _, t := range im.tracks {
		names[t.uuid] = fmt.Sprintf("%s %d", t.name, t.uuid&0xffffffff)
		fmt.Fprintf(&b, "%s %#x in %#x rank %d: %q pid %d tid %d\n", t.kind, t.uuid, t.parent, t.rank, t.name, t.pid, t.tid)
	}
	depth := map[uint64]int{}
	for _, e := range im.events {
		if e.typ == typeSliceEnd {
			depth[e.track]--
		}
		at := strings.Repeat("  ", depth[e.track])
		fmt.Fprintf(&b, "%.4f %s | %s%s", float64(e.ts-start)/1e6, names[e.track], at, map[uint64]string{
			typeSliceBegin: "begin", typeSliceEnd: "end", typeInstant: "instant", typeCounter: "counter"}[e.typ])
		if e.typ == typeSliceBegin {
			depth[e.track]++
		}
		if e.name != "" {
			fmt.Fprintf(&b, " %q", e.name)
		}
		if e.cat != "" {
			fmt.Fprintf(&b, " [%s]", e.cat)
		}
		if e.typ == typeCounter {
			fmt.Fprintf(&b, " %.4g", e.counter)
		}
		for _, a := range e.anns {
			fmt.Fprintf(&b, " %s", a)
		}
		if len(e.starts) > 0 {
			fmt.Fprintf(&b, " flow>%v", e.starts)
		}
		if len(e.ends) > 0 {
			fmt.Fprintf(&b, " >flow%v", e.ends)
		}
		b.WriteByte('\n')
	}
	for _, x := range im.samples {
		fmt.Fprintf(&b, "%.4f sample of %d/%d %s\n", float64(x.ts-start)/1e6, x.pid, x.tid, strings.Join(x.stack, ";"))
	}
	return b.String()
}
