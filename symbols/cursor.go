package symbols

// This file owns cursor: bounds-checked reading of DWARF's encodings. A read past the end returns zeros and sets bad.

import (
	"bytes"
	"encoding/binary"
)

type cursor struct {
	b     []byte
	at    int
	order binary.ByteOrder
	bad   bool
}

func (c *cursor) left() int { return len(c.b) - c.at }

func (c *cursor) take(n uint64) []byte {
	if c.bad || n > uint64(c.left()) {
		c.bad = true
		c.at = len(c.b)
		return nil
	}
	b := c.b[c.at : c.at+int(n)]
	c.at += int(n)
	return b
}

func (c *cursor) u8() uint8 {
	if b := c.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (c *cursor) u16() uint16 {
	if b := c.take(2); b != nil {
		return c.order.Uint16(b)
	}
	return 0
}

func (c *cursor) u32() uint32 {
	if b := c.take(4); b != nil {
		return c.order.Uint32(b)
	}
	return 0
}

func (c *cursor) u64() uint64 {
	if b := c.take(8); b != nil {
		return c.order.Uint64(b)
	}
	return 0
}

// offset reads a section offset of 32- or 64-bit DWARF.
func (c *cursor) offset(is64 bool) uint64 {
	if is64 {
		return c.u64()
	}
	return uint64(c.u32())
}

// length reads a unit's initial length (DWARF 5 section 7.4).
func (c *cursor) length() (n uint64, is64 bool) {
	n = uint64(c.u32())
	switch {
	case n == 0xffffffff:
		return c.u64(), true
	case n >= 0xfffffff0:
		c.bad = true
	}
	return n, false
}

func (c *cursor) uleb() uint64 {
	var v uint64
	for shift := uint(0); ; shift += 7 {
		b := c.u8()
		if shift < 64 {
			v |= uint64(b&0x7f) << shift
		}
		if b < 0x80 || c.bad {
			return v
		}
	}
}

func (c *cursor) sleb() int64 {
	var v int64
	for shift := uint(0); ; {
		b := c.u8()
		if shift < 64 {
			v |= int64(b&0x7f) << shift
		}
		shift += 7
		if b < 0x80 || c.bad {
			if b&0x40 != 0 && shift < 64 {
				v |= -1 << shift
			}
			return v
		}
	}
}

// cstr reads up to a NUL, which it also takes.
func (c *cursor) cstr() []byte {
	i := bytes.IndexByte(c.b[c.at:], 0)
	if i < 0 {
		c.bad = true
		c.at = len(c.b)
		return nil
	}
	b := c.b[c.at : c.at+i]
	c.at += i + 1
	return b
}
