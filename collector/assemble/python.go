// python.go puts the frames of Python between the native frames that ran them.
//
// A record has a stack's frames of Python behind its program counters, each with the number of the native frame that
// ran it: the evaluation loop's. They stand in its place. What is known of their functions came in CODE records.
package assemble

import (
	"encoding/binary"

	"github.com/hbtrace/hbtrace/python"
	"github.com/hbtrace/hbtrace/segment"
	"github.com/hbtrace/hbtrace/trace"
)

// Limits on what a hostile target can make us keep.
const (
	maxPythonModules = 1 << 17  // functions in a recording
	maxCodeBytes     = 64 << 20 // of line tables
	maxTableBytes    = 32 << 10 // of one
)

// function is one of Python's, as a process knows it by an id.
type function struct {
	module trace.ModuleID // 0: there are too many
	first  int32
	table  []byte
	lines  *python.Lines
}

// mixed is a frame of a stack that has frames of Python.
type mixed struct {
	word   uint64 // a program counter, or a word of HB_PY_*
	native uint16 // which native frame it is, or is run by
	python bool
}

const pyInstr = uint64(0xfffff) << segment.PyInstrShift

// codeRecord takes in what is known of a function of Python.
func (a *Assembler) codeRecord(p *process, rec []byte) bool {
	var r segment.RecCode
	if !r.Decode(rec) {
		return false
	}
	pad := func(n uint16) int { return int(n+7) &^ 7 }
	rest := rec[segment.RecCodeBytes:]
	if len(rest) != pad(r.NameBytes)+pad(r.FileBytes)+pad(r.TablePart) || r.Id == segment.PyNoId ||
		r.Id >= segment.PyCodes {
		return false
	}
	f := p.functions[r.Id]
	if r.TableAt != 0 {
		if f == nil || int(r.TableAt) != len(f.table) || len(f.table)+int(r.TablePart) > maxTableBytes {
			return true // its beginning was lost, or it comes from two threads
		}
	} else {
		if p.functions == nil {
			p.functions = map[uint32]*function{}
		}
		name := python.Text(rest[:r.NameBytes], r.NameKind)
		file := python.Text(rest[pad(r.NameBytes):][:r.FileBytes], r.FileKind)
		f = &function{module: a.pythonModule(name, file, r.FirstLine, r.Cut), first: r.FirstLine}
		p.functions[r.Id] = f
	}
	if a.codeBytes += int(r.TablePart); a.codeBytes <= maxCodeBytes {
		f.table = append(f.table, rest[pad(r.NameBytes)+pad(r.FileBytes):][:r.TablePart]...)
	}
	f.lines = python.ReadLines(r.Version, f.first, f.table)
	return true
}

// pythonModule is the module that stands for a function.
func (a *Assembler) pythonModule(name, file string, line int32, cut uint8) trace.ModuleID {
	if a.pythonModules >= maxPythonModules {
		return 0
	}
	if cut&segment.CodeNameCut != 0 {
		name += "…"
	}
	if cut&segment.CodeFileCut != 0 {
		file += "…"
	}
	if name == "" {
		name = "[Python function without name]"
	}
	if file == "" {
		file = "[unknown]"
	}
	n := len(a.mods.ids)
	id := a.mods.id(moduleKey{path: file, kind: trace.ModulePython, function: name, line: int(max(line, 0))}, 0,
		0, 0, trace.Code{})
	a.pythonModules += len(a.mods.ids) - n
	return id
}

// forgetFunctions is for a process that is gone.
func (a *Assembler) forgetFunctions(p *process) {
	for _, f := range p.functions {
		a.codeBytes -= len(f.table)
	}
	p.functions = nil
}

// mix makes one list of a stack's native frames, root first, and its frames of Python; nil when they do not fit.
func mix(to []mixed, pcs []uint64, words []byte) []mixed {
	pos, running := 0, -1 // native frames that are in it or replaced; whose frames came last
	word := func(i int) uint64 { return binary.LittleEndian.Uint64(words[8*i:]) }
	natives := func(end int) {
		for ; pos < end; pos++ {
			to = append(to, mixed{word: pcs[pos], native: uint16(pos)})
		}
	}
	n := len(words) / 8
	for i := 0; i < n; i++ {
		w := word(i)
		native := int(w & segment.PyNative)
		switch {
		case native == segment.PyUnplaced:
			for k := i + 1; k < n && native == segment.PyUnplaced; k++ {
				native = int(word(k) & segment.PyNative)
			}
			if native == segment.PyUnplaced {
				native = pos // nothing comes behind them: next to those before
			} else if native >= pos && native < len(pcs) {
				natives(native)
			}
			running = -1
		case native == running:
		case native < pos || native >= len(pcs):
			return nil
		default:
			natives(native)
			pos, running = native+1, native
		}
		to = append(to, mixed{word: w, native: uint16(native), python: true})
	}
	natives(len(pcs))
	return to
}

// mixedStack is the rest of stackOf for a stack with frames of Python, or one that comes after such a stack: t.pcs
// are its native frames.
func (a *Assembler) mixedStack(t *thread, s *segment.Stack, words []byte, e *trace.Event) bool {
	list := mix(a.mixed[:0], t.pcs, words)
	if list == nil && len(t.pcs)+len(words) > 0 {
		return false
	}
	a.mixed = list
	again := s.Flags&segment.StackSameCall != 0 // native frame number s.Same is the same call
	lives := func(m *mixed) bool {
		return m.native < s.Same || again && m.native == s.Same
	}
	old, same := t.mixed, 0
	for same < len(list) && same < len(old) && list[same] == old[same] && lives(&list[same]) &&
		(list[same].python || list[same].native < s.Same) {
		same++
	}
	for len(old) == 0 && same < int(s.Same) && same < len(t.stack) && same < len(list) &&
		!list[same].python { // the last one had no Python
		same++
	}
	var sameCall bool
	if same < len(list) && same < len(old) {
		x, y := &list[same], &old[same]
		if x.python && y.python {
			sameCall = (x.word^y.word)&^pyInstr == 0 && x.native == y.native && lives(x)
		} else if !x.python && !y.python {
			sameCall = again && x.native == s.Same && y.native == s.Same
		}
	}
	parent := trace.StackID(0)
	if same > 0 {
		parent = t.stack[same-1]
	}
	t.stack = t.stack[:same]
	for i := same; i < len(list); i++ {
		var id trace.StackID
		ok := true
		if m := &list[i]; m.python {
			id, ok = a.pythonFrame(t.proc, parent, m.word)
			if m.word&segment.PyNative == segment.PyUnplaced {
				a.stats.PythonUnplaced++
			}
		} else {
			id, ok = a.frame(t.proc, parent, m.word)
		}
		if !ok {
			return false
		}
		if id == parent {
			a.stats.SkippedStacks++
			t.whole, t.mixed = false, t.mixed[:0]
			e.Flags |= trace.FlagNoStack
			return true
		}
		parent = id
		t.stack = append(t.stack, id)
	}
	t.mixed = append(t.mixed[:0], list...)
	if len(words) == 0 {
		t.mixed = t.mixed[:0] // the frames are the native ones again
	}
	t.whole = true
	if len(t.stack) == 0 {
		e.Flags |= trace.FlagNoStack
		return true
	}
	e.Stack, e.Same = parent, uint32(same)
	t.stackTime = e.Time
	if sameCall {
		e.Flags |= trace.FlagSameCall
	}
	e.Flags |= stackFlags(s)
	return true
}

// pythonFrame is the node of a frame of Python under parent.
func (a *Assembler) pythonFrame(p *process, parent trace.StackID, word uint64) (trace.StackID, bool) {
	id, unit := uint32(word>>segment.PyIdShift), uint32(word>>segment.PyInstrShift)&0xfffff
	if id == segment.PyMark {
		if unit == 0 {
			return 0, false
		}
		return a.cfg.Stacks.Push(parent, trace.Addr{Off: uint64(unit)}, trace.HowMark), true
	}
	var f *function
	if p != nil {
		f = p.functions[id]
	}
	if f == nil || f.module == 0 {
		if a.unnamed == 0 {
			a.unnamed = a.pythonModule("", "", 0, 0)
		}
		return a.cfg.Stacks.Push(parent, trace.Addr{Module: a.unnamed, Off: 1}, trace.HowExact), true
	}
	line := f.first
	if unit != 0xfffff { // else it has not begun
		line = f.lines.Line(unit)
	}
	return a.cfg.Stacks.Push(parent, trace.Addr{Module: f.module, Off: uint64(max(line, 0))}, trace.HowExact), true
}
