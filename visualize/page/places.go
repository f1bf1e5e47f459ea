// Places: where in the program a piece lies, as one number; the tree of functions behind the numbers; and the objects
// that were waited for. All are numbered in the order in which they are met, so that a page asks for the new ones only.

package page

import (
	"fmt"
	"path/filepath"

	"github.com/hbtrace/hbtrace/analysis/frames"
	"github.com/hbtrace/hbtrace/analysis/weigh"
	"github.com/hbtrace/hbtrace/trace"
)

type sites struct {
	ids  map[trace.Site]uint32
	keys []trace.Site
	last trace.Site // neighbours are often equal
	was  uint32
}

func (s *sites) id(stack trace.StackID, hook trace.HookID) uint32 {
	k := trace.Site{Stack: stack, Hook: hook}
	if k == (trace.Site{}) {
		return 0
	}
	if k == s.last {
		return s.was
	}
	id, ok := s.ids[k]
	if !ok {
		id = uint32(len(s.keys))
		s.keys = append(s.keys, k)
		s.ids[k] = id
	}
	s.last, s.was = k, id
	return id
}

type objectKey struct {
	proc trace.ProcID
	addr uint64
	fd   bool
}

type objects struct {
	ids   map[objectKey]uint32
	keys  []objectKey
	hooks []trace.HookID // that first waited for keys[i+1]: says what kind of object it is
}

func (o *objects) id(k objectKey, h trace.HookID) uint32 {
	id, ok := o.ids[k]
	if !ok {
		id = uint32(len(o.keys))
		o.keys = append(o.keys, k)
		o.hooks = append(o.hooks, h)
		o.ids[k] = id
	}
	return id
}

// tree has one node for each distinct path of functions and lines from the root.
type tree struct {
	parents []uint32
	frames  []uint32 // into names
	lines   []uint32 // in the function's file; 0 unknown
	ids     map[nodeKey]uint32
	sites   []uint32 // by site: its node
	own     []uint32 // by site: the innermost function of the program's own in names, + 1; 0: none
	names   []frameName
	hooks   map[string]uint32 // frame of a hooked function by name
	byFrame []uint32          // by frames.ID: index into names + 1
	path    []trace.StackID
}

// nodeKey is what makes a node of the tree: a line of a function below its caller.
type nodeKey struct{ parent, frame, line uint32 }

// frameName is a function as the page shows it.
type frameName struct {
	Name   string `json:"n"`
	Module string `json:"m,omitempty"`
	File   string `json:"f,omitempty"`
	Bare   bool   `json:"a,omitempty"` // an address: no function is known there
}

const noStack = weigh.NoStack

func (t *tree) init() {
	t.ids = map[nodeKey]uint32{}
	t.hooks = map[string]uint32{}
	t.parents, t.frames, t.lines = []uint32{0}, []uint32{0}, []uint32{0} // the root
	t.names = []frameName{{Name: noStack}}
	t.sites, t.own = []uint32{0}, []uint32{0}
}

func (t *tree) child(parent, frame, line uint32) uint32 {
	k := nodeKey{parent, frame, line}
	id, ok := t.ids[k]
	if !ok {
		id = uint32(len(t.parents))
		t.parents = append(t.parents, parent)
		t.frames = append(t.frames, frame)
		t.lines = append(t.lines, line)
		t.ids[k] = id
	}
	return id
}

// frame is the index of a function in names. m.naming is held.
func (m *Model) frame(id frames.ID) uint32 {
	t := &m.tree
	for int(id) >= len(t.byFrame) {
		t.byFrame = append(t.byFrame, 0)
	}
	if t.byFrame[id] == 0 {
		f := m.tab.Frame(id)
		n := frameName{Name: f.Name, File: f.File, Bare: !f.Symbolised && !f.Mark}
		if mod := m.tab.Module(f.Module); mod != nil {
			n.Module = frames.Valid(filepath.Base(mod.Path))
		}
		t.names = append(t.names, n)
		t.byFrame[id] = uint32(len(t.names))
	}
	return t.byFrame[id] - 1
}

// hookFrame is the index of a hooked function in names.
func (m *Model) hookFrame(h trace.HookID) uint32 {
	name := frames.HookName(m.src.Meta(), h)
	i, ok := m.tree.hooks[name]
	if !ok {
		i = uint32(len(m.tree.names))
		m.tree.names = append(m.tree.names, frameName{Name: name})
		m.tree.hooks[name] = i
	}
	return i
}

// place adds the functions of the sites that the tree does not have yet. m.mu is held for reading, m.naming too.
func (m *Model) place() {
	t := &m.tree
	for len(t.sites) < len(m.sites.keys) {
		k := m.sites.keys[len(t.sites)]
		node := uint32(0)
		leaf := frames.ID(0)
		t.path = m.tab.Path(t.path[:0], k.Stack)
		for _, id := range t.path {
			for _, at := range m.tab.Of(id) {
				node = t.child(node, m.frame(at.ID), uint32(max(0, at.Line)))
				leaf = at.ID
			}
		}
		if len(t.path) == 0 && !frames.Begins(m.src.Meta(), k.Hook) {
			node = t.child(0, 0, 0)
		}
		if k.Hook != 0 {
			name := frames.HookName(m.src.Meta(), k.Hook)
			if f := m.tab.Frame(leaf); leaf == 0 || name != f.Name && name != f.Linkage {
				node = t.child(node, m.hookFrame(k.Hook), 0)
			}
		}
		own := uint32(0)
		if at := m.tab.CulpritFrame(k.Stack, frames.HookName(m.src.Meta(), k.Hook)); at.ID != 0 {
			own = m.frame(at.ID) + 1
		}
		t.sites, t.own = append(t.sites, node), append(t.own, own)
	}
}

// objectName is what a thread waited for, in words.
type objectName struct {
	Name string `json:"n"`
	Kind string `json:"k"` // mutex, condvar, descriptor, …
}

func (m *Model) objectName(i int) objectName {
	k := m.objects.keys[i]
	if k.fd {
		return objectName{fmt.Sprintf("descriptor %d", int64(k.addr)), "descriptor"}
	}
	kind := weigh.ObjectKind(m.src.Meta().Hooks[m.objects.hooks[i-1]])
	if kind == "rwlock-read" || kind == "rwlock-write" {
		kind = "rwlock"
	}
	return objectName{m.tab.Object(k.addr), kind}
}

// Places is what the page needs to name what it was given: everything that was numbered since it last asked.
type placesAnswer struct {
	Frames  []frameName  `json:"frames"`
	Objects []objectName `json:"objects"`
}

// places gives the sites from `site`, tree nodes from `node`, names from `frame` and objects from `object` on.
func (m *Model) places(site, node, frame, object int) *table {
	m.mu.RLock()
	defer m.mu.RUnlock()
	m.naming.Lock()
	defer m.naming.Unlock()
	m.place()
	t := &m.tree
	a := placesAnswer{Frames: []frameName{}, Objects: []objectName{}}
	a.Frames = append(a.Frames, t.names[min(frame, len(t.names)):]...)
	for i := max(1, object); i < len(m.objects.keys); i++ {
		a.Objects = append(a.Objects, m.objectName(i))
	}
	out := newTable(a)
	out.u32("site", t.sites[min(site, len(t.sites)):])
	out.u32("own", t.own[min(site, len(t.own)):])
	out.u32("parent", t.parents[min(node, len(t.parents)):])
	out.u32("frame", t.frames[min(node, len(t.frames)):])
	out.u32("line", t.lines[min(node, len(t.lines)):])
	return out
}
