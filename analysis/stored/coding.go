// Coding: one list of fields both writes a part and reads it.

package stored

import (
	"encoding/binary"
	"errors"
	"reflect"
)

// ErrMalformed is the error of a part that does not decode.
var ErrMalformed = errors.New("what was stored does not decode")

// Coding writes values to P, or takes them from it: numbers are varints, signed ones zigzag; a string that came before
// is its number among those. A read that fails sets Err and gives zeros from there on, so that callers need to look
// only once.
type Coding struct {
	P       []byte
	Reading bool
	Err     error

	numbers map[string]uint64 // of strings, when writing
	strings []string          // by number - 1, when reading
}

// Fail gives up on what is left.
func (c *Coding) Fail() { c.P, c.Err = nil, ErrMalformed }

// End fails where something is left to be read.
func (c *Coding) End() {
	if c.Reading && len(c.P) > 0 {
		c.Fail()
	}
}

// Uint codes a number.
func (c *Coding) Uint(v *uint64) {
	if !c.Reading {
		c.P = binary.AppendUvarint(c.P, *v)
		return
	}
	x, n := binary.Uvarint(c.P)
	if n <= 0 {
		c.Fail()
		*v = 0
		return
	}
	*v, c.P = x, c.P[n:]
}

// Int codes a signed number.
func (c *Coding) Int(v *int64) {
	u := uint64(*v)<<1 ^ uint64(*v>>63)
	c.Uint(&u)
	*v = int64(u>>1) ^ -int64(u&1)
}

// Small codes a number of a narrow type.
func Small[T ~uint8 | ~uint16 | ~uint32](c *Coding, v *T) {
	u := uint64(*v)
	c.Uint(&u)
	if *v = T(u); uint64(*v) != u {
		c.Fail()
	}
}

// Bool codes a truth.
func (c *Coding) Bool(v *bool) {
	u := uint8(0)
	if *v {
		u = 1
	}
	Small(c, &u)
	*v = u != 0
}

// String codes a string.
func (c *Coding) String(v *string) {
	if !c.Reading {
		n, known := c.numbers[*v]
		if c.Uint(&n); !known {
			if c.numbers == nil {
				c.numbers = map[string]uint64{}
			}
			c.numbers[*v] = uint64(len(c.numbers) + 1)
			size := uint64(len(*v))
			c.Uint(&size)
			c.P = append(c.P, *v...)
		}
		return
	}
	var n uint64
	if c.Uint(&n); n == 0 {
		c.Uint(&n)
		if n > uint64(len(c.P)) {
			c.Fail()
			*v = ""
			return
		}
		*v, c.P = string(c.P[:n]), c.P[n:]
		c.strings = append(c.strings, *v)
		return
	}
	if n > uint64(len(c.strings)) {
		c.Fail()
		*v = ""
		return
	}
	*v = c.strings[n-1]
}

// Fields codes a struct of integers.
func (c *Coding) Fields(v any) {
	s := reflect.ValueOf(v).Elem()
	for i := range s.NumField() {
		f := s.Field(i)
		if f.CanUint() {
			u := f.Uint()
			c.Uint(&u)
			f.SetUint(u)
			continue
		}
		n := f.Int()
		c.Int(&n)
		f.SetInt(n)
	}
}

// List codes a list's elements. One takes at least a byte, so that no more of them are made than there are.
func List[T any](c *Coding, l *[]T, each func(*T)) {
	n := uint64(len(*l))
	c.Uint(&n)
	if c.Reading {
		if n > uint64(len(c.P)) {
			c.Fail()
			n = 0
		}
		*l = make([]T, n)
	}
	for i := range *l {
		each(&(*l)[i])
	}
}
