package tracer

import (
	"encoding/binary"
	"sync/atomic"
	"syscall"
)

// bbq.go: one global queue of blocks, after BBQ in its overwriting mode (Wang et al., "BBQ: A Block-based
// Bounded Queue for Exchanging Data and Profiling", USENIX ATC '22), with records of any length.
//
// Everybody writes into the same block, the head. Room is taken by fetch-and-add on the block's allocated word
// and confirmed by fetch-and-add on its committed word; both pack round<<32 | bytes. Whoever finds the block
// full opens the next one for all. It may do so only when that block's last round is wholly committed: a
// writer preempted in the middle blocks everybody once the queue has come round.

const (
	bbqBlock  = 4096
	bbqHeader = 4
)

type bbq struct {
	head    atomic.Uint64 // blocks ever opened, less one: block head % len, round head / len
	_       [56]byte
	blocked atomic.Uint64 // times that a producer had to wait
	_       [56]byte
	blocks  []bbqWords
	mem     []byte
}

type bbqWords struct {
	allocated atomic.Uint64
	_         [56]byte
	committed atomic.Uint64
	_         [56]byte
}

func newBBQ(c Config) (Tracer, error) {
	n := c.Bytes / bbqBlock
	q := &bbq{blocks: make([]bbqWords, n), mem: touched(n * bbqBlock)}
	// All but the first look as if round -1 had filled them, in the arithmetic of their round field.
	for i := 1; i < n; i++ {
		last := uint64(1<<32-1)<<32 | bbqBlock
		q.blocks[i].allocated.Store(last)
		q.blocks[i].committed.Store(last)
	}
	return q, nil
}

func (q *bbq) Producer(_, _ int) Producer { return q }

func (q *bbq) Write(p []byte) bool {
	at, b := q.take(len(p))
	binary.LittleEndian.PutUint32(q.mem[at:], uint32(len(p)))
	copy(q.mem[at+bbqHeader:], p)
	b.committed.Add(uint64(q.Footprint(len(p))))
	return true
}

func (q *bbq) Reserve(n int) ([]byte, func(), bool) {
	at, b := q.take(n)
	binary.LittleEndian.PutUint32(q.mem[at:], uint32(n))
	return q.mem[at+bbqHeader:][:n], func() { b.committed.Add(uint64(q.Footprint(n))) }, true
}

// take gives room for a record of n bytes at mem[at], in block b.
func (q *bbq) take(n int) (at int, b *bbqWords) {
	need := uint64(q.Footprint(n))
	for {
		head := q.head.Load()
		index := head % uint64(len(q.blocks))
		b = &q.blocks[index]
		// Look before adding, or waiting producers would carry the sum into the round.
		if uint32(b.allocated.Load()) < bbqBlock {
			pos := uint64(uint32(b.allocated.Add(need) - need))
			if pos+need <= bbqBlock {
				return int(index*bbqBlock + pos), b
			}
			if pos < bbqBlock { // the one that ran over the end owns what is left
				if bbqBlock-pos >= bbqHeader {
					binary.LittleEndian.PutUint32(q.mem[index*bbqBlock+pos:], 0)
				}
				b.committed.Add(bbqBlock - pos)
			}
		}
		q.advance(head)
	}
}

// advance opens the block after head, or waits until it may be overwritten.
func (q *bbq) advance(head uint64) {
	n := uint64(len(q.blocks))
	next := head + 1
	b, round := &q.blocks[next%n], next/n
	committed := b.committed.Load()
	if uint32(committed>>32) == uint32(round-1) && uint32(committed) != bbqBlock {
		q.blocked.Add(1)
		syscall.RawSyscall(syscall.SYS_SCHED_YIELD, 0, 0, 0)
		return
	}
	// The order matters: who sees the new allocated word must find the committed word of its round.
	raise(&b.committed, round)
	raise(&b.allocated, round)
	q.head.CompareAndSwap(head, next)
}

// raise sets the word to (round, 0) unless it is there already.
func raise(word *atomic.Uint64, round uint64) {
	for {
		w := word.Load()
		if int32(uint32(round)-uint32(w>>32)) <= 0 || word.CompareAndSwap(w, round<<32) {
			return
		}
	}
}

func (q *bbq) Walk(f func(p []byte)) error {
	n := uint64(len(q.blocks))
	head := q.head.Load()
	first := uint64(0)
	if head >= n {
		first = head - n + 1
	}
	for g := first; g <= head; g++ {
		i := g % n
		end := min(uint64(uint32(q.blocks[i].allocated.Load())), bbqBlock)
		for at := uint64(0); at+bbqHeader <= end; {
			l := uint64(binary.LittleEndian.Uint32(q.mem[i*bbqBlock+at:]))
			if l == 0 {
				break
			}
			f(q.mem[i*bbqBlock+at+bbqHeader:][:l])
			at += uint64(q.Footprint(int(l)))
		}
	}
	return nil
}

func (q *bbq) Footprint(n int) int      { return align(n+bbqHeader, 4) }
func (q *bbq) Counters() map[string]int { return map[string]int{"blocked": int(q.blocked.Load())} }
func (q *bbq) Close() error             { return nil }
