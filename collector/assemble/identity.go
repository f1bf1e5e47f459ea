// identity.go knows whose records they are: the processes and threads of the recording, from their records,
// and from their slots in the segment where records were lost.
//
// A thread's or process's uid is its id in the recording: both are unique in a session and start at 1.
package assemble

import (
	"bytes"
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/hbtrace/hbtrace/segment"
	"github.com/hbtrace/hbtrace/trace"
)

type thread struct {
	meta    trace.Thread
	proc    *process
	slot    int  // index in the segment, -1 unknown
	renamed bool // by a NAME record

	// order
	queue    []item
	done     int // of queue, interpreted by the current EndPass
	unsorted bool
	// Records up to number unheardTo came when the process was not known yet.
	unheard   bool
	unheardTo uint32
	begun     bool   // expect is set
	expect    uint32 // number of the next record
	lost      uint64 // sum of the gaps

	// interpretation
	started   bool // KindThreadStart was delivered
	exited    bool // KindThreadExit was delivered
	exitPass  uint32
	leaving   bool     // in Assembler.leaving
	active    bool     // in Assembler.active
	seen      trace.Ns // newest time of a record
	vanished  uint32   // pass in which the slot was found freed, though no exit had been heard of; 0 not
	stack     []trace.StackID
	pcs       []uint64 // of its native frames, root first, as the agent sent them
	mixed     []mixed  // of a stack with frames of Python: what stack is made of; else empty
	leaf      uint64   // address of the last of them
	whole     bool     // stack is what the agent remembers
	stackTime trace.Ns // of the record that it came with
	enter     enter
	cpuBase   uint64 // thread CPU time at its beginning
	cpuLast   uint64 // at the last KindCPU, or the beginning
	cpuSeen   uint64 // highest heard of
	cpuKnown  bool   // cpuBase and cpuLast are set
	final     *slotState
	woken     woken // see join
	used      Usage // as of the last look
	usedAt    trace.Ns

	// merge
	run    trace.Event
	inRun  bool
	listed bool // in Assembler.running
	dirty  bool // in Assembler.changed

	announced bool
}

// enter is the thread's last KindEnter, while nothing with a stack came after it.
type enter struct {
	hook  trace.HookID
	time  trace.Ns
	stack trace.StackID
	flags trace.Flags
	leaf  uint64 // address of its leaf
}

type process struct {
	cpuBalance int64 // CPU time of threads that have ended beyond what their samples stand for, ns
	meta       trace.Process
	uid        uint32
	parentUID  uint32
	replaced   *process // the image before an exec
	cpuBefore  uint64   // what that used, as far as known: the CPU clock goes on (execUsed)
	slot       int      // index in the segment, -1 unknown
	golang     bool     // a Go program, whose threads share one thread of the recording where they run no goroutine
	hostPID    bool     // meta.PID is the recorder's number, not the process's own
	space      space
	functions  map[uint32]*function // of Python, by the agent's ids
	tids       map[uint32][]uint32  // uids of threads by the process's own thread ids, oldest first
	threads    map[*thread]struct{} // that are remembered
	exits      exits
	dirty      bool
	announced  bool
	isGone     bool
	gonePass   uint32
}

// sameTID bounds how many threads with one number a process is searched for.
const sameTID = 4

// recentThread saves a look-up in the map.
type recentThread struct {
	uid uint32
	t   *thread
}

const recentThreads = 256

// thread returns the state of uid, nil for a uid that no agent was given, or whose thread has long exited.
func (a *Assembler) thread(uid uint32) *thread {
	r := &a.recent[uid%recentThreads]
	if r.uid == uid && uid != 0 {
		return r.t
	}
	if t := a.threads[uid]; t != nil {
		*r = recentThread{uid, t}
		return t
	}
	if uid == 0 || uid > maxUID || len(a.threads) >= maxThreads || a.known.has(uid) {
		return nil
	}
	t := &thread{slot: -1}
	t.meta.ID = trace.ThreadID(uid)
	t.meta.CPU = -1
	a.threads[uid] = t
	a.known.set(uid)
	return t
}

// proc returns the process of uid, making it from its slot if it is new; nil for a uid that no agent was given,
// and for a process that is gone and forgotten.
func (a *Assembler) proc(uid uint32) *process {
	if p := a.procs[uid]; p != nil {
		return p
	}
	if uid == 0 || uid > maxUID || len(a.procs) >= maxProcs || a.past.has(uid) {
		return nil
	}
	p := &process{uid: uid, slot: -1, tids: map[uint32][]uint32{}, threads: map[*thread]struct{}{}}
	p.meta.ID = trace.ProcID(uid)
	a.procs[uid] = p
	if seg := a.cfg.Segment; seg != nil {
		for i := range seg.HighProcs() {
			if seg.Proc(i).UID.Load() == uid {
				a.fromProcSlot(p, i)
				break
			}
		}
	}
	if p.slot >= 0 {
		a.met(p)
	}
	a.alter(p)
	return p
}

// procRecord takes in a PROC record.
func (a *Assembler) procRecord(h *segment.Rec, rec []byte) bool {
	var r segment.RecProc
	if !r.Decode(rec) {
		return false
	}
	p := a.proc(r.ProcUID)
	if p == nil {
		return false
	}
	known := p.meta.PID != 0
	p.golang = r.Flags&segment.ProcFlagGo != 0
	if seg := a.cfg.Segment; seg != nil && p.slot < 0 && int(r.ProcSlot) < seg.Geometry().Procs && seg.Proc(int(r.ProcSlot)).UID.Load() == p.uid {
		a.fromProcSlot(p, int(r.ProcSlot))
	}
	if p.meta.Start == 0 {
		p.meta.Start = trace.Ns(h.TimeNs)
	}
	if p.meta.PID == 0 {
		p.meta.PID = int(r.PID)
	}
	if r.Flags&segment.ProcFlagForked != 0 && r.ParentUID != p.uid && !p.meta.Forked {
		a.forkedFrom(p, r.ParentUID)
	}
	if !known {
		a.met(p)
	}
	a.alter(p)
	return true
}

func (a *Assembler) forkedFrom(p *process, parent uint32) {
	p.meta.Forked = true
	p.parentUID = parent
	p.meta.Parent = trace.ProcID(parent)
	p.space.heir = true
}

// fromProcSlot fills in what the slot says of a process that is new.
func (a *Assembler) fromProcSlot(p *process, i int) {
	s := a.cfg.Segment.Proc(i)
	exe := s.Exe
	pid, host, parent := s.PID.Load(), s.HostPID.Load(), s.ParentUID.Load()
	start, ppid, flags := s.StartNs.Load(), s.PPID.Load(), s.Flags.Load()
	if s.UID.Load() != p.uid {
		return // freed and taken while it was read
	}
	p.slot = i
	p.meta.PID, p.meta.PPID = int(pid), int(ppid)
	if host != 0 {
		p.meta.PID, p.hostPID = int(host), true
	}
	p.meta.Exe = clean(exe[:])
	if start > a.horizon { // its clock is another one, or it writes what it likes
		start = a.horizon - uint64(time.Minute)
	}
	p.meta.Start = trace.Ns(start)
	if flags&segment.ProcFlagForked != 0 && parent != p.uid {
		a.forkedFrom(p, parent)
	}
}

// met lets the launcher add what it knows of a new process. Its parent, which may come in after it from another
// sub-buffer, is looked for by adopt.
func (a *Assembler) met(p *process) {
	if a.cfg.Describe != nil {
		a.cfg.Describe(p.uid, &p.meta)
		p.meta.ID = trace.ProcID(p.uid)
	}
	a.orphans = append(a.orphans, p)
}

// Attached lets the launcher complete a process that was met before the launcher knew it: agents write their first records
// before they say that they are there.
func (a *Assembler) Attached(procUID uint32) {
	if p := a.procs[procUID]; p != nil && a.cfg.Describe != nil {
		a.cfg.Describe(p.uid, &p.meta)
		p.meta.ID = trace.ProcID(p.uid)
		a.alter(p)
	}
}

// adopt looks for the parents of new processes that are no fork children of recorded ones.
func (a *Assembler) adopt() {
	if len(a.orphans) == 0 {
		return
	}
	a.procSlots() // a fork child may exec before it writes anything
	slices.SortFunc(a.orphans, func(x, y *process) int { return cmp.Compare(x.uid, y.uid) })
	byPID := map[int][]*process{}
	for _, p := range a.procs {
		byPID[p.meta.PID] = append(byPID[p.meta.PID], p)
	}
	for _, p := range a.orphans {
		if p.meta.Parent == 0 && p.meta.PID != 0 {
			a.link(p, byPID)
		}
	}
	clear(a.orphans)
	a.orphans = a.orphans[:0]
}

// link finds what p was before it was exec-ed, or else who spawned it without running any of our code in
// between.
func (a *Assembler) link(p *process, byPID map[int][]*process) {
	// newest is the last process with a pid that was there before p and has not ended by some time.
	newest := func(pid int, ended trace.Ns) (best *process) {
		for _, q := range byPID[pid] {
			if q.uid < p.uid && q.meta.Start <= p.meta.Start && (q.meta.End == 0 || q.meta.End >= ended) && (best == nil || q.uid > best.uid) {
				best = q
			}
		}
		return best
	}
	replaced := newest(p.meta.PID, p.meta.Start-1e9+1) // exec keeps the pid. One that ended longer ago had the same by chance
	spawner := newest(p.meta.PPID, p.meta.Start)
	switch {
	case replaced != nil:
		p.meta.Parent = replaced.meta.ID
		// Numbers of different pid namespaces may be equal by chance.
		if (p.hostPID && replaced.hostPID) || (replaced.meta.Forked && replaced.meta.PPID == p.meta.PPID) {
			if replaced.meta.End == 0 || replaced.meta.End > p.meta.Start {
				replaced.meta.End = p.meta.Start // that was the exec; others only saw that it is gone
				a.alter(replaced)
			}
			a.procGone(replaced, p.meta.Start)
		}
		p.replaced, replaced.replaced = replaced, nil
		a.usedBefore(p)
	case spawner != nil:
		p.meta.Parent = spawner.meta.ID
	default:
		return
	}
	a.alter(p)
}

// threadRecord takes in a THREAD record.
func (a *Assembler) threadRecord(t *thread, rec []byte) bool {
	var r segment.RecThread
	if t == nil || !r.Decode(rec) {
		return false
	}
	return a.identify(t, &r)
}

// identify fills in a thread, from its record or from a copy of its slot; false for a process that cannot be.
func (a *Assembler) identify(t *thread, r *segment.RecThread) bool {
	p := a.proc(r.ProcUID)
	if p == nil || (t.proc != nil && t.proc != p) {
		return false // a thread does not change its process
	}
	if t.proc == nil {
		t.proc = p
		t.meta.Proc = p.meta.ID
		p.threads[t] = struct{}{}
		t.meta.TID = int(r.TID)
		same := append(p.tids[r.TID], uint32(t.meta.ID))
		p.tids[r.TID] = same[max(0, len(same)-sameTID):]
	}
	if r.ParentUID != 0 && r.ParentUID <= maxUID {
		t.meta.Parent = trace.ThreadID(r.ParentUID)
	}
	t.meta.Main = r.Flags&segment.ThreadFlagMain != 0
	t.meta.Lazy = r.Flags&segment.ThreadFlagLazy != 0
	t.meta.Goroutine = r.Flags&segment.ThreadFlagGoroutine != 0
	if !t.renamed { // another thread's NAME may be read before this record, and is the newer
		t.meta.Name = clean(r.Name[:])
	}
	if r.StartNs < 1<<62 && !t.started {
		t.meta.Start = trace.Ns(r.StartNs)
	}
	if !t.cpuKnown {
		t.cpuKnown = true
		t.cpuBase, t.cpuLast, t.cpuSeen = r.CPUStartNs, r.CPUStartNs, max(t.cpuSeen, r.CPUStartNs)
	}
	if r.StartRoutine != 0 && t.meta.StartRoutine == (trace.Addr{}) {
		t.meta.StartRoutine = trace.Addr{Off: r.StartRoutine} // start resolves it, when modules have come in
	}
	a.touch(t)
	return true
}

// start delivers a thread's first event, when its first record is interpreted. A thread whose THREAD record
// was lost is looked for in the slots.
func (a *Assembler) start(t *thread, h *segment.Rec) {
	if t.started {
		return
	}
	if t.proc == nil && a.scanned != a.pass {
		a.scanned = a.pass
		a.scanSlots(false)
	}
	t.started = true
	now := trace.Ns(h.TimeNs)
	if t.meta.Start <= 0 || t.meta.Start > now {
		t.meta.Start = now
	}
	// An exec cannot have begun later than that: it runs on one CPU.
	t.meta.Start -= min(trace.Ns(a.execUsed(t, t.cpuBase)), t.meta.Start-1)
	if off := t.meta.StartRoutine.Off; off != 0 && off>>segment.PCShift == 0 {
		t.meta.StartRoutine = a.resolve(t.proc, off, trace.HowExact)
	}
	a.touch(t)
	a.emit(t, &trace.Event{Kind: trace.KindThreadStart, Flags: trace.FlagNoStack, Time: t.meta.Start, Start: t.meta.Start, Count: 1})
}

// scanSlots finds the slots of threads, and through them the identity of those that have none yet. all takes up
// threads that no record has spoken of: an agent announces a thread when it first has something to say.
func (a *Assembler) scanSlots(all bool) {
	seg := a.cfg.Segment
	if seg == nil {
		return
	}
	for i := range seg.HighThreads() {
		s := seg.Thread(i)
		uid := s.UID.Load()
		if uid == 0 || uid == segment.UIDClaiming {
			continue
		}
		t := a.threads[uid]
		if t != nil && t.slot == i && t.proc != nil {
			continue
		}
		if t == nil && all && !a.known.has(uid) {
			t = a.thread(uid)
		}
		if t == nil {
			continue
		}
		r := segment.RecThread{
			ProcUID: s.ProcUID.Load(), TID: s.TID.Load(), ParentUID: s.ParentUID.Load(), Flags: s.Flags.Load(),
			StartNs: s.StartNs.Load(), StartRoutine: s.StartRoutine.Load(), CPUStartNs: s.CPUStartNs.Load(), Name: s.Name,
		}
		if s.UID.Load() != uid {
			continue // freed while it was read
		}
		a.tookSlot(t, i)
		if t.proc == nil {
			a.identify(t, &r)
		}
	}
}

// tookSlot notes the slot that a thread has.
func (a *Assembler) tookSlot(t *thread, i int) {
	for len(a.slots) <= i {
		a.slots = append(a.slots, nil)
	}
	if before := a.slots[i]; before != nil && before != t {
		a.readSlot(before) // it has lost it
	}
	t.slot, a.slots[i] = i, t
}

// leftSlot notes that a thread has its slot no longer.
func (a *Assembler) leftSlot(t *thread) {
	if t.slot >= 0 && a.slots[t.slot] == t {
		a.slots[t.slot] = nil
	}
	t.slot = -1
}

// tid finds the thread of p that had a thread id of the process's own numbering at a time; 0 unknown.
func (a *Assembler) tid(p *process, tid uint32, at trace.Ns) trace.ThreadID {
	if p == nil || tid == 0 {
		return 0
	}
	uids := p.tids[tid]
	for i := len(uids) - 1; i >= 0; i-- {
		// The last candidate is right also when it was met only later than it was born.
		if t := a.threads[uids[i]]; i == 0 || (t != nil && t.meta.Start <= at) {
			return trace.ThreadID(uids[i])
		}
	}
	return 0
}

// ThreadName is the newest name of a thread that is alive; "" for others.
func (a *Assembler) ThreadName(uid uint32) string {
	if t := a.threads[uid]; t != nil {
		return t.meta.Name
	}
	return ""
}

// Knows says whether a thread has records, and is not gone.
func (a *Assembler) Knows(uid uint32) bool { return a.threads[uid] != nil }

// ref turns a thread uid of a record into a reference; 0 for one that nobody ever heard of.
func (a *Assembler) ref(uid uint32) trace.ThreadID {
	if uid != 0 && uid <= maxUID && a.known.has(uid) {
		return trace.ThreadID(uid)
	}
	return 0
}

func (a *Assembler) touch(t *thread) {
	if !t.dirty {
		t.dirty = true
		a.changed = append(a.changed, t)
	}
}

func (a *Assembler) alter(p *process) {
	if !p.dirty {
		p.dirty = true
		a.altered = append(a.altered, p)
	}
}

// announce hands out what has changed.
func (a *Assembler) announce() {
	for _, p := range a.altered {
		p.dirty = false
		if !p.announced {
			p.announced = true
			a.stats.Processes++
		}
		if a.cfg.OnProcess != nil {
			a.cfg.OnProcess(p.meta)
		}
	}
	clear(a.altered)
	a.altered = a.altered[:0]
	for _, t := range a.changed {
		t.dirty = false
		if !t.announced {
			t.announced = true
			a.stats.Threads++
		}
		if a.cfg.OnThread != nil {
			a.cfg.OnThread(t.meta)
		}
	}
	clear(a.changed)
	a.changed = a.changed[:0]
}

// clean is the text of a NUL-padded array from a target, as valid UTF-8.
func clean(b []byte) string {
	if i := bytes.IndexByte(b, 0); i >= 0 {
		b = b[:i]
	}
	return strings.ToValidUTF8(string(b), "\uFFFD")
}
