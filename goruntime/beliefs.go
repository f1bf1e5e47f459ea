package goruntime

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// stopped is a program that stands before the first instruction of runtime.main.
type stopped struct {
	pid  int
	base uint64
	g    uint64 // R14: the current goroutine, by Go's calling convention
	sp   uint64
	read func(addr uint64, b []byte) error
}

func (s *stopped) word(addr uint64) uint64 {
	var b [8]byte
	if s.read(addr, b[:]) != nil {
		return 0
	}
	return binary.LittleEndian.Uint64(b[:])
}

// code is that of a function; nil when it cannot be read.
func (s *stopped) code(p *Program, function string) []byte {
	f := p.functions[function]
	code := make([]byte, min(f.hi-f.lo, 4096))
	if s.read(s.base+f.lo, code) != nil {
		return nil
	}
	return code
}

// belief is something that the mapped code relies on, and that can be seen in the stopped program.
type belief struct {
	what  string
	holds func(p *Program, s *stopped) bool
}

// beliefs are held against the program before anything of it is changed. Each is about another field or function, so that a
// Layout that is wrong in any one of them is refused (TestBeliefs).
var beliefs = []belief{
	{"the current goroutine is number 1", func(p *Program, s *stopped) bool {
		return s.word(s.g+uint64(p.Layout.GoID())) == 1
	}},
	{"the current goroutine runs", func(p *Program, s *stopped) bool {
		return uint32(s.word(s.g+uint64(p.Layout.Status))) == 2
	}},
	{"it waits for nothing", func(p *Program, s *stopped) bool {
		var b [1]byte
		return s.read(s.g+uint64(p.Layout.Reason), b[:]) == nil && b[0] == 0
	}},
	{"gopark keeps the reason of a wait in it", func(p *Program, s *stopped) bool {
		// MOVB reason, g_waitreason(g): 88, a register and a base, and the offset in four bytes
		code := s.code(p, "runtime.gopark")
		offset := binary.LittleEndian.AppendUint32(nil, p.Layout.Reason)
		for i := 2; i+4 <= len(code); i++ {
			if code[i-2] == 0x88 && code[i-1]>>6 == 2 && code[i-1]&7 != 4 && bytes.Equal(code[i:i+4], offset) {
				return true
			}
		}
		return false
	}},
	{"it began at runtime.main", func(p *Program, s *stopped) bool {
		return s.word(s.g+uint64(p.Layout.StartPC)) == s.base+p.functions["runtime.main"].lo
	}},
	{"it runs on its own stack", func(p *Program, s *stopped) bool {
		lo, hi := s.word(s.g+offStackLo), s.word(s.g+offStackHi)
		return lo < s.sp && s.sp <= hi && hi-lo <= 1<<30
	}},
	{"its program counter is kept where it was resumed", func(p *Program, s *stopped) bool {
		return s.word(s.g+offSchedPC) == s.base+p.functions["runtime.main"].lo
	}},
	{"its frame pointer is kept next to that", func(p *Program, s *stopped) bool {
		// gogo resumes a goroutine: MOVQ gobuf_bp(BX), BP
		return p.Layout.SchedBP >= offSched && bytes.Contains(s.code(p, "gogo"), []byte{0x48, 0x8b, 0x6b, byte(p.Layout.SchedBP - offSched)})
	}},
	{"its thread runs it", func(p *Program, s *stopped) bool {
		return s.word(s.word(s.g+offM)+uint64(p.Layout.CurG)) == s.g
	}},
	{"its thread is the process's first", func(p *Program, s *stopped) bool {
		return s.word(s.word(s.g+offM)+uint64(p.Layout.ProcID)) == uint64(s.pid)
	}},
	{"its thread has a signal stack", func(p *Program, s *stopped) bool {
		m := s.word(s.g + offM)
		signal := s.word(m + uint64(p.Layout.GSignal))
		lo, hi := s.word(signal+offStackLo), s.word(signal+offStackHi)
		return signal != 0 && signal != s.g && s.word(signal+offM) == m && hi > lo && hi-lo >= minSignalStack && hi-lo <= 1<<20
	}},
}

// minSignalStack is what the mapped code needs: frames of 64 callers, a record, and the kernel's own for a signal.
const minSignalStack = 16 << 10

// check says which belief does not hold.
func (p *Program) check(s *stopped) error {
	for _, b := range beliefs {
		if !b.holds(p, s) {
			return fmt.Errorf("its runtime is not as %s's is known: it does not hold that %s", p.Version, b.what)
		}
	}
	return nil
}
