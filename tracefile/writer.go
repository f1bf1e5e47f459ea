// Writing a recording.

package tracefile

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"syscall"

	"github.com/hbtrace/hbtrace/outfile"
	"github.com/hbtrace/hbtrace/trace"
	"github.com/klauspost/compress/zstd"
)

// Writer appends to a recording. What Put… is given is collected and written as sections when there is enough
// of it, at Flush, and at Close: then it survives the death of this process. A Writer is for one goroutine at
// a time.
//
// When the file cannot be written (a full disk), the call that met it returns the error, once. The file is cut
// back to its last whole section and stays readable. Events that Put… is given from then on are dropped and counted
// ([Writer.Dropped]); what they rest on is kept in memory, within bounds. Flush goes on with the file when there is
// room again. Close stores what explains the events that are there, if there is room.
type Writer struct {
	path   string
	f      file
	z      *zstd.Encoder
	off    int64 // the file is whole up to here
	index  []indexEntry
	failed error
	lost   uint64

	// What could not be written when the disk was full: encoded sections in their order, and their bytes. lasting: the
	// file cannot be gone on with.
	pending      []pendingSection
	pendingBytes int
	lasting      bool

	processes, threads, modules items
	nodes                       []byte
	nodeCount                   int
	firstNode, nextNode         trace.StackID // of a section of version 1: its first id; one above the highest id ever
	named                       bool          // nodes are of a section of version 2
	lastNode                    trace.StackID // in nodes
	lastOff                     uint64
	batch                       Batch  // events of PutEvent
	events                      []byte // batches waiting to be written
	eventCount                  int
	symbols                     symbolEncoder
	check                       BatchDecoder
	scratch                     []byte
	section                     []byte
}

// file is what a Writer needs of an os.File.
type file interface {
	io.WriterAt
	Truncate(size int64) error
	Sync() error
	Close() error
}

// items are structs waiting to be written.
type items struct {
	payload []byte
	count   int
}

// pendingSection waits for room.
type pendingSection struct {
	kind  sectionKind
	count int
	bytes []byte
}

// mostPending bounds what is kept while the disk is full; roomToResume is how much room it takes to go on.
const (
	mostPending  = 64 << 20
	roomToResume = 256 << 10
)

type indexEntry struct {
	kind  sectionKind
	off   int64
	count uint32
}

// Create makes or empties the file at path and stores m, so that from then on there is a recording to read.
// m may be nil; then PutMeta must follow.
func Create(path string, m *trace.Meta) (*Writer, error) {
	// A FIFO or a device would take what cannot be read back.
	if st, err := os.Stat(path); err == nil && !st.Mode().IsRegular() {
		what := "not a regular file"
		if st.IsDir() {
			what = "a directory"
		}
		return nil, fmt.Errorf("creating recording %s: it is %s: name a file", path, what)
	}
	f, err := outfile.Open(path)
	if err != nil {
		return nil, fmt.Errorf("creating recording: %w", err)
	}
	// Two recorders that write one file would destroy it. The lock goes with the descriptor, however its owner
	// ends. A file system that knows no locks is used without.
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); errors.Is(err, syscall.EWOULDBLOCK) {
		f.Close()
		return nil, fmt.Errorf(
			"creating recording %s: another hbtrace is recording into it: choose another name with -o",
			path,
		)
	}
	if err := f.Truncate(0); err != nil {
		f.Close()
		return nil, fmt.Errorf("creating recording: %w", err)
	}
	w, err := newWriter(path, f, m)
	if err != nil {
		f.Close()
		return nil, err
	}
	return w, nil
}

func newWriter(path string, f file, m *trace.Meta) (*Writer, error) {
	// Small sections need no large window, and a recorder has better uses for memory.
	z, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest),
		zstd.WithWindowSize(512<<10), zstd.WithEncoderCRC(false))
	if err != nil {
		return nil, fmt.Errorf("creating recording %s: making a compressor: %w", path, err)
	}
	w := &Writer{path: path, f: f, z: z, firstNode: 1, nextNode: 1}
	w.section = appendFileHeader(w.section[:0])
	if err := w.write(); err != nil {
		return nil, err
	}
	if m != nil {
		if err := w.PutMeta(m); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// write appends w.section to the file, whole or not at all.
func (w *Writer) write() error {
	if w.failed != nil {
		return nil
	}
	if _, err := w.f.WriteAt(w.section, w.off); err != nil {
		return w.fail(err)
	}
	w.off += int64(len(w.section))
	return nil
}

// fail stops the recording: the file ends after its last whole section.
func (w *Writer) fail(err error) error {
	hint := ""
	w.lasting = true
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		hint = ": free some space or write elsewhere"
		w.lasting = false
	}
	w.failed = fmt.Errorf(
		"writing recording %s: stopped after %d bytes, what was written stays readable: %w%s",
		w.path,
		w.off,
		err,
		hint,
	)
	// Readers skip a torn end anyway; without it the file is as long as it says.
	w.f.Truncate(w.off)
	return w.failed
}

// Err is the error that stopped the recording, nil while it goes on.
func (w *Writer) Err() error { return w.failed }

// Dropped is how many events were given after the recording had stopped.
func (w *Writer) Dropped() uint64 { return w.lost }

// Size is the number of bytes in the file so far.
func (w *Writer) Size() int64 { return w.off }

// put writes one section and enters it into the index.
func (w *Writer) put(kind sectionKind, count int, payload []byte) error {
	return w.putVersion(kind, 1, count, payload)
}

func (w *Writer) putVersion(kind sectionKind, version uint8, count int, payload []byte) error {
	if len(payload) > maxSectionBytes {
		return fmt.Errorf("writing recording %s: %d bytes are too many for one %s section", w.path, len(payload), kind)
	}
	w.section = appendSection(w.section[:0], kind, version, count, payload, w.z)
	off := w.off
	if err := w.write(); err != nil || w.failed != nil {
		if kind != sectionEvents && kind != sectionStats {
			w.postpone(kind, count)
		}
		return err
	}
	w.index = append(w.index, indexEntry{kind, off, uint32(count)})
	return nil
}

// postpone keeps w.section until there is room. Where that is too much the file ends here.
func (w *Writer) postpone(kind sectionKind, count int) {
	if w.lasting {
		return
	}
	if w.pendingBytes += len(w.section); w.pendingBytes > mostPending {
		w.lasting, w.pending = true, nil
		return
	}
	w.pending = append(w.pending, pendingSection{kind, count, slices.Clone(w.section)})
}

// resume goes on with a file that had no room, if it has some now.
func (w *Writer) resume() {
	if w.failed == nil || w.lasting {
		return
	}
	// A file that grows by a section and is full again would end in pieces: there must be more room than that.
	room := make([]byte, roomToResume+w.pendingBytes)
	_, err := w.f.WriteAt(room, w.off)
	w.f.Truncate(w.off)
	if err != nil {
		return
	}
	failed := w.failed
	w.failed = nil
	for len(w.pending) > 0 {
		p := &w.pending[0]
		w.section = append(w.section[:0], p.bytes...)
		off := w.off
		if w.write() != nil {
			w.failed = failed // was reported
			return
		}
		w.index = append(w.index, indexEntry{p.kind, off, uint32(p.count)})
		w.pendingBytes -= len(p.bytes)
		w.pending = w.pending[1:]
	}
	w.pending = nil
}

// PutMeta stores the recording's metadata, in place of what was stored before.
func (w *Writer) PutMeta(m *trace.Meta) error {
	w.scratch = appendItem(w.scratch[:0], *m)
	return w.put(sectionMeta, 1, w.scratch)
}

// PutProcess stores a process, in place of what was stored for its id before.
func (w *Writer) PutProcess(p *trace.Process) error {
	return w.putItem(&w.processes, *p)
}

// PutThread stores a thread, in place of what was stored for its id before.
func (w *Writer) PutThread(t *trace.Thread) error {
	return w.putItem(&w.threads, *t)
}

// PutModule stores a module, in place of what was stored for its id before.
func (w *Writer) PutModule(m *trace.Module) error {
	return w.putItem(&w.modules, *m)
}

func (w *Writer) putItem(it *items, v any) error {
	w.scratch = appendItem(w.scratch[:0], v)
	if len(w.scratch) > maxSectionBytes {
		return fmt.Errorf("writing recording %s: %T of %d bytes is too large to be stored", w.path, v, len(w.scratch))
	}
	var err error
	if len(it.payload)+len(w.scratch) > maxSectionBytes {
		err = w.flushItems()
	}
	it.payload = append(it.payload, w.scratch...)
	it.count++
	if len(it.payload) >= targetSectionBytes {
		err = errors.Join(err, w.flushItems())
	}
	return err
}

func (w *Writer) flushItems() error {
	for _, s := range []struct {
		kind sectionKind
		*items
	}{{sectionModules, &w.modules}, {sectionProcesses, &w.processes}, {sectionThreads, &w.threads}} {
		if s.count == 0 {
			continue
		}
		err := w.put(s.kind, s.count, s.payload)
		s.payload, s.count = s.payload[:0], 0
		if err != nil {
			return err
		}
	}
	return nil
}

// PutNodes stores nodes of the stack table: the ids from first on, which must be the one after the last that
// was stored (1 at the beginning). Nodes must be put before the events that name them.
func (w *Writer) PutNodes(first trace.StackID, nodes []trace.Node) error {
	if first != w.nextNode {
		return fmt.Errorf("writing recording %s: nodes from %d on where %d is next", w.path, first, w.nextNode)
	}
	for _, n := range nodes {
		if err := w.PutNode(w.nextNode, n); err != nil {
			return err
		}
	}
	return nil
}

// PutNode stores the node of an id: the next one, or one that was stored before and is given to another stack now.
// From here on the id means this node, also as a parent; what was stored in front of it keeps its meaning.
func (w *Writer) PutNode(id trace.StackID, n trace.Node) error {
	err := checkNode(id, n)
	switch {
	case err != nil:
	case id == 0 || id > w.nextNode:
		err = fmt.Errorf("storing node %d: %d is next", id, w.nextNode)
	case n.Parent == id || n.Parent >= w.nextNode:
		err = fmt.Errorf("storing node %d: its parent is %d: parents come first", id, n.Parent)
	}
	if err != nil {
		return fmt.Errorf("writing recording %s: %w", w.path, err)
	}
	// Nodes that are simply the next ones are stored as such. A parent may come from either kind of section.
	again := id < w.nextNode
	if again && w.eventCount+w.batch.Count() > 0 {
		if err := w.Flush(); err != nil { // they mean the node that had the id before
			return err
		}
	}
	if w.nodeCount > 0 && (again != w.named || again && id <= w.lastNode) || len(w.nodes) >= targetSectionBytes {
		if err := w.flushNodes(); err != nil {
			return err
		}
	}
	if w.nodeCount == 0 {
		w.firstNode, w.named, w.lastNode, w.lastOff = id, again, 0, 0
	}
	if again {
		w.nodes = appendNamedNode(w.nodes, id, n, w.lastNode, w.lastOff)
	} else {
		w.nodes = appendNode(w.nodes, id, n, w.lastOff)
		w.nextNode++
	}
	w.lastNode, w.lastOff = id, n.Addr.Off
	w.nodeCount++
	return nil
}

func (w *Writer) flushNodes() error {
	if w.nodeCount == 0 {
		return nil
	}
	payload, version := w.nodes, uint8(2)
	if !w.named {
		w.scratch = binary.AppendUvarint(w.scratch[:0], uint64(w.firstNode))
		w.scratch = append(w.scratch, w.nodes...)
		payload, version = w.scratch, 1
	}
	count := w.nodeCount
	w.nodes, w.nodeCount = w.nodes[:0], 0
	return w.putVersion(sectionNodes, version, count, payload)
}

// PutEvents stores events, in this order.
func (w *Writer) PutEvents(events []trace.Event) error {
	for i := range events {
		if err := w.PutEvent(&events[i]); err != nil {
			w.lost += uint64(len(events) - i - 1)
			return err
		}
	}
	return nil
}

// PutEvent stores one event behind those before.
func (w *Writer) PutEvent(e *trace.Event) error {
	if w.failed != nil {
		w.lost++
		return nil
	}
	w.batch.Add(e)
	if w.batch.Len() >= fileBatchBytes || w.batch.Full() {
		return w.endBatch()
	}
	return nil
}

// PutBatch stores the events of a batch behind those before, and returns how many these are: 0 where it does not
// decode and is refused.
func (w *Writer) PutBatch(b []byte) (events int, err error) {
	err = w.check.Decode(b, func(*trace.Event) error { events++; return nil })
	if err != nil {
		return 0, fmt.Errorf("writing recording %s: %w", w.path, err)
	}
	if w.batch.Count() > 0 {
		if err := w.endBatch(); err != nil {
			w.lost += uint64(events)
			return events, err
		}
	}
	return events, w.addBatch(b)
}

func (w *Writer) endBatch() error {
	err := w.addBatch(w.batch.Bytes())
	w.batch.Reset()
	return err
}

func (w *Writer) addBatch(b []byte) error {
	n := int(binary.LittleEndian.Uint16(b))
	if w.failed != nil {
		w.lost += uint64(n)
		return nil
	}
	var err error
	if len(w.events)+len(b)+binary.MaxVarintLen32 > maxSectionBytes {
		err = w.flush()
	}
	w.events = appendBytes(w.events, b)
	w.eventCount += n
	if len(w.events) >= targetSectionBytes {
		err = errors.Join(err, w.flush())
	}
	return err
}

// PutSymbols stores the functions at addresses of a module: frames[i] belongs to addrs[i], innermost inlined
// function first; empty where it was looked up in vain. Addresses are those of [trace.Node.Lookup].
func (w *Writer) PutSymbols(module trace.ModuleID, addrs []uint64, frames [][]trace.SymFrame) error {
	if len(addrs) != len(frames) {
		return fmt.Errorf("writing recording %s: symbols of %d addresses for %d", w.path, len(frames), len(addrs))
	}
	s := &w.symbols
	s.reset()
	for i, addr := range addrs {
		s.add(addr, frames[i])
		if s.size() >= targetSectionBytes || i == len(addrs)-1 {
			w.scratch = s.payload(w.scratch[:0], module)
			if err := w.put(sectionSymbols, s.count, w.scratch); err != nil {
				return err
			}
			s.reset()
		}
	}
	return nil
}

// Flush hands everything to the system: it survives the death of this process, not that of the machine.
func (w *Writer) Flush() error {
	w.resume()
	var err error
	if w.batch.Count() > 0 {
		err = w.endBatch()
	}
	return errors.Join(err, w.flush())
}

// flush is Flush but for the batch in the making.
func (w *Writer) flush() error {
	defer func() { w.events, w.eventCount = w.events[:0], 0 }()
	if w.failed != nil {
		w.lost += uint64(w.eventCount)
		w.flushItems() // they wait
		w.flushNodes()
		return nil
	}
	// In this order, so that a file that ends anywhere names nothing that it does not have.
	if err := w.flushItems(); err != nil {
		w.lost += uint64(w.eventCount)
		return err
	}
	if err := w.flushNodes(); err != nil {
		w.lost += uint64(w.eventCount)
		return err
	}
	if w.eventCount == 0 {
		return nil
	}
	err := w.putVersion(sectionEvents, sectionEvents.newest(), w.eventCount, w.events)
	if w.failed != nil {
		w.lost += uint64(w.eventCount)
	}
	return err
}

// Sync is Flush and waits until the disk has it.
func (w *Writer) Sync() error {
	if err := w.Flush(); err != nil || w.failed != nil {
		return err
	}
	if err := w.f.Sync(); err != nil {
		return w.fail(err)
	}
	return nil
}

// Close writes what is left, the account of the recording and the index, and closes the file. It marks the
// recording as complete, unless writing had failed before. st may be nil.
func (w *Writer) Close(st *trace.Stats) error {
	err := w.Flush()
	stopped := w.failed
	if stopped != nil {
		// The events end here. What explains those that are there may still fit.
		w.failed = nil
		for _, p := range w.pending { // what fits, but not what later events would rest on
			if p.kind == sectionNodes || p.kind == sectionSymbols {
				continue
			}
			w.section = append(w.section[:0], p.bytes...)
			off := w.off
			if w.write() != nil {
				w.failed = nil
				continue
			}
			w.index = append(w.index, indexEntry{p.kind, off, uint32(p.count)})
		}
		w.pending, w.lasting = nil, true
		w.flushItems()
	}
	var s trace.Stats
	if st != nil {
		s = *st
	}
	s.Complete = stopped == nil
	if stopped != nil {
		s.Notes = append(
			s.Notes[:len(s.Notes):len(s.Notes)],
			fmt.Sprintf("%v; %d later events were dropped", stopped, w.lost),
		)
	}
	if stopped == nil && w.lost > 0 {
		s.Notes = append(
			s.Notes[:len(s.Notes):len(s.Notes)],
			fmt.Sprintf("the disk was full for some time: %d events were dropped", w.lost),
		)
	}
	ending := w.end(&s)
	if stopped != nil {
		w.failed = stopped // reported already
	} else if err == nil {
		err = ending
	}
	if cerr := w.f.Close(); cerr != nil && err == nil && stopped == nil {
		err = fmt.Errorf("writing recording %s: closing it: %w", w.path, cerr)
	}
	w.z.Close()
	return err
}

// end writes stats and footer.
func (w *Writer) end(s *trace.Stats) error {
	w.scratch = appendItem(w.scratch[:0], *s)
	if err := w.put(sectionStats, 1, w.scratch); err != nil || w.failed != nil {
		return err
	}
	w.section = appendFooter(w.section[:0], w.index, w.off)
	return w.write()
}
