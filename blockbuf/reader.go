// Reading: speculative copies of blocks, checked afterwards; cursors and snapshots over them. Readers never
// make a producer wait. (Paper, 3.6.)

package blockbuf

import (
	"cmp"
	"encoding/binary"
	"slices"
)

// Block is a copy of one block of the history.
type Block struct {
	Pos  uint64 // its position; positions grow from block to block
	Data []byte // its records: use Records
	Lost uint64 // positions just before Pos that were overwritten before they were read
	// Partial: a record in it was reserved and not committed when it was read. It is left out, and so may be
	// what came behind it.
	Partial bool
}

// Records calls f for the block's records in the order in which room was made for them, until f returns false.
// It reports whether Data was well formed, which it is unless somebody changed it.
func (k Block) Records(f func([]byte) bool) bool {
	for p := k.Data; len(p) > 0; {
		if len(p) < headerBytes {
			return false
		}
		h := binary.NativeEndian.Uint32(p)
		n := sized(h)
		if h&flagReserved == 0 || n > uint64(len(p)) {
			return false
		}
		end := headerBytes + h&lengthMask
		if h&flagDummy == 0 && !f(p[headerBytes:end:end]) {
			return true
		}
		p = p[n:]
	}
	return true
}

// state is what a look at a block found.
type state int

const (
	gone    state = iota // overwritten, or never opened
	open                 // has room left
	pending              // has none, but records that are not confirmed
	whole                // all confirmed
)

// look tells the state of the block at pos. Confirmed is loaded before Allocated: if they then agree, nothing
// below was unconfirmed at the time of the second load; the other way round, a record could be confirmed
// between the loads in place of an older one that was not. (Paper, 3.6, has no order.)
func (v *view) look(block, pos uint64) (s state, confirmed, allocated uint64) {
	m := &v.metas[block]
	c := m.conf.load()
	if posOf(c) != pos || lowOf(c) > v.cap {
		return gone, 0, 0
	}
	if lowOf(c) == v.cap {
		return whole, v.cap, v.cap
	}
	a := m.alloc.load()
	if posOf(a) != pos { // not open yet, or gone meanwhile
		return open, 0, 0
	}
	if lowOf(a) < v.cap {
		return open, lowOf(c), lowOf(a)
	}
	return pending, lowOf(c), v.cap
}

// read appends a copy of what is committed of the block at pos. Not ok means that it was overwritten.
func (v *view) read(block, pos uint64, dst []byte) (_ []byte, partial, ok bool) {
	s, confirmed, allocated := v.look(block, pos)
	if s == gone || allocated > v.cap || allocated%4 != 0 {
		return dst, false, false
	}
	start := len(dst)
	if confirmed == allocated {
		dst = slices.Grow(dst, int(allocated))[:start+int(allocated)]
		copyOut(dst[start:], v.at(block, 0))
	} else {
		dst, partial = v.readPartial(block, allocated, dst), true
	}
	// A block that was claimed meanwhile may have been written to while it was copied.
	c := v.metas[block].conf.load()
	if posOf(c) != pos || lowOf(c) > v.cap {
		return dst[:start], false, false
	}
	return dst, partial, true
}

// readPartial appends the committed records among the first allocated bytes of a block, dummies in the place of
// others. Headers are loaded before the bytes: what is committed was written before that. Where there is none, the
// writer has not said yet how much room it has, so that what follows cannot be found.
func (v *view) readPartial(block, allocated uint64, dst []byte) []byte {
	tag := v.metas[block].tag.load()
	for off := uint64(0); off+headerBytes <= allocated; {
		h := loadHeader(v.at(block, off))
		n := sized(h)
		if !valid(h, tag) || off+n > allocated {
			break
		}
		if h&flagCommitted == 0 {
			h |= flagDummy
		}
		dst = binary.NativeEndian.AppendUint32(dst, h)
		at := len(dst)
		dst = slices.Grow(dst, int(n))[:at+int(n-headerBytes)]
		if h&flagDummy == 0 {
			copyOut(dst[at:], v.at(block, off+headerBytes))
		} else {
			clear(dst[at:])
		}
		off += n
	}
	return dst
}

// located is a block of memory and the position that was written to it.
type located struct{ pos, block uint64 }

// locate appends the blocks with positions from lo to below hi, oldest first.
func (v *view) locate(list []located, lo, hi uint64) []located {
	for k := range min(v.ctl.made.load(), uint64(len(v.metas))) {
		if c := v.metas[k].conf.load(); posOf(c) >= lo && posOf(c) < hi && lowOf(c) <= v.cap {
			list = append(list, located{posOf(c), k})
		}
	}
	slices.SortFunc(list, func(a, b located) int { return cmp.Compare(a.pos, b.pos) })
	return list
}

// oldest is a position below which there are only blocks that were passed over when their turn came, being held.
func (v *view) oldest(head uint64) uint64 {
	n := min(v.ctl.blocks.load(), uint64(len(v.metas))) + uint64(len(v.active))
	return head - min(n, head-min(head, 1))
}

// Reader goes through the history from the oldest block to the newest. It is for one goroutine at a time;
// readers do not disturb one another.
type Reader struct {
	buf    *Buffer
	cursor uint64 // the last position that was returned or passed over
	lost   uint64 // positions passed over, ever
	gap    uint64 // of them, since the last block that was returned
	// What the last look at all blocks found from the cursor on, and up to where nothing can have come since.
	list    []located
	settled uint64
	data    []byte
}

// NewReader returns a reader in front of the oldest block that there is: what was overwritten before counts as
// lost for nobody.
func (b *Buffer) NewReader() *Reader {
	head := b.ctl.next.load()
	r := &Reader{buf: b, cursor: head - 1}
	if list := b.locate(nil, b.oldest(head), head); len(list) > 0 {
		r.cursor = list[0].pos - 1
	}
	return r
}

// Next returns the next closed block, in order of positions; false when there is none yet. It stops in front of a
// block that is being filled ([Buffer.Seal] closes it), and of one with a record that is not committed: when half
// a buffer of newer blocks exists, it returns what is committed of that. Data is valid until the next call.
func (r *Reader) Next() (Block, bool) {
	b, looked := r.buf, false
	if b.isClosed() {
		return Block{}, false
	}
	head := b.ctl.next.load()
	if first := b.oldest(head); r.cursor+1 < first {
		r.pass(first - 1 - r.cursor)
	}
	for r.cursor+1 < head {
		pos := r.cursor + 1
		for len(r.list) > 0 && r.list[0].pos < pos {
			r.list = r.list[1:]
		}
		if len(r.list) == 0 || r.list[0].pos > pos {
			switch {
			case pos < r.settled && b.active[pos%uint64(len(b.active))].load() == pack(pos, noBlock):
				r.cursor = pos // given up before it was opened: nothing was there
			case pos < r.settled:
				r.pass(1)
			case looked:
				return Block{}, false // it may still be opened
			default:
				r.look(head)
				looked = true
			}
			continue
		}
		if !b.ready(r.list[0], head) {
			return Block{}, false
		}
		data, partial, ok := b.read(r.list[0].block, pos, r.data[:0])
		r.data = data
		if b.isClosed() { // what was copied may have been given back to the system
			return Block{}, false
		}
		if !ok {
			r.pass(1)
			continue
		}
		k := Block{Pos: pos, Data: data, Lost: r.gap, Partial: partial}
		r.cursor, r.gap = pos, 0
		return k, true
	}
	return Block{}, false
}

// pass goes over positions that cannot be read any more.
func (r *Reader) pass(n uint64) {
	r.cursor += n
	r.gap += n
	r.lost += n
}

// look looks at all blocks for positions behind the cursor and below head.
func (r *Reader) look(head uint64) {
	b := r.buf
	r.settled = r.cursor + 1
	for r.settled < head && b.settle(r.settled, head) {
		r.settled++
	}
	r.list = b.locate(r.list[:0], r.cursor+1, head)
}

// Lost is how many positions this reader did not get because they were overwritten before it came to them.
// Those that it has not come to yet do not count. With the paper's mapping positions that were skipped do.
func (r *Reader) Lost() uint64 { return r.lost }

// settle tells whether a block at pos has been opened, or never will be. It sees to the latter once pos lags.
func (b *Buffer) settle(pos, head uint64) bool {
	if posOf(b.active[pos%uint64(len(b.active))].load()) >= pos {
		return true
	}
	if head-pos <= b.ctl.lag.load() {
		return false
	}
	b.giveUp(pos)
	return true
}

// ready tells whether a reader need not wait for a block any longer. One that lags and is still open is closed:
// who had to do that may have died. (Paper, 3.6: consumers close blocks as producers do.)
func (b *Buffer) ready(at located, head uint64) bool {
	s, _, _ := b.view.look(at.block, at.pos)
	if s == open && head-at.pos > b.ctl.lag.load() {
		b.giveUp(at.pos)
		b.closeBlock(at.block, at.pos, nil)
		s, _, _ = b.view.look(at.block, at.pos)
	}
	return s == whole || s == gone || head-at.pos > max(b.ctl.blocks.load()/2, b.ctl.lag.load())
}

// Snapshot returns a copy of the whole history, oldest block first. Partly filled blocks are in it and stay open.
func (b *Buffer) Snapshot() []Block {
	if b.isClosed() {
		return nil
	}
	blocks := b.snapshot()
	if b.isClosed() { // what was copied may have been given back to the system
		return nil
	}
	return blocks
}

func (v *view) snapshot() []Block {
	head := v.ctl.next.load()
	list := v.locate(nil, v.oldest(head), head)
	blocks := make([]Block, 0, len(list))
	last := uint64(0)
	for _, at := range list {
		data, partial, ok := v.read(at.block, at.pos, nil)
		if !ok {
			continue
		}
		k := Block{Pos: at.pos, Data: data, Partial: partial}
		if len(blocks) > 0 {
			k.Lost = at.pos - last - 1
		}
		last = at.pos
		blocks = append(blocks, k)
	}
	return blocks
}
