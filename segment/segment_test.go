// segment_test.go: creation, mapping, refusal of what is no segment, and the clock.
package segment

import (
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

func small(t *testing.T) *Segment {
	t.Helper()
	s, err := Create(Config{Threads: 4, Procs: 2, Rings: 2, RingBytes: 16384, CyclesMult: 7})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func TestDefaults(t *testing.T) {
	s, err := Create(Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	c, g := s.Config(), s.Geometry()
	if g.Threads != 16384 || g.Procs != 4096 || g.Rings != 8 || g.RingBytes != 1<<20 {
		t.Errorf("geometry %+v", g)
	}
	if c.Signal != int(syscall.SIGURG) || c.TickNs != 1e6 || c.AllocPeriod != 512<<10 || c.Features != 15 {
		t.Errorf("config %+v", c)
	}
	if s.Cookie() == 0 || s.Cookie()&0xff != 0 {
		t.Errorf("cookie %#x", s.Cookie())
	}
	if h := s.Header(); h.Tick.Load() != 0 || h.Recording.Load() != 0 {
		t.Errorf("tick %d, recording %d: the session has not begun", h.Tick.Load(), h.Recording.Load())
	}
}

func TestSealedAndMapped(t *testing.T) {
	s := small(t)
	for _, size := range []int64{0, 1 << 30} {
		if err := unix.Ftruncate(s.FD(), size); err == nil {
			t.Errorf("the segment can be resized to %d", size)
		}
	}
	if fl, err := unix.FcntlInt(uintptr(s.FD()), unix.F_GETFD, 0); err != nil || fl&unix.FD_CLOEXEC == 0 {
		t.Errorf("descriptor flags %#x, %v: not close-on-exec", fl, err)
	}
	m, err := Map(s.FD())
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if m.Geometry() != s.Geometry() || m.Config() != s.Config() || m.Cookie() != s.Cookie() {
		t.Errorf("mapped %+v %+v, created %+v %+v", m.Geometry(), m.Config(), s.Geometry(), s.Config())
	}
	// Each part is one memory seen twice, and no two parts overlap: a mark in each is found again, alone.
	marks := func(s *Segment) []*uint32 {
		p := []*uint32{(*uint32)(unsafe.Pointer(&s.Header().Recording))}
		for i := range s.Geometry().Procs {
			p = append(p, (*uint32)(unsafe.Pointer(&s.Proc(i).UID)))
		}
		for i := range s.Geometry().Threads {
			p = append(p, (*uint32)(unsafe.Pointer(&s.Thread(i).UID)))
		}
		for i := range s.Geometry().Rings {
			r := s.Ring(i)
			p = append(p, (*uint32)(unsafe.Pointer(&s.Subbuf(i).Lock)), (*uint32)(unsafe.Pointer(&r[0])), (*uint32)(unsafe.Pointer(&r[len(r)-4])))
		}
		return p
	}
	for i, p := range marks(s) {
		*p = uint32(1000 + i)
	}
	for i, p := range marks(m) {
		if *p != uint32(1000+i) {
			t.Errorf("mark %d reads %d", i, *p)
		}
	}
}

func TestConfigRefused(t *testing.T) {
	for name, c := range map[string]Config{
		"ring not a power of two": {RingBytes: 100000},
		"ring too small":          {RingBytes: 4096},
		"negative threads":        {Threads: -1},
		"too many rings":          {Rings: 1 << 20},
		"no such signal":          {Signal: 65},
		"alloc slots":             {AllocSlots: 3},
	} {
		if s, err := Create(c); err == nil {
			s.Close()
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestMapRefuses(t *testing.T) {
	for name, damage := range map[string]func(*Header){
		"magic":           func(h *Header) { h.Magic.Store(1) },
		"version":         func(h *Header) { h.Version.Store(9) },
		"size":            func(h *Header) { h.SegmentBytes.Add(1) },
		"thread size":     func(h *Header) { h.ThreadBytes.Store(8) },
		"procs outside":   func(h *Header) { h.ProcsOff.Store(^uint64(63)) },
		"threads outside": func(h *Header) { h.ThreadsCap.Store(maxThreads) },
		"threads huge":    func(h *Header) { h.ThreadsCap.Store(^uint32(0)) },
		"no threads":      func(h *Header) { h.ThreadsCap.Store(0) },
		"unaligned":       func(h *Header) { h.RingCtlOff.Add(4) },
		"rings outside":   func(h *Header) { h.RingCount.Store(1000) },
		"ring bytes":      func(h *Header) { h.RingBytes.Store(12345) },
		"no tick":         func(h *Header) { h.TickNs.Store(0) },
	} {
		s := small(t)
		damage(s.Header())
		if m, err := Map(s.FD()); err == nil {
			m.Close()
			t.Errorf("%s: accepted", name)
		}
	}
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(1 << 20); err != nil {
		t.Fatal(err)
	}
	if _, err := Map(int(f.Fd())); err == nil || !strings.Contains(err.Error(), "not a segment") {
		t.Errorf("plain file: %v", err)
	}
	if _, err := Map(-1); err == nil {
		t.Error("no descriptor: accepted")
	}
}

// FuzzMap lets a hostile process write the header before the sampler maps it.
func FuzzMap(f *testing.F) {
	f.Add(uint16(0), []byte{})
	f.Add(uint16(24), []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 2, 3, 4, 5, 6, 7, 8})
	f.Fuzz(func(t *testing.T, off uint16, b []byte) {
		s := small(t)
		copy(s.mem[min(int(off), int(unsafe.Sizeof(Header{}))):], b)
		m, err := Map(s.FD())
		if err != nil {
			return
		}
		defer m.Close()
		g := m.Geometry()
		m.Proc(g.Procs - 1).UID.Load()
		m.Thread(g.Threads - 1).Seq.Load()
		m.Subbuf(g.Rings - 1).Tail.Load()
		_ = m.Ring(g.Rings - 1)[g.RingBytes-1]
	})
}

func TestHighIsBounded(t *testing.T) {
	s := small(t)
	s.Header().ThreadsHigh.Store(1 << 31)
	s.Header().ProcsHigh.Store(1 << 31)
	if s.HighThreads() != 4 || s.HighProcs() != 2 {
		t.Errorf("%d threads, %d processes", s.HighThreads(), s.HighProcs())
	}
}

func TestCyclesToNs(t *testing.T) {
	for _, c := range []struct{ cycles, mult, want uint64 }{
		{5, 0, 5},
		{1 << 40, 1 << 32, 1 << 40},
		{26e8, 1651910498, 999999999}, // 2.6 GHz: one second
		{26e8 * 86400 * 1000, 1651910498, 86399999975860118},
		{^uint64(0), 1 << 32, ^uint64(0)},
		{^uint64(0), 1 << 33, ^uint64(0)}, // saturates
	} {
		if got := CyclesToNs(c.cycles, c.mult); got != c.want {
			t.Errorf("CyclesToNs(%d, %d) = %d, want %d", c.cycles, c.mult, got, c.want)
		}
	}
}

func TestCyclesAreTime(t *testing.T) {
	both := "flags\t\t: fpu tsc constant_tsc nonstop_tsc\n"
	for _, c := range []struct {
		clocksource, cpuinfo string
		want                 bool
	}{
		{"tsc\n", both, true},
		{"kvm-clock\n", both + "\nprocessor: 1\n" + both, true},
		{"hpet\n", both, false},
		{"tsc\n", both + "flags : fpu constant_tsc\n", false},
		{"tsc\n", "flags : constant_tsc_not nonstop_tsc\n", false},
		{"tsc\n", "", false},
	} {
		if got := cyclesAreTime(c.clocksource, []byte(c.cpuinfo)); got != c.want {
			t.Errorf("cyclesAreTime(%q, %q) = %v", c.clocksource, c.cpuinfo, got)
		}
	}
}

// TestCalibrate holds a span by the counter against the same span by the clock. The spans enclose each other,
// so that the bounds hold on a busy machine.
func TestCalibrate(t *testing.T) {
	mult := Calibrate()
	if mult == 0 {
		t.Skip("needs a cycle counter that the kernel keeps time by")
	}
	outer0 := Now()
	c0 := cycles()
	inner0 := Now()
	time.Sleep(50 * time.Millisecond)
	inner1 := Now()
	c1 := cycles()
	outer1 := Now()
	got := int64(CyclesToNs(c1-c0, mult))
	inner, outer := inner1-inner0, outer1-outer0
	if slack := outer / 1000; got < inner-slack || got > outer+slack {
		t.Errorf("by the counter %d ns, by the clock between %d and %d", got, inner, outer)
	}
}
