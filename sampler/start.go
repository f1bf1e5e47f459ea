// The collector's side: starting the sampler, telling it which processes are ours, reading what it counts.
package sampler

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hbtrace/hbtrace/segment"
	"golang.org/x/sys/unix"
)

// Sampler is a running sampler process. Its methods may be called from several goroutines; Verify, Forget
// and Translate from one at a time.
type Sampler struct {
	ctl    *control
	ctlFD  int
	wake   [2]*os.File // pipe
	wakes  chan struct{}
	stop   chan struct{} // closed by Stop
	done   chan struct{} // closed when the process is gone for good
	once   sync.Once
	mu     sync.Mutex
	err    error         // it ended without being asked to
	cpu    time.Duration // of processes that have ended
	starts int
	gaps   []Gap
	down   time.Time // when the process ended; zero while it runs
}

// Gap is a time without CPU samples: from the end of one sampler process to the start of the next.
type Gap struct {
	Why string // how the process ended
	For time.Duration
}

// Counters is what the sampler counted so far.
type Counters struct {
	Ticks, TicksMissed, TicksLateNs          uint64
	SignalsSent, SignalsFailed, SignalsStuck uint64
	ThreadsNoFD                              uint64 // threads that were not sampled for want of a descriptor
	Mode                                     Mode
}

const maxStarts = 4

// startLimit bounds how long a sampler may take to come up; generous, because the machine may be loaded.
const startLimit = 20 * time.Second

// Start runs the sampler for a segment, taking freq periodic samples per second of each thread's CPU time. It
// returns when the sampler's clock runs. A sampler that dies is started again, a few times.
func Start(seg *segment.Segment, freq int) (*Sampler, error) {
	g := seg.Geometry()
	if seg.FD() < 0 {
		return nil, errors.New("start the sampler: the segment has no descriptor")
	}
	ctl, fd, err := createControl(g.Procs, g.Threads, freq)
	if err != nil {
		return nil, err
	}
	r, w, err := os.Pipe()
	if err != nil {
		ctl.close()
		unix.Close(fd)
		return nil, fmt.Errorf("start the sampler: %w", err)
	}
	s := &Sampler{ctl: ctl, ctlFD: fd, wake: [2]*os.File{r, w}, wakes: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{})}
	go wakes(r, s.wakes)
	// The kernel kills the sampler when the *thread* that started it ends, so that thread has to last.
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer close(s.done)
		s.keep(seg.FD(), started)
	}()
	if err := <-started; err != nil {
		<-s.done
		s.release()
		return nil, err
	}
	return s, nil
}

// keep starts the process and starts it again until Stop.
func (s *Sampler) keep(segFD int, started chan<- error) {
	for {
		s.ctl.head.ready.Store(0)
		var last tail
		cmd, err := s.spawn(segFD, &last)
		if err == nil {
			exited := make(chan error, 1)
			go func() { exited <- cmd.Wait() }()
			err = s.awaitReady(cmd, exited)
			if err == nil {
				s.starts++
				if s.starts == 1 {
					started <- nil
				} else {
					s.resumed()
				}
				err = <-exited
				s.ended(err, last.String())
				if err != nil && last.String() != "" {
					err = fmt.Errorf("%w: %s", err, last.String())
				}
			}
			s.mu.Lock()
			if ps := cmd.ProcessState; ps != nil {
				s.cpu += ps.SystemTime() + ps.UserTime()
			}
			s.mu.Unlock()
		}
		select {
		case <-s.stop:
			return
		default:
		}
		if s.starts == 0 {
			started <- fmt.Errorf("start the sampler: %w", err)
			return
		}
		if s.starts >= maxStarts || s.ctl.head.ready.Load() != 1 {
			s.mu.Lock()
			s.err = fmt.Errorf("the sampler ended early (%v): no CPU samples since then", err)
			s.mu.Unlock()
			return
		}
	}
}

// ended notes the end of a process; resumed, below, that the next one is at work.
func (s *Sampler) ended(err error, line string) {
	why := "it ended by itself"
	if err != nil {
		why = err.Error()
	}
	if line != "" {
		why += ": " + line
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = time.Now()
	s.gaps = append(s.gaps, Gap{Why: why})
}

func (s *Sampler) resumed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gaps[len(s.gaps)-1].For = time.Since(s.down)
}

// Gaps are the times without a sampler that were ended by starting another one.
func (s *Sampler) Gaps() []Gap {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.gaps), func(g Gap) bool { return g.For == 0 })
}

// tail keeps the first line that is written to it: what the runtime says when it dies.
type tail struct {
	line []byte
	done bool
}

func (t *tail) Write(p []byte) (int, error) {
	n := len(p)
	if i := bytes.IndexByte(p, '\n'); i >= 0 {
		p = p[:i]
	}
	if !t.done {
		t.line = append(t.line, p[:min(len(p), 256)]...)
		t.done = len(p) < n
	}
	return n, nil
}

func (t *tail) String() string { return string(t.line) }

func (s *Sampler) spawn(segFD int, stderr *tail) (*exec.Cmd, error) {
	cmd := exec.Command("/proc/self/exe", Command, "3", "4", "5")
	cmd.Args[0] = "hbtrace"
	cmd.Env = samplerEnv(os.Environ())
	cmd.Stderr = stderr
	seg, err := dupFile(segFD, "segment")
	if err != nil {
		return nil, err
	}
	defer seg.Close()
	ctl, err := dupFile(s.ctlFD, "control")
	if err != nil {
		return nil, err
	}
	defer ctl.Close()
	cmd.ExtraFiles = []*os.File{seg, ctl, s.wake[1]}
	// A process group of its own: the terminal's Ctrl-C is for the program and the recorder.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	return cmd, cmd.Start()
}

func dupFile(fd int, name string) (*os.File, error) {
	n, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, fmt.Errorf("duplicate the %s descriptor: %w", name, err)
	}
	return os.NewFile(uintptr(n), name), nil
}

// samplerEnv makes the runtime keep out of the loop's way, and keeps a session that we might run in
// ourselves away from the sampler.
func samplerEnv(env []string) []string {
	out := make([]string, 0, len(env)+3)
	for _, e := range env {
		switch k, _, _ := strings.Cut(e, "="); k {
		case "GOGC", "GOMAXPROCS", "GODEBUG", "GOMEMLIMIT", "LD_PRELOAD", "HBTRACE_SESSION":
		default:
			out = append(out, e)
		}
	}
	return append(out, "GOGC=off", "GOMAXPROCS=1", "GODEBUG=asyncpreemptoff=1")
}

func (s *Sampler) awaitReady(cmd *exec.Cmd, exited <-chan error) error {
	limit := time.NewTimer(startLimit)
	defer limit.Stop()
	for {
		poll := time.NewTimer(200 * time.Microsecond)
		select {
		case err := <-exited:
			poll.Stop()
			if s.ctl.head.ready.Load() == 2 {
				return errors.New(s.ctl.head.reason())
			}
			if err == nil {
				err = errors.New("it ended at once")
			}
			return err
		case <-limit.C:
			poll.Stop()
			cmd.Process.Kill()
			<-exited
			return fmt.Errorf("it was not ready after %v", startLimit)
		case <-poll.C:
			if s.ctl.head.ready.Load() == 1 {
				return nil
			}
		}
	}
}

// Verify names the process in slot i as one of the session: its uid there, its pid in our pid namespace, its
// start time (field 22 of /proc/PID/stat). translate says that the tids in its thread slots are of another
// pid namespace, and that Translate will give ours.
func (s *Sampler) Verify(i int, uid uint32, hostPID int, startTicks uint64, translate bool) {
	c := &s.ctl.procs[i]
	c.ok.Store(0)
	c.hostPID.Store(uint32(hostPID))
	c.startTicks.Store(startTicks)
	v := uint32(0)
	if translate {
		v = 1
	}
	c.translate.Store(v)
	c.ok.Store(uid)
}

// Forget ends the signalling of the process in slot i.
func (s *Sampler) Forget(i int) { s.ctl.procs[i].ok.Store(0) }

// Translate gives the tid, in our pid namespace, of the thread that has the given uid in thread slot i.
func (s *Sampler) Translate(i int, uid uint32, hostTID int) {
	c := &s.ctl.threads[i]
	c.uid.Store(0)
	c.hostTID.Store(uint32(hostTID))
	c.uid.Store(uid)
}

// Translated is the uid that slot i was last translated for.
func (s *Sampler) Translated(i int) uint32 { return s.ctl.threads[i].uid.Load() }

// Gone is the uid of the thread in slot i that the sampler found to be no more; 0 none.
func (s *Sampler) Gone(i int) uint32 { return s.ctl.threads[i].gone.Load() }

// Sent is the thread, by its uid, that slot i last belonged to when a signal was sent, and how many it was sent.
func (s *Sampler) Sent(i int) (uid uint32, n uint64) {
	c := &s.ctl.threads[i]
	uid, n = c.sentUID.Load(), c.sent.Load()
	if c.sentUID.Load() != uid {
		return 0, 0 // the slot changes hands
	}
	return uid, n
}

// Quiet says why process uid in slot i is not signalled; QuietNo when it is.
func (s *Sampler) Quiet(i int, uid uint32) Quiet {
	c := &s.ctl.procs[i]
	if uid == 0 || c.quietUID.Load() != uid {
		return QuietNo
	}
	return Quiet(c.quiet.Load())
}

// Counters may be called until Close.
func (s *Sampler) Counters() Counters {
	h := &s.ctl.head.samplerHead
	return Counters{
		Ticks: h.ticks.Load(), TicksMissed: h.missed.Load(), TicksLateNs: h.lateNs.Load(),
		SignalsSent: h.sent.Load(), SignalsFailed: h.failed.Load(), SignalsStuck: h.stuck.Load(),
		ThreadsNoFD: h.noFD.Load(), Mode: Mode(h.mode.Load()),
	}
}

// Err is why the sampler ended without being stopped; nil while all is well.
func (s *Sampler) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// CPU is the CPU time used so far, within some wake-ups.
func (s *Sampler) CPU() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cpu + time.Duration(s.ctl.head.cpuNs.Load())
}

// Stop ends the sampler and waits for it. Counters stay readable until Close. It returns the CPU time used.
func (s *Sampler) Stop() time.Duration {
	s.once.Do(func() {
		close(s.stop)
		s.ctl.head.stop.Store(1)
		<-s.done
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cpu
}

// Close stops the sampler and gives its control memory back. No other method may be called afterwards.
func (s *Sampler) Close() {
	s.Stop()
	s.release()
}

func (s *Sampler) release() {
	s.wake[0].Close()
	s.wake[1].Close()
	s.ctl.close()
	unix.Close(s.ctlFD)
}
