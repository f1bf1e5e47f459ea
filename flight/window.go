// The recorder's side: events go in, the oldest ones are overwritten.

package flight

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/hbtrace/hbtrace/blockbuf"
	"github.com/hbtrace/hbtrace/stacktable"
	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/tracefile"
	"golang.org/x/sys/unix"
)

// Config says what a window keeps, and of what.
type Config struct {
	Keep    Keep
	Meta    *trace.Meta
	Stacks  *stacktable.Table // of the events' stacks
	Socket  string            // abstract name at which the session is asked; "" none
	Program int               // pid of the command; 0 not known yet
}

// blockBytes is the size of the window's blocks. A batch of events begins with nothing known, so larger is denser; what a
// slow writer leaves of a block is lost, so smaller holds more. Batches are cut to what is left of a block.
const blockBytes = 32 << 10

// leastBatch is the least that is left of a block for another batch to begin in it.
const leastBatch = 2 << 10

// forget is how long after its end a thread is kept in the dictionary at least: events that name it may be on their way.
const forget = trace.Ns(10 * time.Second)

// Window is a session that records. It belongs to one goroutine.
type Window struct {
	Dir  string
	keep Keep
	info Info
	lock *os.File

	buf    *blockbuf.Buffer
	writer *blockbuf.Writer
	pos    uint64 // of the newest block
	used   int    // bytes of it

	dict     *dictWriter
	dictBase int64 // size of the dictionary when it was last written anew
	meta     trace.Meta
	procs    map[trace.ProcID]trace.Process
	threads  map[trace.ThreadID]trace.Thread
	modules  map[trace.ModuleID]trace.Module
	stacks   *stacktable.Table
	made     []stacktable.Made
	stored   trace.StackID // of the stack table's present lap
	live     int           // nodes after the last collection

	batch      tracefile.Batch
	limit      int // that the batch may have
	begin, end trace.Ns
	number     uint64 // of the next event
	lost       uint64 // records so far
	record     []byte

	stackUse  []uint32 // by node: the last block that may refer to it
	threadUse map[trace.ThreadID]uint32
	recent    [256]recentUse // saves look-ups in threadUse

	failed error // first failure of writing the dictionary: what comes later is dropped
}

type recentUse struct {
	thread trace.ThreadID
	block  uint32
}

// Create begins a session.
func Create(c Config) (_ *Window, err error) {
	if err := roomFor(c.Keep.Size()); err != nil {
		return nil, err
	}
	dir, err := makeSession(c.Meta.Command)
	if err != nil {
		return nil, err
	}
	w := &Window{
		Dir: dir, keep: c.Keep, meta: *c.Meta, stacks: c.Stacks,
		procs: map[trace.ProcID]trace.Process{}, threads: map[trace.ThreadID]trace.Thread{},
		modules: map[trace.ModuleID]trace.Module{}, threadUse: map[trace.ThreadID]uint32{},
	}
	defer func() {
		if err != nil {
			w.Close()
		}
	}()
	if w.lock, err = lockSession(dir); err != nil {
		return nil, err
	}
	path := filepath.Join(dir, windowName)
	size := int(c.Keep.Size())
	w.buf, err = blockbuf.New(blockbuf.Options{Bytes: size, MaxBytes: size, BlockBytes: blockBytes, File: path})
	if err != nil {
		return nil, err
	}
	if err = allocate(path, size); err != nil {
		return nil, err
	}
	w.writer = w.buf.Writer(0)
	w.limit = w.room()
	if w.dict, err = createDict(filepath.Join(dir, dictName)); err != nil {
		return nil, err
	}
	putItem(w.dict, dictMeta, &w.meta)
	if err = w.dict.flush(); err != nil {
		return nil, err
	}
	w.info = Info{
		Format: format, Name: filepath.Base(dir), Version: w.meta.Version, Recorder: os.Getpid(), Started: w.meta.Started,
		Command: w.meta.Command, Keep: c.Keep.String(), Socket: c.Socket, Program: c.Program,
	}
	return w, writeInfo(dir, &w.info)
}

// roomFor refuses a window that this machine's memory cannot hold.
func roomFor(size int64) error {
	var i unix.Sysinfo_t
	if unix.Sysinfo(&i) != nil {
		return nil
	}
	if total := int64(i.Totalram) * int64(i.Unit); size > total/2 {
		return fmt.Errorf("a window of %s is more than half of this machine's memory (%d MB): use a smaller one, such as --keep 64M",
			SizeString(size), total>>20)
	}
	return nil
}

// allocate takes all of the file's room now. Otherwise a full file system would end the recorder later, by SIGBUS.
func allocate(path string, size int) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	switch err := unix.Fallocate(int(f.Fd()), 0, 0, st.Size()); {
	case err == nil, errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOSYS):
		return nil
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return fmt.Errorf("no room for a window of %s in %s: use a smaller one, such as --keep 16M, or set XDG_RUNTIME_DIR to a directory with room",
			SizeString(int64(size)), filepath.Dir(path))
	default:
		return fmt.Errorf("taking room for the window: %s: %w", path, err)
	}
}

// SetProgram says which process the command is.
func (w *Window) SetProgram(pid int) error {
	w.info.Program = pid
	return writeInfo(w.Dir, &w.info)
}

// Info is what the session says of itself.
func (w *Window) Info() Info { return w.info }

// PutProcess takes in a process, in place of what was known of it.
func (w *Window) PutProcess(p *trace.Process) {
	w.procs[p.ID] = *p
	putItem(w.dict, dictProcess, p)
}

// PutThread takes in a thread, in place of what was known of it.
func (w *Window) PutThread(t *trace.Thread) {
	w.threads[t.ID] = *t
	putItem(w.dict, dictThread, t)
}

// Thread is what is known of a thread; zero: nothing.
func (w *Window) Thread(id trace.ThreadID) trace.Thread { return w.threads[id] }

// Process is what is known of a process; zero: nothing.
func (w *Window) Process(id trace.ProcID) trace.Process { return w.procs[id] }

// PutModule takes in a module, in place of what was known of it.
func (w *Window) PutModule(m *trace.Module) {
	w.modules[m.ID] = *m
	putItem(w.dict, dictModule, m)
}

// PutMeta takes in the recording's metadata, in place of what was known.
func (w *Window) PutMeta(m *trace.Meta) {
	w.meta = *m
	putItem(w.dict, dictMeta, m)
}

// Event takes in one event. It is in the window at the next Flush, or before.
func (w *Window) Event(e *trace.Event) {
	w.uses(e)
	if w.batch.Count() == 0 || e.Time < w.begin {
		w.begin = e.Time
	}
	if w.batch.Count() == 0 || e.Time > w.end {
		w.end = e.Time
	}
	w.batch.Add(e)
	if w.batch.Len() >= w.limit || w.batch.Full() {
		w.Flush()
	}
}

// uses notes what an event refers to. Its batch goes into the newest block or into the one behind that.
func (w *Window) uses(e *trace.Event) {
	block := uint32(w.pos + 1)
	if e.Stack != 0 {
		if int(e.Stack) >= len(w.stackUse) {
			w.stackUse = append(w.stackUse, make([]uint32, int(e.Stack)+1-len(w.stackUse)+len(w.stackUse)/4)...)
		}
		w.stackUse[e.Stack] = block
	}
	w.usesThread(e.Thread, block)
	if e.Owner != 0 {
		w.usesThread(e.Owner, block)
	}
	if e.Releaser != 0 {
		w.usesThread(e.Releaser, block)
	}
}

func (w *Window) usesThread(t trace.ThreadID, block uint32) {
	if r := &w.recent[t%256]; r.thread != t || r.block != block {
		*r = recentUse{t, block}
		w.threadUse[t] = block
	}
}

// Flush moves the batch in the making into the window, and what it refers to into the dictionary.
func (w *Window) Flush() {
	w.describe()
	n := w.batch.Count()
	if n == 0 {
		return
	}
	h := head{kind: recordEvents, first: w.number, lost: w.lost, begin: w.begin, end: w.end}
	w.number += uint64(n)
	w.put(&h, w.batch.Bytes())
	w.batch.Reset()
	w.limit = w.room()
}

// describe writes what is new in the dictionary.
func (w *Window) describe() {
	w.made, w.stored = w.stacks.AppendMade(w.made[:0], w.stored)
	for i := range w.made {
		w.dict.putNode(w.made[i].ID, w.made[i].Node)
	}
	w.fail(w.dict.flush())
}

func (w *Window) fail(err error) {
	if w.failed == nil {
		w.failed = err
	}
}

// Err is what stopped the recording: nil while it goes on.
func (w *Window) Err() error { return w.failed }

// put writes one record. Without its dictionary it would mean nothing.
func (w *Window) put(h *head, batch []byte) {
	if w.failed != nil {
		return
	}
	w.record = append(h.append(w.record[:0]), batch...)
	if err := w.writer.Write(w.record); err != nil {
		w.fail(fmt.Errorf("writing the window: %w", err))
		return
	}
	if pos := w.buf.Newest(); pos != w.pos {
		w.pos, w.used = pos, 0
	}
	w.used += (len(w.record)+3)&^3 + 4
}

// room is how large a batch may become before it is written: what is left of the block, or a block.
func (w *Window) room() int {
	const rest = eventsHeader + 8 + tracefile.MaxEventBytes
	if left := blockBytes - w.used - rest; w.pos > 0 && left >= leastBatch {
		return left
	}
	return blockBytes - rest
}

// State is what a keyframe says.
type State struct {
	Time    trace.Ns
	Lost    uint64         // records so far
	Threads []trace.Thread // that live, with what they have used
	Open    []trace.Event  // what they are in: intervals that have not ended
}

// Keyframe flushes, and writes down how threads are at this moment.
func (w *Window) Keyframe(s State) {
	w.lost = s.Lost
	w.Flush()
	parts := w.parts(&s)
	h := head{kind: recordKeyframe, first: w.number, lost: s.Lost, begin: s.Time, parts: len(parts)}
	for i, p := range parts {
		h.part = i
		w.put(&h, p)
	}
	w.limit = w.room()
	if w.dict.size > 2*w.dictBase+minRewrite {
		w.fail(w.rewrite())
	}
}

// parts cuts a keyframe into pieces that fit into a block.
func (w *Window) parts(s *State) (parts [][]byte) {
	const most = blockBytes / 4
	part := []byte{partThreads}
	for i := range s.Threads {
		part = appendCounters(part, &s.Threads[i])
		if len(part) >= most {
			parts = append(parts, part)
			part = []byte{partThreads}
		}
	}
	parts = append(parts, part)
	var b tracefile.Batch
	end := func() {
		if b.Count() > 0 {
			parts = append(parts, append([]byte{partOpen}, b.Bytes()...))
			b.Reset()
		}
	}
	for i := range s.Open {
		w.uses(&s.Open[i])
		b.Add(&s.Open[i])
		if b.Len() >= most || b.Full() {
			end()
		}
	}
	end()
	return parts
}

// minRewrite is what a dictionary may grow by before it is written anew, however small it is.
const minRewrite = 1 << 20

// DueCollect reports whether half of the stack table may be dead.
func (w *Window) DueCollect() bool { return w.stacks.Len() > 2*w.live+minNodes }

// minNodes is how many nodes may come before the first collection.
const minNodes = 64 << 10

// Collect takes back what no event of the window refers to any more. held calls mark for further stacks that are in
// use; forgot is told of threads that are dropped.
func (w *Window) Collect(now trace.Ns, held func(mark func(trace.StackID)), forgot func(trace.ThreadID)) int {
	w.Flush() // what the lap made must be in the dictionary before the next one begins
	oldest := uint32(w.buf.Oldest())
	n := w.stacks.Collect(func(mark func(trace.StackID)) {
		held(mark)
		for id, block := range w.stackUse {
			if block != 0 && block >= oldest {
				mark(trace.StackID(id))
			}
		}
	}, nil)
	w.stored, w.live = 0, w.stacks.Len()
	w.forgetThreads(oldest, now, forgot)
	return n
}

// forgetThreads drops threads, and then processes, that have ended and that no block refers to.
func (w *Window) forgetThreads(oldest uint32, now trace.Ns, forgot func(trace.ThreadID)) {
	needed := map[trace.ProcID]bool{}
	for id, t := range w.threads {
		if t.End != 0 && t.End < now-forget && w.threadUse[id] < oldest {
			delete(w.threads, id)
			delete(w.threadUse, id)
			forgot(id)
			continue
		}
		needed[t.Proc] = true
	}
	for id, block := range w.threadUse { // named by an event after it had been forgotten
		if _, ok := w.threads[id]; !ok && block < oldest {
			delete(w.threadUse, id)
		}
	}
	for id, p := range w.procs {
		if p.End == 0 || p.End >= now-forget {
			needed[id] = true
		}
	}
	for id := range needed {
		for p := w.procs[id]; p.Parent != 0 && !needed[p.Parent]; p = w.procs[p.Parent] {
			needed[p.Parent] = true
		}
	}
	for id := range w.procs {
		if !needed[id] {
			delete(w.procs, id)
		}
	}
}

// rewrite makes the dictionary anew, of what is alive. Readers find the old file or the new one.
func (w *Window) rewrite() error {
	path := filepath.Join(w.Dir, dictNewName)
	d, err := createDict(path)
	if err != nil {
		return err
	}
	putItem(d, dictMeta, &w.meta)
	for _, p := range w.procs {
		putItem(d, dictProcess, &p)
	}
	for _, m := range w.modules {
		putItem(d, dictModule, &m)
	}
	for _, t := range w.threads {
		putItem(d, dictThread, &t)
	}
	w.stacks.All(d.putNode)
	if err := d.flush(); err != nil {
		return errors.Join(err, d.close(), os.Remove(path))
	}
	if err := os.Rename(path, filepath.Join(w.Dir, dictName)); err != nil {
		return errors.Join(fmt.Errorf("replacing the dictionary: %w", err), d.close())
	}
	old := w.dict
	w.dict, w.dictBase = d, d.size
	return old.close()
}

// Held is what the window holds at this moment.
type Held struct {
	Events      uint64
	Begin, End  trace.Ns // of what is held
	Overwritten uint64   // events that it no longer holds
	Bytes, Used int64    // its size, and how much of that is blocks that can be read
	Dict        int64    // bytes of the dictionary
	Bound       string   // which bound was met: "time", "size", "" neither yet
}

// Held looks at the window.
func (w *Window) Held() Held {
	w.Flush()
	h := heldBy(w.buf.Snapshot(), w.keep)
	h.Bytes, h.Dict = w.keep.Size(), w.dict.size
	return h
}

func heldBy(blocks []blockbuf.Block, keep Keep) (h Held) {
	type span struct {
		head
		next uint64
	}
	var list []span
	for _, b := range blocks {
		h.Used += int64(len(b.Data))
		b.Records(func(p []byte) bool {
			if r, batch, ok := parseHead(p); ok && r.kind == recordEvents && len(batch) >= 2 {
				list = append(list, span{r, r.first + uint64(batch[0]) + uint64(batch[1])<<8})
				h.End = max(h.End, r.end)
			}
			return true
		})
	}
	cut := cutoff(h.End, keep)
	for i, s := range list {
		if s.end < cut {
			h.Bound = "time"
			continue
		}
		if h.Events == 0 {
			h.Overwritten = s.first
			h.Begin = max(list[i].begin, cut)
			if s.first > 0 && h.Bound == "" {
				h.Bound = "size"
			}
		}
		h.Events += s.next - s.first
	}
	return h
}

// cutoff is the earliest time that is kept.
func cutoff(end trace.Ns, keep Keep) trace.Ns {
	if keep.Time == 0 {
		return 0
	}
	return max(0, end-trace.Ns(keep.Time))
}

// Close ends the session and removes its files.
func (w *Window) Close() error {
	var errs []error
	if w.buf != nil {
		errs = append(errs, w.buf.Close())
	}
	if w.dict != nil {
		errs = append(errs, w.dict.close())
	}
	if w.lock != nil {
		errs = append(errs, w.lock.Close())
	}
	return cmp.Or(errors.Join(errs...), os.RemoveAll(w.Dir))
}
