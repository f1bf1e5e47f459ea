// Stacks, frames and functions: each distinct one gets a number when a row first needs it, and is written at the end.

package tables

import (
	"github.com/hbtrace/hbtrace/analysis/frames"
	"github.com/hbtrace/hbtrace/analysis/weigh"
	"github.com/hbtrace/hbtrace/trace"
)

// stackKey is a place, or, where there is no stack, a thread's start routine.
type stackKey struct {
	trace.Site
	routine trace.Addr
	none    bool // CPU time or memory of no known stack
}

type frameKey struct {
	module trace.ModuleID
	lookup uint64
	mark   bool
	inline int // number in the set of functions at this address
}

type stacks struct {
	src  trace.Source
	tab  *frames.Table
	ids  map[stackKey]int32
	keys []stackKey
}

func newStacks(src trace.Source, tab *frames.Table) *stacks {
	return &stacks{src: src, tab: tab, ids: map[stackKey]int32{}}
}

// of numbers a place; 0 for none.
func (s *stacks) of(at trace.Site) int32 {
	if at == (trace.Site{}) {
		return 0
	}
	return s.id(stackKey{Site: at})
}

// ofRow numbers the place of a row of the profile.
func (s *stacks) ofRow(k *weigh.Key) int32 {
	key := stackKey{Site: trace.Site{Stack: k.Stack, Hook: k.Hook}}
	if !s.tab.Valid(k.Stack) {
		key.routine, key.none = k.Routine, !frames.Begins(s.src.Meta(), k.Hook)
	}
	return s.id(key)
}

func (s *stacks) id(k stackKey) int32 {
	id, ok := s.ids[k]
	if !ok {
		s.keys = append(s.keys, k)
		id = int32(len(s.keys))
		s.ids[k] = id
	}
	return id
}

// naming writes frames and functions as stacks are written.
type naming struct {
	s         *stacks
	frames    map[frameKey]int32
	functions map[frames.ID]int32
	named     map[string]int32 // functions that are no frame's
	frame     func(frameRow) error
	function  func(functionRow) error
	id        string
	n         int32 // functions so far
}

// write writes the three tables.
func (s *stacks) write(x *export) error {
	frameTable, err := newWriter[frameRow](x, "frames", "", nil)
	if err != nil {
		return err
	}
	functionTable, err := newWriter[functionRow](x, "functions", "", nil)
	if err != nil {
		return err
	}
	n := &naming{
		s: s, frames: map[frameKey]int32{}, functions: map[frames.ID]int32{}, named: map[string]int32{},
		frame: frameTable.add, function: functionTable.add, id: x.id,
	}
	err = writeAll(x, "stacks", func(add func(stackRow) error) error {
		for i := range s.keys {
			row := stackRow{Recording: x.id, Stack: int32(i + 1)}
			if err := n.fill(&row, &s.keys[i]); err != nil {
				return err
			}
			if err := add(row); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := frameTable.close(); err != nil {
		return err
	}
	return functionTable.close()
}

// fill names a stack's frames, leaf first.
func (n *naming) fill(row *stackRow, k *stackKey) error {
	s := n.s
	row.Call = frames.HookName(s.src.Meta(), k.Hook)
	row.Frames, row.Functions = []int32{}, []int32{}
	path := s.tab.Path(nil, k.Stack)
	for i := len(path) - 1; i >= 0; i-- {
		node := s.src.Node(path[i])
		set := s.tab.Of(path[i])
		for j := len(set) - 1; j >= 0; j-- {
			f, err := n.functionOf(set[j].ID)
			if err != nil {
				return err
			}
			key := frameKey{node.Addr.Module, node.Lookup(), node.How == trace.HowMark, j}
			id, err := n.frameOf(key, f, set[j].Line, j > 0)
			if err != nil {
				return err
			}
			row.Frames, row.Functions = append(row.Frames, id), append(row.Functions, f)
			if row.Leaf == 0 && !s.tab.Frame(set[j].ID).Mark {
				row.Leaf = f
			}
		}
	}
	row.Place = s.tab.Culprit(k.Stack, row.Call)
	if row.Leaf != 0 || !k.none && k.Hook == 0 {
		return nil
	}
	name := row.Call
	switch {
	case k.routine != (trace.Addr{}):
		name = s.tab.Address(k.routine.Module, k.routine.Off)
	case k.none:
		name = weigh.NoStack
	}
	row.Place = name
	var err error
	row.Leaf, err = n.functionNamed(name)
	return err
}

func (n *naming) frameOf(k frameKey, function, line int32, inlined bool) (int32, error) {
	if id, ok := n.frames[k]; ok {
		return id, nil
	}
	id := int32(len(n.frames) + 1)
	n.frames[k] = id
	return id, n.frame(frameRow{n.id, id, function, line, k.lookup, inlined})
}

func (n *naming) functionOf(id frames.ID) (int32, error) {
	if f, ok := n.functions[id]; ok {
		return f, nil
	}
	n.n++
	n.functions[id] = n.n
	fr := n.s.tab.Frame(id)
	row := functionRow{Recording: n.id, Function: n.n, Name: fr.Name, Linkage: fr.Linkage, File: fr.File, Known: fr.Symbolised}
	if m := n.s.tab.Module(fr.Module); m != nil {
		row.Module, row.BuildID = frames.Valid(m.Path), m.BuildID
	}
	return n.n, n.function(row)
}

func (n *naming) functionNamed(name string) (int32, error) {
	if f, ok := n.named[name]; ok {
		return f, nil
	}
	n.n++
	n.named[name] = n.n
	return n.n, n.function(functionRow{Recording: n.id, Function: n.n, Name: name})
}
