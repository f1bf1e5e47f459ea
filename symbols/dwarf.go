package symbols

// This file owns the DWARF of one file: its sections, the index from address to compile unit, and what attributes mean.
// Units are decoded when an address falls into one (unit.go).

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	maxUnits = 1 << 20

	// Time for the DWARF of one module: a start and a rate per MiB. Decoding everything takes about 0.03 s/MiB.
	baseTime   = 20 * time.Second
	timePerMiB = 2 * time.Second

	// Decoded units are dropped when they hold more than this, counted in spans, functions and line rows of 16 bytes.
	maxCached = 8 << 20
	// Abbreviation tables that several units share are kept up to this many.
	maxAbbrevTables = 1 << 10
)

var errBudget = errors.New("took too long: the rest is left out")

// budget limits work on input that may be built to take for ever.
type budget struct {
	left  time.Duration
	until time.Time // valid between start and stop
}

func (b *budget) start() { b.until = time.Now().Add(b.left) }
func (b *budget) stop()  { b.left = time.Until(b.until) }

// meter is one goroutine's view of a budget that is running.
type meter struct {
	until time.Time
	spent int
}

// spend accounts for n small steps and looks at the clock now and then.
func (m *meter) spend(n int) error {
	if m.spent += n; m.spent < 4096 {
		return nil
	}
	m.spent = 0
	return m.check()
}

func (m *meter) check() error {
	if time.Now().After(m.until) {
		return errBudget
	}
	return nil
}

// dwarfInfo is the debug information of one file. Between start and stop of work its methods may be called from several
// goroutines.
type dwarfInfo struct {
	// immutable after openDWARF
	im                                                  *image
	info, abbrev, strOffsets, addr, rangesSec, rnglists []byte
	secs                                                lineSections
	order                                               binary.ByteOrder
	alt                                                 *dwarfInfo  // what dwz moved out; has no index
	units                                               []unitRef   // by offset
	at                                                  flatMap     // address -> index into units
	problem                                             func(error) // called for every unit with a problem
	splits                                              *splitFiles // nil: none of the units is a skeleton
	apart                                               bool        // these are split sections themselves
	held                                                int         // bytes in memory of the file that these are of, where it was read whole

	work   budget
	cached atomic.Int64

	mu      sync.Mutex
	abbrevs map[abbrevKey]*abbrevTable
}

type abbrevKey struct {
	off uint64
	shape
}

// unitRef is one unit of .debug_info.
type unitRef struct {
	start, die, end uint64 // of its header; of its first entry; of the next unit
	abbrevOff       uint64
	low             uint64 // base of range lists
	strBase         uint64
	addrBase        uint64
	rangeBase       uint64
	shape
	code   bool   // a compile unit, not a type unit
	split  bool   // a skeleton
	id     uint64 // of a skeleton and what was split off, where the header says it
	scoped bool   // of a language with namespaces and classes, or of an unknown one

	mu   sync.Mutex // one goroutine decodes
	unit atomic.Pointer[unit]
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
	d := &dwarfInfo{
		im: im, order: im.elf.ByteOrder, info: sec["info"], abbrev: sec["abbrev"], strOffsets: sec["str_offsets"], addr: sec["addr"],
		rangesSec: sec["ranges"], rnglists: sec["rnglists"], abbrevs: map[abbrevKey]*abbrevTable{},
	}
	d.secs = lineSections{line: sec["line"], lineStr: sec["line_str"], str: sec["str"]}
	d.work.left = baseTime + timePerMiB*time.Duration(total>>20)
	var err error
	d.units, err = scanUnits(d.info, d.order)
	return d, err
}

// scanUnits reads the unit headers (DWARF 5 section 7.5.1).
func scanUnits(info []byte, order binary.ByteOrder) ([]unitRef, error) {
	n := 0
	c := cursor{b: info, order: order}
	for ; c.left() > 0; n++ { // unitRef holds locks: it is not copied while the list grows
		size, _ := c.length()
		if c.take(size); c.bad {
			break
		}
		if n > maxUnits {
			return nil, fmt.Errorf(".debug_info: more than %d units", maxUnits)
		}
	}
	us := make([]unitRef, n+1)
	n = 0
	c = cursor{b: info, order: order}
	for c.left() > 0 {
		at := c.at
		size, is64 := c.length()
		if c.bad || size > uint64(c.left()) {
			return nil, fmt.Errorf(".debug_info: unit at %#x: length %d makes no sense", at, size)
		}
		if size == 0 {
			continue
		}
		h := cursor{b: info[:c.at+int(size)], at: c.at, order: order}
		c.at += int(size)
		u := &us[n]
		u.start, u.end = uint64(at), uint64(c.at)
		u.code, u.scoped = true, true
		version := h.u16()
		u.version, u.is64 = uint8(min(version, 255)), is64
		if version >= 5 {
			typ := h.u8()
			u.addrSize = h.u8()
			u.abbrevOff = h.offset(is64)
			switch typ {
			case 1, 3: // DW_UT_compile, partial
			case 4, 5: // skeleton, split_compile: the id
				u.id = h.u64()
			default: // type, split_type: signature and offset
				h.u64()
				h.offset(is64)
				u.code = false
			}
		} else {
			u.abbrevOff = h.offset(is64)
			u.addrSize = h.u8()
		}
		if h.bad || version < 2 || version > 5 {
			return nil, fmt.Errorf(".debug_info: unit at %#x: version %d or its header makes no sense", at, version)
		}
		if version >= 5 { // where the first table of these sections begins, if the unit does not say
			u.strBase, u.addrBase, u.rangeBase = 8, 8, 12
			if is64 {
				u.strBase, u.addrBase, u.rangeBase = 16, 16, 20
			}
		}
		if u.die = uint64(h.at); h.left() > 0 {
			n++
		} else {
			u.start, u.end = 0, 0
		}
	}
	return us[:n], nil
}

// index reads the first entry of every unit and paints the units' ranges. Where units overlap the one that spans
// less is on top: a hull [low_pc, high_pc) gives way to exact ranges.
func (d *dwarfInfo) index() error {
	type unitSpan struct {
		span
		size uint64
	}
	var all []unitSpan
	var e entry
	work := meter{until: d.work.until}
	for i := range d.units {
		u := &d.units[i]
		if err := work.spend(256); err != nil {
			return err
		}
		if err := d.readRoot(u, &e); err != nil {
			if u.code {
				d.problem(fmt.Errorf("unit at %#x: %w", u.die, err))
			}
			u.code = false
			continue
		}
		if e.abbrev == nil || e.tag != tagCompileUnit && e.tag != tagSkeleton {
			u.code = false
			continue
		}
		if e.tag == tagSkeleton || e.has&(1<<attrDwoName) != 0 {
			u.split = true
		}
		ranges, err := d.ranges(u, &e, nil, &work)
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
	if d.alt != nil {
		for i := range d.alt.units {
			if err := work.spend(256); err != nil {
				return err
			}
			_ = d.alt.readRoot(&d.alt.units[i], &e) // its bases; what cannot be read gives no names
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

// readRoot reads a unit's first entry, and what it says of the unit as a whole.
func (d *dwarfInfo) readRoot(u *unitRef, e *entry) error {
	c := cursor{b: d.info[:u.end], at: int(u.die)}
	t, err := readAbbrevs(d.abbrev, u.abbrevOff, u.shape, c.uleb())
	if err != nil {
		return err
	}
	if err := d.readEntry(u, t, u.die, e); err != nil || e.abbrev == nil {
		return err
	}
	for _, b := range []struct {
		a  attr
		to *uint64
	}{{attrStrBase, &u.strBase}, {attrAddrBase, &u.addrBase}, {attrRangeBase, &u.rangeBase}} {
		if v, ok := e.get(b.a); ok {
			if off, ok := v.secOffset(); ok {
				*b.to = off
			}
		}
	}
	if v, ok := e.get(attrLowPC); ok {
		u.low, _ = d.address(u, v)
	}
	if v, ok := e.get(attrLanguage); ok {
		switch v.v {
		case 0x01, 0x02, 0x0c, 0x1d, 0x2c, 0x16, 0x8001: // C89, C, C99, C11, C17, Go, Mips_Assembler: names have no scope around them
			u.scoped = false
		}
	}
	return nil
}

// abbrevsOf returns the abbreviations of a unit.
func (d *dwarfInfo) abbrevsOf(u *unitRef) (*abbrevTable, error) {
	k := abbrevKey{u.abbrevOff, u.shape}
	d.mu.Lock()
	t := d.abbrevs[k]
	d.mu.Unlock()
	if t != nil {
		return t, nil
	}
	t, err := readAbbrevs(d.abbrev, u.abbrevOff, u.shape, 0)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.abbrevs) >= maxAbbrevTables {
		clear(d.abbrevs)
	}
	d.abbrevs[k] = t
	return t, nil
}

// uintAt reads a number of size bytes.
func (d *dwarfInfo) uintAt(b []byte, off uint64, size uint8) (uint64, bool) {
	if off > uint64(len(b)) || uint64(size) > uint64(len(b))-off {
		return 0, false
	}
	switch size {
	case 4:
		return uint64(d.order.Uint32(b[off:])), true
	case 8:
		return d.order.Uint64(b[off:]), true
	}
	return 0, false
}

// address returns what an attribute of class address says.
func (d *dwarfInfo) address(u *unitRef, v value) (uint64, bool) {
	switch v.form {
	case formAddr:
		return v.v, true
	case formAddrx, formAddrx1, formAddrx2, formAddrx3, formAddrx4, formGNUAddrIndex:
		return d.indexed(u, v.v)
	}
	return 0, false
}

// indexed returns the address with a number in the unit's part of .debug_addr.
func (d *dwarfInfo) indexed(u *unitRef, i uint64) (uint64, bool) {
	if i > uint64(len(d.addr)) {
		return 0, false
	}
	return d.uintAt(d.addr, u.addrBase+i*uint64(u.addrSize), u.addrSize)
}

// bytesOf returns a string attribute, also one that lies in the alternative file; nil when there is none.
// The bytes are the section's.
func (d *dwarfInfo) bytesOf(u *unitRef, v value) []byte {
	from, off := d.secs.str, v.v
	switch v.form {
	case formString:
		from = d.info[:u.end]
	case formStrp:
	case formLineStrp:
		from = d.secs.lineStr
	case formStrx, formStrx1, formStrx2, formStrx3, formStrx4, formGNUStrIndex:
		if v.v > uint64(len(d.strOffsets)) {
			return nil
		}
		size := uint8(u.offset())
		var ok bool
		if off, ok = d.uintAt(d.strOffsets, u.strBase+v.v*uint64(size), size); !ok {
			return nil
		}
	case formGNUStrpAlt, formStrpSup:
		if d.alt == nil {
			return nil
		}
		from = d.alt.secs.str
	default:
		return nil
	}
	return cbytes(from, off, maxLinkage)
}

func (d *dwarfInfo) str(u *unitRef, e *entry, a attr) string {
	if v, ok := e.get(a); ok {
		return valid(d.bytesOf(u, v))
	}
	return ""
}

// reference returns the entry that an attribute refers to, and in which of the two files it lies.
func (d *dwarfInfo) reference(u *unitRef, v value) (in *dwarfInfo, off uint64) {
	switch v.form {
	case formRef1, formRef2, formRef4, formRef8, formRefUdata:
		if v.v < u.end-u.start {
			return d, u.start + v.v
		}
	case formRefAddr:
		return d, v.v
	case formGNURefAlt, formRefSup4, formRefSup8:
		return d.alt, v.v
	}
	return nil, 0
}

// ranges appends the non-empty ranges of e that lie in code to rs; those of dropped functions lie at 0 or at a mark.
func (d *dwarfInfo) ranges(u *unitRef, e *entry, rs [][2]uint64, work *meter) ([][2]uint64, error) {
	add := func(lo, hi uint64) {
		if lo < hi && d.im.executable(lo) {
			rs = append(rs, [2]uint64{lo, hi})
		}
	}
	if v, ok := e.get(attrHighPC); ok {
		lowVal, ok := e.get(attrLowPC)
		low, ok2 := d.address(u, lowVal)
		if ok && ok2 {
			if high, ok := d.address(u, v); ok {
				add(low, high)
			} else if n, ok := v.constant(); ok && low+n > low {
				add(low, low+n)
			}
		}
		return rs, nil
	}
	v, ok := e.get(attrRanges)
	if !ok {
		return rs, nil
	}
	if u.version < 5 {
		off, ok := v.secOffset()
		if !ok {
			return rs, errors.New("their form is unknown")
		}
		if d.apart {
			off += u.rangeBase // a skeleton's own list counts from the beginning
		}
		return rs, d.ranges4(u, off, add, work)
	}
	off, ok := v.secOffset()
	if v.form == formRnglistx {
		size := uint8(u.offset())
		var rel uint64
		if v.v <= uint64(len(d.rnglists)) {
			rel, ok = d.uintAt(d.rnglists, u.rangeBase+v.v*uint64(size), size)
		}
		off = u.rangeBase + rel
	}
	if !ok {
		return rs, errors.New("their form is unknown")
	}
	return rs, d.ranges5(u, off, add, work)
}

// ranges4 reads a list of .debug_ranges (DWARF 4 section 2.17.3).
func (d *dwarfInfo) ranges4(u *unitRef, off uint64, add func(lo, hi uint64), work *meter) error {
	base := u.low
	mark := ^uint64(0)
	if u.addrSize == 4 {
		mark >>= 32
	}
	for n := uint64(u.addrSize); ; off += 2 * n {
		if err := work.spend(1); err != nil {
			return err
		}
		lo, ok1 := d.uintAt(d.rangesSec, off, u.addrSize)
		hi, ok2 := d.uintAt(d.rangesSec, off+n, u.addrSize)
		switch {
		case !ok1 || !ok2:
			return fmt.Errorf("list at %#x ends early", off)
		case lo == 0 && hi == 0:
			return nil
		case lo == mark:
			base = hi
		default:
			add(base+lo, base+hi)
		}
	}
}

// ranges5 reads a list of .debug_rnglists (DWARF 5 section 7.25).
func (d *dwarfInfo) ranges5(u *unitRef, off uint64, add func(lo, hi uint64), work *meter) error {
	if off >= uint64(len(d.rnglists)) {
		return fmt.Errorf("list at %#x lies outside", off)
	}
	c := cursor{b: d.rnglists, at: int(off), order: d.order}
	base := u.low
	address := func() uint64 {
		if u.addrSize == 4 {
			return uint64(c.u32())
		}
		return c.u64()
	}
	index := func() uint64 {
		a, ok := d.indexed(u, c.uleb())
		c.bad = c.bad || !ok
		return a
	}
	for !c.bad {
		if err := work.spend(1); err != nil {
			return err
		}
		var lo, hi uint64
		switch kind := c.u8(); kind {
		case 0: // end_of_list
			if c.bad {
				break
			}
			return nil
		case 1: // base_addressx
			base = index()
			continue
		case 2: // startx_endx
			lo, hi = index(), index()
		case 3: // startx_length
			lo = index()
			hi = lo + c.uleb()
		case 4: // offset_pair
			lo, hi = base+c.uleb(), base+c.uleb()
		case 5: // base_address
			base = address()
			continue
		case 6: // start_end
			lo, hi = address(), address()
		case 7: // start_length
			lo = address()
			hi = lo + c.uleb()
		default:
			return fmt.Errorf("list at %#x: entry of kind %d", off, kind)
		}
		if !c.bad {
			add(lo, hi)
		}
	}
	return fmt.Errorf("list at %#x ends early", off)
}
