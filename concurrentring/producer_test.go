// producer_test.go is a producer in Go that follows the agents' protocol, for tests only.
package concurrentring

import (
	"encoding/binary"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/hbtrace/hbtrace/segment"
)

func newSegment(t testing.TB, rings, ringBytes int) *segment.Segment {
	t.Helper()
	s, err := segment.Create(segment.Config{Threads: 4, Procs: 2, Rings: rings, RingBytes: ringBytes})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// producer is one thread's hand on the ring.
type producer struct {
	seg   *segment.Segment
	uid   uint32
	start int
	seq   uint32
	lost  int
}

// record makes a whole record of n bytes whose payload says who wrote it and at which place.
func (p *producer) record(n int) []byte {
	rec := make([]byte, n)
	h := segment.Rec{Bytes: uint32(n), Type: segment.RecTypeSample, Thread: p.uid, Seq: p.seq}
	h.Encode(rec)
	for i := segment.RecBytes; i < n; i += 8 {
		binary.LittleEndian.PutUint64(rec[i:], payload(p.uid, p.seq, i))
	}
	p.seq++
	return rec
}

func payload(uid, seq uint32, at int) uint64 {
	return (uint64(uid)<<40 ^ uint64(seq)<<8 ^ uint64(at)) * 0x9e3779b97f4a7c15
}

// put tries every sub-buffer once; a record that none takes is lost.
func (p *producer) put(rec []byte) bool {
	rings := p.seg.Geometry().Rings
	for k := range rings {
		if p.try((p.start+k)%rings, rec) {
			return true
		}
	}
	p.lost++
	return false
}

func (p *producer) try(sub int, rec []byte) bool {
	ctl, data := p.seg.Subbuf(sub), p.seg.Ring(sub)
	if !ctl.Lock.CompareAndSwap(0, p.uid) {
		return false
	}
	defer ctl.Lock.Store(0)
	size := uint64(len(data))
	head := ctl.Head.Load()
	pos := head & (size - 1)
	need := uint64(len(rec))
	pad := uint64(0)
	if room := size - pos; room < need {
		pad = room
	}
	if head+pad+need-ctl.Tail.Load() > size {
		return false
	}
	if pad > 0 {
		putWord(data, pos, pad|uint64(segment.RecTypePad)<<32)
		pos = 0
	}
	copy(data[pos:], rec)
	ctl.Head.Store(head + pad + need)
	return true
}

// putWord stores atomically what the consumer loads atomically.
func putWord(data []byte, pos, word uint64) {
	atomic.StoreUint64((*uint64)(unsafe.Pointer(&data[pos])), word)
}
