// Package collector records a command: it starts it with the agent, takes in what its processes write, and
// stores it. record.go is the whole course of a recording; program.go, environ.go, inherited.go and launch.go start the
// command, suspend.go stops it and us together; server.go hands out the segment, door.go says to whom; verify.go and procs.go know whose processes are the session's;
// drain.go is the loop that moves data; finish.go ends the file.
package collector

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hbtrace/hbtrace/agent"
	"github.com/hbtrace/hbtrace/flight"
	"github.com/hbtrace/hbtrace/goruntime"
	"github.com/hbtrace/hbtrace/hooks"
	"github.com/hbtrace/hbtrace/sampler"
	"github.com/hbtrace/hbtrace/segment"
	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/tracefile"
	"golang.org/x/sys/unix"
)

// Options say what to record and how. Zero fields take the default that is named.
type Options struct {
	Command []string // program and arguments
	Env     []string // nil: this process's
	Dir     string   // working directory; "": this process's
	// nil: this process's own descriptors 0, 1 and 2, untouched.
	Stdin, Stdout, Stderr *os.File

	Output string      // path of the recording; with Keep none is written
	Keep   flight.Keep // the newest events are kept in memory, within these bounds; zero: everything is written
	// With Keep: called when the session can be read, with its name, and when the last event is in it, before its files go.
	KeepBegun func(session string)
	KeepEnded func()
	Dumps     Dumps // with Keep: when dumps of them are made

	Freq        int    // periodic samples per second of each thread's CPU time; 499
	Features    uint32 // segment.Feature…; all
	Sampling    int    // number of the sampling signal: SIGURG, or a real-time one
	Unwind      Unwind // how stacks are walked; UnwindAuto
	AllocPeriod uint64 // mean bytes between sampled allocations; 512 KiB; 1 = every one
	// What is shorter leaves only counters. Negative: nothing is too short.
	CallThreshold time.Duration // blocking calls; 100 µs
	LockThreshold time.Duration // contended waits; 10 µs
	Budget        float64       // what recording may use, as a share of the program's CPU time (budget.go); 0: all that the rest of the options asks for
	ReleaseDebt   time.Duration // delay that a lock's releases must have caused before one is recorded; 10 µs
	RingBytes     int           // of the ring, a power of two; 8 MiB
	BufferBytes   int           // of the history between ring and file; 16 MiB

	Duration time.Duration // stop recording after this; the program runs on and is waited for. 0: until it ends
	Follow   bool          // record processes that outlive the command, until the last has ended

	forceKnobs time.Duration // tests: turn a knob each so long, whatever is used; 0: not
	maxNodes   int           // of the stack table; stacktable's default
	Kernel     Kernel        // whether the kernel's scheduling events are recorded too; KernelOff

	Version  string         // of hbtrace, for the file; "(devel)"
	Alert    func(string)   // called with what the user should know while the command runs, one line each; nil: not at all
	Remark   func(string)   // called with what was not possible and is usually no news, one line each; nil: not at all
	Progress func(Progress) // called about four times a second from the recording's goroutine; nil: not at all
}

// Unwind is how agents find the callers of a frame.
type Unwind int

const (
	UnwindAuto Unwind = iota // by unwind tables where a module has them, else by frame pointers
	UnwindFP                 // by frame pointers only
)

// Progress is how far a recording is.
type Progress struct {
	Elapsed            time.Duration
	Events, FileBytes  uint64
	Lost               uint64
	Processes, Threads int // seen so far
	Saving             bool
}

// Result is what became of the command and of its recording.
type Result struct {
	ExitStatus int            // -1 when a signal ended it
	Signal     syscall.Signal // 0: none
	Path       string         // of the recording
	Meta       trace.Meta
	Stats      trace.Stats
	Notes      []string        // what could not be recorded, and why: one line each; the same as Stats.Notes
	Held       flight.Held     // with Options.Keep: what the window held at the end
	Dumps      []string        // with Options.Keep: the files that triggers made
	Holds      []time.Duration // of Attach: for how long threads of the programs were stopped, each stop
}

const (
	defaultFreq        = 499 // not a divisor of common timer rates
	defaultRingBytes   = 8 << 20
	defaultRings       = 8
	defaultBufferBytes = 16 << 20
	maxFreq            = 10000
)

func (o *Options) fill() error {
	if o.Freq == 0 {
		o.Freq = defaultFreq
	}
	if o.Freq < 1 || o.Freq > maxFreq {
		return fmt.Errorf("%d samples a second: give 1 to %d", o.Freq, maxFreq)
	}
	if o.Output == "" && !o.keeps() {
		return errors.New("no output file given")
	}
	if o.Features == 0 {
		o.Features = segment.FeatureCPU | segment.FeatureAlloc | segment.FeatureLock | segment.FeatureCall
	}
	for _, d := range []struct {
		v *time.Duration
		d time.Duration
	}{{&o.CallThreshold, 100 * time.Microsecond}, {&o.LockThreshold, 10 * time.Microsecond}, {&o.ReleaseDebt, 10 * time.Microsecond}} {
		switch {
		case *d.v == 0:
			*d.v = d.d
		case *d.v < 0:
			*d.v = 0
		}
	}
	if o.RingBytes == 0 {
		o.RingBytes = defaultRingBytes
	}
	if o.BufferBytes == 0 {
		o.BufferBytes = defaultBufferBytes
	}
	if o.Duration < 0 {
		return fmt.Errorf("duration %v is negative", o.Duration)
	}
	if o.Version == "" {
		o.Version = "(devel)"
	}
	if o.Env == nil {
		o.Env = os.Environ()
	}
	return nil
}

// keeps says that this is a flight recorder.
func (o *Options) keeps() bool { return o.Keep != flight.Keep{} }

// tickNs is short enough for the frequency: a thread is asked once a tick at most.
func (o *Options) tickNs() uint64 {
	tick := uint64(1e6)
	if o.Freq > 900 {
		tick = 1e9 / uint64(o.Freq) * 9 / 10
	}
	return tick
}

// Record runs the command and records it until it ends. ctx being done asks it to end (SIGTERM).
//
// A nil Result means that the command was not started; nothing is left behind. Otherwise the Result says how it
// ended, and the error, if any, is about the recording only.
func Record(ctx context.Context, o Options) (*Result, error) {
	if err := o.fill(); err != nil {
		return nil, err
	}
	prog, err := findProgram(o.Command, lookup(o.Env, "PATH"), o.Dir)
	if err != nil {
		return nil, err
	}
	preload, err := agent.Deliver()
	if err != nil {
		return nil, err
	}
	s, err := open(&o)
	if err != nil {
		return nil, err
	}
	defer s.close()
	s.notes.add(prog.notes...)

	caught, all, stop := signals()
	defer stop()
	env := environ(o.Env, preload, s.server.session(preload), prog.asan)
	s.start()
	s.arm()
	c, golang, err := launch(prog, env, o.Dir, [3]*os.File{o.Stdin, o.Stdout, o.Stderr}, func(pid int) (goruntime.Session, error) {
		return s.joinGo(pid, prog.golang)
	})
	s.disarm()
	if err != nil {
		s.abandon()
		return nil, err
	}
	if golang == nil {
		s.startGo()
	} else {
		s.notes.addf("%s is a Go program and is not recorded: %v", prog.path, golang)
	}
	all()
	hurry := make(chan struct{})
	go c.pass(caught, hurry)
	s.keep.began(c.pid)
	s.run(ctx, c)
	err = s.finish(c, hurry)
	select { // after Duration the program runs on
	case <-c.done:
	case <-ctx.Done():
		c.signal(unix.SIGTERM)
		<-c.done
	}
	res := s.result()
	res.ExitStatus, res.Signal = c.result()
	return res, err
}

// result is what became of the recording.
func (s *session) result() *Result {
	res := &Result{Path: s.opt.Output, Meta: s.meta, Stats: s.stats, Notes: s.stats.Notes}
	if s.keep != nil {
		res.Held, res.Dumps = s.keep.held, s.dumpPaths()
	}
	return res
}

// open makes all that a session needs, before anything is started.
func open(o *Options) (s *session, err error) {
	s = &session{opt: o, procs: map[uint32]*process{}, epoll: -1}
	defer func() {
		if err != nil {
			s.abandon()
			s.close()
		}
	}()
	rings := defaultRings
	s.seg, err = segment.Create(segment.Config{
		Rings: rings, RingBytes: o.RingBytes / rings, Features: o.Features, TickNs: o.tickNs(), AllocPeriod: o.AllocPeriod,
		CPUPeriodNs:     1e9 / uint64(o.Freq),
		CallThresholdNs: uint64(o.CallThreshold), LockThresholdNs: uint64(o.LockThreshold), ReleaseDebtNs: uint64(o.ReleaseDebt),
		CyclesMult: segment.Calibrate(), Signal: o.Sampling,
	})
	if err != nil {
		return s, err
	}
	if s.inode, err = inodeOf(s.seg.FD()); err != nil {
		return s, err
	}
	if s.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return s, fmt.Errorf("watch processes: %w", err)
	}
	s.meta = describeSession(o, s.seg)
	if !o.keeps() {
		_, statErr := os.Lstat(o.Output)
		if s.out, err = tracefile.Create(o.Output, &s.meta); err != nil {
			return s, err
		}
		s.created = errors.Is(statErr, os.ErrNotExist)
	}
	if err = s.pipeline(); err != nil {
		return s, err
	}
	if s.sampler, err = sampler.Start(s.seg, o.Freq); err != nil {
		return s, err
	}
	if err = s.openKernel(); err != nil {
		return s, err
	}
	if o.Unwind != UnwindFP {
		if s.tables, err = newTables(s.seg.Geometry().Procs, &s.notes); err != nil {
			s.notes.addf("stacks go by frame pointers only: %v", err)
		} else {
			s.tables.placed = &s.placed
		}
	}
	if s.server, err = listen(s.seg, os.Geteuid(), s.tables, s.attach, s.followGo, s.notes.refuse, func(line string) { s.notes.add(line) }); err != nil {
		return s, err
	}
	if err := s.onlook.listen(); err != nil {
		s.notes.add(err.Error())
	}
	return s, nil
}

// describeSession is what is known before the command runs.
func describeSession(o *Options, seg *segment.Segment) trace.Meta {
	m := trace.Meta{
		Version: o.Version, Started: time.Now(), StartNs: trace.Ns(segment.Now()), Arch: runtime.GOARCH, CPUs: runtime.NumCPU(),
		Command: o.Command, Freq: o.Freq, TickNs: int64(seg.Config().TickNs), AllocPeriod: seg.Config().AllocPeriod,
		CallThresholdNs: int64(o.CallThreshold), LockThresholdNs: int64(o.LockThreshold),
		ExitStatus: -1, Hooks: hooks.Map(),
	}
	var boot unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot) == nil {
		m.BoottimeOffset = boot.Nano() - segment.Now()
	}
	m.Host, _ = os.Hostname()
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		m.Kernel = unix.ByteSliceToString(u.Sysname[:]) + " " + unix.ByteSliceToString(u.Release[:])
	}
	for _, f := range []struct {
		bit  uint32
		name string
	}{{segment.FeatureCPU, "cpu"}, {segment.FeatureAlloc, "alloc"}, {segment.FeatureLock, "lock"}, {segment.FeatureCall, "syscall"}} {
		if o.Features&f.bit != 0 {
			m.Features = append(m.Features, f.name)
		}
	}
	return m
}

// notes gathers lines for the user from several goroutines, each line once.
type notes struct {
	mu      sync.Mutex
	lines   []string
	seen    map[string]bool
	refused uint64
}

const maxNotes = 40

func (n *notes) add(lines ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.seen == nil {
		n.seen = map[string]bool{}
	}
	for _, l := range lines {
		l = strings.ReplaceAll(l, "\n", " ")
		if !n.seen[l] && len(n.lines) < maxNotes {
			n.seen[l] = true
			n.lines = append(n.lines, l)
		}
	}
}

func (n *notes) addf(format string, args ...any) { n.add(fmt.Sprintf(format, args...)) }

func (n *notes) refuse(line string) {
	n.mu.Lock()
	n.refused++
	n.mu.Unlock()
	n.add(line)
}
