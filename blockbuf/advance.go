// Advancing: how a slot leaves a block and opens, or borrows, another one.

package blockbuf

// advance makes the slot's word differ from cur, whose block has no room for need bytes: this thread opens a
// block for the slot, or finds that another one has. (Paper, 3.3 and 3.4.)
func (b *Buffer) advance(s *slot, cur, need uint64) error {
	if posOf(cur) > 0 {
		b.closeBlock(lowOf(cur), posOf(cur), s) // nobody else may be left to fill it
	}
	if Mapping(b.shape.mapping).borrowing() && b.borrow(s, cur, need) {
		return nil
	}
	// With the paper's mapping each stuck writer costs 1 position in A.
	for range 2*len(b.active) + 2 {
		if b.isClosed() {
			return ErrClosed
		}
		if s.word.load() != cur {
			return nil
		}
		block, pos, before, err := b.open(s)
		if err != nil {
			return err
		}
		if pos == 0 {
			continue
		}
		if s.word.cas(cur, pack(pos, block)) {
			s.opened.v.Add(1)
			b.closeLagging(s, pos, before)
			if last := posOf(cur); last > 0 && pos-last >= max(b.ctl.lag.load()/2, 1) && Mapping(b.shape.mapping).borrowing() {
				s.borrows.store(pack(pos, 1))
			}
			return nil
		}
		b.closeBlock(block, pos, s) // another writer of the slot was quicker
		s.overtaken.v.Add(1)
		return nil
	}
	return ErrHeld
}

// open takes the next position and a block for it. It also returns the entry of the active table that this
// replaced. A position of 0 means that it has to be tried again.
func (b *Buffer) open(s *slot) (block, pos, before uint64, err error) {
	if Mapping(b.shape.mapping).late() {
		// The block first: a thread that is not scheduled here has no position that others pass.
		if block, err = b.claim(s); err != nil {
			return 0, 0, 0, err
		}
		if pos, err = b.takePosition(); err != nil {
			m := &b.metas[block]
			m.conf.store(pack(posOf(m.conf.load()), b.cap)) // as it was
		}
	} else {
		block, pos, err = b.claimMapped(s)
	}
	if pos == 0 || err != nil {
		return 0, 0, 0, err
	}
	m := &b.metas[block]
	m.tag.store(m.tag.load() + 1)
	m.conf.store(pack(pos, 0))
	m.alloc.store(pack(pos, 0)) // from here on there is room; nobody knows yet

	// The active table says which positions are open, and is what a position must get past to be opened: one
	// that was sealed, or overtaken by the next to use its entry, must not appear any more behind the reader.
	entry := &b.active[pos%uint64(len(b.active))]
	before = entry.load()
	for posOf(before) < pos && !entry.cas(before, pack(pos, block)) {
		before = entry.load()
	}
	if posOf(before) >= pos {
		b.closeBlock(block, pos, s)
		s.overtaken.v.Add(1)
		return 0, 0, 0, nil
	}
	return block, pos, before, nil
}

func (b *Buffer) takePosition() (uint64, error) {
	pos := b.ctl.next.add(1) - 1
	if pos >= maxPos {
		b.ctl.next.add(^uint64(0))
		return 0, ErrFull
	}
	return pos, nil
}

// closeLagging closes the block that was opened lag positions before pos, and that which before, the former
// entry of the active table, names. Only who has opened a block for a slot does so: two writers that open blocks
// for one slot, of which one's is used, could otherwise close each other's for ever. (Paper, 3.4.)
func (b *Buffer) closeLagging(s *slot, pos, before uint64) {
	lag := b.ctl.lag.load()
	if lag < pos {
		if e := b.active[(pos-lag)%uint64(len(b.active))].load(); posOf(e) == pos-lag {
			b.closeEntry(e, s)
		}
	}
	b.closeEntry(before, s)
}

// closeEntry closes the block of an entry of the active table.
func (b *Buffer) closeEntry(e uint64, s *slot) {
	if posOf(e) > 0 && lowOf(e) < uint64(len(b.metas)) && b.closeBlock(lowOf(e), posOf(e), s) && s != nil {
		s.lagging.v.Add(1)
	}
}

// closeBlock takes what room is left in a block that was opened at pos, if it is still open, and fills it with
// a dummy. It reports whether it did. (Paper, 3.4; the compare-and-swap makes the closer an ordinary writer.)
func (b *Buffer) closeBlock(block, pos uint64, s *slot) bool {
	m := &b.metas[block]
	for {
		a := m.alloc.load()
		if posOf(a) != pos || lowOf(a) >= b.cap || lowOf(a)%headerBytes != 0 {
			return false
		}
		if m.alloc.cas(a, pack(pos, b.cap)) {
			rest := b.cap - lowOf(a)
			storeHeader(b.at(block, lowOf(a)), header(m.tag.load(), int(rest-headerBytes))|flagDummy|flagCommitted)
			m.conf.add(rest)
			if s != nil {
				s.unused.v.Add(rest)
			}
			return true
		}
	}
}

// claim takes the block whose turn it is to be overwritten, and marks it so that readers leave it alone. One
// that is not confirmed keeps its turn for the next time round. The turns are a ring of links, which Resize
// changes; a turn number next to the cursor makes late ones fail.
func (b *Buffer) claim(s *slot) (uint64, error) {
	limit := 2 * min(b.ctl.made.load(), uint64(len(b.metas)))
	for tries := uint64(0); tries < limit; {
		c := b.ctl.cursor.load()
		block := lowOf(c)
		if block >= uint64(len(b.metas)) {
			return 0, ErrCorrupt
		}
		after := b.metas[block].next.load()
		if !b.ctl.cursor.cas(c, pack(posOf(c)+1, after&lowMask)) {
			continue
		}
		if b.claimBlock(block) || b.closeForgotten(block, tries > limit/2, s) && b.claimBlock(block) {
			return block, nil
		}
		tries++
		s.skipped.v.Add(1)
	}
	return 0, ErrHeld
}

// closeForgotten closes a block that is still open though it lags: whoever had to close it has died, or sleeps.
// All blocks may have been passed over already, and one of those that do not lag has to go instead.
func (b *Buffer) closeForgotten(block uint64, any bool, s *slot) bool {
	a := b.metas[block].alloc.load()
	return lowOf(a) < b.cap && (any || b.ctl.next.load()-posOf(a) > b.ctl.lag.load()) && b.closeBlock(block, posOf(a), s)
}

// claimBlock marks a block as being taken, if everything in it is confirmed.
func (b *Buffer) claimBlock(block uint64) bool {
	m := &b.metas[block]
	c := m.conf.load()
	return lowOf(c) == b.cap && m.conf.cas(c, pack(posOf(c), claimed))
}

// claimMapped takes a position and the block that the paper's mapping has for it. A position is skipped, and 0
// returned, unless the one that used its entry of the active table before is confirmed. (Paper, 3.3, 3.5.)
func (b *Buffer) claimMapped(s *slot) (block, pos uint64, err error) {
	if pos, err = b.takePosition(); err != nil {
		return 0, 0, err
	}
	before := b.active[pos%uint64(len(b.active))].load()
	if posOf(before) >= pos {
		return 0, 0, nil
	}
	if k := lowOf(before); posOf(before) > 0 && k < uint64(len(b.metas)) {
		b.closeEntry(before, s)
		if c := b.metas[k].conf.load(); posOf(c) == posOf(before) && lowOf(c) < b.cap {
			s.skipped.v.Add(1)
			return 0, 0, nil
		}
	}
	n := b.ctl.blocks.load()
	if n == 0 || n > uint64(len(b.metas)) {
		return 0, 0, ErrCorrupt
	}
	block = pos % n
	if !b.claimBlock(block) {
		s.skipped.v.Add(1)
		return 0, 0, nil
	}
	return block, pos, nil
}

// retire marks a claimed block as no part of the history's memory.
func (b *Buffer) retire(block uint64) { b.metas[block].conf.store(pack(0, retired)) }

// A slot is slow if a block of its own was open for half of lag, which shows when it opens the next. From then on it joins the
// newest block of anybody, and has to again whenever that is full; being fast again shows in having to do so often.
const rejoins = 16 // within a quarter of lag

// borrow lets a slow slot join the newest block, and reports whether it did. Fast ones look at no word that others write.
func (b *Buffer) borrow(s *slot, cur, need uint64) bool {
	state := s.borrows.load()
	if lowOf(state) == 0 || posOf(cur) == 0 {
		return false
	}
	since, times := posOf(state), lowOf(state)-1
	head := b.ctl.next.load()
	switch {
	case head-since >= b.ctl.lag.load()/4:
		since, times = head, 0
	case times >= rejoins:
		s.borrows.store(0)
		return false
	}
	newest := b.newest(head)
	block := lowOf(newest)
	if posOf(newest) <= posOf(cur) || block >= uint64(len(b.metas)) {
		return false
	}
	if a := b.metas[block].alloc.load(); posOf(a) != posOf(newest) || lowOf(a)+need > b.cap {
		return false
	}
	if s.word.cas(cur, newest) {
		s.borrows.store(pack(since, times+2))
		s.borrowed.v.Add(1)
	}
	return true
}

// newest is the position and block of one of the blocks that were opened last; 0: none of the last few is open yet.
func (b *Buffer) newest(head uint64) uint64 {
	const looks = 3
	for pos := head - 1; pos > 0 && head-pos <= looks; pos-- {
		if e := b.active[pos%uint64(len(b.active))].load(); posOf(e) == pos && lowOf(e) != noBlock {
			return e
		}
	}
	return 0
}

// Seal closes all partly filled blocks, and gives up positions that were taken and are not open yet, so that a
// reader gets everything written up to now.
func (b *Buffer) Seal() {
	head := b.ctl.next.load() // positions below it
	for i := range b.slots {
		s := &b.slots[i]
		if cur := s.word.load(); posOf(cur) > 0 && lowOf(cur) < uint64(len(b.metas)) && b.closeBlock(lowOf(cur), posOf(cur), s) {
			s.sealed.v.Add(1)
		}
	}
	n := uint64(len(b.active))
	for pos := head - min(head-1, n); pos < head; pos++ {
		b.giveUp(pos)
	}
}

// giveUp closes the block at pos, or makes sure that none is opened there any more. It reports whether there
// cannot be one.
func (b *Buffer) giveUp(pos uint64) (none bool) {
	entry := &b.active[pos%uint64(len(b.active))]
	for {
		e := entry.load()
		if posOf(e) < pos && !entry.cas(e, pack(pos, noBlock)) {
			continue
		}
		if posOf(e) <= pos {
			b.closeEntry(e, nil)
		}
		return posOf(e) < pos || e == pack(pos, noBlock)
	}
}
