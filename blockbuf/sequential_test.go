package blockbuf

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
)

// sequential is what a buffer with late binding is when one thing happens at a time: blocks that take turns.
type sequential struct {
	cap, active, next, lag uint64
	made                   int
	turns                  []*modelBlock // whose turn is next comes first
	out                    int           // blocks out of use
	slots                  []*modelBlock
	byPos                  map[uint64]*modelBlock // the last A opened
}

type modelBlock struct {
	pos     uint64
	used    uint64
	pending uint64 // bytes reserved
	closed  bool
	recs    []*modelRecord
}

type modelRecord struct {
	value uint32
	bytes uint64
	done  bool
	gone  bool // discarded
}

func (k *modelBlock) whole() bool { return k.closed && k.pending == 0 }

func (m *sequential) lagOf(blocks int) uint64 { return max(1, min(m.active, uint64(blocks/2))) }

func (m *sequential) claim() *modelBlock {
	for tries := 0; tries < 2*m.made; tries++ {
		k := m.turns[0]
		m.turns = append(m.turns[1:], k)
		if !k.closed && (tries > m.made || m.next-k.pos > m.lag) {
			k.close(m.cap)
		}
		if k.whole() {
			return k
		}
	}
	return nil
}

func (k *modelBlock) close(cap uint64) {
	k.closed, k.used = true, cap
}

func (m *sequential) reserve(slot int, value uint32, n int) *modelRecord {
	need := uint64(RecordBytes(n))
	k := m.slots[slot]
	if k == nil || k.used+need > m.cap {
		if k != nil {
			k.close(m.cap)
		}
		claimed := m.claim()
		if claimed == nil {
			return nil
		}
		// The block may still be another slot's, or this one's, which then finds it changed.
		for i, s := range m.slots {
			if s == claimed {
				m.slots[i] = nil
			}
		}
		*claimed = modelBlock{pos: m.next}
		m.next++
		m.slots[slot], k = claimed, claimed
		m.closeAt(k.pos-m.lag, k)
		m.closeAt(k.pos-m.active, k)
		m.byPos[k.pos] = k
	}
	r := &modelRecord{value: value, bytes: need}
	k.used += need
	k.pending += need
	k.recs = append(k.recs, r)
	if k.used == m.cap {
		k.closed = true
	}
	return r
}

// closeAt closes the block that was opened at pos, if it is still that.
func (m *sequential) closeAt(pos uint64, but *modelBlock) {
	if k := m.byPos[pos]; k != nil && k != but && k.pos == pos {
		k.close(m.cap)
	}
}

func (m *sequential) seal() {
	for _, k := range m.turns {
		k.close(m.cap)
	}
}

func (m *sequential) resize(want int) (held bool) {
	have := len(m.turns)
	if want > have {
		for range want - have {
			m.turns = append([]*modelBlock{{closed: true}}, m.turns...)
		}
		fresh := max(0, want-have-m.out)
		m.made += fresh
		m.out -= want - have - fresh
	} else {
		m.lag = m.lagOf(want)
		for len(m.turns) > want {
			k := m.claim()
			if k == nil {
				held = true
				break
			}
			m.turns = m.turns[:len(m.turns)-1] // claiming has put it last
			for i, s := range m.slots {
				if s == k {
					m.slots[i] = nil
				}
			}
			k.pos = 0
			m.out++
		}
	}
	m.lag = m.lagOf(len(m.turns))
	return held
}

func (m *sequential) oldest() uint64 {
	n := uint64(len(m.turns)) + m.active
	return m.next - min(n, m.next-1)
}

// history lists the blocks that can be read, oldest first.
func (m *sequential) history() []*modelBlock {
	var list []*modelBlock
	for _, k := range m.turns {
		if k.pos >= m.oldest() {
			list = append(list, k)
		}
	}
	slices.SortFunc(list, func(a, b *modelBlock) int { return int(a.pos) - int(b.pos) })
	return list
}

func (k *modelBlock) values() (v []uint32) {
	for _, r := range k.recs {
		if r.done && !r.gone {
			v = append(v, r.value)
		}
	}
	return v
}

func valuesOf(t *testing.T, k Block) (v []uint32) {
	for _, p := range records(t, k) {
		v = append(v, binary.LittleEndian.Uint32(p))
	}
	return v
}

// TestAgainstSequential runs random operations on a buffer and on the model, and compares all that can be read.
func TestAgainstSequential(t *testing.T) {
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 3))
		slots := 1 + rng.IntN(4)
		blocks := 2*slots + rng.IntN(12)
		const block, most = 64, 40
		b := mustNew(t, Options{BlockBytes: block, Bytes: blocks * block, MaxBytes: most * block, Slots: slots,
			ActivePerSlot: 1 + rng.IntN(4), Mapping: Late, tiny: true, heap: true})
		m := &sequential{cap: block, active: uint64(len(b.active)), next: 1, made: blocks, slots: make([]*modelBlock, slots), byPos: map[uint64]*modelBlock{}}
		for range blocks {
			m.turns = append(m.turns, &modelBlock{closed: true})
		}
		m.lag = m.lagOf(blocks)
		type open struct {
			res Reservation
			rec *modelRecord
			of  *modelBlock
		}
		var held []open
		r := b.NewReader()
		cursor, lost := uint64(0), uint64(0)
		end := func(i int) {
			h := held[i]
			held = slices.Delete(held, i, i+1)
			h.of.pending -= h.rec.bytes
			h.rec.done = true
			if rng.IntN(5) == 0 {
				h.rec.gone = true
				h.res.Discard()
			} else {
				h.res.Commit()
			}
		}
		for op := range 3000 {
			switch x := rng.IntN(100); {
			case x < 1:
				b.Seal()
				m.seal()
			case x < 3:
				want := 2*slots + rng.IntN(most-2*slots)
				err := b.Resize(want * block)
				if held := m.resize(want); held != errors.Is(err, ErrHeld) || !held && err != nil {
					t.Fatalf("seed %d, op %d: resizing to %d blocks: %v", seed, op, want, err)
				}
			case x < 8:
				for {
					head := m.next
					if first := m.oldest(); cursor+1 < first {
						lost += first - 1 - cursor
						cursor = first - 1
					}
					var next *modelBlock
					for cursor+1 < head {
						i := slices.IndexFunc(m.turns, func(k *modelBlock) bool { return k.pos == cursor+1 })
						if i >= 0 {
							next = m.turns[i]
							break
						}
						cursor++
						lost++
					}
					if next != nil && !next.closed && head-next.pos > m.lag {
						next.close(m.cap)
					}
					if next != nil && !next.whole() && head-next.pos <= max(uint64(len(m.turns)/2), m.lag) {
						next = nil
					}
					k, ok := r.Next()
					if ok != (next != nil) || r.Lost() != lost {
						t.Fatalf("seed %d, op %d: Next gives %+v, %v, want %+v; %d lost, want %d", seed, op, k, ok, next, r.Lost(), lost)
					}
					if !ok {
						break
					}
					cursor = next.pos
					if k.Pos != next.pos || k.Partial == next.whole() || !slices.Equal(valuesOf(t, k), next.values()) {
						t.Fatalf("seed %d, op %d: block %d has %v, want %d with %v", seed, op, k.Pos, valuesOf(t, k), next.pos, next.values())
					}
				}
			case x < 10:
				snap, want := b.Snapshot(), m.history()
				if len(snap) != len(want) {
					t.Fatalf("seed %d, op %d: %d blocks, want %d", seed, op, len(snap), len(want))
				}
				for i, k := range snap {
					if k.Pos != want[i].pos || k.Partial != (want[i].pending > 0) || !slices.Equal(valuesOf(t, k), want[i].values()) {
						t.Fatalf("seed %d, op %d: block %d has %v, partial %v; want %d with %v", seed, op, k.Pos, valuesOf(t, k), k.Partial, want[i].pos, want[i].values())
					}
				}
			default:
				slot := rng.IntN(slots)
				if rng.IntN(3) > 0 {
					slot = 0 // skewed
				}
				n := 4 + rng.IntN(block-8)
				res, err := b.Writer(slot).Reserve(n)
				rec := m.reserve(slot, uint32(op), n)
				if (rec == nil) != errors.Is(err, ErrHeld) || rec != nil && err != nil {
					t.Fatalf("seed %d, op %d: reserving: %v, want room: %v", seed, op, err, rec != nil)
				}
				if rec != nil {
					binary.LittleEndian.PutUint32(res.Data, uint32(op))
					held = append(held, open{res, rec, m.slots[slot]})
					if rng.IntN(20) > 0 {
						end(len(held) - 1)
					}
				}
				if len(held) > 0 && rng.IntN(10) == 0 || len(held) > 6 {
					end(rng.IntN(len(held)))
				}
			}
		}
	}
}
