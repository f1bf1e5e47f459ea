// Reading numbers and strings from a payload that may hold anything.

package tracefile

import (
	"encoding/binary"
	"errors"
	"math"
)

var errMalformed = errors.New("its contents are malformed")

// cursor takes values off the front of p. The first one that is not there or does not fit sets bad; from then
// on every value is 0, so that a decoder checks once at its end.
type cursor struct {
	p   []byte
	bad bool
}

func (c *cursor) fail() { c.p, c.bad = nil, true }

func (c *cursor) uvarint() uint64 {
	if len(c.p) > 0 && c.p[0] < 0x80 { // most of them
		v := c.p[0]
		c.p = c.p[1:]
		return uint64(v)
	}
	v, n := binary.Uvarint(c.p)
	if n <= 0 {
		c.fail()
		return 0
	}
	c.p = c.p[n:]
	return v
}

func (c *cursor) varint() int64 {
	v := c.uvarint()
	return int64(v>>1) ^ -int64(v&1)
}

func (c *cursor) uint32() uint32 {
	v := c.uvarint()
	if v > math.MaxUint32 {
		c.fail()
		return 0
	}
	return uint32(v)
}

func (c *cursor) uint16() uint16 {
	v := c.uvarint()
	if v > math.MaxUint16 {
		c.fail()
		return 0
	}
	return uint16(v)
}

func (c *cursor) byte() byte {
	if len(c.p) == 0 {
		c.fail()
		return 0
	}
	v := c.p[0]
	c.p = c.p[1:]
	return v
}

// bytes returns a length and that many bytes, not copied.
func (c *cursor) bytes() []byte {
	n := c.uvarint()
	if n > uint64(len(c.p)) {
		c.fail()
		return nil
	}
	v := c.p[:n:n]
	c.p = c.p[n:]
	return v
}

// count returns a number of things that take at least one byte each.
func (c *cursor) count() int {
	n := c.uvarint()
	if n > uint64(len(c.p)) {
		c.fail()
		return 0
	}
	return int(n)
}

func (c *cursor) err() error {
	if c.bad {
		return errMalformed
	}
	return nil
}

func appendBytes[T string | []byte](dst []byte, p T) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(p)))
	return append(dst, p...)
}
