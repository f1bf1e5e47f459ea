package unwind

import (
	"encoding/binary"
	"fmt"
	"sort"
)

const (
	bucketBits    = 10 // HB_BUCKET_BITS
	tableMagic    = 0x31626174776e7568
	tablesVersion = 2
	headBytes     = 80   // sizeof(struct hb_table_head)
	farBytes      = 8    // sizeof(struct hb_far)
	idFar         = 0xff // HB_ID_FAR
)

// head is struct hb_table_head of modules.h.
type head struct {
	Machine                                              uint32
	Bytes                                                uint64
	TextLo, TextHi                                       uint64
	Buckets, Rows, Rules, Far                            uint32
	IndexOff, PCsOff, IDsOff, RulesOff, WordsOff, FarOff uint32
}

// place computes the offsets from the counts.
func (h *head) place() {
	h.IndexOff = headBytes
	h.RulesOff = (h.IndexOff + 4*(h.Buckets+1) + 7) &^ 7
	h.WordsOff = h.RulesOff + ruleBytes*h.Rules
	h.FarOff = h.WordsOff + 4*h.Rules
	h.PCsOff = h.FarOff + farBytes*h.Far
	h.IDsOff = h.PCsOff + 2*h.Rows
	h.Bytes = (uint64(h.IDsOff) + uint64(h.Rows) + 7) &^ 7
}

func (h *head) put(b []byte) {
	le := binary.LittleEndian
	le.PutUint64(b, tableMagic)
	le.PutUint32(b[8:], tablesVersion)
	le.PutUint32(b[12:], h.Machine)
	le.PutUint64(b[16:], h.Bytes)
	le.PutUint64(b[24:], h.TextLo)
	le.PutUint64(b[32:], h.TextHi)
	for i, v := range []uint32{h.Buckets, h.Rows, h.Rules, h.Far, h.IndexOff, h.PCsOff, h.IDsOff, h.RulesOff, h.WordsOff, h.FarOff} {
		le.PutUint32(b[40+4*i:], v)
	}
}

// Table is a compiled unwind table.
type Table struct {
	Stats Stats // of the compilation; zero for an opened table
	head  head
	blob  []byte
}

// Blob is the table as it lies in shared memory (struct hb_table_head and what follows).
func (t *Table) Blob() []byte { return t.blob }

// Text is the range of ELF virtual addresses that the table has rows for, [lo, hi).
func (t *Table) Text() (lo, hi uint64) { return t.head.TextLo, t.head.TextHi }

// Open checks a blob's header, as hb_table_check in table.h does.
func Open(blob []byte) (*Table, error) {
	if len(blob) < headBytes {
		return nil, fmt.Errorf("open unwind table: %d bytes are no header", len(blob))
	}
	le := binary.LittleEndian
	if m, v := le.Uint64(blob), le.Uint32(blob[8:]); m != tableMagic || v != tablesVersion {
		return nil, fmt.Errorf("open unwind table: magic %#x version %d, want %#x version %d", m, v, uint64(tableMagic), tablesVersion)
	}
	var n [10]uint32
	for i := range n {
		n[i] = le.Uint32(blob[40+4*i:])
	}
	h := head{
		Machine: le.Uint32(blob[12:]), Bytes: le.Uint64(blob[16:]), TextLo: le.Uint64(blob[24:]), TextHi: le.Uint64(blob[32:]),
		Buckets: n[0], Rows: n[1], Rules: n[2], Far: n[3], IndexOff: n[4], PCsOff: n[5], IDsOff: n[6], RulesOff: n[7], WordsOff: n[8], FarOff: n[9],
	}
	if h.Bytes > uint64(len(blob)) || h.TextHi <= h.TextLo || (h.TextHi-h.TextLo-1)>>bucketBits+1 != uint64(h.Buckets) || h.Rules == 0 || h.Rows == 0 {
		return nil, fmt.Errorf("open unwind table: %d bytes, text %#x to %#x, %d buckets: does not fit together", h.Bytes, h.TextLo, h.TextHi, h.Buckets)
	}
	for _, part := range []struct {
		name                string
		off, size, n, align uint64
	}{
		{"index", uint64(h.IndexOff), 4, uint64(h.Buckets) + 1, 4}, {"pcs", uint64(h.PCsOff), 2, uint64(h.Rows), 2},
		{"ids", uint64(h.IDsOff), 1, uint64(h.Rows), 2}, {"rules", uint64(h.RulesOff), ruleBytes, uint64(h.Rules), 4},
		{"words", uint64(h.WordsOff), 4, uint64(h.Rules), 4}, {"far", uint64(h.FarOff), farBytes, uint64(h.Far), 4},
	} {
		if part.off < headBytes || part.off%part.align != 0 || part.off+part.size*part.n > h.Bytes {
			return nil, fmt.Errorf("open unwind table: %s at %#x leaves its %d bytes", part.name, part.off, h.Bytes)
		}
	}
	return &Table{head: h, blob: blob[:h.Bytes]}, nil
}

// id is the number of a row's rule; one that is no rule's when the table is wrong.
func (t *Table) id(row uint32) uint32 {
	h, le := &t.head, binary.LittleEndian
	if id := t.blob[h.IDsOff+row]; id != idFar {
		return uint32(id)
	}
	far := t.blob[h.FarOff:][:farBytes*h.Far]
	i := sort.Search(int(h.Far), func(i int) bool { return le.Uint32(far[farBytes*i:]) >= row })
	if i == int(h.Far) || le.Uint32(far[farBytes*i:]) != row {
		return h.Rules
	}
	return le.Uint32(far[farBytes*i+4:])
}

// Lookup is the rule for an ELF virtual address. It is what hb_table_rule in table.h computes; Go has it for tests
// and tools.
func (t *Table) Lookup(vaddr uint64) Rule {
	h := &t.head
	if vaddr < h.TextLo || vaddr >= h.TextHi {
		return Rule{Kind: None}
	}
	le := binary.LittleEndian
	off := vaddr - h.TextLo
	k, low := uint32(off>>bucketBits), uint16(off&(1<<bucketBits-1))
	first, next := le.Uint32(t.blob[h.IndexOff+4*k:]), le.Uint32(t.blob[h.IndexOff+4*k+4:])
	if first > next || next > h.Rows {
		return Rule{Kind: None}
	}
	after := sort.Search(int(next-first), func(i int) bool {
		return le.Uint16(t.blob[h.PCsOff+2*(first+uint32(i)):]) > low
	})
	row := first + uint32(after)
	if row == 0 {
		return Rule{Kind: None}
	}
	id := t.id(row - 1)
	if id >= h.Rules {
		return Rule{Kind: None}
	}
	return ruleFrom(t.blob[h.RulesOff+ruleBytes*id:])
}

// Each calls f for every row: its rule holds in [lo, hi), ELF virtual addresses.
func (t *Table) Each(f func(lo, hi uint64, r Rule)) {
	h := &t.head
	le := binary.LittleEndian
	var at uint64
	var rule Rule
	have := false
	for k := range h.Buckets {
		first, next := le.Uint32(t.blob[h.IndexOff+4*k:]), le.Uint32(t.blob[h.IndexOff+4*k+4:])
		for i := first; i < next && i < h.Rows; i++ {
			pc := h.TextLo + uint64(k)<<bucketBits + uint64(le.Uint16(t.blob[h.PCsOff+2*i:]))
			if have {
				f(at, pc, rule)
			}
			id := t.id(i)
			at, rule, have = pc, Rule{Kind: None}, true
			if id < h.Rules {
				rule = ruleFrom(t.blob[h.RulesOff+ruleBytes*id:])
			}
		}
	}
	if have {
		f(at, h.TextHi, rule)
	}
}
