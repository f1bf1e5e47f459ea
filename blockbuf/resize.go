// Resizing while producers write, and giving memory back.

package blockbuf

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
)

// Resize changes the size of the history to that many bytes, rounded up as Options.Bytes is. Growing loses
// nothing. Shrinking drops the oldest blocks and gives their memory back to the system; those that are held by
// uncommitted records stay, and if there are too few others, Resize returns ErrHeld and what Stats tells is what
// was reached: call it again later. Producers and readers go on meanwhile. Only the process that made the buffer
// can resize it.
//
// Memory is reclaimed implicitly (paper, 4): a block is given back only after it was claimed like one to be
// overwritten, and what can be claimed is confirmed in whole, so that nobody writes to it any more; a late
// allocation or closing fails at its compare-and-swap, as always. Readers may still copy zeros from it, and find
// out when they check. Its metadata stays for ever.
func (b *Buffer) Resize(bytes int) error {
	b.resize.Lock()
	defer b.resize.Unlock()
	if b.isClosed() {
		return ErrClosed
	}
	if !b.owner {
		return errors.New("resizing a block buffer: only the process that made it can")
	}
	want := b.shape.whole((max(bytes, 0) + int(b.cap) - 1) / int(b.cap))
	if err := b.shape.checkBlocks(want); err != nil {
		return fmt.Errorf("resizing a block buffer: %w", err)
	}
	var err error
	switch have := b.ctl.blocks.load(); {
	case !Mapping(b.shape.mapping).late():
		err = b.resizeMapped(have, uint64(want))
	case uint64(want) > have:
		b.grow(have, uint64(want))
	default:
		err = b.shrink(have, uint64(want))
	}
	if err != nil {
		return fmt.Errorf("resizing a block buffer to %d bytes: %w", want*int(b.cap), err)
	}
	return nil
}

// setBlocks publishes the number of blocks.
func (b *Buffer) setBlocks(n uint64) {
	b.ctl.blocks.store(n)
	b.ctl.lag.store(b.lagOf(n))
}

// grow puts blocks that are out of use into the ring, in front of the one whose turn it is.
func (b *Buffer) grow(have, want uint64) {
	made := b.ctl.made.load()
	var add []uint64
	for k := uint64(0); k < made && uint64(len(add)) < want-have; k++ {
		if b.isRetired(k) {
			add = append(add, k)
		}
	}
	if fresh := want - have - uint64(len(add)); fresh > 0 {
		add = append(add, spread(made, made+fresh)...)
		made += fresh
	}
	if len(add) == 0 {
		return
	}
	for i, k := range add {
		b.putInUse(k)
		if i > 0 {
			b.metas[add[i-1]].next.store(k)
		}
	}
	b.ctl.made.store(made)
	b.setBlocks(want)
	for {
		c := b.ctl.cursor.load()
		turn := b.inRing(lowOf(c))
		b.metas[add[len(add)-1]].next.store(turn)
		if !b.ctl.cursor.cas(c, pack(posOf(c)+1, add[0])) {
			continue
		}
		// The turn goes through the new blocks now; next time round it has to, too.
		k := turn
		for b.metas[k].next.load() != turn {
			k = b.metas[k].next.load()
		}
		b.metas[k].next.store(add[0])
		return
	}
}

// shrink takes blocks out of the ring, those first whose turn comes first.
func (b *Buffer) shrink(have, want uint64) error {
	b.ctl.lag.store(b.lagOf(want))
	var (
		out []uint64
		err error
	)
	for have-uint64(len(out)) > want && err == nil {
		var k uint64
		if k, err = b.claim(&b.slots[0]); err == nil {
			b.retire(k)
			out = append(out, k)
		}
	}
	b.setBlocks(have - uint64(len(out)))
	// A producer may be at a block that is out, or come to one by a link that it has just loaded. The links of
	// those lead on, in the end to a block in the ring: each names one that went out later, or not at all.
	begin := b.inRing(lowOf(b.ctl.cursor.load()))
	for k := begin; ; {
		after := b.inRing(b.metas[k].next.load())
		b.metas[k].next.store(after)
		if k = after; k == begin {
			break
		}
	}
	return errors.Join(err, b.discard(out))
}

// inRing is k, or where the links lead to from it, if it is out of the ring.
func (b *Buffer) inRing(k uint64) uint64 {
	for b.isRetired(k) {
		k = b.metas[k].next.load()
	}
	return k
}

// resizeMapped changes N of the paper's mapping. Blocks from N on are out. What the others hold stays where it is,
// which is not always the newest: in the paper as here position G is in block G mod N.
func (b *Buffer) resizeMapped(have, want uint64) error {
	made := max(b.ctl.made.load(), want)
	for k := have; k < want; k++ {
		if b.isRetired(k) || b.metas[k].conf.load() == 0 {
			b.putInUse(k)
		}
	}
	b.ctl.made.store(made)
	b.setBlocks(want)
	var (
		out []uint64
		err error
	)
	for k := want; k < made; k++ {
		m := &b.metas[k]
		for range patience { // a producer may have taken it before it could see the new size
			b.closeBlock(k, posOf(m.alloc.load()), nil)
			if b.claimBlock(k) {
				b.retire(k)
			}
			if c := m.conf.load(); c == 0 || lowOf(c) == retired {
				break
			}
			runtime.Gosched()
		}
		switch {
		case b.isRetired(k):
			out = append(out, k)
		case m.conf.load() != 0:
			err = ErrHeld
		}
	}
	return errors.Join(err, b.discard(out))
}

func (b *Buffer) isRetired(k uint64) bool { return lowOf(b.metas[k].conf.load()) == retired }

// putInUse makes a block look used up, ready to be claimed.
func (b *Buffer) putInUse(k uint64) {
	b.metas[k].alloc.store(pack(0, b.cap))
	b.metas[k].conf.store(pack(0, b.cap))
}

// discard gives the memory of blocks back.
func (b *Buffer) discard(out []uint64) error {
	slices.Sort(out)
	for len(out) > 0 {
		n := 1
		for n < len(out) && out[n] == out[0]+uint64(n) {
			n++
		}
		if err := b.mem.discard(out[0]*b.cap, uint64(n)*b.cap); err != nil {
			return fmt.Errorf("giving memory back: %w", err)
		}
		out = out[n:]
	}
	return nil
}
