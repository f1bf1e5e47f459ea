package unwind

import (
	"cmp"
	"math"
	"slices"
)

// Call frame information: .eh_frame (LSB Core 10.6) and .debug_frame (DWARF 5, section 6.4). Parsing is linear in
// the section: records do not overlap, a CIE must be one of them, and each is interpreted once.

// section is call frame information in memory.
type section struct {
	data  []byte
	addr  uint64 // ELF virtual address of data[0]
	debug bool   // .debug_frame: offsets and identifiers differ
}

type cie struct {
	codeAlign uint64
	dataAlign int64
	enc       byte   // of an FDE's addresses
	ra        uint64 // the return address's column
	signal    bool
	augmented bool // FDEs have augmentation data
	initial   frame
	number    int // place in compiler.cies, from 1; 0: no FDE needs it
}

// fde has no pointers: there are a hundred thousand, which are sorted and which the garbage collector would go through.
type fde struct {
	begin, end uint64 // ELF virtual addresses
	code, stop uint32 // its instructions, in the section
	cie        uint32 // in compiler.cies
}

// frame is the state of the interpreter: how to find CFA, FP and return address at one pc.
type frame struct {
	cfa  Rule  // its FP fields are not used
	off  int64 // offset given last; stays in force behind an expression, as in libgcc
	fp   FPKind
	fpAt int64
	fpOK bool
	ra   raState
	link uint8 // register of the return address for raRegister
	raAt int64 // for raSaved where functions save it: CFA + raAt
	spOK bool  // the caller's SP is the CFA, as everywhere but in signal frames
}

type raState uint8

const (
	raUnset    raState = iota // no rule seen
	raSaved                   // where calls leave it, or at raAt
	raEnd                     // undefined: outermost frame
	raRegister                // in a register, as where a leaf popped it
	raElsewhere
)

// maxRemembered bounds the stack of DW_CFA_remember_state; compilers nest a few deep.
const maxRemembered = 64

// maxOffset keeps arithmetic on offsets clear of overflow; no frame is larger.
const maxOffset = math.MaxInt32

// scan finds the section's records: CIEs are interpreted, FDEs located.
func (t *compiler) scan(s section) {
	cies := map[int]*cie{}
	c := cursor{b: s.data}
	type pending struct {
		cie        int
		begin, end int
	}
	var later []pending // .debug_frame: the CIE may come behind
	for c.left() >= 4 {
		start := c.p
		length := uint64(c.u32())
		wide := length == 0xffffffff
		if wide {
			length = c.u64()
		}
		if length == 0 {
			if s.debug {
				continue
			}
			// A terminator; crtend's comes last, but a linked-in one may stand between.
			continue
		}
		if c.bad || length > uint64(c.left()) {
			t.stats.Bad++
			break
		}
		end := c.p + int(length)
		idAt := c.p
		r := cursor{b: s.data[:end], p: c.p}
		c.p = end
		var id uint64
		if wide && s.debug {
			id = r.u64()
		} else {
			id = uint64(r.u32())
		}
		if r.bad {
			t.stats.Bad++
			continue
		}
		isCIE := id == 0
		if s.debug {
			isCIE = id == 0xffffffff && !wide || id == math.MaxUint64 && wide
		}
		if isCIE {
			t.stats.CIEs++
			cies[start] = t.parseCIE(r, s)
			continue
		}
		at := -1 // an offset that no CIE has
		if s.debug {
			if id < uint64(len(s.data)) {
				at = int(id)
			}
		} else if id <= uint64(idAt) {
			at = idAt - int(id)
		}
		if ci, seen := cies[at]; seen {
			t.parseFDE(r, s, ci)
		} else if s.debug {
			later = append(later, pending{at, r.p, end})
		} else {
			t.stats.Bad++
		}
	}
	for _, p := range later {
		t.parseFDE(cursor{b: s.data[:p.end], p: p.begin}, s, cies[p.cie])
	}
}

// parseCIE reads a CIE behind its identifier; nil when it cannot be used.
func (t *compiler) parseCIE(c cursor, s section) *cie {
	out := &cie{}
	bad := func() *cie { t.stats.Bad++; return nil }
	version := c.u8()
	if version != 1 && version != 3 && version != 4 {
		return bad()
	}
	augmentation := c.text()
	if augmentation == "eh" { // gcc 2
		c.u64()
	}
	if version == 4 {
		if addressBytes, segmentBytes := c.u8(), c.u8(); addressBytes != 8 || segmentBytes != 0 {
			return bad()
		}
	}
	out.codeAlign = c.uleb()
	out.dataAlign = c.sleb()
	ra := uint64(0)
	if version == 1 {
		ra = uint64(c.u8())
	} else {
		ra = c.uleb()
	}
	if out.codeAlign == 0 || out.codeAlign > 64 || out.dataAlign < -1024 || out.dataAlign > 1024 || ra != t.m.ra && !(t.m.linked && ra < t.m.sp) {
		return bad()
	}
	if augmentation != "" && augmentation[0] == 'z' {
		out.augmented = true
		data := cursor{b: c.take(c.uleb())}
		for _, letter := range augmentation[1:] {
			switch letter {
			case 'L':
				data.u8()
			case 'R':
				out.enc = data.u8()
			case 'P':
				if enc := data.u8(); enc != encOmit {
					data.pointer(enc&0x0f, 0)
				}
			case 'S':
				out.signal = true
			case 'B', 'G': // arm64: signed return addresses, memory tagging
			default:
				return bad()
			}
		}
		if data.bad {
			return bad()
		}
	} else if augmentation != "" && augmentation != "eh" {
		return bad()
	}
	if c.bad {
		return bad()
	}
	out.ra = ra
	out.initial = frame{cfa: Rule{Kind: Other}, fpOK: true, spOK: true}
	run := interpreter{t: t, c: cursor{b: c.b[c.p:]}, cie: out, base: s.addr + uint64(c.p), f: out.initial}
	if !run.run() {
		return bad()
	}
	out.initial = run.f
	return out
}

// parseFDE reads an FDE behind its identifier and keeps it when it describes code.
func (t *compiler) parseFDE(c cursor, s section, ci *cie) {
	if ci == nil {
		t.stats.Bad++
		return
	}
	begin := c.pointer(ci.enc, s.addr)
	size := c.pointer(ci.enc&0x0f, 0)
	if ci.augmented {
		c.take(c.uleb())
	}
	if c.bad {
		t.stats.Bad++
		return
	}
	end := begin + size
	// Linkers leave what they dropped at address 0 or thereabouts.
	if begin == 0 || size == 0 || end < begin || !t.executable(begin, end) {
		t.stats.Dropped++
		return
	}
	t.stats.FDEs++
	if ci.number == 0 {
		t.cies = append(t.cies, ci)
		ci.number = len(t.cies)
	}
	t.fdes = append(t.fdes, fde{begin: begin, end: end, code: uint32(c.p), stop: uint32(len(c.b)), cie: uint32(ci.number - 1)})
}

// order sorts the FDEs and makes them disjoint: the one that begins later wins, as in the binary search of
// libgcc; of two at one address the longer.
func (t *compiler) order() {
	less := func(a, b fde) int {
		switch {
		case a.begin < b.begin:
			return -1
		case a.begin > b.begin:
			return 1
		case a.end > b.end:
			return -1
		case a.end < b.end:
			return 1
		}
		return cmp.Compare(a.code, b.code)
	}
	if !slices.IsSortedFunc(t.fdes, less) {
		slices.SortFunc(t.fdes, less)
	}
	kept := t.fdes[:0]
	for _, f := range t.fdes {
		if n := len(kept); n > 0 && f.begin < kept[n-1].end {
			t.stats.Overlaps++
			if f.begin == kept[n-1].begin {
				continue
			}
			kept[n-1].end = f.begin
		}
		kept = append(kept, f)
	}
	t.fdes = kept
}

// interpreter runs the instructions of one CIE or FDE.
type interpreter struct {
	t       *compiler
	c       cursor
	cie     *cie
	base    uint64 // address of c.b[0], for DW_CFA_set_loc
	f       frame
	rows    bool // an FDE: emit rows
	pc, end uint64
	stack   []frame
}

// advance ends the row that began at pc. An advance that leaves the FDE ends it.
func (i *interpreter) advance(units uint64) {
	hi := i.end - i.pc
	if units > hi/i.cie.codeAlign {
		units = hi/i.cie.codeAlign + 1
	}
	i.moveTo(i.pc + units*i.cie.codeAlign)
}

func (i *interpreter) moveTo(pc uint64) {
	if !i.rows || pc < i.pc {
		i.c.fail()
		return
	}
	if pc == i.pc {
		return
	}
	i.t.row(i.pc, i.end, i.t.rule(i.cie, &i.f))
	i.pc = min(pc, i.end)
}

// run interprets to the end; false when an instruction cannot be read or is not known.
func (i *interpreter) run() bool {
	c := &i.c
	align := i.cie.dataAlign
	for c.left() > 0 {
		op := c.u8()
		low := uint64(op & 0x3f)
		switch op >> 6 {
		case 1: // DW_CFA_advance_loc
			i.advance(low)
			continue
		case 2: // DW_CFA_offset
			i.saved(low, i.scaled(c.uleb()))
			continue
		case 3: // DW_CFA_restore
			i.restore(low)
			continue
		}
		switch op {
		case 0x00: // DW_CFA_nop
		case 0x01: // DW_CFA_set_loc
			i.moveTo(c.pointer(i.cie.enc, i.base))
		case 0x02: // DW_CFA_advance_loc1
			i.advance(uint64(c.u8()))
		case 0x03:
			i.advance(uint64(c.u16()))
		case 0x04:
			i.advance(uint64(c.u32()))
		case 0x05: // DW_CFA_offset_extended
			reg := c.uleb()
			i.saved(reg, i.scaled(c.uleb()))
		case 0x06: // DW_CFA_restore_extended
			i.restore(c.uleb())
		case 0x07: // DW_CFA_undefined
			switch reg := c.uleb(); reg {
			case i.t.m.ra:
				i.f.ra = raEnd
			case i.t.m.fp: // nobody needs it any more
				i.f.fp, i.f.fpAt, i.f.fpOK = FPSame, 0, true
			}
		case 0x08: // DW_CFA_same_value
			switch reg := c.uleb(); reg {
			case i.t.m.ra:
				i.f.ra = raElsewhere
				if i.t.m.linked {
					i.f.ra = raUnset
				}
			case i.t.m.fp:
				i.f.fp, i.f.fpAt, i.f.fpOK = FPSame, 0, true
			}
		case 0x09: // DW_CFA_register
			reg := c.uleb()
			i.moved(reg, c.uleb())
		case 0x0a: // DW_CFA_remember_state
			if len(i.stack) == maxRemembered {
				return false
			}
			i.stack = append(i.stack, i.f)
		case 0x0b: // DW_CFA_restore_state
			if len(i.stack) == 0 {
				return false
			}
			i.f = i.stack[len(i.stack)-1]
			i.stack = i.stack[:len(i.stack)-1]
		case 0x0c: // DW_CFA_def_cfa
			reg := c.uleb()
			i.cfa(reg, int64(min(c.uleb(), maxOffset+1)))
		case 0x0d: // DW_CFA_def_cfa_register
			i.cfa(c.uleb(), i.f.off)
		case 0x0e: // DW_CFA_def_cfa_offset
			i.cfaOffset(int64(min(c.uleb(), maxOffset+1)))
		case 0x0f: // DW_CFA_def_cfa_expression
			i.cfaExpression(c.take(c.uleb()))
		case 0x10: // DW_CFA_expression
			reg := c.uleb()
			code := c.take(c.uleb())
			if reg == i.t.m.fp {
				v, ok := evaluate(code, i.t.m)
				i.f.fp, i.f.fpAt = FPFP, v.off
				if v.base == uint8(i.t.m.sp) {
					i.f.fp = FPSP
				} else if v.base != uint8(i.t.m.fp) {
					ok = false
				}
				i.f.fpOK = ok && !v.deref && v.index == NoIndex
			} else {
				i.elsewhere(reg)
			}
		case 0x11: // DW_CFA_offset_extended_sf
			reg := c.uleb()
			i.saved(reg, clampOffset(c.sleb())*align)
		case 0x12: // DW_CFA_def_cfa_sf
			reg := c.uleb()
			i.cfa(reg, clampOffset(c.sleb())*align)
		case 0x13: // DW_CFA_def_cfa_offset_sf
			i.cfaOffset(clampOffset(c.sleb()) * align)
		case 0x14, 0x15: // DW_CFA_val_offset, DW_CFA_val_offset_sf
			reg := c.uleb()
			// "The caller's SP is the CFA" is what everybody assumes; anything else is not.
			if off := c.uleb(); reg != i.t.m.sp || off != 0 {
				i.elsewhere(reg)
			}
		case 0x16: // DW_CFA_val_expression
			reg := c.uleb()
			c.take(c.uleb())
			i.elsewhere(reg)
		case 0x2d: // DW_CFA_AARCH64_negate_ra_state, DW_CFA_GNU_window_save
		case 0x2e: // DW_CFA_GNU_args_size
			c.uleb()
		case 0x2f: // DW_CFA_GNU_negative_offset_extended
			reg := c.uleb()
			i.saved(reg, -i.scaled(c.uleb()))
		default:
			return false
		}
	}
	return !c.bad
}

func clampOffset(n int64) int64 { return max(-maxOffset-1, min(n, maxOffset+1)) }

func (i *interpreter) scaled(n uint64) int64 {
	return int64(min(n, maxOffset+1)) * i.cie.dataAlign
}

// saved: the register was stored at CFA + off.
func (i *interpreter) saved(reg uint64, off int64) {
	switch reg {
	case i.t.m.fp:
		i.f.fp, i.f.fpAt, i.f.fpOK = FPCFA, off, true
	case i.t.m.ra:
		i.f.ra = raElsewhere
		switch {
		case i.t.m.linked && off == clampOffset(off):
			i.f.ra, i.f.raAt = raSaved, off
		case !i.t.m.linked && off == i.t.m.raSlot:
			i.f.ra = raSaved
		}
	case i.t.m.sp:
		i.f.spOK = false
	}
}

// elsewhere: the register is found in a way that rules do not know.
func (i *interpreter) elsewhere(reg uint64) {
	switch reg {
	case i.t.m.fp:
		i.f.fpOK = false
	case i.t.m.ra:
		i.f.ra = raElsewhere
	case i.t.m.sp:
		i.f.spOK = false
	}
}

// moved: the register's value is in another register.
func (i *interpreter) moved(reg, to uint64) {
	switch {
	case to >= i.t.m.registers:
		i.elsewhere(reg)
	case reg == i.t.m.fp:
		i.f.fp, i.f.fpAt, i.f.fpOK = FPReg, int64(to), true
	case reg == i.t.m.ra:
		i.f.ra, i.f.link = raRegister, uint8(to)
	default:
		i.elsewhere(reg)
	}
}

func (i *interpreter) restore(reg uint64) {
	first := &i.cie.initial
	switch reg {
	case i.t.m.fp:
		i.f.fp, i.f.fpAt, i.f.fpOK = first.fp, first.fpAt, first.fpOK
	case i.t.m.ra:
		i.f.ra, i.f.link, i.f.raAt = first.ra, first.link, first.raAt
	case i.t.m.sp:
		i.f.spOK = first.spOK
	}
}

func (i *interpreter) cfa(reg uint64, off int64) {
	i.f.off = off
	switch {
	case off < -maxOffset || off > maxOffset || reg >= i.t.m.registers:
		i.f.cfa = Rule{Kind: Other}
	case reg == i.t.m.sp:
		i.f.cfa = Rule{Kind: SP, Off: int32(off)}
	case reg == i.t.m.fp:
		i.f.cfa = Rule{Kind: FP, Off: int32(off)}
	default:
		i.f.cfa = Rule{Kind: Reg, Base: uint8(reg), Off: int32(off)}
	}
}

// cfaOffset changes the offset of a CFA that is a register and an offset.
func (i *interpreter) cfaOffset(off int64) {
	i.f.off = off
	switch i.f.cfa.Kind {
	case SP, FP, Reg:
		if off >= -maxOffset && off <= maxOffset {
			i.f.cfa.Off = int32(off)
			return
		}
	}
	i.f.cfa = Rule{Kind: Other}
}

func (i *interpreter) cfaExpression(code []byte) {
	i.f.cfa = Rule{Kind: Other}
	if off, threshold, ok := pltExpression(code); ok {
		if off >= 0 && off <= maxOffset {
			i.f.cfa = Rule{Kind: PLT, Off: int32(off), Add: int32(threshold)}
		}
		return
	}
	v, ok := evaluate(code, i.t.m)
	if !ok || v.base == NoIndex || clampOffset(v.off) != v.off || clampOffset(v.add) != v.add ||
		v.off > maxOffset || v.add > maxOffset {
		return
	}
	if v.deref {
		i.f.cfa = Rule{Kind: Deref, Base: v.base, Index: v.index, Off: int32(v.off), Add: int32(v.add)}
	} else if v.index == NoIndex {
		off := i.f.off
		i.cfa(uint64(v.base), v.off)
		i.f.off = off
	}
}
