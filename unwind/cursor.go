package unwind

import "encoding/binary"

// cursor reads DWARF data. Reading past the end sets bad and gives zeros; nothing panics.
type cursor struct {
	b   []byte
	p   int
	bad bool
}

func (c *cursor) left() int { return len(c.b) - c.p }

func (c *cursor) fail() { c.bad, c.p = true, len(c.b) }

// take gives the next n bytes.
func (c *cursor) take(n uint64) []byte {
	if n > uint64(c.left()) {
		c.fail()
		return nil
	}
	s := c.b[c.p : c.p+int(n)]
	c.p += int(n)
	return s
}

func (c *cursor) u8() byte {
	if c.p >= len(c.b) {
		c.fail()
		return 0
	}
	v := c.b[c.p]
	c.p++
	return v
}

func (c *cursor) u16() uint16 {
	if s := c.take(2); s != nil {
		return binary.LittleEndian.Uint16(s)
	}
	return 0
}

func (c *cursor) u32() uint32 {
	if s := c.take(4); s != nil {
		return binary.LittleEndian.Uint32(s)
	}
	return 0
}

func (c *cursor) u64() uint64 {
	if s := c.take(8); s != nil {
		return binary.LittleEndian.Uint64(s)
	}
	return 0
}

// uleb reads an unsigned LEB128 number; bits above 64 are lost.
func (c *cursor) uleb() uint64 {
	var v uint64
	for shift := uint(0); ; shift += 7 {
		x := c.u8()
		if shift < 64 {
			v |= uint64(x&0x7f) << shift
		}
		if x < 0x80 {
			return v
		}
	}
}

// sleb reads a signed LEB128 number.
func (c *cursor) sleb() int64 {
	var v int64
	for shift := uint(0); ; shift += 7 {
		x := c.u8()
		if shift < 64 {
			v |= int64(x&0x7f) << shift
		}
		if x < 0x80 {
			if x&0x40 != 0 && shift+7 < 64 {
				v |= -1 << (shift + 7)
			}
			return v
		}
	}
}

// text reads a NUL-terminated string.
func (c *cursor) text() string {
	for i := c.p; i < len(c.b); i++ {
		if c.b[i] == 0 {
			s := string(c.b[c.p:i])
			c.p = i + 1
			return s
		}
	}
	c.fail()
	return ""
}

// Pointer encodings (DW_EH_PE_*, LSB Core 10.5.1).
const (
	encAbsolute = 0x00
	encOmit     = 0xff
	encPCRel    = 0x10
)

// pointer reads an encoded pointer; base is the address of the first byte of c.b. Only absolute and
// pc-relative ones occur in .eh_frame.
func (c *cursor) pointer(enc byte, base uint64) uint64 {
	at := base + uint64(c.p)
	var v uint64
	switch enc & 0x0f {
	case 0x00, 0x04, 0x0c:
		v = c.u64()
	case 0x01:
		v = c.uleb()
	case 0x02:
		v = uint64(c.u16())
	case 0x03:
		v = uint64(c.u32())
	case 0x09:
		v = uint64(c.sleb())
	case 0x0a:
		v = uint64(int64(int16(c.u16())))
	case 0x0b:
		v = uint64(int64(int32(c.u32())))
	default:
		c.fail()
	}
	switch enc & 0xf0 {
	case encAbsolute:
	case encPCRel:
		v += at
	default: // relative to text, data or a function, or indirect
		c.fail()
	}
	return v
}
