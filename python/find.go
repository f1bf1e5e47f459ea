// Package python knows interpreters of Python: which file holds one, of what version, and where in memory that version
// keeps its frames, for the walk in stack.h; and how a function's line table is read.
package python

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"regexp"

	"github.com/hbtrace/hbtrace/segment"
)

// ErrNone says that a file holds no interpreter of Python.
var ErrNone = errors.New("no interpreter of Python")

// Interpreter is a file's. Its addresses are ELF virtual addresses.
type Interpreter struct {
	Version string // "3.11"
	layout  layout
	runtime uint64
	code    uint64
	evalLo  uint64
	evalHi  uint64
}

const (
	maxRodata  = 64 << 20
	maxDynstr  = 16 << 20
	runtimeSym = "_PyRuntime"
)

// Find looks for an interpreter. The error is [ErrNone] where there is none; any other says why its frames are not
// known.
func Find(e *elf.File) (*Interpreter, error) {
	names := e.Section(".dynstr")
	if e.Machine != elf.EM_X86_64 || names == nil || names.Size > maxDynstr {
		return nil, ErrNone
	}
	strings, err := names.Data()
	if err != nil || !bytes.Contains(strings, []byte("\x00"+runtimeSym+"\x00")) {
		return nil, ErrNone
	}
	syms, err := e.DynamicSymbols()
	if err != nil {
		return nil, ErrNone
	}
	in := &Interpreter{}
	var version elf.Symbol
	for _, s := range syms {
		if s.Section == elf.SHN_UNDEF {
			continue
		}
		switch s.Name {
		case runtimeSym:
			in.runtime = s.Value
		case "PyCode_Type":
			in.code = s.Value
		case "_PyEval_EvalFrameDefault":
			in.evalLo, in.evalHi = s.Value, s.Value+s.Size
		case "Py_Version":
			version = s
		}
	}
	if in.runtime == 0 {
		return nil, ErrNone
	}
	if in.code == 0 {
		return nil, errors.New("it does not export PyCode_Type")
	}
	minor, err := minorOf(e, version)
	if err != nil {
		return nil, err
	}
	in.Version = fmt.Sprintf("3.%d", minor)
	head := at(e, in.runtime, 8*debugWords)
	number := uint32(0x300 | minor)
	if number == debugLastKnown {
		l, ok := fromDebugOffsets(head)
		if !ok {
			return nil, fmt.Errorf("Python %s: its _Py_DebugOffsets are not those that are known", in.Version)
		}
		in.layout = l
		return in, nil
	}
	free := uint32(0)
	if number >= 0x30d && len(head) > 24 && head[8*debugThreaded] == 1 {
		free = 1
	}
	for _, l := range layouts {
		if l.Version != number || l.FreeThreaded != free {
			continue
		}
		if number >= 0x30d && !l.agrees(head) {
			return nil, fmt.Errorf("Python %s: its _Py_DebugOffsets are not those of its release", in.Version)
		}
		in.layout = l
		return in, nil
	}
	return nil, fmt.Errorf("Python %s is not a version whose frames are known (3.8 to 3.14)", in.Version)
}

// Place is the interpreter in a process that has its file mapped with this bias.
func (in *Interpreter) Place(bias uint64) segment.Python {
	p := in.layout.Python
	p.Runtime, p.CodeType = in.runtime+bias, in.code+bias
	p.Key = p.Runtime + in.layout.key
	if in.layout.gil != 0 {
		p.Gil = p.Runtime + in.layout.gil
	}
	if in.evalHi != 0 {
		p.EvalLo, p.EvalHi = in.evalLo+bias, in.evalHi+bias
	}
	return p
}

var versionString = regexp.MustCompile(`[^0-9.]3\.(\d{1,2})\.\d{1,2}(?:[abc+]|rc)?\d*\+?\x00`)

// minorOf is the number behind "3." of the version: by the symbol Py_Version, which 3.11 and later have, else by the
// string that Py_GetVersion begins with.
func minorOf(e *elf.File, version elf.Symbol) (int, error) {
	if version.Value != 0 {
		b := at(e, version.Value, 8)
		if len(b) < 4 || b[3] != 3 {
			return 0, errors.New("Py_Version is not that of a Python 3")
		}
		return int(b[2]), nil
	}
	s := e.Section(".rodata")
	if s == nil || s.Size > maxRodata {
		return 0, errors.New("its version is not known: there is no section .rodata")
	}
	data, err := s.Data()
	if err != nil {
		return 0, fmt.Errorf("its version is not known: %w", err)
	}
	minor := -1
	for len(data) > 0 {
		m := versionString.FindSubmatchIndex(data)
		if m == nil {
			break
		}
		var n int
		fmt.Sscan(string(data[m[2]:m[3]]), &n) // digits
		if minor >= 0 && n != minor {
			return 0, errors.New("its version is not known: several versions are named in it")
		}
		minor = n
		data = data[m[1]-1:]
	}
	if minor < 0 {
		return 0, errors.New("its version is not known: none is named in it")
	}
	return minor, nil
}

// at reads up to n bytes that the file has for an address; fewer where it has not so many.
func at(e *elf.File, vaddr uint64, n int) []byte {
	for _, p := range e.Progs {
		if p.Type == elf.PT_LOAD && vaddr >= p.Vaddr && vaddr-p.Vaddr < p.Filesz {
			b := make([]byte, min(uint64(n), p.Filesz-(vaddr-p.Vaddr)))
			k, err := p.ReadAt(b, int64(vaddr-p.Vaddr))
			if err != nil && !errors.Is(err, io.EOF) {
				return nil
			}
			return b[:k]
		}
	}
	return nil
}
