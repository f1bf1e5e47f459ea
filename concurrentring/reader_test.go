// reader_test.go: what comes out is what was put in, in order, or is counted as lost; and nothing that the
// other side writes hurts the reader.
package concurrentring

import (
	"encoding/binary"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/hbtrace/hbtrace/segment"
)

// check holds a record against what producer.record made.
func check(t *testing.T, rec []byte) (uid, seq uint32) {
	t.Helper()
	var h segment.Rec
	if !h.Decode(rec) || int(h.Bytes) != len(rec) {
		t.Fatalf("record of %d bytes says %d", len(rec), h.Bytes)
	}
	for i := segment.RecBytes; i < len(rec); i += 8 {
		if got := binary.LittleEndian.Uint64(rec[i:]); got != payload(h.Thread, h.Seq, i) {
			t.Fatalf("thread %d seq %d: damaged at %d", h.Thread, h.Seq, i)
		}
	}
	return h.Thread, h.Seq
}

func TestInOrderAcrossWraps(t *testing.T) {
	seg := newSegment(t, 1, 16384)
	// Start near the top of the counter as well: differences are modulo 2^64.
	for _, start := range []uint64{0, ^uint64(0) - 16384*3 + 1} {
		seg.Subbuf(0).Head.Store(start)
		seg.Subbuf(0).Tail.Store(start)
		r := NewReader(seg)
		p := &producer{seg: seg, uid: 7}
		rng := rand.New(rand.NewPCG(1, 2))
		next := uint32(0)
		put := 0
		for range 2000 {
			for range rng.IntN(5) {
				n := segment.RecBytes + 8*rng.IntN((segment.MaxRecord-segment.RecBytes)/8+1)
				if p.put(p.record(n)) {
					put++
				} else {
					p.seq-- // full: try again later with the same number
				}
			}
			r.Drain(func(_ int, rec []byte) {
				if _, seq := check(t, rec); seq != next {
					t.Fatalf("seq %d, want %d", seq, next)
				}
				next++
			})
		}
		if int(next) != put || put < 2000 || r.Stats().Broken != 0 {
			t.Errorf("start %#x: put %d, got %d, %+v", start, put, next, r.Stats())
		}
	}
}

func TestFillToTheLastByte(t *testing.T) {
	seg := newSegment(t, 1, 16384)
	r := NewReader(seg)
	p := &producer{seg: seg, uid: 1}
	for range 4 {
		if !p.put(p.record(4096)) {
			t.Fatal("refused before it was full")
		}
	}
	if p.put(p.record(24)) {
		t.Fatal("accepted into a full sub-buffer")
	}
	n, bytes := r.Drain(func(_ int, rec []byte) { check(t, rec) })
	if n != 4 || bytes != 16384 {
		t.Errorf("%d records, %d bytes", n, bytes)
	}
	if !p.put(p.record(24)) {
		t.Error("refused after the drain")
	}
	if seg.Header().HeartbeatNs.Load() == 0 {
		t.Error("no heartbeat")
	}
}

// TestShortPad leaves 8 bytes at the end: a PAD shorter than a record's header.
func TestShortPad(t *testing.T) {
	seg := newSegment(t, 1, 16384)
	r := NewReader(seg)
	p := &producer{seg: seg, uid: 1}
	for _, n := range []int{4096, 4096, 4096, 4088} {
		p.put(p.record(n))
	}
	if n, _ := r.Drain(func(_ int, rec []byte) { check(t, rec) }); n != 4 {
		t.Fatalf("%d records", n)
	}
	p.put(p.record(32))
	n, bytes := r.Drain(func(_ int, rec []byte) { check(t, rec) })
	if n != 1 || bytes != 32 || r.Stats().Broken != 0 || seg.Subbuf(0).Tail.Load() != 16384+32 {
		t.Errorf("%d records, %d bytes, tail %d, %+v", n, bytes, seg.Subbuf(0).Tail.Load(), r.Stats())
	}
}

// TestConcurrent runs producers against the reader. Each thread's numbers that arrive are distinct, and
// together with the lost ones they are all there are. HBTRACE_STRESS makes it long.
func TestConcurrent(t *testing.T) {
	const threads = 8
	each := 20000
	if os.Getenv("HBTRACE_STRESS") != "" {
		each = 2000000
	}
	seg := newSegment(t, 4, 65536)
	r := NewReader(seg)
	ps := make([]*producer, threads)
	var wg sync.WaitGroup
	for i := range ps {
		p := &producer{seg: seg, uid: uint32(i + 1), start: i}
		ps[i] = p
		wg.Add(1)
		go func() {
			defer wg.Done()
			rng := rand.New(rand.NewPCG(uint64(p.uid), 1))
			for range each {
				p.put(p.record(segment.RecBytes + 8*rng.IntN(60)))
				if rng.IntN(16) == 0 {
					runtime.Gosched()
				}
			}
		}()
	}
	var done atomic.Bool
	go func() { wg.Wait(); done.Store(true) }()

	seen := make([][]bool, threads+1)
	lastInSub := map[[2]uint32]uint32{}
	for i := range seen {
		seen[i] = make([]bool, each)
	}
	got := 0
	for {
		last := done.Load()
		n, _ := r.Drain(func(sub int, rec []byte) {
			uid, seq := check(t, rec)
			if seen[uid][seq] {
				t.Fatalf("thread %d seq %d twice", uid, seq)
			}
			seen[uid][seq] = true
			key := [2]uint32{uint32(sub), uid}
			if prev, ok := lastInSub[key]; ok && prev >= seq {
				t.Fatalf("sub-buffer %d, thread %d: %d after %d", sub, uid, seq, prev)
			}
			lastInSub[key] = seq
			got++
		})
		if last && n == 0 {
			break
		}
		runtime.Gosched()
	}
	lost := 0
	for _, p := range ps {
		lost += p.lost
	}
	if got+lost != threads*each || r.Stats().Broken != 0 {
		t.Errorf("%d delivered, %d lost of %d; %+v", got, lost, threads*each, r.Stats())
	}
	t.Logf("%d delivered, %d lost", got, lost)
}

func TestBroken(t *testing.T) {
	word := func(bytes, typ uint64) func(*segment.Segment) {
		return func(s *segment.Segment) { putWord(s.Ring(0), 0, bytes|typ<<32) }
	}
	for name, c := range map[string]struct {
		damage func(*segment.Segment)
		lost   uint64
	}{
		"head runs away":     {func(s *segment.Segment) { s.Subbuf(0).Head.Store(16384 + 8) }, 16384},
		"head goes back":     {func(s *segment.Segment) { s.Subbuf(0).Head.Store(^uint64(7)) }, 16384},
		"head unaligned":     {func(s *segment.Segment) { s.Subbuf(0).Head.Store(83) }, 83},
		"no bytes":           {word(0, 4), 80},
		"odd bytes":          {word(41, 4), 80},
		"four bytes":         {word(28, 4), 80},
		"shorter than head":  {word(16, 4), 80},
		"past what is there": {word(88, 4), 80},
		"too large":          {word(segment.MaxRecord+8, 4), 80},
		"past the end":       {word(1<<31, 4), 80},
		"empty pad":          {word(0, 0), 80},
		"pad past the head":  {word(88, 0), 80},
	} {
		t.Run(name, func(t *testing.T) {
			seg := newSegment(t, 2, 16384)
			r := NewReader(seg)
			bad, good := &producer{seg: seg, uid: 1}, &producer{seg: seg, uid: 2, start: 1}
			bad.put(bad.record(40))
			bad.put(bad.record(40))
			good.put(good.record(64))
			c.damage(seg)
			n, _ := r.Drain(func(sub int, rec []byte) {
				if sub != 1 {
					t.Errorf("a record of %d bytes from the broken sub-buffer", len(rec))
				}
			})
			st := r.Stats()
			if n != 1 || st.Broken != 1 || st.BrokenBytes != c.lost {
				t.Errorf("%d records, %+v; want %d bytes lost", n, st, c.lost)
			}
			if tail, head := seg.Subbuf(0).Tail.Load(), seg.Subbuf(0).Head.Load(); tail != head {
				t.Errorf("tail %#x, head %#x: not resynchronised", tail, head)
			}
			if seg.Subbuf(0).Head.Load()&7 != 0 {
				return // nothing can be written there again
			}
			bad.put(bad.record(48))
			if n, _ := r.Drain(func(_ int, rec []byte) { check(t, rec) }); n != 1 {
				t.Errorf("%d records after the resynchronisation", n)
			}
		})
	}
}

func TestScribbledTailIsRepaired(t *testing.T) {
	seg := newSegment(t, 1, 16384)
	r := NewReader(seg)
	p := &producer{seg: seg, uid: 1}
	seg.Subbuf(0).Tail.Store(^uint64(0) - 7) // every producer sees it full
	if p.put(p.record(16 * 256)) {
		seg.Subbuf(0).Head.Store(0)
	}
	r.Drain(func(int, []byte) { t.Error("a record from nowhere") })
	if !p.put(p.record(4096)) {
		t.Error("still full")
	}
}

func TestReapLocks(t *testing.T) {
	seg := newSegment(t, 3, 16384)
	r := NewReader(seg)
	seg.Subbuf(0).Lock.Store(5)
	seg.Subbuf(1).Lock.Store(segment.UIDClaiming)
	seg.Subbuf(2).Lock.Store(6)
	if n := r.ReapLocks(func(uid uint32) bool { return uid == 6 }); n != 1 {
		t.Errorf("%d freed", n)
	}
	if a, b := seg.Subbuf(0).Lock.Load(), seg.Subbuf(2).Lock.Load(); a != 0 || b != 6 || seg.Subbuf(1).Lock.Load() != segment.UIDClaiming {
		t.Errorf("locks %d and %d", a, b)
	}
	if r.Stats().Reaped != 1 {
		t.Errorf("%+v", r.Stats())
	}
}

// TestStrayLock: a lock that was written over is free after the next pass; those of holders that may be are left alone.
func TestStrayLock(t *testing.T) {
	seg := newSegment(t, 4, 16384)
	r := NewReader(seg)
	seg.Header().NextThreadUID.Store(7)
	seg.Header().NextProcUID.Store(9)
	for i, uid := range []uint32{0xdeadbeef, 7, 9, segment.UIDClaiming} {
		seg.Subbuf(i).Lock.Store(uid)
	}
	r.Drain(func(int, []byte) { t.Error("a record from nowhere") })
	for i, want := range []uint32{0, 7, 9, segment.UIDClaiming} {
		if got := seg.Subbuf(i).Lock.Load(); got != want {
			t.Errorf("sub-buffer %d: lock %d, want %d", i, got, want)
		}
	}
	p := &producer{seg: seg, uid: 1}
	if !p.put(p.record(64)) || r.Stats().Reaped != 1 {
		t.Errorf("no room after the pass; %+v", r.Stats())
	}
}

// FuzzHostile gives the other side the whole sub-buffer, control words included, between and during passes.
func FuzzHostile(f *testing.F) {
	f.Add(uint64(80), uint64(0), []byte{40, 0, 0, 0, 4})
	f.Add(uint64(16384), ^uint64(0), []byte{})
	f.Add(^uint64(0)-7, uint64(16), []byte{8, 0, 0, 0, 0, 0, 0, 0, 24, 0, 0, 0, 3})
	f.Fuzz(func(t *testing.T, head, tail uint64, mem []byte) {
		seg := newSegment(t, 2, 16384)
		r := NewReader(seg)
		for pass := range 3 {
			for i := range 2 {
				copy(seg.Ring(i), mem)
				copy(seg.Ring(i)[16384-min(len(mem), 16384):], mem)
				seg.Subbuf(i).Head.Store(head * uint64(pass+1))
				seg.Subbuf(i).Tail.Store(tail)
			}
			left := 2 * 16384
			_, total := r.Drain(func(sub int, rec []byte) {
				if n := len(rec); n < segment.RecBytes || n > segment.MaxRecord || n%8 != 0 {
					t.Fatalf("record of %d bytes", n)
				}
				left -= len(rec)
				// The target goes on scribbling while the pass runs.
				copy(seg.Ring(sub)[len(rec):], mem)
				seg.Subbuf(sub).Head.Add(tail)
			})
			if left < 0 || total > 2*16384 {
				t.Fatalf("one pass delivered %d bytes of 2 × 16384", total)
			}
		}
	})
}

// FuzzNewReaderTail lets the tail be hostile before the reader takes up the ring.
func FuzzNewReaderTail(f *testing.F) {
	f.Add(uint64(3), uint64(24), []byte{24, 0, 0, 0, 4})
	f.Fuzz(func(t *testing.T, tail, used uint64, mem []byte) {
		seg := newSegment(t, 1, 16384)
		seg.Subbuf(0).Tail.Store(tail)
		seg.Subbuf(0).Head.Store(tail + used)
		copy(seg.Ring(0), mem)
		r := NewReader(seg)
		r.Drain(func(int, []byte) {})
		if got := seg.Subbuf(0).Tail.Load(); got != tail+used {
			t.Fatalf("tail %#x after the pass, want the head %#x", got, tail+used)
		}
	})
}

func BenchmarkDrain(b *testing.B) {
	seg := newSegment(b, 1, 1<<20)
	r := NewReader(seg)
	p := &producer{seg: seg, uid: 1}
	rec := p.record(128)
	n := 0
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		for p.put(rec) {
		}
		b.StartTimer()
		got, _ := r.Drain(func(int, []byte) {})
		n += got
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/record")
}
