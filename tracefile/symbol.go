// Symbols: the functions at addresses of one module, with a table of the section's strings.
//
//	payload  strings: count, each length and bytes
//	         module
//	         for each address: difference to the one before, number of frames,
//	         for each frame: function, linkage name, file (indices of strings), line<<1|inlined
//
// An address with no frames was looked up in vain. Addresses are what [trace.Node.Lookup] returns.

package tracefile

import (
	"encoding/binary"

	"github.com/hbtrace/hbtrace/trace"
)

// symbolEncoder builds the payload of one section.
type symbolEncoder struct {
	strings map[string]uint64
	table   []byte
	body    []byte
	last    uint64
	count   int
}

func (s *symbolEncoder) reset() {
	if s.strings == nil {
		s.strings = map[string]uint64{}
	}
	clear(s.strings)
	s.table, s.body, s.last, s.count = s.table[:0], s.body[:0], 0, 0
}

func (s *symbolEncoder) intern(v string) uint64 {
	i, ok := s.strings[v]
	if !ok {
		i = uint64(len(s.strings))
		s.strings[v] = i
		s.table = appendBytes(s.table, v)
	}
	return i
}

func (s *symbolEncoder) add(addr uint64, frames []trace.SymFrame) {
	s.body = binary.AppendVarint(s.body, int64(addr-s.last))
	s.last = addr
	s.body = binary.AppendUvarint(s.body, uint64(len(frames)))
	for _, f := range frames {
		s.body = binary.AppendUvarint(s.body, s.intern(f.Func))
		s.body = binary.AppendUvarint(s.body, s.intern(f.Linkage))
		s.body = binary.AppendUvarint(s.body, s.intern(f.File))
		line := uint64(uint32(max(f.Line, 0))) << 1
		if f.Inlined {
			line |= 1
		}
		s.body = binary.AppendUvarint(s.body, line)
	}
	s.count++
}

func (s *symbolEncoder) size() int { return len(s.table) + len(s.body) }

func (s *symbolEncoder) payload(dst []byte, module trace.ModuleID) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(s.strings)))
	dst = append(dst, s.table...)
	dst = binary.AppendUvarint(dst, uint64(module))
	return append(dst, s.body...)
}

// decodeSymbols calls put for every address of a section.
func decodeSymbols(payload []byte, count uint32, put func(trace.Addr, []trace.SymFrame)) error {
	c := cursor{p: payload}
	var strings []string
	for range c.count() {
		strings = append(strings, string(c.bytes()))
		if c.bad {
			return errMalformed
		}
	}
	str := func() string {
		i := c.uvarint()
		if i >= uint64(len(strings)) {
			c.fail()
			return ""
		}
		return strings[i]
	}
	addr := trace.Addr{Module: trace.ModuleID(c.uint32())}
	for range count {
		addr.Off += uint64(c.varint())
		n := c.count()
		if c.bad {
			return errMalformed
		}
		var frames []trace.SymFrame
		for range n {
			f := trace.SymFrame{Func: str(), Linkage: str(), File: str()}
			line := c.uvarint()
			f.Line, f.Inlined = int(uint32(line>>1)), line&1 != 0
			if c.bad {
				return errMalformed
			}
			frames = append(frames, f)
		}
		put(addr, frames)
	}
	if c.bad || len(c.p) > 0 {
		return errMalformed
	}
	return nil
}
