// The sampler's clock: sleep to the next tick, publish it, look at the threads whose turn it is.
package sampler

import (
	"syscall"

	"github.com/hbtrace/hbtrace/segment"
	"golang.org/x/sys/unix"
)

// Policy, in ticks unless named otherwise.
const (
	maxBackoff = 64 // an idle thread is looked at at least this often
	stillLooks = 10 // a thread found asleep so often in a row is looked at less often
	// The loop sleeps at least workShare times as long as it worked, so that thousands of threads make
	// ticks longer instead of taking a CPU (at real-time priority).
	workShare = 4
	// How long a counter that the kernel brings up to date at its own ticks may stand still under a thread
	// that runs: a tick at HZ=100.
	kernelTickNs = 10e6
	stuckNs      = 100e6
	maxStuckWait = 6400e6
	cpuEvery     = 32  // read our own CPU clock
	orphanEvery  = 128 // look for the collector's death
	// When nobody has run or recorded anything for idleAfter rounds, a round is slowStep ticks long: to wake up a
	// thousand times a second costs 3 % of a virtual CPU by itself.
	idleAfter    = 100
	mostTicks    = 64 // in a round
	slowStep     = 8
	quietRetryNs = 5e9
)

type loop struct {
	seg        *segment.Segment
	ctl        *control
	head       *segment.Header
	tickNs     int64
	configNs   uint64 // CPU time between periodic samples, as configured
	intervalNs uint64 // and in force: turn
	ticks      uint64 // so many ticks make a round
	noGaps     bool   // only periodic samples are taken
	cookie     uint64
	signal     int32 // of the session
	sampling   bool  // FeatureCPU: without it only ticks are published

	parent    uint32 // pid of the process that waits for this one, and dies with the collector
	chance    uint64 // chanceOf
	saysWchan bool   // this kernel tells what a sleeping thread waits in

	wake waker

	busy    bool   // this round met somebody who runs
	idle    int    // rounds without anybody, or a record
	written uint64 // bytes that all rings had seen at the last round

	tick uint64 // of this round
	now  int64  // start of this round, CLOCK_MONOTONIC
	rng  uint64

	slots   []*segment.Thread
	rest    []uint64 // per thread slot: not to be looked at before this tick
	threads []thread
	procs   []proc
	info    sigInfo
	path    path
	buf     [16384]byte
}

// run works until it is told to stop or the collector is gone. It does not allocate.
func (l *loop) run() {
	h := &l.ctl.head.samplerHead
	wanted := clockNs()
	last, step := uint64(0), uint64(1)
	for round := uint64(0); l.ctl.head.stop.Load() == 0; round++ {
		if round%cpuEvery == 0 {
			h.cpuNs.Store(processCPUNs())
		}
		// PDEATHSIG does this as well, except where the collector died before it was armed.
		if round%orphanEvery == 0 && !l.parentLives() {
			return
		}
		woke := clockNs()
		l.now, l.tick = woke, uint64(woke/l.tickNs)
		h.ticks.Add(1)
		if late := woke - wanted; late > 0 {
			h.lateNs.Add(uint64(late))
		}
		if last != 0 && l.tick > last+step {
			h.missed.Add(l.tick - last - step)
		}
		last = l.tick
		l.turn()
		if l.sampling && l.head.Recording.Load() != 0 {
			l.lookAtAll()
		}
		// Behind the signals: a thread that takes its sample for the new tick at a hook does so without one on its way.
		l.head.Tick.Store(l.tick)
		l.wakeCollector()
		step = l.step()
		end := clockNs()
		wanted = (end/l.tickNs + int64(step)) * l.tickNs
		if rest := end + workShare*(end-woke); rest > wanted {
			wanted = (rest/l.tickNs + 1) * l.tickNs
		}
		wanted += l.phase()
		l.head.RestedNs.Store(uint64(clockNs()))
		sleepUntil(wanted)
	}
}

// step is how many ticks the next round is away.
func (l *loop) step() uint64 {
	written := uint64(0)
	for i := range l.seg.Geometry().Rings {
		written += l.seg.Subbuf(i).Head.Load()
	}
	if l.idle++; l.busy || written != l.written {
		l.idle = 0
	}
	l.busy, l.written = false, written
	if l.idle < idleAfter {
		return l.ticks
	}
	return max(l.ticks, slowStep)
}

// turn takes up what the collector has changed of how often threads are sampled, within sane bounds.
func (l *loop) turn() {
	interval := min(max(l.head.KnobCPUPeriodNs.Load(), l.configNs), max(1e9, l.configNs))
	ticks := min(max(uint64(l.head.KnobTicks.Load()), 1), mostTicks)
	l.noGaps = l.head.KnobFlags.Load()&segment.KnobNoGaps != 0
	if interval != l.intervalNs || ticks != l.ticks {
		l.intervalNs, l.ticks = interval, ticks
		l.chance = chanceOf(ticks*uint64(l.tickNs), interval)
	}
}

// phase is when in the next tick to wake, at random: programs sleep for whole milliseconds, too, and would be
// looked at in the same place of their work again and again.
func (l *loop) phase() int64 {
	return int64(l.random() % uint64(l.tickNs))
}

func (l *loop) parentLives() bool {
	ppid, _, _ := syscall.RawSyscall(unix.SYS_GETPPID, 0, 0, 0)
	return uint32(ppid) == l.parent
}

// lookAtAll looks at the threads that may be running. Most sleep in calls most of the time: that takes one load to see.
func (l *loop) lookAtAll() {
	for i, s := range l.slots[:l.seg.HighThreads()] {
		if st := s.State.Load(); (st == segment.StateRunning || st == segment.StateSignalled) && l.tick >= l.rest[i] {
			l.rest[i] = l.tick + l.look(i, l.random() <= l.chance)
		}
	}
}

// proc is what the sampler holds of one process slot.
type proc struct {
	uid     uint32 // verified process that the rest is about; 0 none
	hostPID uint32
	dir     int32 // /proc/PID, kept open: pins this very process; 0 not open
	dead    bool  // it was gone, or somebody else's, when it was opened
	wchan   bool  // we may read what its threads wait in
	// quietUntil: when the handler is looked for again; doubles up to a point by quietFor
	quiet      bool
	quietUntil int64
	quietFor   int64
	lostInRow  int // signals in a row that nobody took although our handler seemed to be there
}

// proc returns the entry of process slot i when the collector has verified that it is process uid and it can
// be reached, else nil.
func (l *loop) proc(i, uid uint32) *proc {
	if i >= uint32(len(l.procs)) {
		return nil // written by the target: anything goes
	}
	c, p := &l.ctl.procs[i], &l.procs[i]
	if uid == 0 || c.ok.Load() != uid {
		return nil
	}
	if p.uid != uid {
		l.drop(p)
		hostPID, start := c.hostPID.Load(), c.startTicks.Load()
		if c.ok.Load() != uid {
			return nil // being rewritten: next time
		}
		p.hostPID = hostPID
		var again bool
		if p.dead, again = l.openProc(p, start); again {
			l.drop(p)
			return nil
		}
		p.uid = uid
	}
	if p.dead {
		return nil
	}
	return p
}

func (l *loop) drop(p *proc) {
	if p.dir > 0 {
		rawClose(int(p.dir))
	}
	*p = proc{}
}

// openProc opens the process's directory and checks by its start time that it is still that process. again:
// there was no descriptor for it.
func (l *loop) openProc(p *proc, start uint64) (dead, again bool) {
	fd := l.path.reset().str("/proc/").num(p.hostPID).open(unix.AT_FDCWD, unix.O_PATH|unix.O_DIRECTORY)
	if fd < 0 {
		return true, noDescriptor(fd)
	}
	p.dir = int32(fd)
	stat := l.path.reset().str("stat").open(fd, unix.O_RDONLY)
	if stat < 0 {
		return true, noDescriptor(stat)
	}
	n := pread(stat, l.buf[:])
	rawClose(stat)
	if n <= 0 {
		return true, false
	}
	if got, ok := statStart(l.buf[:n]); !ok || got != start {
		return true, false
	}
	if l.saysWchan { // "0" is also what those read who may not know; environ asks for the same right, at open
		fd := l.path.reset().str("environ").open(int(p.dir), unix.O_RDONLY)
		if p.wchan = fd >= 0; p.wchan {
			rawClose(fd)
		}
	}
	return false, false
}

func noDescriptor(errno int) bool {
	return errno == -int(unix.EMFILE) || errno == -int(unix.ENFILE)
}

// quieten stops signals to a process and tells the collector why.
func (l *loop) quieten(i uint32, p *proc, why Quiet) {
	p.quiet = true
	p.quietFor = min(max(p.quietFor*2, quietRetryNs), 16*quietRetryNs)
	p.quietUntil = l.now + p.quietFor
	c := &l.ctl.procs[i]
	c.quiet.Store(uint32(why))
	c.quietUID.Store(p.uid)
}

func (l *loop) unquieten(i uint32, p *proc) {
	p.quiet, p.lostInRow = false, 0
	l.ctl.procs[i].quietUID.Store(0)
}
