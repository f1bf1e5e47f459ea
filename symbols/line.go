package symbols

// This file owns line tables: .debug_line of DWARF 2 to 5 decoded into sorted rows.
//
// debug/dwarf has a line reader too, but it takes a table's directory and file counts and the length of its
// strings on trust, joins a path for every file whether it is asked for or not, and searches from the start.

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"sort"
)

const (
	maxLineRows = 16 << 20 // per table
	maxPath     = 4096     // bytes of a directory or file name
	maxPaths    = 1 << 16  // remembered, per table
)

// lineRow says what lies from addr on, up to the next row.
type lineRow struct {
	addr uint64
	file uint32
	line uint32 // 0: code of no line
}

// lineSeq is a run of rows whose addresses do not decrease; it ends at hi.
type lineSeq struct {
	lo, hi uint64
	rows   []lineRow
}

type lineFile struct {
	dir  uint64
	name []byte // of a section: not copied
}

// lineTable is one unit's. files are numbered as the table does: from 0 in version 5, from 1 before.
type lineTable struct {
	compDir string
	v5      bool
	dirs    [][]byte
	files   []lineFile
	seqs    []lineSeq // by lo
	rows    int
	paths   map[uint64]string // of files, once asked for
}

// lineSections are the bytes that line tables live in.
type lineSections struct{ line, lineStr, str []byte }

// readLineTable decodes the table at off. keep says whether code can lie at an address: sequences that the linker
// dropped start at 0 or at a mark. On an error the table holds what came before it.
func readLineTable(secs lineSections, c cursor, off uint64, compDir string, addrSize int, keep func(uint64) bool, work *meter) (*lineTable, error) {
	t := &lineTable{compDir: compDir}
	if off >= uint64(len(secs.line)) {
		return t, fmt.Errorf("line table at %#x lies outside of .debug_line", off)
	}
	c.b, c.at = secs.line[off:], 0
	n, is64 := c.length()
	if c.bad || n > uint64(c.left()) {
		return t, fmt.Errorf("line table at %#x: length %d makes no sense", off, n)
	}
	c.b = c.b[:c.at+int(n)]
	version := c.u16()
	if version < 2 || version > 5 {
		return t, fmt.Errorf("line table at %#x: version %d is unknown", off, version)
	}
	t.v5 = version == 5
	if t.v5 {
		addrSize = int(c.u8())
		c.u8() // segment selector size
	}
	hdrLen := c.offset(is64)
	if c.bad || hdrLen > uint64(c.left()) {
		return t, fmt.Errorf("line table at %#x: header length %d makes no sense", off, hdrLen)
	}
	program := c.at + int(hdrLen)
	p := lineProgram{addrSize: addrSize, minInst: uint64(c.u8())}
	if version >= 4 {
		c.u8() // operations per instruction: 1 but on VLIW machines
	}
	c.u8() // default is_stmt: every row counts
	p.lineBase = int64(int8(c.u8()))
	p.lineRange = uint64(c.u8())
	p.opcodeBase = c.u8()
	if p.lineRange == 0 || p.opcodeBase == 0 {
		return t, fmt.Errorf("line table at %#x: line range or opcode base is 0", off)
	}
	p.lengths = c.take(uint64(p.opcodeBase - 1))
	if t.v5 {
		err := t.readTables5(&c, secs, is64)
		if err != nil {
			return t, fmt.Errorf("line table at %#x: %w", off, err)
		}
	} else {
		t.readTables(&c)
	}
	if c.bad || c.at > program {
		return t, fmt.Errorf("line table at %#x: header ends early", off)
	}
	c.at = program
	err := p.run(t, &c, keep, work)
	slices.SortFunc(t.seqs, func(a, b lineSeq) int { return cmp.Compare(a.lo, b.lo) })
	if err != nil {
		err = fmt.Errorf("line table at %#x: %w", off, err)
	}
	return t, err
}

// readTables reads the directories and files of versions 2 to 4. Directory 0 is the unit's, file 0 is none.
func (t *lineTable) readTables(c *cursor) {
	t.dirs = [][]byte{nil}
	for !c.bad {
		d := c.cstr()
		if len(d) == 0 {
			break
		}
		t.dirs = append(t.dirs, d)
	}
	t.files = []lineFile{{}}
	for !c.bad {
		name := c.cstr()
		if len(name) == 0 {
			break
		}
		t.addFile(c, name)
	}
}

func (t *lineTable) addFile(c *cursor, name []byte) {
	t.files = append(t.files, lineFile{dir: c.uleb(), name: name})
	c.uleb() // time
	c.uleb() // length
}

// readTables5 reads the directories and files of version 5 (section 6.2.4.1).
func (t *lineTable) readTables5(c *cursor, secs lineSections, is64 bool) error {
	for _, isFiles := range []bool{false, true} {
		format := make([][2]uint64, c.u8())
		for i := range format {
			format[i] = [2]uint64{c.uleb(), c.uleb()}
		}
		count := c.uleb()
		// An entry takes at least a byte, or the count is a lie.
		if c.bad || count > uint64(c.left()) || count > 0 && len(format) == 0 {
			return fmt.Errorf("%d entries make no sense", count)
		}
		for range count {
			var e lineFile
			for _, f := range format {
				s, v, err := lineForm(c, secs, f[1], is64)
				if err != nil {
					return err
				}
				switch f[0] {
				case 1: // DW_LNCT_path
					e.name = s
				case 2: // DW_LNCT_directory_index
					e.dir = v
				}
			}
			if c.bad {
				return errors.New("header ends early")
			}
			if isFiles {
				t.files = append(t.files, e)
			} else {
				t.dirs = append(t.dirs, e.name)
			}
		}
	}
	return nil
}

// lineForm reads one value of a version 5 header, a string or a number.
func lineForm(c *cursor, secs lineSections, form uint64, is64 bool) (s []byte, v uint64, err error) {
	switch form {
	case 0x08: // DW_FORM_string
		return c.cstr(), 0, nil
	case 0x1f, 0x0e: // line_strp, strp
		from := secs.str
		if form == 0x1f {
			from = secs.lineStr
		}
		off := c.offset(is64)
		if off >= uint64(len(from)) {
			return nil, 0, fmt.Errorf("string offset %#x lies outside of its section", off)
		}
		from = from[off:min(uint64(len(from)), off+maxPath)]
		if i := bytes.IndexByte(from, 0); i >= 0 {
			from = from[:i]
		}
		return from, 0, nil
	case 0x0b, 0x25: // data1, strx1
		v = uint64(c.u8())
	case 0x05, 0x26: // data2, strx2
		v = uint64(c.u16())
	case 0x27: // strx3
		c.take(3)
	case 0x06, 0x28: // data4, strx4
		v = uint64(c.u32())
	case 0x07: // data8
		v = c.u64()
	case 0x0f, 0x1a: // udata, strx
		v = c.uleb()
	case 0x1e: // data16
		c.take(16)
	case 0x09: // block
		c.take(c.uleb())
	case 0x1d: // strp_sup
		c.offset(is64)
	default:
		return nil, 0, fmt.Errorf("form %#x in a header is unknown", form)
	}
	return nil, v, nil
}

// lineProgram is the state machine of section 6.2.
type lineProgram struct {
	addrSize   int
	minInst    uint64
	lineBase   int64
	lineRange  uint64
	opcodeBase uint8
	lengths    []byte

	addr uint64
	file uint64
	line int64
	rows []lineRow // of the open sequence
}

func (p *lineProgram) reset() { p.addr, p.file, p.line, p.rows = 0, 1, 1, nil }

func (p *lineProgram) run(t *lineTable, c *cursor, keep func(uint64) bool, work *meter) error {
	p.reset()
	for c.left() > 0 {
		if err := work.spend(1); err != nil {
			return err
		}
		op := c.u8()
		if op >= p.opcodeBase {
			adj := uint64(op - p.opcodeBase)
			p.addr += adj / p.lineRange * p.minInst
			p.line += p.lineBase + int64(adj%p.lineRange)
			p.emit(t)
			continue
		}
		switch op {
		case 0:
			if err := p.extended(t, c, keep); err != nil {
				return err
			}
		case 1: // copy
			p.emit(t)
		case 2: // advance_pc
			p.addr += c.uleb() * p.minInst
		case 3: // advance_line
			p.line += c.sleb()
		case 4: // set_file
			p.file = c.uleb()
		case 8: // const_add_pc
			p.addr += uint64(255-p.opcodeBase) / p.lineRange * p.minInst
		case 9: // fixed_advance_pc
			p.addr += uint64(c.u16())
		case 5, 12: // set_column, set_isa
			c.uleb()
		case 6, 7, 10, 11: // negate_stmt, set_basic_block, set_prologue_end, set_epilogue_begin
		default:
			for range p.lengths[op-1] {
				c.uleb()
			}
		}
		if t.rows > maxLineRows {
			return fmt.Errorf("more than %d rows", maxLineRows)
		}
	}
	if c.bad {
		return errors.New("program ends in an instruction")
	}
	return nil
}

func (p *lineProgram) extended(t *lineTable, c *cursor, keep func(uint64) bool) error {
	body := cursor{b: c.take(c.uleb()), order: c.order}
	if c.bad || body.left() == 0 {
		return errors.New("extended opcode makes no sense")
	}
	switch body.u8() {
	case 1: // end_sequence
		p.end(t, keep)
	case 2: // set_address
		switch p.addrSize {
		case 8:
			p.addr = body.u64()
		case 4:
			p.addr = uint64(body.u32())
		default:
			return fmt.Errorf("addresses of %d bytes", p.addrSize)
		}
	case 3: // define_file
		name := body.cstr()
		t.addFile(&body, name)
	}
	if body.bad {
		return errors.New("extended opcode ends early")
	}
	return nil
}

func (p *lineProgram) emit(t *lineTable) {
	r := lineRow{addr: p.addr, file: uint32(min(p.file, 1<<32-1))}
	if p.line > 0 && p.line < 1<<31 {
		r.line = uint32(p.line)
	}
	n := len(p.rows)
	switch {
	case n > 0 && p.rows[n-1].addr == r.addr:
		p.rows[n-1] = r // a row of no extent
		return
	case n > 0 && p.rows[n-1].file == r.file && p.rows[n-1].line == r.line && p.rows[n-1].addr < r.addr:
		return // goes on
	}
	p.rows = append(p.rows, r)
	t.rows++
}

func (p *lineProgram) end(t *lineTable, keep func(uint64) bool) {
	byAddr := func(a, b lineRow) int { return cmp.Compare(a.addr, b.addr) }
	if !slices.IsSortedFunc(p.rows, byAddr) {
		slices.SortStableFunc(p.rows, byAddr)
	}
	if len(p.rows) > 0 && p.rows[0].addr < p.addr && keep(p.rows[0].addr) {
		t.seqs = append(t.seqs, lineSeq{lo: p.rows[0].addr, hi: p.addr, rows: slices.Clip(p.rows)})
	}
	p.reset()
}

// find returns the file number and line at addr.
func (t *lineTable) find(addr uint64) (file uint64, line int, ok bool) {
	file, line, ok, _ = t.part(addr, extent{0, 1<<64 - 1})
	return file, line, ok
}

// part is find, and what of e has the same.
func (t *lineTable) part(addr uint64, e extent) (file uint64, line int, ok bool, _ extent) {
	i := sort.Search(len(t.seqs), func(i int) bool { return t.seqs[i].lo > addr })
	if i < len(t.seqs) {
		e.hi = min(e.hi, t.seqs[i].lo)
	}
	if i--; i < 0 {
		return 0, 0, false, e
	}
	s := &t.seqs[i]
	if addr >= s.hi {
		return 0, 0, false, e.within(s.hi, e.hi)
	}
	e = e.within(s.lo, s.hi)
	k := sort.Search(len(s.rows), func(k int) bool { return s.rows[k].addr > addr })
	if k < len(s.rows) {
		e.hi = min(e.hi, s.rows[k].addr)
	}
	r := s.rows[k-1]
	return uint64(r.file), int(r.line), true, e.within(r.addr, e.hi)
}

// fileName returns the path of a file number, joined with its directory; "" when there is none. It remembers: one
// goroutine at a time.
func (t *lineTable) fileName(n uint64) string {
	s, ok := t.paths[n]
	if !ok {
		if t.paths == nil {
			t.paths = map[uint64]string{}
		}
		if s = t.path(n); len(t.paths) < maxPaths {
			t.paths[n] = s
		}
	}
	return s
}

func (t *lineTable) path(n uint64) string {
	if n >= uint64(len(t.files)) || len(t.files[n].name) == 0 {
		return ""
	}
	f := t.files[n]
	name := bounded(f.name)
	if path.IsAbs(name) {
		return path.Clean(name)
	}
	dir := ""
	if f.dir < uint64(len(t.dirs)) {
		dir = bounded(t.dirs[f.dir])
	}
	// Directory 0 of version 5 is the unit's, which may itself be relative.
	base := t.compDir
	if t.v5 && len(t.dirs) > 0 {
		base = bounded(t.dirs[0])
	}
	switch {
	case f.dir == 0:
		dir = base
	case !path.IsAbs(dir):
		dir = path.Join(base, dir)
	}
	return path.Join(dir, name)
}

func bounded(b []byte) string { return cstring(b, 0, maxPath) }
