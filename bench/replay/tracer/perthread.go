package tracer

import "encoding/binary"

// perthread.go: a ring for each thread, after VampirTrace: no contention at all, and a share of the buffer for
// each thread that ever wrote. The thread itself drops its oldest records to make room.

type perThread struct {
	rings []threadRing
}

type threadRing struct {
	mem        []byte
	head, tail int // bytes ever written and dropped, owned by the thread
	_          [24]byte
}

const (
	threadHeader = 4
	threadPad    = 1 << 31 // a header with this bit fills the ring's end
	threadLeast  = 512     // bytes: a few records
)

func newPerThread(c Config) (Tracer, error) {
	t := &perThread{rings: make([]threadRing, c.Threads)}
	each := max(c.Bytes/c.Threads&^3, threadLeast)
	for i := range t.rings {
		t.rings[i].mem = touched(each)
	}
	return t, nil
}

func (t *perThread) Producer(_, thread int) Producer { return &t.rings[thread] }

func (r *threadRing) Write(p []byte) bool {
	need := align(len(p)+threadHeader, 4)
	if rest := len(r.mem) - r.head%len(r.mem); rest < need {
		r.free(rest)
		binary.LittleEndian.PutUint32(r.mem[r.head%len(r.mem):], uint32(rest)|threadPad)
		r.head += rest
	}
	r.free(need)
	at := r.head % len(r.mem)
	binary.LittleEndian.PutUint32(r.mem[at:], uint32(len(p)))
	copy(r.mem[at+threadHeader:], p)
	r.head += need
	return true
}

// free drops the oldest records until n bytes are free.
func (r *threadRing) free(n int) {
	for r.head+n-r.tail > len(r.mem) {
		_, took := r.at(r.tail)
		r.tail += took
	}
}

// at is the record there, nil for filling, and the bytes that it takes.
func (r *threadRing) at(pos int) (p []byte, took int) {
	pos %= len(r.mem)
	n := binary.LittleEndian.Uint32(r.mem[pos:])
	if n&threadPad != 0 {
		return nil, int(n &^ threadPad)
	}
	return r.mem[pos+threadHeader:][:n], align(int(n)+threadHeader, 4)
}

func (t *perThread) Walk(f func(p []byte)) error {
	for i := range t.rings {
		r := &t.rings[i]
		for at := r.tail; at < r.head; {
			p, took := r.at(at)
			if p != nil {
				f(p)
			}
			at += took
		}
	}
	return nil
}

func (t *perThread) Footprint(n int) int      { return align(n+threadHeader, 4) }
func (t *perThread) Counters() map[string]int { return map[string]int{"rings": len(t.rings)} }
func (t *perThread) Close() error             { return nil }
