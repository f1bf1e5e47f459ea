package python

import "sort"

// Lines is a function's line table: from which unit of code on (two bytes each) it is in which line.
type Lines struct {
	first int32
	at    []entry
}

type entry struct {
	unit uint32
	line int32
}

const maxLine = 1 << 30

// ReadLines decodes a line table; version is major << 8 | minor. What makes no sense in it ends it. Of a table that
// was cut, the lines behind the cut are not known.
func ReadLines(version uint32, first int32, table []byte) *Lines {
	l := &Lines{first: first}
	switch {
	case version >= 0x30b:
		l.locations(table)
	case version == 0x30a:
		l.ranges(table)
	default:
		l.pairs(table)
	}
	return l
}

// Line is the line of a unit of code; the function's first for what is before all code, 0 where it is not known.
func (l *Lines) Line(unit uint32) int32 {
	i := sort.Search(len(l.at), func(i int) bool { return l.at[i].unit > unit })
	if i == 0 {
		return l.first
	}
	return l.at[i-1].line
}

func (l *Lines) add(unit uint32, line int32) {
	if n := len(l.at); n > 0 && l.at[n-1].line == line {
		return
	}
	l.at = append(l.at, entry{unit, line})
}

// end says that nothing is known from here on.
func (l *Lines) end(unit uint32) { l.add(unit, 0) }

// pairs is co_lnotab of 3.8 and 3.9: how many bytes of code, then how many lines on (Objects/lnotab_notes.txt).
func (l *Lines) pairs(b []byte) {
	addr, line := uint32(0), l.first
	l.add(0, line)
	for ; len(b) >= 2; b = b[2:] {
		addr += uint32(b[0])
		if line += int32(int8(b[1])); line < 0 || line > maxLine {
			l.end(addr / 2)
			return
		}
		if n := len(l.at); l.at[n-1].unit == addr/2 { // lines on without code
			l.at[n-1].line = line
			continue
		}
		l.add(addr/2, line)
	}
}

// ranges is co_linetable of 3.10: how many bytes of code the next range has, and its line's distance; -128: it has
// none.
func (l *Lines) ranges(b []byte) {
	addr, line, last := uint32(0), l.first, l.first
	for ; len(b) >= 2; b = b[2:] {
		if d := int8(b[1]); d != -128 {
			if line += int32(d); line < 0 || line > maxLine {
				break
			}
			last = line
		}
		if b[0] != 0 {
			l.add(addr/2, last)
		}
		addr += uint32(b[0])
	}
	l.end(addr / 2)
}

// locations is co_linetable from 3.11 on (Objects/locations.md, in newer versions InternalDocs/code_objects.md).
func (l *Lines) locations(b []byte) {
	unit, line, last := uint32(0), l.first, l.first
	for len(b) > 0 {
		head := b[0]
		if head&0x80 == 0 {
			break
		}
		kind, units := head>>3&15, uint32(head&7)+1
		b = b[1:]
		delta, skip := int32(0), 0
		ok := true
		switch {
		case kind == 15: // no line
		case kind == 14:
			if delta, b, ok = signed(b); ok {
				for range 3 {
					if _, b, ok = unsigned(b); !ok {
						break
					}
				}
			}
		case kind == 13:
			delta, b, ok = signed(b)
		case kind >= 10:
			delta, skip = int32(kind)-10, 2
		default:
			skip = 1
		}
		if !ok || len(b) < skip {
			break
		}
		b = b[skip:]
		if kind != 15 {
			if line += delta; line < 0 || line > maxLine {
				break
			}
			last = line
		}
		l.add(unit, last)
		unit += units
	}
	l.end(unit)
}

func unsigned(b []byte) (v uint32, rest []byte, ok bool) {
	for i := 0; i < len(b) && i < 6; i++ {
		v |= uint32(b[i]&63) << (6 * i)
		if b[i]&64 == 0 {
			return v, b[i+1:], true
		}
	}
	return 0, nil, false
}

func signed(b []byte) (v int32, rest []byte, ok bool) {
	u, rest, ok := unsigned(b)
	if v = int32(u >> 1); u&1 != 0 {
		v = -v
	}
	return v, rest, ok
}
