// The tables that all threads share: strings, functions, frames and stacks.

package firefox

import (
	"path/filepath"

	"github.com/hbtrace/hbtrace/analysis/frames"
	"github.com/hbtrace/hbtrace/trace"
)

type tables struct {
	src trace.Source
	tab *frames.Table

	strings []string
	strAt   map[string]int32

	funcs  []function
	funcAt map[function]int32

	frames  []frameRow
	frameAt map[frameRow]int32

	stacks  []stackRow
	stackAt map[stackRow]int32
	ofNode  map[trace.StackID]int32

	libs  []trace.ModuleID // that functions are of
	libAt map[trace.ModuleID]int32
}

type function struct {
	name, file int32 // strings; file -1: unknown
	lib        int32 // -1: none
}

type frameRow struct {
	function int32
	line     int32 // 0 unknown
	inline   int32 // depth: 0 is the function that is really there
}

type stackRow struct{ prefix, frame int32 } // prefix -1: outermost

func newTables(src trace.Source) *tables {
	return &tables{
		src: src, tab: frames.New(src), strAt: map[string]int32{}, funcAt: map[function]int32{}, frameAt: map[frameRow]int32{},
		stackAt: map[stackRow]int32{}, ofNode: map[trace.StackID]int32{}, libAt: map[trace.ModuleID]int32{},
	}
}

// intern is the index of x in a table, which grows by it if it is new.
func intern[T comparable](table *[]T, at map[T]int32, x T) int32 {
	i, ok := at[x]
	if !ok {
		i = int32(len(*table))
		*table = append(*table, x)
		at[x] = i
	}
	return i
}

func (t *tables) string(s string) int32 { return intern(&t.strings, t.strAt, frames.Valid(s)) }

// stack is the index of a stack, with the hooked function on top unless that is its leaf already; -1 for none.
func (t *tables) stack(id trace.StackID, hook trace.HookID) int32 {
	top, leaf := int32(-1), ""
	if t.tab.Valid(id) {
		top = t.node(id)
		at := t.tab.Of(id)
		f := t.tab.Frame(at[len(at)-1].ID)
		leaf = f.Name
	}
	if hook == 0 {
		return top
	}
	name := frames.HookName(t.src.Meta(), hook)
	if name == "" || name == leaf {
		return top
	}
	return t.push(top, frameRow{function: intern(&t.funcs, t.funcAt, function{t.string(name), -1, -1})})
}

func (t *tables) push(prefix int32, f frameRow) int32 {
	return intern(&t.stacks, t.stackAt, stackRow{prefix, intern(&t.frames, t.frameAt, f)})
}

// node is the stack that ends in a node, and all its callers.
func (t *tables) node(id trace.StackID) int32 {
	if i, ok := t.ofNode[id]; ok {
		return i
	}
	top := int32(-1)
	for _, id := range t.tab.Path(nil, id) {
		if i, ok := t.ofNode[id]; ok {
			top = i
			continue
		}
		for depth, at := range t.tab.Of(id) {
			f := t.tab.Frame(at.ID)
			fn := function{t.string(f.Name), -1, -1}
			if f.File != "" {
				fn.file = t.string(f.File)
			}
			if m := t.tab.Module(f.Module); m != nil && m.Path != "" {
				fn.lib = intern(&t.libs, t.libAt, m.ID)
			}
			top = t.push(top, frameRow{intern(&t.funcs, t.funcAt, fn), at.Line, int32(depth)})
		}
		t.ofNode[id] = top
	}
	return top
}

// lib is how the file names a module.
type lib struct {
	Arch       *string `json:"arch"`
	Name       string  `json:"name"`
	Path       string  `json:"path"`
	DebugName  string  `json:"debugName"`
	DebugPath  string  `json:"debugPath"`
	BreakpadID string  `json:"breakpadId"` // "" unknown: there is nothing to look up, names are in the file
	CodeID     *string `json:"codeId"`
}

func (t *tables) lib(id trace.ModuleID) lib {
	m := t.tab.Module(id)
	path := frames.Valid(m.Path)
	l := lib{Name: filepath.Base(path), Path: path, DebugName: filepath.Base(path), DebugPath: path}
	if m.BuildID != "" {
		l.CodeID = &m.BuildID
	}
	return l
}
