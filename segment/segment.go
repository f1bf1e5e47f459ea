// Package segment is the session's shared memory as the collector and the sampler see it. layout.h is the
// layout; zlayout.go is made from it and does not compile when the two drift apart. segment.go creates the
// memory, maps it and hands out its parts; clock.go relates the cycle counter to nanoseconds.
//
// Every process of the session can write anywhere in the segment. So the geometry is copied once, from what
// the creator wrote or after it was checked, and never read from the segment again; what other processes
// write is read through the atomic fields of the slots, into locals, and checked there.
package segment

//go:generate go run ./gen

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math/bits"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Limits on what Create makes and Map accepts; they bound what a damaged header can ask for.
const (
	maxThreads   = 1 << 20
	maxProcs     = 1 << 18
	maxRings     = 1 << 10
	maxRingBytes = 1 << 32
	minRingBytes = 4 * MaxRecord
	pageBytes    = 4096
)

// Config is what a session fixes when it begins. Zero fields take the default that is named.
type Config struct {
	Threads   int // thread slots; 16384
	Procs     int // process slots; 4096
	Rings     int // sub-buffers; 8
	RingBytes int // bytes of one sub-buffer, a power of two; 1 MiB

	Features        uint32 // Feature…; all
	Signal          int    // sampling signal; SIGURG
	TickNs          uint64 // 1 ms
	CPUPeriodNs     uint64 // CPU time of a thread per sampling point; 0: no CPU profile
	AllocPeriod     uint64 // mean bytes between sampled allocations; 512 KiB; 1 = every one
	AllocSlots      uint32 // sampled live addresses remembered per process, a power of two; 65536
	CallThresholdNs uint64 // 0 records every blocking call
	LockThresholdNs uint64 // 0 records every contended wait
	ReleaseDebtNs   uint64 // 0 records every release that somebody waited for

	// CyclesMult relates the cycle counter to time (see CyclesToNs); 0 makes agents use the clock.
	// Calibrate gives it.
	CyclesMult uint64
}

// Geometry is where things lie in a segment: bytes from its start, counts, and bytes per element.
type Geometry struct {
	Bytes                                      uint64
	ProcsOff, ThreadsOff, RingCtlOff, RingsOff uint64
	Procs, Threads, Rings                      int
	RingBytes                                  uint64 // of one sub-buffer, a power of two
}

// Segment is a mapped segment. Its methods may be called from several goroutines; Close ends them all.
type Segment struct {
	mem    []byte
	fd     int // -1: not owned
	geo    Geometry
	config Config
	cookie uint32
}

func orDefault[T int | uint32 | uint64](v *T, d T) {
	if *v == 0 {
		*v = d
	}
}

func (c *Config) fill() error {
	orDefault(&c.Threads, 16384)
	orDefault(&c.Procs, 4096)
	orDefault(&c.Rings, 8)
	orDefault(&c.RingBytes, 1<<20)
	orDefault(&c.Features, uint32(FeatureCPU|FeatureAlloc|FeatureLock|FeatureCall))
	orDefault(&c.Signal, int(syscall.SIGURG))
	orDefault(&c.TickNs, 1e6)
	orDefault(&c.AllocPeriod, 512<<10)
	orDefault(&c.AllocSlots, 1<<16)
	if c.Signal < 1 || c.Signal > 64 {
		return fmt.Errorf("sampling signal %d: signals run from 1 to 64", c.Signal)
	}
	if bits.OnesCount32(c.AllocSlots) != 1 {
		return fmt.Errorf("%d slots for live allocations: not a power of two", c.AllocSlots)
	}
	return nil
}

func layout(c *Config) (Geometry, error) {
	g := Geometry{Procs: c.Procs, Threads: c.Threads, Rings: c.Rings, RingBytes: uint64(c.RingBytes)}
	if err := g.checkCounts(); err != nil {
		return g, err
	}
	page := func(n uint64) uint64 { return (n + pageBytes - 1) &^ (pageBytes - 1) }
	g.ProcsOff = page(uint64(unsafe.Sizeof(Header{})))
	g.ThreadsOff = page(g.ProcsOff + uint64(g.Procs)*uint64(unsafe.Sizeof(Proc{})))
	g.RingCtlOff = page(g.ThreadsOff + uint64(g.Threads)*uint64(unsafe.Sizeof(Thread{})))
	g.RingsOff = page(g.RingCtlOff + uint64(g.Rings)*uint64(unsafe.Sizeof(Subbuf{})))
	g.Bytes = g.RingsOff + uint64(g.Rings)*g.RingBytes
	return g, nil
}

func (g *Geometry) checkCounts() error {
	switch {
	case g.Threads < 1 || g.Threads > maxThreads:
		return fmt.Errorf("segment with %d thread slots: want 1 to %d", g.Threads, maxThreads)
	case g.Procs < 1 || g.Procs > maxProcs:
		return fmt.Errorf("segment with %d process slots: want 1 to %d", g.Procs, maxProcs)
	case g.Rings < 1 || g.Rings > maxRings:
		return fmt.Errorf("segment with %d sub-buffers: want 1 to %d", g.Rings, maxRings)
	case bits.OnesCount64(g.RingBytes) != 1 || g.RingBytes < minRingBytes || g.RingBytes > maxRingBytes:
		return fmt.Errorf("sub-buffers of %d bytes: want a power of two from %d to %d", g.RingBytes, minRingBytes, uint64(maxRingBytes))
	}
	return nil
}

// checkPlaces holds every part against the segment's size, in arithmetic that cannot overflow: counts and
// sizes are bounded by checkCounts, offsets by Bytes.
func (g *Geometry) checkPlaces() error {
	for _, p := range []struct {
		what              string
		off, n, each, min uint64
	}{
		{"process slots", g.ProcsOff, uint64(g.Procs), uint64(unsafe.Sizeof(Proc{})), uint64(unsafe.Sizeof(Header{}))},
		{"thread slots", g.ThreadsOff, uint64(g.Threads), uint64(unsafe.Sizeof(Thread{})), g.ProcsOff},
		{"sub-buffer controls", g.RingCtlOff, uint64(g.Rings), uint64(unsafe.Sizeof(Subbuf{})), g.ThreadsOff},
		{"sub-buffers", g.RingsOff, uint64(g.Rings), g.RingBytes, g.RingCtlOff},
	} {
		if p.off%64 != 0 || p.off < p.min || p.off > g.Bytes || p.n*p.each > g.Bytes-p.off {
			return fmt.Errorf("%s at offset %#x, %d of %d bytes: not inside a segment of %d bytes", p.what, p.off, p.n, p.each, g.Bytes)
		}
	}
	return nil
}

// Create makes a sealed segment and fills its header. Recording is off and the tick 0 until the caller
// sets them. The caller closes it.
func Create(c Config) (*Segment, error) {
	if err := c.fill(); err != nil {
		return nil, err
	}
	g, err := layout(&c)
	if err != nil {
		return nil, err
	}
	fd, err := memfd(g.Bytes)
	if err != nil {
		return nil, err
	}
	mem, err := mapFD(fd, g.Bytes)
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	s := &Segment{mem: mem, fd: fd, geo: g, config: c}
	for s.cookie == 0 {
		var b [4]byte
		if _, err := rand.Read(b[:]); err != nil {
			s.Close()
			return nil, fmt.Errorf("draw the session's cookie: %w", err)
		}
		s.cookie = binary.LittleEndian.Uint32(b[:]) &^ 0xff
	}
	s.fillHeader()
	return s, nil
}

// memfd makes a sealed memfd: nobody can shrink it under a reader, which would be a SIGBUS there.
func memfd(size uint64) (int, error) {
	const flags = unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	// Kernels from 6.3 may be told to refuse memfds that could be executed; older ones do not know the flag.
	fd, err := unix.MemfdCreate("hbtrace", flags|unix.MFD_NOEXEC_SEAL)
	if errors.Is(err, unix.EINVAL) {
		fd, err = unix.MemfdCreate("hbtrace", flags)
	}
	if err != nil {
		return -1, fmt.Errorf("create the session's shared memory (memfd_create): %w", err)
	}
	if err := unix.Ftruncate(fd, int64(size)); err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("size the session's shared memory to %d bytes: %w", size, err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL); err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("seal the session's shared memory: %w", err)
	}
	return fd, nil
}

func mapFD(fd int, size uint64) ([]byte, error) {
	mem, err := unix.Mmap(fd, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes of shared memory: %w", size, err)
	}
	return mem, nil
}

func (s *Segment) fillHeader() {
	h, g, c := s.Header(), &s.geo, &s.config
	h.Version.Store(ABIVersion)
	h.HeaderBytes.Store(uint32(unsafe.Sizeof(*h)))
	h.SegmentBytes.Store(g.Bytes)
	h.ProcsOff.Store(g.ProcsOff)
	h.ThreadsOff.Store(g.ThreadsOff)
	h.RingCtlOff.Store(g.RingCtlOff)
	h.RingDataOff.Store(g.RingsOff)
	h.ProcsCap.Store(uint32(g.Procs))
	h.ThreadsCap.Store(uint32(g.Threads))
	h.ProcBytes.Store(uint32(unsafe.Sizeof(Proc{})))
	h.ThreadBytes.Store(uint32(unsafe.Sizeof(Thread{})))
	h.SubbufBytes.Store(uint32(unsafe.Sizeof(Subbuf{})))
	h.RingCount.Store(uint32(g.Rings))
	h.RingBytes.Store(g.RingBytes)
	h.Features.Store(c.Features)
	h.Signal.Store(uint32(c.Signal))
	h.TickNs.Store(c.TickNs)
	h.CPUPeriodNs.Store(c.CPUPeriodNs)
	h.AllocPeriod.Store(c.AllocPeriod)
	h.CallThresholdNs.Store(c.CallThresholdNs)
	h.LockThresholdNs.Store(c.LockThresholdNs)
	h.ReleaseDebtNs.Store(c.ReleaseDebtNs)
	h.CyclesMult.Store(c.CyclesMult)
	h.Cookie.Store(s.cookie)
	h.AllocSlots.Store(c.AllocSlots)
	h.Magic.Store(Magic) // last: whoever sees it sees the rest
}

// Map maps the segment behind fd, which stays the caller's, after checking that it is one of this version
// and holds what its header says.
func Map(fd int) (*Segment, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, fmt.Errorf("look at fd %d: %w", fd, err)
	}
	if st.Size < int64(unsafe.Sizeof(Header{})) || st.Size > 1<<46 {
		return nil, fmt.Errorf("fd %d has %d bytes: not a segment", fd, st.Size)
	}
	if seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0); err != nil || seals&unix.F_SEAL_SHRINK == 0 {
		return nil, fmt.Errorf("fd %d is not sealed against shrinking (seals %#x): not a segment", fd, max(seals, 0))
	}
	mem, err := mapFD(fd, uint64(st.Size))
	if err != nil {
		return nil, err
	}
	s := &Segment{mem: mem, fd: -1}
	if err := s.readHeader(); err != nil {
		s.Close()
		return nil, fmt.Errorf("segment of fd %d: %w", fd, err)
	}
	return s, nil
}

// readHeader takes every field once and checks the copy.
func (s *Segment) readHeader() error {
	h := s.Header()
	for _, f := range []struct {
		what      string
		got, want uint64
	}{
		{"magic", h.Magic.Load(), Magic},
		{"version", uint64(h.Version.Load()), ABIVersion},
		{"header_bytes", uint64(h.HeaderBytes.Load()), uint64(unsafe.Sizeof(*h))},
		{"segment_bytes", h.SegmentBytes.Load(), uint64(len(s.mem))},
		{"proc_bytes", uint64(h.ProcBytes.Load()), uint64(unsafe.Sizeof(Proc{}))},
		{"thread_bytes", uint64(h.ThreadBytes.Load()), uint64(unsafe.Sizeof(Thread{}))},
		{"subbuf_bytes", uint64(h.SubbufBytes.Load()), uint64(unsafe.Sizeof(Subbuf{}))},
	} {
		if f.got != f.want {
			return fmt.Errorf("%s is %#x, this program's is %#x", f.what, f.got, f.want)
		}
	}
	s.geo = Geometry{
		Bytes: uint64(len(s.mem)), ProcsOff: h.ProcsOff.Load(), ThreadsOff: h.ThreadsOff.Load(),
		RingCtlOff: h.RingCtlOff.Load(), RingsOff: h.RingDataOff.Load(),
		Procs: int(h.ProcsCap.Load()), Threads: int(h.ThreadsCap.Load()), Rings: int(h.RingCount.Load()),
		RingBytes: h.RingBytes.Load(),
	}
	if err := s.geo.checkCounts(); err != nil {
		return err
	}
	if err := s.geo.checkPlaces(); err != nil {
		return err
	}
	s.cookie = h.Cookie.Load()
	s.config = Config{
		Threads: s.geo.Threads, Procs: s.geo.Procs, Rings: s.geo.Rings, RingBytes: int(s.geo.RingBytes),
		Features: h.Features.Load(), Signal: int(h.Signal.Load()), TickNs: h.TickNs.Load(),
		CPUPeriodNs: h.CPUPeriodNs.Load(), AllocPeriod: h.AllocPeriod.Load(), AllocSlots: h.AllocSlots.Load(),
		CallThresholdNs: h.CallThresholdNs.Load(), LockThresholdNs: h.LockThresholdNs.Load(),
		ReleaseDebtNs: h.ReleaseDebtNs.Load(), CyclesMult: h.CyclesMult.Load(),
	}
	if s.config.Signal < 1 || s.config.Signal > 64 || s.config.TickNs == 0 {
		return fmt.Errorf("signal %d, tick of %d ns: out of range", s.config.Signal, s.config.TickNs)
	}
	return nil
}

// Close unmaps the segment, and closes its descriptor where Create made it. Pointers from the accessors
// must not be used afterwards.
func (s *Segment) Close() error {
	if s.mem == nil {
		return fs.ErrClosed
	}
	err := unix.Munmap(s.mem)
	s.mem = nil
	if s.fd >= 0 {
		err = errors.Join(err, unix.Close(s.fd))
		s.fd = -1
	}
	return err
}

// FD is the descriptor that Create made, close-on-exec; -1 for a mapped one.
func (s *Segment) FD() int { return s.fd }

// Geometry is the checked copy.
func (s *Segment) Geometry() Geometry { return s.geo }

// Config is the session's configuration, as it was when the segment was created or mapped.
func (s *Segment) Config() Config { return s.config }

// Cookie is the si_value of our signals: it is or-ed with an Ask… number in the low 8 bits.
func (s *Segment) Cookie() uint32 { return s.cookie }

// Header is the first part of the segment. What it says of the geometry is for agents: Geometry has it.
func (s *Segment) Header() *Header { return (*Header)(unsafe.Pointer(&s.mem[0])) }

// Proc is process slot i, 0 ≤ i < Geometry().Procs. It panics outside.
func (s *Segment) Proc(i int) *Proc { return at[Proc](s, s.geo.ProcsOff, i, s.geo.Procs) }

// Thread is thread slot i, 0 ≤ i < Geometry().Threads. It panics outside.
func (s *Segment) Thread(i int) *Thread { return at[Thread](s, s.geo.ThreadsOff, i, s.geo.Threads) }

// Subbuf is the control of sub-buffer i, 0 ≤ i < Geometry().Rings. It panics outside.
func (s *Segment) Subbuf(i int) *Subbuf { return at[Subbuf](s, s.geo.RingCtlOff, i, s.geo.Rings) }

// Ring is the memory of sub-buffer i. Other processes write to it at any time.
func (s *Segment) Ring(i int) []byte {
	if i < 0 || i >= s.geo.Rings {
		panic(fmt.Sprintf("sub-buffer %d of %d", i, s.geo.Rings))
	}
	off := s.geo.RingsOff + uint64(i)*s.geo.RingBytes
	return s.mem[off : off+s.geo.RingBytes : off+s.geo.RingBytes]
}

func at[T any](s *Segment, off uint64, i, n int) *T {
	if i < 0 || i >= n {
		panic(fmt.Sprintf("slot %d of %d", i, n))
	}
	var t T
	size := unsafe.Sizeof(t)
	part := s.mem[off+uint64(i)*uint64(size):]
	return (*T)(unsafe.Pointer(&part[:size][0]))
}

// HighThreads is one above the highest thread slot ever claimed, never more than there are.
func (s *Segment) HighThreads() int {
	return int(min(uint64(s.Header().ThreadsHigh.Load()), uint64(s.geo.Threads)))
}

// HighProcs is one above the highest process slot ever claimed, never more than there are.
func (s *Segment) HighProcs() int {
	return int(min(uint64(s.Header().ProcsHigh.Load()), uint64(s.geo.Procs)))
}

// Text is what a NUL-padded array of a slot or record says.
func Text(b []byte) string {
	for i, c := range b {
		if c == 0 {
			return string(b[:i])
		}
	}
	return string(b)
}
