// Package unwind is about finding callers without frame pointers. The Go side, here, compiles the call frame
// information of ELF files into compact tables (compile.go, cfi.go, expr.go, table.go) and publishes them with
// the list of a process's modules in shared memory (modules.go). The C side walks stacks by them inside the
// target: table.h, verify.h, and walk.h by frame pointers. modules.h is the layout that both share.
//
// A table maps each pc to the rule that finds its caller: two bytes of pc and one of rule a row, behind an index
// of one word per KiB of text. It holds ELF virtual addresses only, so that one table serves every process, and
// it says nothing about registers other than SP, FP and return address: that is all that a profiler's walk needs.
package unwind

import (
	"cmp"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
)

// ErrNoCFI is returned for a file without call frame information, or with none for executable bytes.
var ErrNoCFI = errors.New("no call frame information")

const (
	// gapBytes: an unclaimed stretch of text shorter than this is padding between functions and takes the rule
	// before it; that saves two rows a function.
	gapBytes = 32
	// maxText bounds the index, at a word per KiB.
	maxText = 1 << 30
	// maxSection bounds what a compressed section may become.
	maxSection = 512 << 20
)

// Stats counts what a compilation met.
type Stats struct {
	CIEs, FDEs int
	Bad        int    // records that could not be read to their end
	Dropped    int    // FDEs of code that is not there: address zero, or outside the executable segments
	Overlaps   int    // FDEs that began inside another
	Rows       int    // of the table
	Rules      int    // distinct ones, of the table
	OtherRows  int    // rows whose rule cannot be expressed
	OtherBytes uint64 // bytes of text under them
	TextBytes  uint64 // of executable segments in the file
	Source     string // section that was compiled
}

// Input is all of a file that its unwind table depends on, read once: two equal ones have the same table.
type Input struct {
	m         *machine
	text      []span // executable segments
	textBytes uint64
	from      section
	name      string // of the section
}

// ReadInput reads what the table of an ELF file is made of: .eh_frame, or .debug_frame where there is none. It
// takes the program headers' word where section headers are missing.
func ReadInput(f *elf.File) (*Input, error) {
	in := &Input{m: machines[f.Machine]}
	if in.m == nil || f.Class != elf.ELFCLASS64 || f.Data != elf.ELFDATA2LSB {
		return nil, fmt.Errorf("compile unwind table: no tables for %s, %s, %s", f.Machine, f.Class, f.Data)
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD && p.Flags&elf.PF_X != 0 && p.Filesz > 0 && p.Vaddr+p.Filesz > p.Vaddr {
			in.text = append(in.text, span{p.Vaddr, p.Vaddr + p.Filesz})
			in.textBytes += p.Filesz
		}
	}
	var err error
	if in.from, in.name, err = frames(f); err != nil {
		return nil, fmt.Errorf("compile unwind table: %w", err)
	}
	return in, nil
}

// Bytes is the size of the call frame information.
func (in *Input) Bytes() int { return len(in.from.data) }

// Compile makes the unwind table. Nothing of the file is trusted: time and memory are linear in its size, and what
// cannot be used is counted in Stats.
func (in *Input) Compile() (*Table, error) {
	t := &compiler{m: in.m, text: in.text, from: in.from, ids: map[Rule]uint16{}}
	t.stats.TextBytes, t.stats.Source = in.textBytes, in.name
	t.fdes = make([]fde, 0, len(in.from.data)/64)
	t.scan(in.from)
	t.order()
	if len(t.fdes) == 0 {
		return nil, fmt.Errorf("compile unwind table: %s: %w", in.name, ErrNoCFI)
	}
	return t.table()
}

// Compile makes the unwind table of an ELF file.
func Compile(r io.ReaderAt) (*Table, error) {
	f, err := elf.NewFile(r)
	if err != nil {
		return nil, fmt.Errorf("compile unwind table: %w", err)
	}
	return CompileELF(f)
}

// CompileELF is Compile for a file that is open already.
func CompileELF(f *elf.File) (*Table, error) {
	in, err := ReadInput(f)
	if err != nil {
		return nil, err
	}
	return in.Compile()
}

// frames finds the section to compile.
func frames(f *elf.File) (section, string, error) {
	for _, name := range []string{".eh_frame", ".debug_frame", ".zdebug_frame"} {
		s := f.Section(name)
		if s == nil || s.Type == elf.SHT_NOBITS || s.Size == 0 {
			continue
		}
		if s.Size > maxSection {
			return section{}, "", fmt.Errorf("%s claims %d bytes", name, s.Size)
		}
		data, err := s.Data()
		if err != nil {
			return section{}, "", fmt.Errorf("read %s: %w", name, err)
		}
		if name == ".eh_frame" && len(data) <= 4 {
			continue // nothing but the terminator
		}
		return section{data: data, addr: s.Addr, debug: name != ".eh_frame"}, name, nil
	}
	return fromSegments(f)
}

// fromSegments finds .eh_frame in a file without section headers: PT_GNU_EH_FRAME's first field points to it, and
// it ends, as far as anyone can tell, with its segment or a terminator.
func fromSegments(f *elf.File) (section, string, error) {
	const name = "PT_GNU_EH_FRAME"
	for _, p := range f.Progs {
		if p.Type != elf.PT_GNU_EH_FRAME {
			continue
		}
		var head [16]byte
		n, err := p.ReadAt(head[:], 0)
		if n < 8 {
			return section{}, "", fmt.Errorf("read %s: %w", name, err)
		}
		c := cursor{b: head[:n], p: 4}
		if head[0] != 1 {
			return section{}, "", fmt.Errorf("%s has version %d, not 1", name, head[0])
		}
		at := c.pointer(head[1], p.Vaddr)
		if c.bad {
			return section{}, "", fmt.Errorf("%s: unknown pointer encoding %#x", name, head[1])
		}
		for _, l := range f.Progs {
			if l.Type != elf.PT_LOAD || at < l.Vaddr || at-l.Vaddr >= l.Filesz {
				continue
			}
			if l.Filesz > maxSection {
				return section{}, "", fmt.Errorf("segment claims %d bytes", l.Filesz)
			}
			data, err := io.ReadAll(io.NewSectionReader(l, int64(at-l.Vaddr), int64(l.Filesz-(at-l.Vaddr))))
			if err != nil {
				return section{}, "", fmt.Errorf("read .eh_frame at %#x: %w", at, err)
			}
			return section{data: untilTerminator(data), addr: at}, name, nil
		}
	}
	return section{}, "", ErrNoCFI
}

// untilTerminator cuts data behind its last whole record.
func untilTerminator(data []byte) []byte {
	c := cursor{b: data}
	for c.left() >= 4 {
		at := c.p
		length := uint64(c.u32())
		if length == 0xffffffff {
			length = c.u64()
		}
		if length == 0 || c.bad || length > uint64(c.left()) {
			return data[:at]
		}
		c.p += int(length)
	}
	return data[:c.p]
}

// span is a range of ELF virtual addresses, [lo, hi).
type span struct{ lo, hi uint64 }

// compiler turns FDEs into rows.
type compiler struct {
	m     *machine
	text  []span
	from  section
	cies  []*cie
	fdes  []fde
	stats Stats

	lo      uint64 // text_lo of the table
	pcs     []uint32
	rowIDs  []uint16
	rules   []Rule
	ids     map[Rule]uint16
	last    Rule // the rule that lastID stands for
	lastID  uint16
	scratch []frame
}

func (t *compiler) executable(begin, end uint64) bool {
	for _, s := range t.text {
		if begin >= s.lo && end <= s.hi {
			return true
		}
	}
	return false
}

// rule packs the interpreter's state.
func (t *compiler) rule(c *cie, f *frame) Rule {
	if f.ra == raEnd {
		return Rule{Kind: End}
	}
	if c.signal {
		want := Rule{Kind: Deref, Base: uint8(t.m.sp), Index: NoIndex, Off: int32(t.m.signalCFA)}
		if f.cfa == want || t.m.signalCFA == 0 {
			return Rule{Kind: Signal}
		}
		return Rule{Kind: Other}
	}
	if !f.fpOK || !f.spOK || f.cfa.Kind == Other || f.fpAt != int64(int32(f.fpAt)) {
		return Rule{Kind: Other}
	}
	r := f.cfa
	switch {
	case c.ra != t.m.ra && f.ra != raUnset: // what is known of column m.ra says nothing
		return Rule{Kind: Other}
	case f.ra == raUnset && t.m.linked && r.Kind == SP:
		r = Rule{Kind: Link, Base: uint8(c.ra), Off: r.Off}
	case f.ra == raSaved && t.m.linked:
		if r.Kind == Deref || f.raAt != int64(int32(f.raAt)) {
			return Rule{Kind: Other}
		}
		r.Add = int32(f.raAt)
	case f.ra == raSaved:
	case f.ra == raRegister && r.Kind == SP:
		r = Rule{Kind: Link, Base: f.link, Off: r.Off}
	default:
		return Rule{Kind: Other}
	}
	r.FPKind, r.FPOff = f.fp, int32(f.fpAt)
	return r
}

// id is the rule's place in the dictionary. Files have a few hundred rules; should one have more than fit, the
// rest become Other.
func (t *compiler) id(r Rule) uint16 {
	if r == t.last {
		return t.lastID
	}
	id, ok := t.ids[r]
	if !ok {
		if len(t.rules) > math.MaxUint16 {
			return t.id(Rule{Kind: Other})
		}
		id = uint16(len(t.rules))
		t.rules = append(t.rules, r)
		t.ids[r] = id
	}
	t.last, t.lastID = r, id
	return id
}

// row says that r holds from pc on.
func (t *compiler) row(pc, end uint64, r Rule) {
	if pc >= end {
		return
	}
	t.put(pc, t.id(r))
}

func (t *compiler) put(pc uint64, id uint16) {
	n := len(t.pcs)
	at := uint32(pc - t.lo)
	if n > 0 && t.pcs[n-1] == at { // what came before was empty
		n--
		t.pcs, t.rowIDs = t.pcs[:n], t.rowIDs[:n]
	}
	if n > 0 && t.rowIDs[n-1] == id {
		return
	}
	t.pcs, t.rowIDs = append(t.pcs, at), append(t.rowIDs, id)
}

// table interprets the FDEs and lays the table out.
func (t *compiler) table() (*Table, error) {
	t.lo = t.fdes[0].begin &^ (1<<bucketBits - 1)
	hi := t.fdes[len(t.fdes)-1].end
	if hi-t.lo > maxText {
		return nil, fmt.Errorf("compile unwind table: code from %#x to %#x is too far apart", t.lo, hi)
	}
	t.rules = []Rule{{Kind: None}}
	t.ids[Rule{Kind: None}] = 0
	other := t.id(Rule{Kind: Other}) // have their places before the dictionary fills
	end := t.id(Rule{Kind: End})
	t.pcs = make([]uint32, 0, len(t.fdes)*6)
	t.rowIDs = make([]uint16, 0, len(t.fdes)*6)
	t.put(t.lo, 0)
	covered := t.fdes[0].begin
	for n := range t.fdes {
		f := &t.fdes[n]
		ci, code := t.cies[f.cie], t.from.data[f.code:f.stop]
		if f.begin-covered >= gapBytes {
			t.put(covered, 0)
		}
		if f.begin > covered && !ci.signal && bare(code) {
			t.put(f.begin-1, end)
		}
		i := interpreter{t: t, c: cursor{b: code}, cie: ci, base: t.from.addr + uint64(f.code), f: ci.initial, rows: true,
			pc: f.begin, end: f.end, stack: t.scratch[:0]}
		if i.run() {
			t.row(i.pc, i.end, t.rule(ci, &i.f))
		} else {
			t.stats.Bad++
			t.row(i.pc, i.end, Rule{Kind: Other})
		}
		t.scratch = i.stack
		covered = f.end
	}
	for i, id := range t.rowIDs {
		if id == other {
			t.stats.OtherRows++
			end := uint32(hi - t.lo)
			if i+1 < len(t.pcs) {
				end = t.pcs[i+1]
			}
			t.stats.OtherBytes += uint64(end - t.pcs[i])
		}
	}
	return t.layOut(hi), nil
}

// bare is whether an FDE says nothing of its own, as those of hand-written entry points do. One that is returned to at
// its first byte, with no code before that could have called, was never called: makecontext and its like put its
// address there. glibc's __start_context, for one, does not say that it is outermost.
func bare(code []byte) bool {
	for _, op := range code {
		if op != 0 { // DW_CFA_nop
			return false
		}
	}
	return true
}

// layOut writes the table as modules.h describes it.
func (t *compiler) layOut(hi uint64) *Table {
	t.stats.Rows, t.stats.Rules = len(t.pcs), len(t.rules)
	far := t.renumber()
	h := head{
		Machine: uint32(t.m.elf), TextLo: t.lo, TextHi: hi,
		Buckets: uint32((hi - t.lo + 1<<bucketBits - 1) >> bucketBits),
		Rows:    uint32(len(t.pcs)), Rules: uint32(len(t.rules)), Far: far,
	}
	h.place()
	b := make([]byte, h.Bytes)
	h.put(b)
	le := binary.LittleEndian
	next := 0
	for k := range h.Buckets {
		for next < len(t.pcs) && t.pcs[next]>>bucketBits < k {
			next++
		}
		le.PutUint32(b[h.IndexOff+4*k:], uint32(next))
	}
	le.PutUint32(b[h.IndexOff+4*h.Buckets:], h.Rows)
	far = h.FarOff
	for i, pc := range t.pcs {
		le.PutUint16(b[h.PCsOff+2*uint32(i):], uint16(pc&(1<<bucketBits-1)))
		id := t.rowIDs[i]
		if id >= idFar {
			le.PutUint32(b[far:], uint32(i))
			le.PutUint32(b[far+4:], uint32(id))
			far, id = far+farBytes, idFar
		}
		b[h.IDsOff+uint32(i)] = byte(id)
	}
	for i, r := range t.rules {
		r.put(b[h.RulesOff+ruleBytes*uint32(i):])
		le.PutUint32(b[h.WordsOff+4*uint32(i):], r.word())
	}
	return &Table{Stats: t.stats, head: h, blob: b}
}

// renumber gives the rules that most rows have the lowest numbers, behind rule 0, which stays: a row has one byte for its
// rule's. It returns how many rows have a rule that does not fit.
func (t *compiler) renumber() (far uint32) {
	rows := make([]uint32, len(t.rules)) // with that rule
	for _, id := range t.rowIDs {
		rows[id]++
	}
	order := make([]int, len(t.rules))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order[1:], func(a, b int) int { return cmp.Compare(rows[b], rows[a]) })
	rules, number := make([]Rule, len(t.rules)), make([]uint16, len(t.rules))
	for to, from := range order {
		rules[to], number[from] = t.rules[from], uint16(to)
		if to >= idFar {
			far += rows[from]
		}
	}
	for i, id := range t.rowIDs {
		t.rowIDs[i] = number[id]
	}
	t.rules = rules
	return far
}
