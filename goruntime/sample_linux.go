package goruntime

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// SamplingSignal is what threads of Go programs are sampled by (goruntime/sample.h says why).
const SamplingSignal = unix.SIGWINCH

const (
	samplePause = time.Millisecond     // between looks at threads that run
	idlePause   = 8 * time.Millisecond // the longest, between looks at threads that do not
	listPause   = 10 * time.Millisecond
)

// Sampler sends the threads of one process a signal for every period of CPU time that they use.
type Sampler struct {
	PID      int
	Cookie   uint32
	PeriodNs uint64

	sent, ignored uint64
}

// sampled is a thread as the Sampler knows it.
type sampled struct {
	schedstat, wchan int
	cpu              uint64 // ns, at the last signal
	seen             uint64 // at the last look
	pause            time.Duration
	next             time.Time
}

func (t *sampled) close() {
	unix.Close(t.schedstat)
	if t.wchan >= 0 {
		unix.Close(t.wchan)
	}
}

// Run samples until stop is closed or the process has gone. It returns how many signals were sent, and whether the program
// ignored the signal at the end, after which none is sent.
func (s *Sampler) Run(stop <-chan struct{}) (sent uint64, ignored bool) {
	threads := map[int]*sampled{}
	defer func() {
		for _, t := range threads {
			t.close()
		}
	}()
	timer := time.NewTicker(samplePause)
	defer timer.Stop()
	var listed time.Time
	for {
		select {
		case <-stop:
			return s.sent, false
		case now := <-timer.C:
			if now.Sub(listed) >= listPause {
				listed = now
				if !s.list(threads) {
					return s.sent, false
				}
				if s.ignores() {
					return s.sent, true
				}
			}
			for tid, t := range threads {
				if now.Before(t.next) {
					continue
				}
				if !s.look(tid, t, now) {
					t.close()
					delete(threads, tid)
				}
			}
		}
	}
}

// list takes up new threads; false when the process has gone.
func (s *Sampler) list(threads map[int]*sampled) bool {
	dir := fmt.Sprintf("/proc/%d/task", s.PID)
	d, err := os.Open(dir)
	if err != nil {
		return false
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return len(names) > 0
	}
	for _, n := range names {
		tid, err := strconv.Atoi(n)
		if err != nil || threads[tid] != nil {
			continue
		}
		fd, err := unix.Open(dir+"/"+n+"/schedstat", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			continue
		}
		wchan, err := unix.Open(dir+"/"+n+"/wchan", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			wchan = -1
		}
		// The first signal comes at random in the first period: what is used before it is not lost on average.
		threads[tid] = &sampled{schedstat: fd, wchan: wchan, cpu: -rand.Uint64N(s.PeriodNs)}
	}
	return true
}

// look sends the thread a signal if it used a period of CPU time and runs; false when it has gone.
func (s *Sampler) look(tid int, t *sampled, now time.Time) bool {
	var buf [64]byte
	n, err := unix.Pread(t.schedstat, buf[:], 0)
	if err != nil || n <= 0 {
		return false
	}
	cpu := leadingNumber(buf[:n])
	if cpu == t.seen {
		t.pause = min(max(2*t.pause, samplePause), idlePause)
	} else {
		t.pause = 0
	}
	t.seen = cpu
	t.next = now.Add(t.pause)
	weight := cpu - t.cpu
	if int64(weight) < int64(s.PeriodNs) {
		return true
	}
	if t.wchan >= 0 { // a thread that sleeps is left alone: it is sampled when it runs again
		if n, err := unix.Pread(t.wchan, buf[:], 0); err != nil || n > 1 || n == 1 && buf[0] != '0' {
			return err == nil
		}
	}
	var info [128]byte // siginfo_t: number, error, code; pid and uid of the sender; value
	const queued = -1  // SI_QUEUE
	code := int32(queued)
	binary.LittleEndian.PutUint32(info[0:], uint32(SamplingSignal))
	binary.LittleEndian.PutUint32(info[8:], uint32(code))
	binary.LittleEndian.PutUint32(info[16:], uint32(os.Getpid()))
	binary.LittleEndian.PutUint32(info[20:], uint32(os.Getuid()))
	binary.LittleEndian.PutUint32(info[24:], s.Cookie)
	binary.LittleEndian.PutUint32(info[28:], uint32(min(weight/1000, 1<<31)))
	_, _, e := unix.RawSyscall6(unix.SYS_RT_TGSIGQUEUEINFO, uintptr(s.PID), uintptr(tid), uintptr(SamplingSignal), uintptr(unsafe.Pointer(&info)), 0, 0)
	switch e {
	case 0:
		t.cpu += weight / 1000 * 1000
		s.sent++
	case unix.ESRCH:
		return false
	}
	return true
}

// ignores says whether the program has told its runtime to ignore the signal: it may ask for it later, and is not to get
// ours then.
func (s *Sampler) ignores() bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.PID))
	if err != nil {
		return false
	}
	caught, ok := signalSet(b, "SigCgt:")
	return ok && caught&(1<<(SamplingSignal-1)) == 0
}
