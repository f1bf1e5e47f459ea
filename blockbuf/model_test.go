//go:build blockbufmodel

// What the explorer explores: small buffers of blocks of 16 bytes, two records each, and what must be true of them.

package blockbuf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strconv"
	"testing"
)

// put writes the next record of a writer.
func (e *env) put(by int, w *Writer) {
	res, ok := e.reserve(by, w)
	if ok {
		e.commit(by, res)
	}
}

func (e *env) reserve(by int, w *Writer) (Reservation, bool) {
	seq := uint32(len(e.logs[by]) + 1)
	res, err := w.Reserve(4)
	if errors.Is(err, ErrHeld) {
		e.held++
		e.logs[by] = append(e.logs[by], logged{seq: seq}) // not written: position 0
		e.remember(by)
		return res, false
	}
	if err != nil {
		e.failf("writer %d: %v", by, err)
		return res, false
	}
	c := res.meta.conf.v.Load()
	if lowOf(c) >= e.buf.cap {
		e.failf("writer %d has room in a block that is confirmed, claimed or out of use: %#x", by, c)
	}
	pos := posOf(c)
	for i := len(e.logs[by]) - 1; i >= 0; i-- {
		if was := e.logs[by][i].pos; pos < was {
			e.failf("writer %d: record %d is at position %d, the one before at %d", by, seq, pos, was)
		}
	}
	e.logs[by] = append(e.logs[by], logged{seq: seq, pos: pos})
	at := uint64(uintptr(res.at) - uintptr(e.buf.data))
	for i := range uint64(8) {
		if other, ok := e.busy[at+i]; ok {
			e.failf("writers %d and %s were given the same room", by, other)
		}
		e.busy[at+i] = strconv.Itoa(by)
	}
	return res, true
}

func (e *env) commit(by int, res Reservation) {
	l := &e.logs[by][len(e.logs[by])-1]
	stepBefore()
	if c := res.meta.conf.v.Load(); posOf(c) != l.pos || lowOf(c) >= e.buf.cap {
		e.failf("the block of writer %d was taken from it before it committed: %#x", by, c)
	}
	binary.LittleEndian.PutUint32(res.Data, uint32(by)<<16|l.seq)
	stepAfter(0)
	at := uint64(uintptr(res.at) - uintptr(e.buf.data))
	for i := range uint64(8) {
		delete(e.busy, at+i)
	}
	e.started[[2]uint32{uint32(by), l.seq}] = true
	res.Commit()
	l.committed = true
	e.remember(by)
}

// remember reduces what a writer has seen to what it still knows.
func (e *env) remember(by int) {
	if current == nil {
		return
	}
	h := uint64(by)
	for _, l := range e.logs[by] {
		h = mix(mix(h, uint64(l.seq)), l.pos)
	}
	current.seen = h
}

// checkRecords looks at a block that a reader has got.
func (e *env) checkRecords(k Block, last *[4]uint32) {
	ok := k.Records(func(p []byte) bool {
		if len(p) != 4 {
			e.failf("block %d has a record of %d bytes", k.Pos, len(p))
			return false
		}
		v := binary.LittleEndian.Uint32(p)
		by, seq := v>>16, v&0xffff
		if by >= 4 || !e.started[[2]uint32{by, seq}] {
			e.failf("block %d has record %d of writer %d, which is not committed", k.Pos, seq, by)
			return false
		}
		if l := e.logs[by][seq-1]; l.pos != k.Pos {
			e.failf("record %d of writer %d was written at %d and read at %d", seq, by, l.pos, k.Pos)
		}
		if seq <= last[by] {
			e.failf("record %d of writer %d was read after %d", seq, by, last[by])
		}
		last[by] = seq
		return true
	})
	if !ok {
		e.failf("block %d is malformed: %x", k.Pos, k.Data)
	}
}

// drain reads what Next gives.
func (e *env) drain(last *[4]uint32) {
	for k, ok := e.reader.Next(); ok; k, ok = e.reader.Next() {
		e.checkRecords(k, last)
		e.readAt = append(e.readAt, k.Pos)
		k.Records(func(p []byte) bool {
			v := binary.LittleEndian.Uint32(p)
			e.read[v>>16] = append(e.read[v>>16], v&0xffff)
			return true
		})
		if e.failed != "" {
			return
		}
	}
}

// whole checks the end of a run without deaths: what is kept has no holes.
func (e *env) whole() { e.newest(len(e.buf.metas)) }

// newest checks that there are no holes in the newest so many blocks.
func (e *env) newest(blocks int) {
	var last [4]uint32
	have := map[[2]uint32]bool{}
	oldest := uint64(1 << 60)
	snap := e.buf.Snapshot()
	for _, k := range snap {
		e.checkRecords(k, &last)
		if k.Partial {
			e.failf("block %d is partial", k.Pos)
		}
		oldest = min(oldest, k.Pos)
		k.Records(func(p []byte) bool {
			v := binary.LittleEndian.Uint32(p)
			have[[2]uint32{v >> 16, v & 0xffff}] = true
			return true
		})
	}
	if n := len(snap); blocks == 0 {
		oldest = maxPos
	} else if n > blocks {
		oldest = snap[n-blocks].Pos
	}
	for by, log := range e.logs {
		for _, l := range log {
			if l.committed && l.pos >= oldest && !have[[2]uint32{uint32(by), l.seq}] {
				e.failf("record %d of writer %d at position %d is not in the snapshot, which has all from %d on", l.seq, by, l.pos, oldest)
			}
		}
	}
}

// usable counts the blocks that can be overwritten or are being filled.
func (e *env) usable() (n uint64) {
	for i := range e.buf.metas {
		m := &e.buf.metas[i]
		c, a := m.conf.v.Load(), m.alloc.v.Load()
		if lowOf(c) == e.buf.cap || lowOf(c) < e.buf.cap && c == a && c != 0 {
			n++
		}
	}
	return n
}

// settled is whole, and that no block is lost to the ring.
func (e *env) settled() {
	e.whole()
	e.recycled()
}

// recycled checks that all blocks can be used again.
func (e *env) recycled() {
	want := e.buf.ctl.blocks.v.Load()
	if n := e.usable(); n != want {
		e.failf("%d of %d blocks can be used in the end", n, want)
	}
	e.roundTrip()
}

// roundTrip writes on when all is over: the history must come to have nearly all blocks again.
func (e *env) roundTrip() {
	b := e.buf
	w := b.Writer(0)
	for range 6 * len(b.metas) {
		if err := w.Write(make([]byte, 12)); err != nil {
			e.failf("writing on: %v", err)
			return
		}
	}
	lost := uint64(0)
	if e.killed {
		lost = 1
	}
	if got := uint64(len(b.Snapshot())); got+lost < b.ctl.blocks.v.Load() {
		e.failf("after writing on there are %d blocks of history, of %d", got, b.ctl.blocks.v.Load())
	}
}

func puts(by, slot, n int) func(*env) {
	return func(e *env) {
		w := e.buf.Writer(slot)
		for range n {
			e.put(by, w)
		}
	}
}

func fill(by, slot, n int) func(*env) {
	return func(e *env) {
		w := e.buf.Writer(slot)
		for range n {
			e.put(by, w)
		}
	}
}

func snapshots(e *env) {
	var last [4]uint32
	for _, k := range e.buf.Snapshot() {
		e.checkRecords(k, &last)
	}
}

const tinyBlock = 16

func tinyOptions(slots, blocks int, m Mapping) Options {
	return Options{BlockBytes: tinyBlock, Bytes: blocks * tinyBlock, MaxBytes: blocks * tinyBlock, Slots: slots, ActivePerSlot: 1, Mapping: m}
}

func scenarios() []scenario {
	var all []scenario
	for _, m := range []Mapping{Late, Paper, LateBorrowing} {
		add := func(s scenario) {
			s.name = fmt.Sprintf("%s/%s", s.name, m)
			s.options.Mapping = m
			if s.steps == 0 {
				s.steps = 600
			}
			all = append(all, s)
		}
		settled := (*env).settled
		if m == Paper {
			settled = (*env).whole // with skipped positions, blocks may be left with what they have
		}
		resized := settled
		if m == Paper {
			resized = func(e *env) { e.newest(0) } // what goes is not what is old
		}
		if m != LateBorrowing {
			// With A = 1 two writers can close one another's blocks for ever in the paper's mapping.
			two := tinyOptions(1, 2, m)
			if m == Paper {
				two = tinyOptions(1, 4, m)
				two.ActivePerSlot = 2
			}
			four := tinyOptions(1, 4, m)
			if m == Paper {
				four.ActivePerSlot = 2
			}
			add(scenario{name: "share", options: two, setup: fill(2, 0, 2),
				threads: []func(*env){puts(0, 0, 2), puts(1, 0, 2)}, final: settled})
			add(scenario{name: "overwrite", options: tinyOptions(1, 2, m), setup: fill(0, 0, 4),
				threads: []func(*env){puts(0, 0, 3), snapshots}, final: settled})
			add(scenario{name: "die", options: four, setup: fill(2, 0, 8), kill: true,
				threads: []func(*env){puts(0, 0, 2), puts(1, 0, 2)},
				final: func(e *env) {
					if m != Paper {
						e.roundTrip()
					}
				}})
			add(scenario{name: "seal", options: tinyOptions(1, 4, m),
				setup: func(e *env) { fill(1, 0, 3)(e); e.reader = e.buf.NewReader() },
				threads: []func(*env){puts(0, 0, 2), func(e *env) {
					var last [4]uint32
					e.buf.Seal()
					e.drain(&last)
				}}, final: func(e *env) {
					var last [4]uint32
					for by := range last {
						if n := len(e.read[by]); n > 0 {
							last[by] = e.read[by][n-1]
						}
					}
					e.buf.Seal()
					e.drain(&last)
					for by, log := range e.logs {
						for _, l := range log {
							if l.committed && e.reader.Lost() == 0 && !contains(e.read[by], l.seq) {
								e.failf("record %d of writer %d at %d was never read, and nothing counts as lost", l.seq, by, l.pos)
							}
						}
					}
					settled(e)
				}})
			// One writer reserves while another commits behind it, and a reader comes.
			add(scenario{name: "look", options: four, threads: []func(*env){puts(0, 0, 1), puts(1, 0, 1), snapshots}, final: settled})
			// A writer has its slot's word in hand while its block comes to be another slot's.
			add(scenario{name: "stale", options: tinyOptions(2, 4, m),
				setup:   func(e *env) { fill(1, 1, 2)(e); fill(0, 0, 2)(e); fill(1, 1, 4)(e) },
				threads: []func(*env){puts(0, 0, 2), puts(2, 0, 1), puts(1, 1, 1)}, final: func(e *env) { e.newest(1) }, bound: 2})
			before := 7
			if m == Paper {
				before = 9 // the next block but one is one of those that go
			}
			add(scenario{name: "shrink", options: tinyOptions(1, 4, m), setup: fill(0, 0, before),
				threads: []func(*env){puts(0, 0, 3), resizeTo(2)}, resizes: true,
				final: func(e *env) {
					resized(e)
					e.inUse(2)
				}})
			add(scenario{name: "grow", options: Options{BlockBytes: tinyBlock, Bytes: 2 * tinyBlock, MaxBytes: 4 * tinyBlock, ActivePerSlot: 1},
				setup: fill(0, 0, 4), threads: []func(*env){puts(0, 0, 3), resizeTo(4)}, resizes: true, final: resized})
			add(scenario{name: "regrow", options: tinyOptions(1, 4, m), setup: func(e *env) { fill(0, 0, 7)(e); resizeTo(2)(e) },
				threads: []func(*env){puts(0, 0, 3), resizeTo(4)}, resizes: true, final: resized})
		}
		add(scenario{name: "slots", options: tinyOptions(2, 4, m), setup: func(e *env) { fill(0, 0, 3)(e); fill(1, 1, 2)(e) },
			threads: []func(*env){puts(0, 0, 3), puts(1, 1, 2)},
			final: func(e *env) {
				e.newest(2) // each thread may have held one of the 4 when its turn came, and a newer one went
				if m != Paper {
					e.recycled()
				}
			}})
	}
	return all
}

func resizeTo(blocks int) func(*env) {
	return func(e *env) {
		if err := e.buf.Resize(blocks * tinyBlock); err != nil && !errors.Is(err, ErrHeld) {
			e.failf("resize: %v", err)
		} else if err != nil {
			e.held++
		}
	}
}

// inUse checks how many blocks are not out of use.
func (e *env) inUse(want int) {
	n := 0
	for i := range e.buf.metas {
		if c := e.buf.metas[i].conf.v.Load(); c != 0 && lowOf(c) != retired {
			n++
		}
	}
	if e.held == 0 && n != want {
		e.failf("%d blocks are in use, want %d", n, want)
	}
}

func contains(list []uint32, v uint32) bool {
	for _, x := range list {
		if x == v {
			return true
		}
	}
	return false
}

// TestExplore explores all scenarios, those of HBTRACE_MODEL_STATES states or fewer completely.
func TestExplore(t *testing.T) {
	limit := 300000
	if s := os.Getenv("HBTRACE_MODEL_STATES"); s != "" {
		var err error
		if limit, err = strconv.Atoi(s); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range scenarios() {
		t.Run(s.name, func(t *testing.T) {
			n, complete := explore(t, s, limit)
			t.Logf("%d states, complete: %v", n, complete)
		})
	}
}
