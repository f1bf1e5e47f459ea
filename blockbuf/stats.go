// What a buffer can tell about itself.

package blockbuf

// Stats is an account of a buffer since it was made. It is made up from many words, one after the other: figures
// of a buffer in use need not agree with one another exactly.
type Stats struct {
	CapBytes  int // size of the history
	MaxBytes  int // the most that it can be resized to
	Blocks    int // blocks that hold something now
	UsedBytes int // bytes of records in them, with their headers and padding, committed or not
	// Fragments is into how many runs of positions without a gap the history falls now. With the paper's
	// mapping skipped positions are gaps.
	Fragments int
	Head      uint64 // the newest position
	Opened    uint64 // blocks opened by and for slots
	Borrowed  uint64 // times that a slot joined another slot's block
	// Blocks closed before they were full: because they lagged, by Seal, and because another writer of the slot,
	// or Seal, had been quicker than the one that opened them.
	Lagging, Sealed, Overtaken uint64
	Skipped                    uint64 // times that a block could not be taken because it was not confirmed
	DummyBytes                 uint64 // bytes at the ends of blocks that were filled with dummies
}

// Utilisation is the part of all memory of closed blocks that went to records rather than to dummies, 0 to 1.
func (s Stats) Utilisation(blockBytes int) float64 {
	total := float64(s.Opened+s.Overtaken) * float64(blockBytes)
	if total == 0 {
		return 0
	}
	return max(0, 1-float64(s.DummyBytes)/total)
}

// Stats counts the buffer.
func (b *Buffer) Stats() Stats { return b.stats() }

func (v *view) stats() Stats {
	head := v.ctl.next.load()
	s := Stats{
		CapBytes: int(v.ctl.blocks.load() * v.cap), MaxBytes: len(v.metas) * int(v.cap), Head: head - 1,
	}
	for i := range v.slots {
		c := &v.slots[i].slotStats
		s.Opened += c.opened.load()
		s.Borrowed += c.borrowed.load()
		s.Lagging += c.lagging.load()
		s.Sealed += c.sealed.load()
		s.Overtaken += c.overtaken.load()
		s.Skipped += c.skipped.load()
		s.DummyBytes += c.unused.load()
	}
	last := uint64(0)
	for _, at := range v.locate(nil, v.oldest(head), head) {
		m := &v.metas[at.block]
		a := m.alloc.load()
		if posOf(a) != at.pos {
			continue
		}
		used := lowOf(a)
		if used == v.cap {
			used = v.described(at.block)
		}
		s.Blocks++
		s.UsedBytes += int(used)
		if last == 0 || at.pos != last+1 {
			s.Fragments++
		}
		last = at.pos
	}
	return s
}

// described is how many bytes of a block come before its dummy.
func (v *view) described(block uint64) uint64 {
	off, tag := uint64(0), v.metas[block].tag.load()
	for off+headerBytes <= v.cap {
		h := loadHeader(v.at(block, off))
		if !valid(h, tag) || h&flagDummy != 0 {
			break
		}
		off += sized(h)
	}
	return min(off, v.cap)
}

// Newest is the newest position that was given out; 0 before the first.
func (b *Buffer) Newest() uint64 { return b.ctl.next.load() - 1 }

// Oldest is the oldest position that can still be read; 0 where there is none. Blocks with lower positions have been
// overwritten. It looks at every block.
func (b *Buffer) Oldest() (pos uint64) {
	for k := range min(b.ctl.made.load(), uint64(len(b.metas))) {
		c := b.metas[k].conf.load()
		if p := posOf(c); p != 0 && lowOf(c) <= b.cap && (pos == 0 || p < pos) {
			pos = p
		}
	}
	return pos
}
