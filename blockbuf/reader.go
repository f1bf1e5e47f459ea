// Reading the history: cursors, snapshots, and the records of a block.

package blockbuf

import (
	"encoding/binary"
	"slices"
	"sort"
)

// Block is a copy of one block of the history.
type Block struct {
	Pos  uint64 // its position; positions grow by 1 from block to block, starting at 1
	Data []byte // its records, each behind its length: use Records
	Lost uint64 // positions just before Pos that could not be read: overwritten, or held by a writer
}

// Records calls f for the block's records in the order in which room was made for them, until f returns false.
// It reports whether Data was well formed, which it is unless somebody changed it.
func (k Block) Records(f func([]byte) bool) bool {
	for p := k.Data; len(p) > 0; {
		n, m := binary.Uvarint(p)
		if m <= 0 || n > uint64(len(p)-m) {
			return false
		}
		if !f(p[m : m+int(n) : m+int(n)]) {
			return true
		}
		p = p[m+int(n):]
	}
	return true
}

// Reader goes through the history from the oldest block to the newest. It is for one goroutine at a time;
// readers do not disturb one another.
type Reader struct {
	buf    *Buffer
	cursor uint64 // the last position that was returned or given up
	lost   uint64
	data   []byte
}

// NewReader returns a reader in front of the oldest block that there is: what was overwritten before counts as
// lost for nobody.
func (b *Buffer) NewReader() *Reader {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := &Reader{buf: b, cursor: b.head}
	if len(b.live) > 0 {
		r.cursor = b.live[0].pos - 1
	}
	return r
}

// Next returns the next closed block, in order of positions; false when there is none yet. It stops in front
// of a block that is being filled ([Buffer.Seal] closes it) or that holds an uncommitted record; the latter it
// gives up, counting it as lost, once half a buffer of newer blocks exists. Data is valid until the next call.
func (r *Reader) Next() (Block, bool) {
	b := r.buf
	b.mu.Lock()
	i := sort.Search(len(b.live), func(i int) bool { return b.live[i].pos > r.cursor })
	for i < len(b.live) && b.live[i].pending > 0 && b.head-b.live[i].pos >= uint64(b.blocks/2) {
		i++
	}
	if i == len(b.live) || b.live[i].slot != nil || b.live[i].pending > 0 {
		b.mu.Unlock()
		return Block{}, false
	}
	k := b.live[i]
	blk := Block{Pos: k.pos, Lost: k.pos - r.cursor - 1}
	r.data = b.copyOut(k, r.data[:0])
	b.mu.Unlock()
	blk.Data = r.data
	r.cursor = blk.Pos
	r.lost += blk.Lost
	return blk, true
}

// Lost is how many positions this reader did not get because they were overwritten, or given up, before it
// came to them. Those that it has not come to yet do not count. A sole reader that has come to the end, after
// Seal, knows the records lost, too: Stats().Records less those that it read.
func (r *Reader) Lost() uint64 { return r.lost }

// copyOut appends k's records to dst. The caller holds mu, which is released meanwhile: k is held instead, so
// that producers pass it over.
func (b *Buffer) copyOut(k *block, dst []byte) []byte {
	n := k.used
	k.readers++
	b.pinned++
	b.mu.Unlock()
	dst = append(dst, k.data[:n]...)
	b.mu.Lock()
	k.readers--
	b.unpin(k)
	return dst
}

// Snapshot returns a copy of the whole history, partly filled blocks included and left open, oldest first. Blocks
// with an uncommitted record are left out and show as Lost of the next one.
func (b *Buffer) Snapshot() []Block {
	b.mu.Lock()
	defer b.mu.Unlock()
	var (
		blocks []Block
		cursor uint64
	)
	if len(b.live) > 0 {
		cursor = b.live[0].pos - 1
	}
	// live changes whenever copyOut lets go of mu, so look for the next position each time.
	for last := b.head; cursor < last; {
		i := sort.Search(len(b.live), func(i int) bool { return b.live[i].pos > cursor })
		skip := slices.IndexFunc(b.live[i:], func(k *block) bool { return k.pending == 0 })
		if skip < 0 || b.live[i+skip].pos > last {
			break
		}
		k := b.live[i+skip]
		blk := Block{Pos: k.pos, Lost: k.pos - cursor - 1}
		blk.Data = b.copyOut(k, nil)
		blocks = append(blocks, blk)
		cursor = blk.Pos
	}
	return blocks
}
