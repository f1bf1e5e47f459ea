// Package concurrentring carries raw records from the threads of every recorded process to the collector.
// reader.go is the consumer; the producers are the agents, in C, beside this file.
//
// # Design
//
// The ring is K sub-buffers in the session's segment. Each is ring_bytes of data (a power of two) and a
// control block with three words:
//
//	lock   0, or the uid of the thread that writes right now   producers (CAS 0→uid, store 0); ReapLocks
//	head   bytes ever written                                  the producer that holds lock
//	tail   bytes ever consumed                                 the consumer, nobody else
//
// Index packing: head and tail are 64-bit byte counts that only grow; a position in the data is the count's
// low bits (count & (ring_bytes-1)). 2^64 bytes are not reached, and differences are taken modulo 2^64
// anyway. head == tail is empty, head - tail == ring_bytes is full: no slot is given up to tell them apart.
//
// Wraparound: a record is contiguous. Where it does not fit before the end of the data, the producer fills
// the rest with a PAD record, of which only `bytes` and `type` mean anything (the rest may be 8 bytes), and
// publishes both with the same head. Everything is a multiple of 8, so a record's first word never straddles
// the end.
//
// Loss: a producer never waits. A taken lock or a full sub-buffer sends it to the next one; when all K refuse,
// the record is dropped, but its sequence number is used up. So loss travels in the stream: package assemble
// sees the gap in the thread's numbers. A producer that dies while it holds a lock costs the others that
// sub-buffer until ReapLocks; what it had not published is overwritten by the next holder.
//
// Order: within a sub-buffer, records come as they were published. Between sub-buffers there is no order:
// consecutive records of one thread may lie in different ones. A pass (one Drain) loads each head once, so
// a record that was published before a pass began is delivered by that pass at the latest; that is what
// assemble's rule for gaps rests on.
//
// Ordering partners:
//
//	producer: store head, release  →  consumer: load head, acquire   the record's bytes are whole
//	consumer: store tail, release  →  producer: load tail, acquire   the bytes were read before they are reused
//	producer: store lock 0, release → producer: CAS lock, acquire    head and data of the previous holder
//
// Trust: none. Any process of the session can write any word here at any time, control words included.
// So the consumer keeps its tail to itself and only publishes it; it copies head, then checks it; it copies what
// was published out of the ring, a piece at a time, and looks at nothing but the copy. What does not hold costs
// the sub-buffer's present content (tail jumps to head), is counted, and nothing else: no access leaves the
// sub-buffer.
//
// What it deliberately does not do: take locks, wait, or interpret more of a record than its frame.
package concurrentring

import (
	"encoding/binary"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/hbtrace/hbtrace/segment"
)

// Stats counts since NewReader. Bytes include no padding.
type Stats struct {
	Records, Bytes      uint64
	Broken, BrokenBytes uint64 // times a sub-buffer's content made no sense, and the bytes given up for it
	Reaped              uint64 // locks freed because their holder's process was gone, or never began
}

// Reader is the only consumer of a segment's ring. It is not for concurrent use.
type Reader struct {
	seg   *segment.Segment
	subs  []sub
	piece []byte // a copy of some of a sub-buffer
	stats Stats
}

// pieceBytes is how much is copied at a time: many records, yet it stays in the processor's cache.
const pieceBytes = 64 << 10

// sub is one sub-buffer as the reader sees it.
type sub struct {
	ctl  *segment.Subbuf // shared
	data []byte          // shared
	tail uint64          // owned by the reader; ctl.Tail is its publication
	made uint64          // data has its pages up to here
}

// NewReader takes up the ring where its published tails stand.
func NewReader(seg *segment.Segment) *Reader {
	r := &Reader{seg: seg, piece: make([]byte, pieceBytes)}
	for i := range seg.Geometry().Rings {
		ctl := seg.Subbuf(i)
		r.subs = append(r.subs, sub{ctl: ctl, data: seg.Ring(i), tail: ctl.Tail.Load()})
		r.subs[i].makeAhead()
	}
	return r
}

// aheadBytes is how much of a sub-buffer has its pages before producers come to it.
const aheadBytes = 128 << 10

// makeAhead has the kernel make the pages that producers are about to write to for the first time. On a virtual machine that
// takes 10 to 20 us a page, which would be a thread's time in the target, between the end of a call and the program's going on. A
// kernel that cannot (before 5.14) leaves it to them.
func (s *sub) makeAhead() {
	size := uint64(len(s.data))
	if s.made >= size || s.made >= s.tail+aheadBytes/2 {
		return
	}
	end := min(size, (s.tail+aheadBytes)&^uint64(os.Getpagesize()-1))
	if unix.Madvise(s.data[s.made:end], unix.MADV_POPULATE_WRITE) != nil {
		end = size
	}
	s.made = end
}

// Stats is what was read and given up so far.
func (r *Reader) Stats() Stats { return r.stats }

// Drain makes one pass: it delivers, sub-buffer by sub-buffer, every record that was published before the
// pass came by, and frees their room. It returns how many records and bytes that were, and publishes the
// collector's heartbeat. rec is a copy, framed as its first word says (24 bytes to MaxRecord, a multiple of
// 8) and otherwise unchecked; it is valid until f returns.
func (r *Reader) Drain(f func(sub int, rec []byte)) (n, bytes int) {
	for i := range r.subs {
		dn, db := r.drain(i, f)
		n += dn
		bytes += db
	}
	r.stats.Records += uint64(n)
	r.stats.Bytes += uint64(bytes)
	r.seg.Header().HeartbeatNs.Store(uint64(segment.Now()))
	return n, bytes
}

// freeStray frees a lock that names a holder with a uid that was never given: some process has written over it, and no
// producer would take the sub-buffer again. Uids are given before they are used, so the order of the loads makes it certain.
func (r *Reader) freeStray(lock *atomic.Uint32) {
	holder, h := lock.Load(), r.seg.Header()
	if holder == 0 || holder == segment.UIDClaiming {
		return
	}
	threads, procs := h.NextThreadUID.Load(), h.NextProcUID.Load()
	if threads == 0 || holder <= threads || holder <= procs {
		return
	}
	if lock.CompareAndSwap(holder, 0) {
		r.stats.Reaped++
	}
}

func (r *Reader) drain(i int, f func(sub int, rec []byte)) (n, bytes int) {
	r.freeStray(&r.subs[i].ctl.Lock)
	s := &r.subs[i]
	size := uint64(len(s.data))
	// Room is given back in steps: each is a store to a line that all producers read.
	step := size / 16
	published := s.tail
	head := s.ctl.Head.Load() // acquire: partner of the producer's publication
	for s.tail != head {
		used := head - s.tail
		pos := s.tail & (size - 1)
		if used > size || (used|pos)&7 != 0 {
			r.giveUp(s, head)
			break
		}
		// A record of any length that begins here is whole in the piece, unless the data or what is published end.
		piece := r.piece[:copy(r.piece, s.data[pos:min(pos+used, size)])]
		took, dn, db, ok := deliver(piece, i, f)
		n += dn
		bytes += db
		s.tail += uint64(took)
		if !ok || took == 0 {
			r.giveUp(s, head)
			break
		}
		if s.tail-published >= step {
			s.ctl.Tail.Store(s.tail) // release: partner of the producer's look for room
			published = s.tail
		}
	}
	s.makeAhead()
	// Also when nothing was read: a tail that somebody scribbled on could make producers see a full
	// sub-buffer for ever.
	if s.ctl.Tail.Load() != s.tail {
		s.ctl.Tail.Store(s.tail)
	}
	return n, bytes
}

// deliver calls f for the records in a piece, and says how many bytes it took. A record that is cut off by the
// piece's end is left for the next one; not ok means that the rest makes no sense.
func deliver(piece []byte, sub int, f func(sub int, rec []byte)) (took, n, bytes int, ok bool) {
	for took < len(piece) {
		rest := piece[took:]
		word := binary.LittleEndian.Uint64(rest)
		length, ok := frame(word)
		if !ok {
			return took, n, bytes, false
		}
		if length > len(rest) {
			return took, n, bytes, true
		}
		if recType(word) != segment.RecTypePad {
			f(sub, rest[:length:length])
			n++
			bytes += length
		}
		took += length
	}
	return took, n, bytes, true
}

// frame is the length of the record that begins with word; false when it makes no sense.
func frame(word uint64) (length int, ok bool) {
	bytes := uint32(word)
	if bytes&7 != 0 || bytes > segment.MaxRecord {
		return 0, false
	}
	if recType(word) == segment.RecTypePad {
		return int(bytes), bytes >= 8
	}
	return int(bytes), bytes >= segment.RecBytes
}

// recType is the record type in a record's first word (layout.h struct hb_rec: bytes, type, flags, hook).
func recType(word uint64) uint8 { return uint8(word >> 32) }

// giveUp jumps over everything up to head.
func (r *Reader) giveUp(s *sub, head uint64) {
	r.stats.Broken++
	// Where head itself is nonsense, no more than a sub-buffer's worth can have been lost.
	r.stats.BrokenBytes += min(head-s.tail, uint64(len(s.data)))
	s.tail = head
}

// ReapLocks frees the locks whose holder is dead, and says how many. alive must say false only of a thread
// whose whole process is known to be gone: a live holder would then share the sub-buffer with another. A lock
// held under UIDClaiming, by a thread that has no uid yet, names nobody and is left alone.
func (r *Reader) ReapLocks(alive func(threadUID uint32) bool) int {
	n := 0
	for i := range r.subs {
		lock := &r.subs[i].ctl.Lock
		// Thread uids are never given twice, so the CAS cannot free a later holder's lock.
		if holder := lock.Load(); holder != 0 && holder != segment.UIDClaiming && !alive(holder) && lock.CompareAndSwap(holder, 0) {
			n++
		}
	}
	r.stats.Reaped += uint64(n)
	return n
}
