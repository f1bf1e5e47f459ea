// The loop that moves data while the command runs: ring, assembler, history, file.
package collector

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/hbtrace/hbtrace/blockbuf"
	"github.com/hbtrace/hbtrace/collector/assemble"
	"github.com/hbtrace/hbtrace/concurrentring"
	"github.com/hbtrace/hbtrace/hooks"
	"github.com/hbtrace/hbtrace/kernel"
	"github.com/hbtrace/hbtrace/sampler"
	"github.com/hbtrace/hbtrace/segment"
	"github.com/hbtrace/hbtrace/stacktable"
	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/tracefile"
	"golang.org/x/sys/unix"
)

// How often things are done.
const (
	minPause     = 2 * time.Millisecond  // between passes, while much comes in
	taskPause    = 5 * time.Millisecond  // while there is something to try again soon
	lookPause    = 20 * time.Millisecond // where nobody wakes us
	maxPause     = 100 * time.Millisecond
	passBytes    = 32 << 10               // that a pass is to find, some 800 records: waits are joined with the releases of a few passes
	storeEvery   = 250 * time.Millisecond // what is lost at most when this process is killed
	refreshEvery = time.Second
	firstUsage   = 50 * time.Millisecond // into a session threads' usage is looked at first, and then as long after that again, up to refreshEvery
	attendEvery  = 20 * time.Millisecond
	// A fork child is unknown until it has run for the first time.
	graceForForks = 300 * time.Millisecond
)

// maxKept is how many mapped objects are kept open, so that they can be read when they have been replaced.
const maxKept = 1024

// maxWaited is how many locks and conditions are looked for among a program's variables.
const maxWaited = 4096

// session is one recording. Unless said otherwise its fields belong to the goroutine of Record.
type session struct {
	opt        *Options
	seg        *segment.Segment
	inode      inode // of the segment
	sampler    *sampler.Sampler
	server     *server
	onlook     onlookers
	placed     placements
	unrecorded *unrecorded // nil: nothing was launched
	targets    *targets    // programs that run already; nil: a command was launched
	tables     *tables     // unwind tables; nil: none
	epoll      int
	kernel     *kernel.Tracer // nil: not asked, or not allowed

	stuck map[[2]uint32]stuck // what threads waited for at the last look, by process and thread id
	told  map[uint64]bool     // locks whose deadlock was told of

	ring   *concurrentring.Reader
	asm    *assemble.Assembler
	files  assemble.FileCache
	stacks *stacktable.Table
	buf    *blockbuf.Buffer
	writer *blockbuf.Writer
	reader *blockbuf.Reader

	keep    *keeping // nil: everything is written to out
	out     *tracefile.Writer
	created bool  // the file was not there before
	failed  error // first error of writing it

	meta    trace.Meta
	stats   trace.Stats
	modules []trace.Module
	sent    map[trace.ThreadID]uint64 // signals
	samples map[trace.ThreadID]uint64 // async samples that came
	waited  map[uint64]struct{}       // addresses of what threads waited for, maxWaited at most
	notes   notes
	usage   syscall.Rusage // of this process when the session began

	batch              tracefile.Batch // events on their way into the history
	decoder            tracefile.BatchDecoder
	made               []stacktable.Made
	storedNodes        trace.StackID // of the stack table's present lap
	addresses          addresses     // of frames whose nodes were taken back
	buffered           int           // bytes written to the history since it was last emptied
	produced, consumed uint64        // events into and out of it
	lastCollect        time.Time
	collectPause       time.Duration // until the next look for nodes that nothing needs
	lastStore          time.Time
	lastRefresh        time.Time
	begun, nextUsage   time.Time // when the session began, and when threads' usage is looked at next
	lastAttend         time.Time
	sentFrom, goneFrom int // slots of threads from which countSignals and attend go on
	lastLook           time.Time
	finishing          bool
	lostInGone         uint64
	governor           *governor      // nil: no budget
	firstThread        trace.ThreadID // that was met; 0 none yet
	ownInGone          uint64         // stamps that agents used in threads and processes whose slots are free again
	quiet              map[uint32]sampler.Quiet
	code               map[uint32]*codeFiles // of processes that make code
	forkedFrom         map[uint32]uint32     // by fork without exec

	publishing sync.WaitGroup // of unwind tables, beside the recording

	mu            sync.Mutex // the rest: shared with the server's goroutines
	procs         map[uint32]*process
	live          map[uint32]*process // of procs, those that are not gone
	departed      []*process
	announced     [][]byte // records that the recorder writes for Go programs, for the next pass
	golang        map[uint32]*goProcess
	goFiles       goFiles
	execing       map[int]bool  // processes that are about to exec a Go program, or whose runtime is being hooked
	stopGo        chan struct{} // closed when Go programs are not sampled any more
	newcomers     []uint32      // processes that attached since the last pass
	past          []uint32      // reaped, oldest first
	attachedCount int
	unverified    int
	nestedSeen    bool // a process of another pid namespace takes part
	lastScan      time.Time
}

// pipeline makes what lies between ring and file.
func (s *session) pipeline() error {
	var err error
	s.sent, s.samples = map[trace.ThreadID]uint64{}, map[trace.ThreadID]uint64{}
	s.waited = map[uint64]struct{}{}
	s.stopGo = make(chan struct{})
	s.quiet, s.forkedFrom = map[uint32]sampler.Quiet{}, map[uint32]uint32{}
	s.ring = concurrentring.NewReader(s.seg)
	s.stacks = stacktable.New(stacktable.Options{MaxNodes: s.opt.maxNodes})
	if s.opt.keeps() {
		if err := s.openKeep(); err != nil {
			return err
		}
	} else {
		// One slot: all events come from one goroutine, and so stay in the order that the assembler gives them.
		s.buf, err = blockbuf.New(blockbuf.Options{Bytes: s.opt.BufferBytes, BlockBytes: blockBytes})
		if err != nil {
			return fmt.Errorf("make a history of %d bytes: %w", s.opt.BufferBytes, err)
		}
		s.writer, s.reader = s.buf.Writer(0), s.buf.NewReader()
	}
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) == nil {
		s.files.Keep = int(min(limit.Cur/4, maxKept))
	}
	s.asm = assemble.New(assemble.Config{
		Stacks: stacks{s.stacks, s}, Segment: s.seg, Sink: s.event,
		Maps: func(uid uint32) []assemble.MapsEntry {
			pid, ok := s.hostPID(uid)
			if !ok {
				return nil
			}
			m, err := assemble.ReadMaps(pid)
			if err != nil {
				return nil
			}
			for i := range m {
				s.placed.find(&m[i])
			}
			s.meetCode(uid, pid, m)
			return m
		},
		File: func(uid uint32, path string) assemble.File {
			pid, _ := s.hostPID(uid)
			return s.files.Look(pid, path)
		},
		Describe: s.describe,
		OnThread: func(t trace.Thread) {
			if s.firstThread == 0 {
				s.firstThread = t.ID
			}
			s.targets.met(&t)
			s.nameGoroutine(&t)
			t.SignalsSent = max(t.SignalsSent, s.sent[t.ID])
			// The slot counts samples too, but a thread that exits has freed it before it is looked at.
			t.Samples = max(t.Samples, s.samples[t.ID])
			s.putThread(&t)
		},
		OnProcess: func(p trace.Process) {
			if p.Forked && p.Parent != 0 {
				s.forkedFrom[uint32(p.ID)] = uint32(p.Parent)
			}
			if q := s.quiet[uint32(p.ID)]; q != sampler.QuietNo {
				p.Doubt.SyncOnly = true
			}
			s.putProcess(&p)
		},
		OnModule: func(m trace.Module) {
			s.modules = append(s.modules, m)
			s.putModule(&m)
		},
		OnGone: func(t trace.ThreadID) {
			delete(s.samples, t)
			delete(s.sent, t)
		},
	})
	return nil
}

// start lets agents record.
func (s *session) start() {
	syscall.Getrusage(syscall.RUSAGE_SELF, &s.usage)
	s.seg.Header().HeartbeatNs.Store(uint64(segment.Now()))
	s.seg.Header().Recording.Store(1)
	now := time.Now()
	s.lastStore, s.lastRefresh, s.lastAttend = now, now, now
	s.begun, s.nextUsage = now, now.Add(firstUsage)
	s.governor = newGovernor(s)
}

// run moves data until the command has ended, and the processes that it left behind if they are followed.
func (s *session) run(ctx context.Context, c *child) {
	begun := time.Now()
	if s.targets == nil {
		s.unrecorded = newUnrecorded(s, c.pid)
	}
	done, cancelled := c.done, ctx.Done()
	var expired <-chan time.Time
	if s.opt.Duration > 0 {
		t := time.NewTimer(s.opt.Duration)
		defer t.Stop()
		expired = t.C
	}
	var lonely time.Time // since when no process of the session is known to live
	timer := time.NewTimer(minPause)
	defer timer.Stop()
	last := begun // pass
	for {
		passing := false
		select {
		case <-done:
			if !s.opt.Follow {
				return
			}
			done = nil
		case <-expired:
			return
		case <-cancelled:
			if s.targets != nil {
				return
			}
			c.signal(unix.SIGTERM)
			cancelled = nil
		case answer := <-s.onlook.ask:
			answer <- s.snapshot()
		case r := <-s.keep.asks():
			s.keep.serve(r)
		case <-s.sampler.Wakes():
			passing = true
		case <-timer.C:
			passing = true
		}
		if !passing {
			continue
		}
		n := s.pass()
		s.housekeeping(begun)
		switch {
		case done != nil || s.alive() > 0:
			lonely = time.Time{}
		case lonely.IsZero():
			lonely = time.Now()
		case time.Since(lonely) >= graceForForks:
			return
		}
		now := time.Now()
		pause := s.pause(n, now.Sub(last))
		if done == nil {
			pause = min(pause, lookPause) // for the end of the processes that are left
		}
		last = now
		s.sampler.Sleep()
		timer.Reset(pause)
	}
}

// pause is how long to sleep after a pass that found n bytes, `took` after the pass before, if nobody wakes us: the sampler does,
// when a ring fills or a process or module appears.
func (s *session) pause(n int, took time.Duration) time.Duration {
	switch {
	case n >= s.opt.RingBytes/8, s.opt.forceKnobs > 0:
		return minPause
	case s.unsettled():
		return taskPause
	case s.kernel != nil || s.sampler.Err() != nil:
		return lookPause
	case n == 0:
		return maxPause
	}
	return min(maxPause, max(minPause, time.Duration(float64(took)*passBytes/float64(n))))
}

// pass takes in everything that was published before it began, and returns how many bytes that was.
func (s *session) pass() int {
	now := time.Now()
	s.introduce()
	s.meetForks(now)
	s.reload(now)
	s.watch(now)
	gone := s.takeDeparted() // before the ring is read: nothing of theirs comes later
	s.announceGo()
	_, bytes := s.ring.Drain(func(_ int, rec []byte) { s.asm.Record(rec) })
	s.countSignals()
	s.drainKernel()
	s.asm.EndPass()
	s.reap(gone)
	if s.buffered > s.opt.BufferBytes/4 {
		s.store()
	}
	s.collectStacks(s.stacks.Cap()/collectAtRoom, 0)
	return bytes
}

func (s *session) housekeeping(begun time.Time) {
	now := time.Now()
	if now.Sub(s.lastAttend) >= attendEvery {
		s.lastAttend = now
		s.attend()
	}
	if now.Sub(s.lastRefresh) >= refreshEvery*time.Duration(1+s.seg.HighThreads()/slotsAtOnce) {
		s.lastRefresh = now
		s.retitle()
		s.asm.Refresh()
		s.lookForDeadlocks()
	}
	if !now.Before(s.nextUsage) {
		// What threads used since the last look goes with them: a short program is looked at sooner.
		s.nextUsage = now.Add(min(max(now.Sub(s.begun), firstUsage), refreshEvery))
		s.lookAtUsage()
	}
	s.unrecorded.look(now)
	s.governor.look(now)
	if s.keep != nil {
		s.keep.tend(now)
	}
	if now.Sub(s.lastStore) >= storeEvery {
		s.store()
		if s.opt.Progress != nil {
			s.opt.Progress(s.progress(begun))
		}
	}
}

func (s *session) progress(begun time.Time) Progress {
	asm := s.asm.Stats()
	return Progress{
		Elapsed: time.Since(begun), Events: s.produced, FileBytes: s.written(), Lost: s.lost(),
		Processes: int(asm.Processes), Threads: int(asm.Threads), Saving: s.finishing,
	}
}

// blockBytes is the history's block, and so about what a batch has before it is compressed: each batch begins with nothing
// known, which at 4 KiB is a tenth of it.
const blockBytes = 32 << 10

// batchBytes is what a batch may have grown to when it goes into the history: with one more event and what the block
// buffer adds it fills a block.
const batchBytes = blockBytes - 64 - tracefile.MaxEventBytes

// event takes an assembled event into the history.
func (s *session) event(e *trace.Event) {
	s.produced++
	switch e.Kind {
	case trace.KindCPU, trace.KindGap:
		s.samples[e.Thread] += uint64(e.Count)
		s.stats.Samples += uint64(e.Count)
		s.stats.SampleEvents++
	case trace.KindSync, trace.KindEnter:
		s.stats.Samples += uint64(e.Count)
		s.stats.SampleEvents++
	case trace.KindWait:
		if s.keep == nil && len(s.waited) < maxWaited && e.Hook != hooks.PythonGIL { // which has a name of its own
			s.waited[e.Object] = struct{}{}
		}
	}
	if s.keep != nil {
		s.keep.event(e)
		return
	}
	before := s.batch.Len()
	s.batch.Add(e)
	switch e.Kind {
	case trace.KindCPU, trace.KindGap, trace.KindSync, trace.KindEnter:
		s.stats.SampleBytes += uint64(s.batch.Len() - before)
	}
	if s.batch.Len() >= batchBytes || s.batch.Full() {
		s.endBatch()
	}
}

// endBatch moves the batch in the making into the history.
func (s *session) endBatch() {
	if s.batch.Count() == 0 {
		return
	}
	s.stats.EventBytes += uint64(s.batch.Len())
	if err := s.writer.Write(s.batch.Bytes()); err == nil { // otherwise it is counted: produced - consumed
		s.buffered += s.batch.Len()
	}
	s.batch.Reset()
	if s.buffered > s.opt.BufferBytes/2 {
		s.store()
	}
}

// store moves the history into the file.
func (s *session) store() {
	s.lastStore = time.Now()
	if s.keep != nil {
		s.keep.w.Flush()
		return
	}
	// Nodes first: an event must not be in the file without its stack.
	s.made, s.storedNodes = s.stacks.AppendMade(s.made[:0], s.storedNodes)
	for _, m := range s.made {
		s.wrote(s.out.PutNode(m.ID, m.Node))
	}
	s.buffered = 0
	s.endBatch()
	s.buf.Seal()
	for block, ok := s.reader.Next(); ok; block, ok = s.reader.Next() {
		block.Records(func(p []byte) bool {
			n, err := s.out.PutBatch(p)
			s.consumed += uint64(n) // what does not decode cannot be: we encoded it. It counts as overwritten
			s.wrote(err)
			return true
		})
	}
	s.wrote(s.out.Flush())
}

// wrote keeps the first error, but for that of a full disk: the writer keeps it, counts what is missing and goes on when
// there is room.
func (s *session) wrote(err error) {
	if err != nil && s.failed == nil && s.out.Err() == nil {
		s.failed = err
	}
}

// hostPID is the pid of a verified process that lives.
func (s *session) hostPID(uid uint32) (int, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.procs[uid]; p != nil && p.verified && !p.gone {
		return p.id.pid, true
	}
	return 0, false
}

// describe completes a process that the assembler has met.
func (s *session) describe(uid uint32, p *trace.Process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.procs[uid]
	if known == nil {
		return
	}
	if known.verified {
		p.PID = known.id.pid
	}
	if known.cmdline != nil {
		p.Cmdline = known.cmdline
	}
	if known.exe != "" && len(p.Exe) < len(known.exe) {
		p.Exe = known.exe // the slot's may be cut
	}
}

// countQuiet notes a process that the sampler has given up on, once.
func (s *session) countQuiet(p *process) {
	q := s.sampler.Quiet(p.slot, p.uid)
	if q == sampler.QuietNo || s.quiet[p.uid] == q {
		return
	}
	s.quiet[p.uid] = q
	if slot := s.seg.Proc(p.slot); slot.UID.Load() == p.uid {
		slot.Flags.Or(segment.ProcFlagSyncOnly)
	}
	why := "does not let the sampling signal through (it has a handler of its own, or runs another program now)"
	if q == sampler.QuietDenied {
		why = "may not be signalled (it runs as another user)"
	}
	s.notes.addf("process %d %s: no CPU samples of it from then on", p.id.pid, why)
}

// close gives everything back that is left. It may be called after any part of open.
func (s *session) close() {
	s.onlook.close()
	s.keep.close()
	if s.server != nil {
		s.server.close()
	}
	s.kernel.Close()
	s.publishing.Wait()
	s.tables.close()
	if s.sampler != nil {
		s.sampler.Close()
	}
	if s.buf != nil {
		s.buf.Close()
	}
	s.mu.Lock()
	for _, p := range s.procs {
		p.id.close()
	}
	s.mu.Unlock()
	s.files.Close()
	for _, c := range s.code {
		c.close()
	}
	for _, g := range s.golang {
		g.table.Close()
	}
	if s.epoll >= 0 {
		unix.Close(s.epoll)
	}
	if s.seg != nil {
		s.seg.Header().Recording.Store(0)
		s.seg.Close()
	}
}

// abandon takes back the file of a recording that never began.
func (s *session) abandon() {
	if s.out == nil {
		return
	}
	err := s.out.Close(nil)
	s.out = nil
	if s.created {
		err = errors.Join(err, os.Remove(s.opt.Output))
	}
	s.wrote(err)
}
