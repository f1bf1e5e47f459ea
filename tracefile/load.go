// What Open does: finding the sections, by the footer or by walking through the file, and loading all but events.

package tracefile

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/hbtrace/hbtrace/trace"
)

// checkFileHeader tells recordings of this version from everything else.
func checkFileHeader(path string, f io.ReaderAt, size int64) error {
	if size == 0 {
		return fmt.Errorf("opening recording %s: it is empty", path)
	}
	p := make([]byte, min(size, fileHeaderBytes))
	if _, err := f.ReadAt(p, 0); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("opening recording %s: %w", path, err)
	}
	if n := min(len(p), len(fileMagic)); string(p[:n]) != fileMagic[:n] {
		return fmt.Errorf("opening recording %s: it is %s, not an hbtrace recording", path, guess(p))
	}
	if size < fileHeaderBytes {
		return fmt.Errorf("opening recording %s: it ends after %d bytes, within its header: nothing can be read", path, size)
	}
	if binary.LittleEndian.Uint32(p[12:]) != crc(p[:12]) {
		return &CorruptError{path, "header", 0, errChecksum}
	}
	if v := binary.LittleEndian.Uint32(p[8:]); v != fileVersion {
		return fmt.Errorf(
			"opening recording %s: it has version %d, this hbtrace reads version %d: use a newer hbtrace",
			path,
			v,
			fileVersion,
		)
	}
	return nil
}

// guess names what a foreign file seems to be.
func guess(p []byte) string {
	switch s := string(p); {
	case len(s) >= 2 && s[:2] == "\x1f\x8b":
		return "a gzip file (a pprof profile?)"
	case len(s) >= 8 && s[:8] == "PERFILE2":
		return "a perf.data file"
	case len(s) >= 4 && s[:4] == "\x7fELF":
		return "an ELF file"
	case len(s) >= 2 && s[0] == 0x0a && s[1] != 0x0a && s[1] < 0x80:
		return "perhaps a Perfetto trace"
	}
	return "something else"
}

// sections is the list of a file's sections and what is wrong with it.
type sections struct {
	sectionReader
	index  []indexEntry
	closed bool  // there is a footer
	whole  int64 // the file is whole up to here
	notes  []string

	damage      *CorruptError // the first damage
	stopsEvents bool          // events behind it cannot be trusted to continue those in front
}

// find fills index, by the footer where there is a good one.
func (s *sections) find(path string) {
	index, off, err := readFooter(&s.sectionReader)
	if err == nil {
		s.index, s.closed, s.whole = index, true, off
		return
	}
	s.walk(path)
}

// walk goes through the file from header to header.
func (s *sections) walk(path string) {
	off := int64(fileHeaderBytes)
	for ; off < s.size; s.whole = off {
		h, err := readSectionHeader(s.f, off, s.size)
		if err == errCut || err != nil && s.zeroFrom(off) {
			break // the recorder, or the machine, died here
		}
		if err != nil {
			s.damaged(path, "", off, err)
			break
		}
		if h.kind == sectionFooter {
			p, err := s.payload(off, h)
			if err == nil {
				_, err = decodeFooter(p, off)
			}
			if err != nil {
				s.notes = append(s.notes, fmt.Sprintf("footer at offset %d is damaged: %v; the file was read without it", off, err))
				break
			}
			s.closed = true
			if end := off + sectionHeaderBytes + int64(h.stored); end != s.size {
				s.notes = append(
					s.notes,
					fmt.Sprintf("%d bytes behind the footer that ends at offset %d are none of ours", s.size-end, end),
				)
			}
			break
		}
		s.index = append(s.index, indexEntry{h.kind, off, h.count})
		off += sectionHeaderBytes + int64(h.stored)
	}
	s.whole = off
	s.dropTornEnd()
}

// dropTornEnd takes away the last section of an unclosed file if it is not whole: a machine that dies may leave
// a file with its length but not its contents. Everything before it was written earlier, and is held to it.
func (s *sections) dropTornEnd() {
	if s.closed || s.damage != nil || len(s.index) == 0 {
		return
	}
	last := s.index[len(s.index)-1]
	h, err := readSectionHeader(s.f, last.off, s.size)
	if err == nil {
		_, err = s.payload(last.off, h)
	}
	if err == errChecksum || err == errCut {
		s.index = s.index[:len(s.index)-1]
		s.whole = last.off
	}
}

// zeroFrom reports whether the file is zeros from off on.
func (s *sections) zeroFrom(off int64) bool {
	buf := make([]byte, 4096)
	for off < s.size {
		n, _ := s.f.ReadAt(buf[:min(int64(len(buf)), s.size-off)], off)
		if n == 0 || slices.ContainsFunc(buf[:n], func(b byte) bool { return b != 0 }) {
			return false
		}
		off += int64(n)
	}
	return true
}

// damaged records damage; kind is "" where not even that is known.
func (s *sections) damaged(path, kind string, off int64, reason error) {
	if kind == "" {
		kind = "unknown"
	}
	e := &CorruptError{path, kind, off, reason}
	s.notes = append(s.notes, fmt.Sprintf("%s section at offset %d cannot be read: %v", kind, off, reason))
	if s.damage == nil {
		s.damage = e
	}
}

// loader reads the sections into a Reader.
type loader struct {
	r         *Reader
	hasMeta   bool
	hasStats  bool
	processes map[trace.ProcID]trace.Process
	threads   map[trace.ThreadID]trace.Thread
	modules   map[trace.ModuleID]trace.Module
	unknown   int
	namer     *namer // nil until a section of nodes gives ids anew
}

func (l *loader) load() {
	l.processes = map[trace.ProcID]trace.Process{}
	l.threads = map[trace.ThreadID]trace.Thread{}
	l.modules = map[trace.ModuleID]trace.Module{}
	r := l.r
	for _, s := range r.index {
		if s.kind == sectionEvents || s.kind == sectionSummary {
			continue // read when they are asked for
		}
		if !s.kind.known() {
			l.unknown++
			continue
		}
		if s.kind == sectionNodes && r.stopsEvents {
			continue // they do not continue what is there
		}
		err := l.section(s)
		if err == nil {
			continue
		}
		r.damaged(r.path, s.kind.String(), s.off, err)
		// Without nodes, later events have no stacks. Without a footer, nothing behind damage was ever vouched for.
		if s.kind == sectionNodes && !r.stopsEvents {
			r.stopsEvents = true
			r.damage = &CorruptError{r.path, s.kind.String(), s.off, err}
		}
		if !r.closed {
			r.stopsEvents = true
			break
		}
	}
}

func (l *loader) section(s indexEntry) error {
	r := l.r
	h, p, err := r.section(s)
	if err != nil {
		return err
	}
	switch s.kind {
	case sectionMeta:
		return decodeItems(p, func(m trace.Meta) { r.meta, l.hasMeta = m, true })
	case sectionStats:
		return decodeItems(p, func(s trace.Stats) { r.stats, l.hasStats = s, true })
	case sectionProcesses:
		return decodeItems(p, func(p trace.Process) { l.processes[p.ID] = p })
	case sectionThreads:
		return decodeItems(p, func(t trace.Thread) { l.threads[t.ID] = t })
	case sectionModules:
		return decodeItems(p, func(m trace.Module) { l.modules[m.ID] = m })
	case sectionNodes:
		return l.nodes(p, h, s.off)
	case sectionSymbols:
		return decodeSymbols(p, h.count, func(a trace.Addr, f []trace.SymFrame) { r.symbols[a] = f })
	}
	return nil
}

// nodes takes in a section of nodes. From the first of version 2 on, ids of the file are no node's number any more.
func (l *loader) nodes(p []byte, h sectionHeader, off int64) error {
	r := l.r
	if l.namer == nil {
		if h.version == 1 {
			return r.nodes.decode(p, h.count)
		}
		l.namer = newNamer(r.nodes)
	}
	by, err := l.namer.section(&r.nodes, p, h.version, h.count, off)
	if err != nil {
		return err
	}
	r.renamings = append(r.renamings, by)
	return nil
}

// finish turns what was loaded into what the Reader's methods return.
func (l *loader) finish() {
	r := l.r
	r.processes = sortedByID(l.processes)
	r.threads = sortedByID(l.threads)
	r.modules = sortedByID(l.modules)
	if !r.closed {
		r.notes = append(
			r.notes,
			fmt.Sprintf("the recording was not closed: its file is whole up to offset %d of %d", r.whole, r.size),
		)
	}
	if l.unknown > 0 {
		r.notes = append(r.notes, fmt.Sprintf("%d sections of kinds that this hbtrace does not know were skipped", l.unknown))
	}
	if !l.hasStats {
		r.stats.Nodes = uint64(len(r.nodes))
		for _, s := range r.index {
			if s.kind == sectionEvents {
				r.stats.Events += uint64(s.count)
			}
		}
	}
	if l.namer != nil {
		r.stats.Nodes = uint64(len(r.nodes)) // the recorder counted those twice that it made twice
	}
	r.stats.Complete = r.stats.Complete && l.hasStats && r.closed && r.damage == nil
	r.stats.Notes = append(r.stats.Notes, r.notes...)
	if r.meta.EndNs == 0 {
		r.meta.EndNs = l.lastTime()
	}
}

// lastTime is the latest time that is known of: that of the last section of events that can be read.
func (l *loader) lastTime() trace.Ns {
	r := l.r
	last := r.meta.StartNs
	for _, p := range r.processes {
		last = max(last, p.Start, p.End)
	}
	for _, t := range r.threads {
		last = max(last, t.Start, t.End)
	}
	for _, s := range slices.Backward(r.index) {
		if s.kind != sectionEvents || r.stopsEvents && s.off >= r.damage.Offset {
			continue
		}
		w := r.workers.take(r)
		err := w.section(s, func(events []trace.Event) {
			for i := range events {
				last = max(last, events[i].Time)
			}
		})
		r.workers.put(w)
		if err == nil {
			break
		}
	}
	return last
}

func sortedByID[K cmp.Ordered, V any](m map[K]V) []V {
	var list []V
	for _, k := range slices.Sorted(maps.Keys(m)) {
		list = append(list, m[k])
	}
	return list
}
