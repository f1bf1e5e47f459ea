package symbols

// This file owns the DWARF of one file: loading, the checks that make debug/dwarf safe to use on it, and the index
// from address to compile unit. Units are decoded when an address falls into one (unit.go).

import (
	"bytes"
	"cmp"
	"debug/dwarf"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"
)

const (
	maxUnits      = 4 << 20
	maxAbbrevAttr = 256     // attributes of one abbreviation; compilers use about 25
	maxDebugStr   = 1 << 20 // bytes of one string: debug/dwarf copies whole strings

	// Time for the DWARF of one module: a start and a rate per MiB. Decoding everything takes about 0.1 s/MiB.
	baseTime   = 20 * time.Second
	timePerMiB = 2 * time.Second

	// Decoded units are dropped when they hold more than this, counted in spans, functions and line rows.
	maxCached = 8 << 20
)

var errBudget = errors.New("took too long: the rest is left out")

// budget limits work on input that may be built to take for ever.
type budget struct {
	left  time.Duration
	until time.Time // valid between start and stop
	spent int
}

func (b *budget) start() { b.until = time.Now().Add(b.left) }
func (b *budget) stop()  { b.left = time.Until(b.until) }

// spend accounts for n small steps and looks at the clock now and then.
func (b *budget) spend(n int) error {
	if b.spent += n; b.spent < 4096 {
		return nil
	}
	b.spent = 0
	return b.check()
}

func (b *budget) check() error {
	if time.Now().After(b.until) {
		return errBudget
	}
	return nil
}

// dwarfInfo is the debug information of one file. Not safe for concurrent use.
type dwarfInfo struct {
	im      *image
	data    *dwarf.Data
	order   binary.ByteOrder
	secs    lineSections
	alt     *dwarfInfo // what dwz moved out; has no index
	units   []unitRef  // by offset
	at      flatMap    // address -> index into units
	work    budget
	names   map[dwarf.Offset]dieName
	scopes  map[dwarf.Offset]string // of functions without linkage name in units decoded so far: the enclosing scope
	lines   map[uint64]*lineTable   // by offset into .debug_line
	cached  int
	problem func(error) // called for every unit with a problem
	split   bool        // some units are skeletons of split DWARF
}

// unitRef is one unit of .debug_info.
type unitRef struct {
	die, end dwarf.Offset // of its first entry; of the next unit
	abbrev   uint64
	addrSize int
	code     bool // a compile unit, not a type unit
	scoped   bool // of a language with namespaces and classes, or of an unknown one
	unit     *unit
}

// openDWARF loads im's debug information. alt, which may be nil, is the file that dwz moved parts to.
func openDWARF(im, alt *image, problem func(error)) (*dwarfInfo, error) {
	d, err := loadDWARF(im)
	if err != nil {
		return nil, err
	}
	d.problem = problem
	if alt != nil {
		if d.alt, err = loadDWARF(alt); err != nil {
			return nil, fmt.Errorf("%s: %w", alt.path, err)
		}
		d.alt.problem = problem
	}
	d.work.start()
	defer d.work.stop()
	if err := d.index(); err != nil {
		return nil, err
	}
	return d, nil
}

func loadDWARF(im *image) (*dwarfInfo, error) {
	sec := map[string][]byte{}
	total := 0
	for _, n := range []string{"abbrev", "info", "line", "ranges", "str", "addr", "line_str", "str_offsets", "rnglists"} {
		b, err := im.debugSection("debug_" + n)
		if err != nil {
			return nil, err
		}
		sec[n] = b
		total += len(b)
	}
	d := &dwarfInfo{im: im, order: im.elf.ByteOrder, names: map[dwarf.Offset]dieName{}, scopes: map[dwarf.Offset]string{}, lines: map[uint64]*lineTable{}}
	d.secs = lineSections{line: sec["line"], lineStr: sec["line_str"], str: sec["str"]}
	d.work.left = baseTime + timePerMiB*time.Duration(total>>20)
	var err error
	if d.units, err = scanUnits(sec["info"], d.order); err != nil {
		return nil, err
	}
	if err := checkAbbrevs(sec["abbrev"], d.units, d.order); err != nil {
		return nil, err
	}
	for _, n := range []string{"str", "line_str"} {
		if err := checkStrings(sec[n]); err != nil {
			return nil, fmt.Errorf(".debug_%s: %w", n, err)
		}
	}
	d.data, err = dwarf.New(sec["abbrev"], nil, nil, sec["info"], nil, nil, sec["ranges"], sec["str"])
	if err != nil {
		return nil, err
	}
	for _, n := range []string{"addr", "line_str", "str_offsets", "rnglists"} {
		if err := d.data.AddSection(".debug_"+n, sec[n]); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// scanUnits reads the unit headers (DWARF 5 section 7.5.1).
func scanUnits(info []byte, order binary.ByteOrder) ([]unitRef, error) {
	var us []unitRef
	c := cursor{b: info, order: order}
	for c.left() > 0 {
		at := c.at
		n, is64 := c.length()
		if c.bad || n > uint64(c.left()) {
			return nil, fmt.Errorf(".debug_info: unit at %#x: length %d makes no sense", at, n)
		}
		if n == 0 {
			continue
		}
		if len(us) >= maxUnits {
			return nil, fmt.Errorf(".debug_info: more than %d units", maxUnits)
		}
		h := cursor{b: info[:c.at+int(n)], at: c.at, order: order}
		c.at += int(n)
		u := unitRef{end: dwarf.Offset(c.at), code: true, scoped: true}
		version, typ := h.u16(), uint8(0)
		if version >= 5 {
			typ = h.u8()
			u.addrSize = int(h.u8())
			u.abbrev = h.offset(is64)
			switch typ {
			case 1, 3: // DW_UT_compile, partial
			case 4, 5: // skeleton, split_compile: the id
				h.u64()
			default: // type, split_type: signature and offset
				h.u64()
				h.offset(is64)
				u.code = false
			}
		} else {
			u.abbrev = h.offset(is64)
			u.addrSize = int(h.u8())
		}
		if h.bad || version < 2 || version > 5 {
			return nil, fmt.Errorf(".debug_info: unit at %#x: version %d or its header makes no sense", at, version)
		}
		u.die = dwarf.Offset(h.at)
		if h.left() > 0 {
			us = append(us, u)
		}
	}
	return us, nil
}

// checkAbbrevs walks the abbreviation tables that units name. debug/dwarf keeps one parsed table per distinct
// offset: tables of a compiler do not overlap, tables that do could fill memory.
func checkAbbrevs(abbrev []byte, units []unitRef, order binary.ByteOrder) error {
	offs := make([]uint64, len(units))
	for i, u := range units {
		offs[i] = u.abbrev
	}
	slices.Sort(offs)
	walked := 0
	for _, off := range slices.Compact(offs) {
		if off > uint64(len(abbrev)) {
			return fmt.Errorf(".debug_abbrev: table at %#x lies outside", off)
		}
		c := cursor{b: abbrev[off:], order: order}
		for c.left() > 0 && c.uleb() != 0 {
			c.uleb() // tag
			c.u8()   // has children
			for n := 0; ; n++ {
				attr, form := c.uleb(), c.uleb()
				if form == 0x21 { // DW_FORM_implicit_const
					c.sleb()
				}
				if attr == 0 && form == 0 || c.bad {
					break
				}
				if n > maxAbbrevAttr {
					return fmt.Errorf(".debug_abbrev: table at %#x: more than %d attributes", off, maxAbbrevAttr)
				}
			}
		}
		if walked += c.at; walked > 2*len(abbrev)+1<<16 {
			return errors.New(".debug_abbrev: tables overlap")
		}
	}
	return nil
}

func checkStrings(b []byte) error {
	for at := 0; at < len(b); {
		n := bytes.IndexByte(b[at:], 0)
		if n < 0 {
			n = len(b) - at
		}
		if n > maxDebugStr {
			return fmt.Errorf("a string of %d bytes at %#x", n, at)
		}
		at += n + 1
	}
	return nil
}

// index reads the first entry of every unit and paints the units' ranges. Where units overlap the one that spans
// less is on top: a hull [low_pc, high_pc) gives way to exact ranges.
func (d *dwarfInfo) index() error {
	rd := d.data.Reader()
	type unitSpan struct {
		span
		size uint64
	}
	var all []unitSpan
	for i := range d.units {
		u := &d.units[i]
		if !u.code {
			continue
		}
		if err := d.work.check(); err != nil {
			return err
		}
		rd.Seek(u.die)
		e, err := rd.Next()
		if err != nil {
			d.problem(fmt.Errorf("unit at %#x: %w", u.die, err))
			u.code = false
			continue
		}
		if e == nil || e.Tag != dwarf.TagCompileUnit && e.Tag != dwarf.TagSkeletonUnit {
			u.code = false
			continue
		}
		u.scoped = !plainLanguage(e)
		if e.Tag == dwarf.TagSkeletonUnit || e.AttrField(attrGNUDwoName) != nil {
			d.split = true
		}
		ranges, err := d.ranges(e)
		if err != nil {
			d.problem(fmt.Errorf("unit at %#x: ranges: %w", u.die, err))
		}
		var size uint64
		for _, r := range ranges {
			size += r[1] - r[0]
		}
		for _, r := range ranges {
			all = append(all, unitSpan{span{r[0], r[1], int32(i)}, size})
		}
		if len(all) > maxSymbols {
			return fmt.Errorf(".debug_info: more than %d ranges", maxSymbols)
		}
	}
	slices.SortStableFunc(all, func(a, b unitSpan) int { return cmp.Compare(b.size, a.size) })
	owner := make([]int32, len(all))
	spans := make([]span, len(all))
	for i, s := range all {
		owner[i] = s.val
		spans[i] = span{s.lo, s.hi, int32(i)}
	}
	d.at = flatten(spans)
	for i, v := range d.at.val {
		if v >= 0 {
			d.at.val[i] = owner[v]
		}
	}
	return nil
}

// plainLanguage says whether a unit is in C, assembler or Go: names there have no scope around them.
func plainLanguage(e *dwarf.Entry) bool {
	switch lang, _ := e.Val(dwarf.AttrLanguage).(int64); lang {
	case 0x01, 0x02, 0x0c, 0x1d, 0x2c, 0x16, 0x8001: // C89, C, C99, C11, C17, Go, Mips_Assembler
		return true
	}
	return false
}

const attrGNUDwoName = dwarf.Attr(0x2130) // DW_AT_GNU_dwo_name: split DWARF before version 5

// ranges returns the non-empty ranges of e that lie in code; those of dropped functions lie at 0 or at a mark.
func (d *dwarfInfo) ranges(e *dwarf.Entry) ([][2]uint64, error) {
	if e.AttrField(dwarf.AttrRanges) == nil && e.AttrField(dwarf.AttrHighpc) == nil {
		return nil, nil
	}
	if err := d.work.check(); err != nil {
		return nil, err
	}
	rs, err := d.data.Ranges(e)
	return slices.DeleteFunc(rs, func(r [2]uint64) bool { return r[0] >= r[1] || !d.im.executable(r[0]) }), err
}
