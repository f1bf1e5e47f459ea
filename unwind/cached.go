package unwind

// This file owns the form in which tables are kept from run to run, and the proof that one is what it was.

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
)

// cachedMagic changes with the form of the file; with the compiler, keys change.
const (
	cachedMagic = "hbtunw01"
	cachedHead  = len(cachedMagic) + 2*sha256.Size
)

// compilerSources are all that a table depends on besides its input: a compiler that was changed finds nothing of an earlier one, and
// nobody has to remember to say so.
//
//go:embed amd64regs.go arm64regs.go cfi.go compile.go cursor.go expr.go machine.go rule.go table.go
var compilerSources embed.FS

var compilerSum = sync.OnceValue(func() (sum [sha256.Size]byte) {
	h := sha256.New()
	files, _ := compilerSources.ReadDir(".") // of an embedded directory it cannot fail
	for _, f := range files {
		b, _ := compilerSources.ReadFile(f.Name())
		fmt.Fprintf(h, "%s %d\n", f.Name(), len(b))
		h.Write(b)
	}
	h.Sum(sum[:0])
	return sum
})

// Key names a table by all that it is made of: the call frame information itself, where code lies, and the compiler. A build id alone
// would not do: files that were changed afterwards keep theirs (prelink, chrpath, patched copies).
type Key [sha256.Size]byte

// Key is the same for the same table only.
func (in *Input) Key() Key {
	h := sha256.New()
	sum := compilerSum()
	h.Write(sum[:])
	fmt.Fprintf(h, "machine %d\ntext %x\nsection %s %x %v %d\n", in.m.elf, in.text, in.name, in.from.addr, in.from.debug, len(in.from.data))
	h.Write(in.from.data)
	return Key(h.Sum(nil))
}

// Cached is the table as it is kept under that key: magic, key, SHA-256 of key and blob, blob.
func (t *Table) Cached(k Key) []byte {
	b := make([]byte, 0, cachedHead+len(t.blob))
	b = append(b, cachedMagic...)
	b = append(b, k[:]...)
	sum := cachedSum(k, t.blob)
	b = append(b, sum[:]...)
	return append(b, t.blob...)
}

func cachedSum(k Key, blob []byte) (sum [sha256.Size]byte) {
	h := sha256.New()
	h.Write(k[:])
	h.Write(blob)
	h.Sum(sum[:0])
	return sum
}

// OpenCached is the table that was kept under that key; an error for anything that Cached did not write. b becomes the table's.
func OpenCached(b []byte, k Key) (*Table, error) {
	if len(b) < cachedHead || string(b[:len(cachedMagic)]) != cachedMagic {
		return nil, errors.New("open kept unwind table: not of this version")
	}
	if !bytes.Equal(b[len(cachedMagic):][:len(k)], k[:]) {
		return nil, errors.New("open kept unwind table: it is another file's")
	}
	blob := b[cachedHead:]
	if sum := cachedSum(k, blob); !bytes.Equal(sum[:], b[len(cachedMagic)+len(k):cachedHead]) {
		return nil, errors.New("open kept unwind table: damaged")
	}
	t, err := Open(blob)
	if err != nil {
		return nil, err
	}
	if len(t.blob) != len(blob) {
		return nil, errors.New("open kept unwind table: more than a table")
	}
	if err := t.check(); err != nil {
		return nil, fmt.Errorf("open kept unwind table: %w", err)
	}
	return t, nil
}

// check says whether the table is one that layOut could have written: everything in its place, rows in order, rules that exist, and
// packed as they are whole.
func (t *Table) check() error {
	h, le := &t.head, binary.LittleEndian
	want := head{Machine: h.Machine, TextLo: h.TextLo, TextHi: h.TextHi, Buckets: h.Buckets, Rows: h.Rows, Rules: h.Rules, Far: h.Far}
	if want.place(); want != *h || h.TextLo&(1<<bucketBits-1) != 0 || h.Rules > 1<<16 {
		return errors.New("its parts do not follow each other")
	}
	for i := range h.Rules {
		b := t.blob[h.RulesOff+ruleBytes*i:]
		r := ruleFrom(b)
		if r.Kind >= kinds || r.FPKind > FPReg || (r.Kind == None) != (i == 0) || le.Uint32(t.blob[h.WordsOff+4*i:]) != r.word() {
			return fmt.Errorf("rule %d is none", i)
		}
	}
	index := t.blob[h.IndexOff:]
	if le.Uint32(index) != 0 || le.Uint32(index[4*h.Buckets:]) != h.Rows || le.Uint16(t.blob[h.PCsOff:]) != 0 {
		return errors.New("its index does not span its rows")
	}
	for k := range h.Buckets {
		first, next := le.Uint32(index[4*k:]), le.Uint32(index[4*k+4:])
		if first > next || next > h.Rows {
			return fmt.Errorf("rows %d to %d of %d", first, next, h.Rows)
		}
		pcs := t.blob[h.PCsOff+2*first:][:2*(next-first)]
		for last := -1; len(pcs) >= 2; pcs = pcs[2:] {
			pc := int(le.Uint16(pcs))
			if pc <= last || pc >= 1<<bucketBits {
				return fmt.Errorf("row at %#x is out of order", h.TextLo+uint64(k)<<bucketBits+uint64(pc))
			}
			last = pc
		}
	}
	far := t.blob[h.FarOff:][:farBytes*h.Far]
	for row, id := range t.blob[h.IDsOff:][:h.Rows] {
		rule := uint32(id)
		if id == idFar {
			if len(far) == 0 || le.Uint32(far) != uint32(row) || le.Uint32(far[4:]) < idFar {
				return fmt.Errorf("row %d has no rule", row)
			}
			rule, far = le.Uint32(far[4:]), far[farBytes:]
		}
		if rule >= h.Rules {
			return fmt.Errorf("row %d has rule %d of %d", row, rule, h.Rules)
		}
	}
	if len(far) != 0 {
		return errors.New("it has rules for rows that have one")
	}
	return nil
}
