package symbols

// This file owns the entries of .debug_info: abbreviations turned into plans of what to read and what to pass over, and
// the reading of one entry after another. debug/dwarf allocates an Entry with a slice of interfaces for each, which is
// most of the time that a large program takes; a walk here allocates nothing per entry.

import (
	"errors"
	"fmt"
)

// Tags and forms are DWARF 5 section 7.5; those from 0x1f00 on are GNU's before version 5.
const (
	tagClass, tagEnum, tagArray, tagLexical = 0x02, 0x04, 0x01, 0x0b
	tagCompileUnit, tagStruct, tagSubrType  = 0x11, 0x13, 0x15
	tagUnion, tagInlined, tagSubprogram     = 0x17, 0x1d, 0x2e
	tagInterface, tagNamespace, tagCallSite = 0x38, 0x39, 0x48
	tagSkeleton, tagGNUCallSite             = 0x4a, 0x4109

	formAddr, formBlock2, formBlock4, formData2           = 0x01, 0x03, 0x04, 0x05
	formData4, formData8, formString, formBlock           = 0x06, 0x07, 0x08, 0x09
	formBlock1, formData1, formFlag, formSdata            = 0x0a, 0x0b, 0x0c, 0x0d
	formStrp, formUdata, formRefAddr, formRef1            = 0x0e, 0x0f, 0x10, 0x11
	formRef2, formRef4, formRef8, formRefUdata            = 0x12, 0x13, 0x14, 0x15
	formIndirect, formSecOffset, formExprloc              = 0x16, 0x17, 0x18
	formFlagPresent, formStrx, formAddrx, formRefSup4     = 0x19, 0x1a, 0x1b, 0x1c
	formStrpSup, formData16, formLineStrp, formRefSig8    = 0x1d, 0x1e, 0x1f, 0x20
	formImplicit, formLoclistx, formRnglistx, formRefSup8 = 0x21, 0x22, 0x23, 0x24
	formStrx1, formStrx2, formStrx3, formStrx4            = 0x25, 0x26, 0x27, 0x28
	formAddrx1, formAddrx2, formAddrx3, formAddrx4        = 0x29, 0x2a, 0x2b, 0x2c
	formGNUAddrIndex, formGNUStrIndex                     = 0x1f01, 0x1f02
	formGNURefAlt, formGNUStrpAlt                         = 0x1f20, 0x1f21
)

// attr numbers the attributes that are read; all others are passed over.
type attr uint8

const (
	attrNone attr = iota
	attrSibling
	attrName
	attrLinkage
	attrLowPC
	attrHighPC
	attrRanges
	attrCallFile
	attrCallLine
	attrOrigin
	attrSpec
	attrStmtList
	attrCompDir
	attrLanguage
	attrDwoName
	attrDwoID
	attrStrBase
	attrAddrBase
	attrRangeBase
	attrs // how many
)

var wanted = map[uint64]attr{
	0x01: attrSibling, 0x03: attrName, 0x10: attrStmtList, 0x11: attrLowPC, 0x12: attrHighPC, 0x13: attrLanguage,
	0x1b: attrCompDir, 0x31: attrOrigin, 0x47: attrSpec, 0x55: attrRanges, 0x58: attrCallFile, 0x59: attrCallLine,
	0x6e: attrLinkage, 0x2007: attrLinkage /* MIPS_linkage_name, DWARF 3 */, 0x72: attrStrBase, 0x73: attrAddrBase,
	0x74: attrRangeBase, 0x76: attrDwoName, 0x2130: attrDwoName, 0x2131: attrDwoID, 0x2132: attrRangeBase, 0x2133: attrAddrBase,
}

const (
	maxAbbrevAttr = 256     // attributes of one abbreviation; compilers use about 25
	maxAbbrevs    = 1 << 18 // of one table
	maxTableOps   = 1 << 22 // steps of one table
)

// step reads or passes over one attribute, or passes over a run of them that has a fixed size.
type step struct {
	form uint16
	to   attr
	n    int32 // form 0: bytes of the run; implicit_const: its value, cut to 32 bits
}

type abbrev struct {
	code     uint64
	tag      uint32
	children bool
	steps    []step
}

// abbrevTable finds an abbreviation by its code. Compilers number them from 1 on.
type abbrevTable struct {
	list []abbrev
	rest map[uint64]*abbrev // codes that are not their index + 1
}

func (t *abbrevTable) find(code uint64) *abbrev {
	if i := code - 1; i < uint64(len(t.list)) && t.list[i].code == code {
		return &t.list[i]
	}
	return t.rest[code]
}

// shape is what the sizes of a unit's forms depend on.
type shape struct {
	addrSize, version uint8
	is64              bool
}

func (s shape) offset() int32 {
	if s.is64 {
		return 8
	}
	return 4
}

// fixed returns the size of a form in bytes; -1 when it varies.
func (s shape) fixed(form uint64) int32 {
	switch form {
	case formFlagPresent, formImplicit:
		return 0
	case formData1, formRef1, formFlag, formStrx1, formAddrx1:
		return 1
	case formData2, formRef2, formStrx2, formAddrx2:
		return 2
	case formStrx3, formAddrx3:
		return 3
	case formData4, formRef4, formStrx4, formAddrx4, formRefSup4:
		return 4
	case formData8, formRef8, formRefSig8, formRefSup8:
		return 8
	case formData16:
		return 16
	case formAddr:
		return int32(s.addrSize)
	case formRefAddr:
		if s.version == 2 {
			return int32(s.addrSize)
		}
		return s.offset()
	case formStrp, formSecOffset, formLineStrp, formStrpSup, formGNURefAlt, formGNUStrpAlt:
		return s.offset()
	}
	return -1
}

// readAbbrevs reads the table at off; only what comes up to the code until, if that is not 0.
func readAbbrevs(b []byte, off uint64, s shape, until uint64) (*abbrevTable, error) {
	if off > uint64(len(b)) {
		return nil, fmt.Errorf(".debug_abbrev: table at %#x lies outside", off)
	}
	t := &abbrevTable{}
	c := cursor{b: b, at: int(off)}
	total := 0
	for c.left() > 0 {
		a := abbrev{code: c.uleb()}
		if a.code == 0 {
			break
		}
		a.tag = uint32(min(c.uleb(), 1<<32-1))
		a.children = c.u8() != 0
		for n := 0; ; n++ {
			at, form := c.uleb(), c.uleb()
			var konst int64
			if form == formImplicit {
				konst = c.sleb()
			}
			if at == 0 && form == 0 || c.bad {
				break
			}
			if n >= maxAbbrevAttr {
				return t, fmt.Errorf(".debug_abbrev: table at %#x: more than %d attributes", off, maxAbbrevAttr)
			}
			if form == 0 || form > 0xffff {
				return t, fmt.Errorf(".debug_abbrev: table at %#x: form %#x is unknown", off, form)
			}
			st := step{form: uint16(form), to: wanted[at]}
			if form == formImplicit {
				st.n = int32(max(min(konst, 1<<31-1), -1<<31))
			}
			if size := s.fixed(form); st.to == attrNone && size >= 0 {
				if k := len(a.steps); k > 0 && a.steps[k-1].form == 0 {
					a.steps[k-1].n += size
					continue
				}
				st = step{n: size}
			}
			a.steps = append(a.steps, st)
		}
		if c.bad {
			break // the table ends early: what came before is good
		}
		if total += len(a.steps); total > maxTableOps || len(t.list)+len(t.rest) > maxAbbrevs {
			return t, fmt.Errorf(".debug_abbrev: table at %#x: too large", off)
		}
		switch {
		case a.code == uint64(len(t.list))+1 && t.rest[a.code] == nil:
			t.list = append(t.list, a)
		case t.find(a.code) == nil: // the first of several counts
			if t.rest == nil {
				t.rest = map[uint64]*abbrev{}
			}
			t.rest[a.code] = &a
		}
		if a.code == until {
			break
		}
	}
	return t, nil
}

// value is an attribute as it stands in the file: what its number means depends on the form. Of blocks nothing is kept.
type value struct {
	form uint16
	v    uint64
}

// entry is one entry of .debug_info, read into the same memory again and again.
type entry struct {
	off  uint64 // in .debug_info
	next uint64 // of what follows it there: its first child, if it has children
	*abbrev
	has uint32 // bits of attr
	val [attrs]value
}

func (e *entry) get(a attr) (value, bool) { return e.val[a], e.has&(1<<a) != 0 }

var errEntry = errors.New("an entry makes no sense")

// readEntry reads the entry at off into e. e.abbrev is nil for the mark that ends a list of children.
func (d *dwarfInfo) readEntry(u *unitRef, t *abbrevTable, off uint64, e *entry) error {
	c := cursor{b: d.info[:u.end], at: int(off), order: d.order}
	e.off, e.has = off, 0
	code := c.uleb()
	if code == 0 {
		e.abbrev, e.next = nil, uint64(c.at)
		if c.bad {
			return errEntry
		}
		return nil
	}
	if e.abbrev = t.find(code); e.abbrev == nil {
		return fmt.Errorf("entry at %#x: abbreviation %d does not exist", off, code)
	}
	for i := range e.steps {
		s := &e.steps[i]
		if s.form == 0 {
			if c.at += int(s.n); c.at > len(c.b) {
				return errEntry
			}
			continue
		}
		form, v, err := c.form(u.shape, s)
		if err != nil {
			return err
		}
		if s.to != attrNone && e.has&(1<<s.to) == 0 {
			e.has |= 1 << s.to
			e.val[s.to] = value{form, v}
		}
	}
	if c.bad {
		return errEntry
	}
	e.next = uint64(c.at)
	return nil
}

// form reads one value. Of an inline string it gives the offset in the section.
func (c *cursor) form(s shape, st *step) (form uint16, v uint64, err error) {
	form = st.form
	if form == formIndirect {
		f := c.uleb()
		if f == formIndirect || f == formImplicit || f > 0xffff || f == 0 {
			return 0, 0, errEntry
		}
		form = uint16(f)
	}
	switch form {
	case formString:
		v = uint64(c.at)
		c.cstr()
	case formBlock1:
		c.take(uint64(c.u8()))
	case formBlock2:
		c.take(uint64(c.u16()))
	case formBlock4:
		c.take(uint64(c.u32()))
	case formBlock, formExprloc:
		c.take(c.uleb())
	case formSdata:
		v = uint64(c.sleb())
	case formUdata, formRefUdata, formStrx, formAddrx, formLoclistx, formRnglistx, formGNUAddrIndex, formGNUStrIndex:
		v = c.uleb()
	case formImplicit:
		v = uint64(int64(st.n))
	case formFlagPresent:
		v = 1
	default:
		switch s.fixed(uint64(form)) {
		case 1:
			v = uint64(c.u8())
		case 2:
			v = uint64(c.u16())
		case 3:
			if b := c.take(3); b != nil {
				v = uint64(b[0]) | uint64(b[1])<<8 | uint64(b[2])<<16
				if c.order.Uint16([]byte{1, 0}) != 1 {
					v = uint64(b[2]) | uint64(b[1])<<8 | uint64(b[0])<<16
				}
			}
		case 4:
			v = uint64(c.u32())
		case 8:
			v = c.u64()
		case 16:
			c.take(16)
		default:
			return 0, 0, fmt.Errorf("form %#x is unknown", form)
		}
	}
	return form, v, nil
}

// constant returns a value that is a number, not an address or an offset.
func (v value) constant() (uint64, bool) {
	switch v.form {
	case formData1, formData2, formData4, formData8, formSdata, formUdata, formImplicit:
		return v.v, true
	}
	return 0, false
}

// secOffset returns an offset into another section.
func (v value) secOffset() (uint64, bool) {
	switch v.form {
	case formSecOffset, formData4, formData8: // data before DWARF 4
		return v.v, true
	}
	return 0, false
}
