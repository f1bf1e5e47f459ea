package tracer

import (
	"encoding/binary"
	"sync/atomic"
)

// percore.go: a ring for each core, shared by the threads that run there: what LTTng-UST does, and ftrace
// where it cannot switch preemption off. The ring is cut into sub-buffers that are overwritten whole.
//
// Room is taken by compare-and-swap on the ring's position. A record does not straddle sub-buffers: whoever
// finds too little room closes the sub-buffer with a zero length, and confirms the rest of it with its own
// move to the next. A sub-buffer is overwritten only once every byte of its last use was confirmed; while a
// writer was preempted in the middle of it, the newest records are dropped.

const (
	subBytes   = 4096
	coreHeader = 4 // length of the record, before it
)

type perCore struct {
	rings []coreRing
}

type coreRing struct {
	position  atomic.Uint64 // bytes ever taken, closed rests included
	dropped   atomic.Uint64
	_         [48]byte
	confirmed []paddedCount // for each sub-buffer: bytes ever confirmed
	mem       []byte
	size      uint64
}

type paddedCount struct {
	atomic.Uint64
	_ [56]byte
}

func newPerCore(c Config) (Tracer, error) {
	t := &perCore{rings: make([]coreRing, c.Cores)}
	for i := range t.rings {
		r := &t.rings[i]
		r.size = uint64(c.Bytes / c.Cores / subBytes * subBytes)
		r.mem = touched(int(r.size))
		r.confirmed = make([]paddedCount, r.size/subBytes)
	}
	return t, nil
}

// touched is memory whose pages are all there: a tracer's first pass must not pay for page faults.
func touched(n int) []byte {
	mem := make([]byte, n)
	for i := 0; i < n; i += 4096 {
		mem[i] = 1
	}
	clear(mem)
	return mem
}

func (t *perCore) Producer(core, _ int) Producer { return &coreProducer{&t.rings[core]} }

type coreProducer struct{ r *coreRing }

func (p *coreProducer) Write(rec []byte) bool {
	off, n, ok := p.r.take(len(rec))
	if !ok {
		return false
	}
	binary.LittleEndian.PutUint32(p.r.mem[off:], uint32(len(rec)))
	copy(p.r.mem[off+coreHeader:], rec)
	p.r.confirmed[off/subBytes].Add(n)
	return true
}

func (p *coreProducer) Reserve(n int) ([]byte, func(), bool) {
	off, took, ok := p.r.take(n)
	if !ok {
		return nil, nil, false
	}
	room := p.r.mem[off+coreHeader : off+coreHeader+uint64(n)]
	return room, func() {
		binary.LittleEndian.PutUint32(p.r.mem[off:], uint32(n))
		p.r.confirmed[off/subBytes].Add(took)
	}, true
}

// take gives room for a record of n bytes at mem[off], took bytes with its header; they are to be confirmed.
func (r *coreRing) take(n int) (off, took uint64, ok bool) {
	need := uint64(align(n+coreHeader, 4))
	for {
		at := r.position.Load()
		rest := subBytes - at%subBytes
		if need <= rest && at%subBytes != 0 {
			if r.position.CompareAndSwap(at, at+need) {
				return at % r.size, need, true
			}
			continue
		}
		// The next sub-buffer, whose last use must be over. A position on the boundary has used up the last one.
		next := at
		if at%subBytes != 0 {
			next = at + rest
		}
		index := next % r.size / subBytes
		if r.confirmed[index].Load() != next/r.size*subBytes {
			r.dropped.Add(1)
			return 0, 0, false
		}
		if !r.position.CompareAndSwap(at, next+need) {
			continue
		}
		if next != at {
			if rest >= coreHeader {
				binary.LittleEndian.PutUint32(r.mem[at%r.size:], 0)
			}
			r.confirmed[at%r.size/subBytes].Add(rest)
		}
		return next % r.size, need, true
	}
}

func (t *perCore) Walk(f func(p []byte)) error {
	for i := range t.rings {
		r := &t.rings[i]
		end := r.position.Load()
		at := uint64(0)
		if whole := (end + subBytes - 1) / subBytes * subBytes; whole > r.size {
			at = whole - r.size
		}
		for at < end {
			rest := subBytes - at%subBytes
			n := uint64(0)
			if rest >= coreHeader {
				n = uint64(binary.LittleEndian.Uint32(r.mem[at%r.size:]))
			}
			if n == 0 {
				at += rest
				continue
			}
			f(r.mem[at%r.size+coreHeader:][:n])
			at += uint64(align(int(n)+coreHeader, 4))
		}
	}
	return nil
}

func (t *perCore) Footprint(n int) int { return align(n+coreHeader, 4) }

func (t *perCore) Counters() map[string]int {
	d := 0
	for i := range t.rings {
		d += int(t.rings[i].dropped.Load())
	}
	return map[string]int{"dropped": d}
}

func (t *perCore) Close() error { return nil }
