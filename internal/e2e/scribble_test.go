package e2e

// scribble_test.go: another process writes all over the session's shared memory while programs that check themselves run.

import (
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/hbtrace/hbtrace/internal/testprog"
	"github.com/hbtrace/hbtrace/segment"
	"github.com/hbtrace/hbtrace/tracefile"
)

// segmentOf maps a running session's segment, which its recorder has open.
func segmentOf(t *testing.T, recorder int) *segment.Segment {
	t.Helper()
	var seg *segment.Segment
	await(t, "the session's memory", func() bool {
		dir := fmt.Sprintf("/proc/%d/fd/", recorder)
		entries, err := os.ReadDir(dir)
		if err != nil {
			return true // it has ended
		}
		for _, e := range entries {
			if to, _ := os.Readlink(dir + e.Name()); strings.HasPrefix(to, "/memfd:hbtrace ") {
				f, err := os.OpenFile(dir+e.Name(), os.O_RDWR, 0)
				if err != nil {
					continue
				}
				s, err := segment.Map(int(f.Fd()))
				f.Close()
				if err == nil && s.Header().Recording.Load() == 1 && s.HighThreads() > 0 {
					seg = s
					return true
				}
				if err == nil {
					s.Close()
				}
			}
		}
		return false
	})
	return seg
}

// scribbler writes where its seed leads it.
type scribbler struct {
	seg    *segment.Segment
	random *rand.Rand
	mem    []byte // all of the segment
	writes int
}

func newScribbler(seg *segment.Segment, seed int64) *scribbler {
	return &scribbler{seg: seg, random: rand.New(rand.NewSource(seed)),
		mem: unsafe.Slice((*byte)(unsafe.Pointer(seg.Header())), seg.Geometry().Bytes)}
}

// value is any word: more often one that means something.
func (s *scribbler) value() uint64 {
	g := s.seg.Geometry()
	switch s.random.Intn(8) {
	case 0:
		return s.random.Uint64()
	case 1:
		return uint64(s.random.Uint32())
	case 2:
		return ^uint64(0) >> s.random.Intn(64)
	case 3:
		return 1 << s.random.Intn(64)
	case 4: // another word of the segment
		return s.word(uint64(s.random.Int63n(int64(g.RingsOff/8))) * 8).load()
	case 5:
		return s.seg.Header().Tick.Load() + uint64(s.random.Intn(5)) - 2
	case 6:
		return uint64(segment.Now())
	}
	return uint64(s.random.Intn(6))
}

type word struct{ p *uint64 }

func (w word) load() uint64 { return *w.p }

func (s *scribbler) word(off uint64) word { return word{(*uint64)(unsafe.Pointer(&s.mem[off&^7]))} }

// slot is a thread's, mostly one of the first, which every program has.
func (s *scribbler) slot() int {
	if s.random.Intn(3) > 0 {
		return s.random.Intn(4)
	}
	return s.random.Intn(40)
}

// once writes a few words, most of them where agents look.
func (s *scribbler) once() {
	g, r := s.seg.Geometry(), s.random
	for range 8 {
		var off uint64
		switch r.Intn(8) {
		case 0:
			off = uint64(r.Intn(int(unsafe.Sizeof(segment.Header{}))))
		case 1:
			off = g.ProcsOff + uint64(r.Intn(3*int(unsafe.Sizeof(segment.Proc{}))))
		case 2, 3:
			size := int(unsafe.Sizeof(segment.Thread{}))
			off = g.ThreadsOff + uint64(s.slot()*size+r.Intn(size))
		case 4: // the states of threads
			s.seg.Thread(s.slot()).State.Store(uint32(r.Intn(7)))
			s.writes++
			continue
		case 5: // who they are
			t := s.seg.Thread(s.slot())
			t.UID.Store(uint32(s.value()))
			if r.Intn(2) == 0 {
				t.UID.Store(0)
			}
			t.TID.Store(uint32(s.value()))
			s.writes++
			continue
		case 6:
			b := s.seg.Subbuf(r.Intn(g.Rings))
			switch r.Intn(3) {
			case 0:
				b.Lock.Store(uint32(s.value()))
			case 1:
				b.Head.Store(s.value())
			case 2:
				b.Tail.Store(s.value())
			}
			s.writes++
			continue
		case 7:
			off = g.RingsOff + uint64(r.Int63n(int64(uint64(g.Rings)*g.RingBytes)))
		}
		*s.word(off).p = s.value()
		s.writes++
	}
}

// hold writes the same words again and again: what one thread puts right is wrong again a moment later.
func (s *scribbler) hold(state uint32) func() {
	return func() {
		for i := range 40 {
			if t := s.seg.Thread(i); t.UID.Load() != 0 {
				t.State.Store(state)
				t.Ask.Store(^uint32(0))
				s.writes++
			}
		}
	}
}

// random goes on for so many turns, then leaves everything as it is. It keeps the session recording, or agents would stop to
// look.
func (s *scribbler) randomly(turns int) func() {
	return func() {
		if turns--; turns < 0 {
			return
		}
		s.once()
		if turns == 0 || turns%2 == 0 {
			h := s.seg.Header()
			h.Recording.Store(1)
			h.HeartbeatNs.Store(uint64(segment.Now()))
		}
	}
}

// scribble takes a turn a thousand times a second until the session has ended.
func scribble(t *testing.T, s *session, seed int64, how func(*scribbler) func()) (wait func() int) {
	t.Helper()
	seg := segmentOf(t, s.PID())
	if seg == nil {
		return func() int { return 0 }
	}
	pidfd, err := unix.PidfdOpen(s.PID(), 0)
	if err != nil {
		seg.Close()
		return func() int { return 0 }
	}
	w := newScribbler(seg, seed)
	turn := how(w)
	var done sync.WaitGroup
	done.Go(func() {
		defer unix.Close(pidfd)
		for {
			turn()
			if n, _ := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, 1); n > 0 {
				return
			}
		}
	})
	return func() int {
		done.Wait()
		seg.Close()
		return w.writes
	}
}

// scribbled runs a program under a scribbler. It must end by itself, as it does without hbtrace, and so must the recorder;
// what that wrote can be read.
func scribbled(t *testing.T, seed int64, how func(*scribbler) func(), args ...string) (writes int) {
	t.Helper()
	program := append([]string{testprog.Build(t, args[0])}, args[1:]...)
	begun := time.Now()
	s := start(t, testprog.Command{Args: program, Limit: 3 * time.Minute})
	wait := scribble(t, s, seed, how)
	r := s.finish(t)
	t.Logf("%s: %v", filepath.Base(program[0]), time.Since(begun).Round(time.Millisecond))
	writes = wait()
	if r.Status() != 0 {
		t.Errorf("%s, seed %d: %v", filepath.Base(program[0]), seed, r)
	}
	src, err := tracefile.Open(s.prefix + ".hbt")
	if err != nil {
		t.Errorf("%s, seed %d: %v", filepath.Base(program[0]), seed, err)
		return writes
	}
	src.Close()
	return writes
}

// scribbledPrograms check themselves, and block, wait, allocate, begin and end threads and processes.
var scribbledPrograms = [][]string{
	{"condvar"}, {"threads"}, {"mutexkinds"}, {"malloc"}, {"fork"}, {"cancel"}, {"rwlock"}, {"barrier"}, {"conformthreads"},
	{"exceptions"}, {"churn", "2000"}, {"jump"}, {"vfork"}, {"heap"},
}

func TestScribbledSegment(t *testing.T) {
	writes := 0
	for i, p := range scribbledPrograms[:4] { // those that ask nothing of sleeps, which a scribbled state may end early
		writes += scribbled(t, int64(i), func(s *scribbler) func() { return s.randomly(100 + s.random.Intn(400)) }, p...)
	}
	t.Logf("%d words written", writes)
	if writes == 0 {
		t.Error("nothing was ever written: the programs are too short, or the segment was not found")
	}
}

// A word that is wrong whenever a thread looks at it: every state that there is, and one that there is not.
func TestHeldState(t *testing.T) {
	for _, state := range []uint32{segment.StateRunning, segment.StateSignalled, segment.StateBlocked, segment.StateExited, segment.StateMasked, 77} {
		if scribbled(t, 1, func(s *scribbler) func() { return s.hold(state) }, "condvar") == 0 {
			t.Errorf("state %d was never written", state)
		}
	}
}

// TestStressScribbledSegment is the same for as long as HBTRACE_STRESS says, or five minutes.
func TestStressScribbledSegment(t *testing.T) {
	text := os.Getenv("HBTRACE_STRESS")
	if text == "" {
		t.Skip("long: set HBTRACE_STRESS, to 10m for example")
	}
	limit, err := time.ParseDuration(text)
	if err != nil {
		limit = 5 * time.Minute
	}
	writes, end := 0, time.Now().Add(limit)
	for seed := int64(100); time.Now().Before(end); seed++ {
		for _, p := range scribbledPrograms {
			writes += scribbled(t, seed, func(s *scribbler) func() { return s.randomly(100 + s.random.Intn(2000)) }, p...)
			writes += scribbled(t, seed, func(s *scribbler) func() { return s.hold(uint32(s.random.Intn(7))) }, p...)
		}
	}
	t.Logf("%d words written", writes)
}
