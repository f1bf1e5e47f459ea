// The sampler process: its start-up. It allocates what it needs here, once, and nothing after: the loop runs in a copy
// that could not (alone.go).
package sampler

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strconv"
	"unsafe"

	"github.com/hbtrace/hbtrace/segment"
	"golang.org/x/sys/unix"
)

// Command is the first argument that makes the binary a sampler: main calls Main when it sees it.
const Command = "__sampler"

// Main is the sampler process. args are what follows Command: the descriptors of the segment, of the control
// memory, and of the pipe that wakes the collector. It returns the exit status when the collector says stop or is gone.
func Main(args []string) int {
	if len(args) != 3 {
		return 2
	}
	segFD, err1 := strconv.Atoi(args[0])
	ctlFD, err2 := strconv.Atoi(args[1])
	wakeFD, err3 := strconv.Atoi(args[2])
	if errors.Join(err1, err2, err3) != nil {
		return 2
	}
	ctl, err := mapControl(ctlFD)
	if err != nil {
		return 2
	}
	if uint32(unix.Getppid()) != ctl.head.parentPID {
		return 0 // gone already
	}
	seg, err := segment.Map(segFD)
	if err != nil {
		ctl.head.fail(err)
		return 1
	}
	l, err := newLoop(seg, ctl)
	if err != nil {
		ctl.head.fail(err)
		return 1
	}
	l.wake.fd = wakeFD
	closeInherited(max(segFD, ctlFD, wakeFD))
	signal.Ignore(unix.SIGINT, unix.SIGQUIT, unix.SIGHUP, unix.SIGTERM, unix.SIGTSTP, unix.SIGUSR1, unix.SIGUSR2, unix.SIGPIPE)
	raiseFileLimit()
	debug.SetGCPercent(-1)
	runtime.LockOSThread() // what is preferred is this thread, and so its copy
	ctl.head.mode.Store(uint32(prefer()))
	return alone(func(parent int) {
		l.parent = uint32(parent)
		l.info.pid = int32(unix.Getpid())
		ctl.head.ready.Store(1)
		l.run()
	})
}

func newLoop(seg *segment.Segment, ctl *control) (*loop, error) {
	g, c := seg.Geometry(), seg.Config()
	if len(ctl.procs) != g.Procs || len(ctl.threads) != g.Threads {
		return nil, fmt.Errorf("control memory for %d processes and %d threads, segment has %d and %d",
			len(ctl.procs), len(ctl.threads), g.Procs, g.Threads)
	}
	if ctl.head.freq == 0 || ctl.head.freq > 1e6 {
		return nil, fmt.Errorf("%d samples a second: want 1 to 1000000", ctl.head.freq)
	}
	l := &loop{
		seg: seg, ctl: ctl, head: seg.Header(),
		tickNs: int64(c.TickNs), cookie: uint64(seg.Cookie()),
		configNs: 1e9 / uint64(ctl.head.freq), intervalNs: 1e9 / uint64(ctl.head.freq), ticks: 1,
		sampling: c.Features&segment.FeatureCPU != 0,
		rng:      uint64(seg.Cookie()) | 1,
		slots:    make([]*segment.Thread, g.Threads),
		rest:     make([]uint64, g.Threads),
		threads:  make([]thread, g.Threads),
		procs:    make([]proc, g.Procs),
	}
	for i := range l.slots {
		l.slots[i] = seg.Thread(i)
	}
	l.chance = chanceOf(uint64(l.tickNs), l.intervalNs)
	l.saysWchan = saysWchan()
	l.info = sigInfo{code: siQueue, uid: uint32(unix.Getuid())}
	l.signal = int32(c.Signal)
	for i := range l.procs { // what a sampler that died while it sent has left
		seg.Proc(i).Gate.And(^uint32(segment.GateSending))
	}
	return l, nil
}

// closeInherited closes what the recorder itself inherited, such as a pipe that somebody waits for the end of.
// The runtime's own descriptors are close-on-exec, so those that are not came from outside.
func closeInherited(keep int) {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return
	}
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil || fd <= keep {
			continue
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			unix.Close(fd)
		}
	}
}

// raiseFileLimit: one or two descriptors for every thread that is looked at.
func raiseFileLimit() {
	var r unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &r) == nil {
		r.Cur = r.Max
		unix.Setrlimit(unix.RLIMIT_NOFILE, &r) // with less, threads go unsampled and are counted
	}
}

// prefer asks for the CPU in the strongest way that is granted: without one, ticks are missed while every CPU
// is busy.
func prefer() Mode {
	attr := unix.SchedAttr{Size: uint32(unsafe.Sizeof(unix.SchedAttr{})), Policy: unix.SCHED_FIFO, Priority: 1}
	if unix.SchedSetAttr(0, &attr, 0) == nil {
		return ModeFIFO
	}
	for _, nice := range []int{-10, -5, -1} {
		if unix.Setpriority(unix.PRIO_PROCESS, 0, nice) == nil {
			return ModeNice
		}
	}
	attr = unix.SchedAttr{Size: attr.Size, Policy: unix.SCHED_NORMAL, Runtime: 100_000}
	if unix.SchedSetAttr(0, &attr, 0) == nil {
		// Older kernels take the call and ignore the slice.
		got, err := unix.SchedGetAttr(0, 0)
		if err == nil && got.Runtime == 100_000 {
			return ModeSlice
		}
	}
	return ModePlain
}
