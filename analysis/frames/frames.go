// Package frames owns how a node of a recording's stack table is shown: the functions at it (several where calls
// were inlined), their names as valid UTF-8, and the number of frames below it. Spans, weights and their writers
// share it, so that one function has one name in every output.
package frames

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"github.com/hbtrace/hbtrace/trace"
)

// ID numbers a distinct function of a [Table], from 1.
type ID uint32

// Frame is a function as outputs show it.
type Frame struct {
	Name       string // valid UTF-8, never empty; module+0xoffset where nothing better is known
	Linkage    string // symbol table's name; "" unknown
	File       string // "" unknown
	Module     trace.ModuleID
	Symbolised bool // Name is a function's
	Mark       bool // no function: a note of frames that were left out
}

// At is one function at a node. Two nodes whose physical frame is one invocation share an inlined frame when its At
// is equal in both.
type At struct {
	ID   ID
	Site int32 // line of the caller this was inlined at; 0 for the physical function
	Line int32 // line in the function; 0 unknown. Not part of its identity
}

// Same says whether a and b, at one place of one invocation, are one call.
func (a At) Same(b At) bool { return a.ID == b.ID && a.Site == b.Site }

// maxDepth bounds a walk towards the root, so that a table with a loop in it ends too. Agents keep at most 384 frames.
const maxDepth = 4096

type frameKey struct {
	name, linkage string
	module        trace.ModuleID
}

type addrKey struct {
	module trace.ModuleID
	lookup uint64
	mark   bool
}

// node is read for every event. Its fields lie together, because they are in no cache.
type node struct {
	parent uint32 // 0 outermost
	set    uint32 // of Table.sets; 0 not resolved yet
	depth  uint16 // frames down to the root, itself included; 0 not counted yet
	width  uint8  // functions at it, as far as they are few; 0 not counted yet
}

// Table caches what the nodes of one recording are called. Its memory is a few bytes per node and one entry per
// distinct address. It is not safe for concurrent use.
type Table struct {
	src     trace.Source
	modules map[trace.ModuleID]*trace.Module
	files   []*trace.Module // those that data lies in; none where addresses mean several things
	frames  []Frame         // by ID; 0 unused
	ids     map[frameKey]ID
	sets    [][]At // 0 unused
	byAddr  map[addrKey]uint32
	nodes   []node // by StackID
	plumbs  []int8 // by ID, of a run-time library: 1 yes, -1 no, 0 not decided yet
	path    []trace.StackID
	started map[string]string           // programs' paths: what they are called
	starts  map[trace.ModuleID][]uint64 // of threads' start routines
}

// New makes a Table for src.
func New(src trace.Source) *Table {
	n := src.Nodes() + 1
	t := &Table{
		src: src, modules: map[trace.ModuleID]*trace.Module{}, started: startedAs(src.Processes(), src.Meta().Command),
		frames: make([]Frame, 1), ids: map[frameKey]ID{},
		sets: make([][]At, 1), byAddr: map[addrKey]uint32{},
		nodes: make([]node, n),
	}
	for id := 1; id < n; id++ {
		t.nodes[id].parent = uint32(src.Node(trace.StackID(id)).Parent)
	}
	for _, th := range src.Threads() {
		if a := th.StartRoutine; a.Module != 0 && !slices.Contains(t.starts[a.Module], a.Off) && len(t.starts[a.Module]) < maxStarts {
			if t.starts == nil {
				t.starts = map[trace.ModuleID][]uint64{}
			}
			t.starts[a.Module] = append(t.starts[a.Module], a.Off)
		}
	}
	mods := src.Modules()
	for i := range mods {
		t.modules[mods[i].ID] = &mods[i]
		if mods[i].Kind == trace.ModuleELF && len(src.Processes()) == 1 {
			t.files = append(t.files, &mods[i])
		}
	}
	return t
}

// Module returns a module of the recording, nil when it is not known.
func (t *Table) Module(id trace.ModuleID) *trace.Module { return t.modules[id] }

// Frame returns the function with that number; the result must not be modified.
func (t *Table) Frame(id ID) *Frame { return &t.frames[id] }

// Len is one more than the highest ID given so far.
func (t *Table) Len() int { return len(t.frames) }

// Valid says whether id is a stack of the recording with at least one frame.
func (t *Table) Valid(id trace.StackID) bool { return id != 0 && int64(id) < int64(len(t.nodes)) }

// Parent is the caller's node; 0 for an outermost frame and for an unknown stack.
func (t *Table) Parent(id trace.StackID) trace.StackID {
	if int64(id) >= int64(len(t.nodes)) {
		return 0
	}
	return trace.StackID(t.nodes[id].parent)
}

// Depth is the number of nodes from id to the root; 0 for the empty and for an unknown stack.
func (t *Table) Depth(id trace.StackID) int {
	if !t.Valid(id) {
		return 0
	}
	if d := t.nodes[id].depth; d != 0 {
		return int(d)
	}
	t.path = t.path[:0]
	base := 0
	for n := id; t.Valid(n) && len(t.path) < maxDepth; n = t.Parent(n) {
		if d := t.nodes[n].depth; d != 0 {
			base = int(d)
			break
		}
		t.path = append(t.path, n)
	}
	for i := len(t.path) - 1; i >= 0; i-- {
		base = min(base+1, maxDepth)
		t.nodes[t.path[i]].depth = uint16(base)
	}
	return base
}

// Path appends the nodes of stack id to dst, root first.
func (t *Table) Path(dst []trace.StackID, id trace.StackID) []trace.StackID {
	d := t.Depth(id)
	at := len(dst)
	for range d {
		dst = append(dst, 0)
	}
	for i := d - 1; i >= 0; i-- {
		dst[at+i] = id
		id = t.Parent(id)
	}
	return dst
}

// Of returns the functions at a node, outermost first: at least one. The result must not be modified.
func (t *Table) Of(id trace.StackID) []At {
	if !t.Valid(id) {
		return nil
	}
	if s := t.nodes[id].set; s != 0 {
		return t.sets[s]
	}
	n := t.src.Node(id)
	key := addrKey{n.Addr.Module, n.Lookup(), n.How == trace.HowMark}
	if key.mark {
		key.lookup = n.Addr.Off
	}
	s, ok := t.byAddr[key]
	if !ok {
		t.sets = append(t.sets, t.resolve(id, n))
		s = uint32(len(t.sets) - 1)
		t.byAddr[key] = s
	}
	t.nodes[id].set = s
	return t.sets[s]
}

// Functions is the number of functions at a node: one, but where calls were inlined.
func (t *Table) Functions(id trace.StackID) int {
	if !t.Valid(id) {
		return 0
	}
	if n := t.nodes[id].width; n != 0 {
		return int(n)
	}
	n := len(t.Of(id))
	if n <= math.MaxUint8 {
		t.nodes[id].width = uint8(n)
	}
	return n
}

func (t *Table) resolve(id trace.StackID, n trace.Node) []At {
	if n.How == trace.HowMark {
		name := fmt.Sprintf("[%d frames omitted]", n.Addr.Off)
		return []At{{ID: t.intern(Frame{Name: name, Mark: true})}}
	}
	syms := t.src.Symbols(id)
	if len(syms) == 0 {
		return []At{{ID: t.intern(Frame{Name: t.Address(n.Addr.Module, n.Lookup()), Module: n.Addr.Module})}}
	}
	set := make([]At, 0, len(syms))
	site := int32(0)
	for i := len(syms) - 1; i >= 0; i-- {
		s := &syms[i]
		f := Frame{Name: s.Func, Linkage: s.Linkage, File: s.File, Module: n.Addr.Module, Symbolised: true}
		if f.Name == "" {
			f.Name = s.Linkage
		}
		if f.Name == "" {
			f.Name, f.Symbolised = t.Address(n.Addr.Module, n.Lookup()), false
		}
		set = append(set, At{ID: t.intern(f), Site: site, Line: int32(s.Line)})
		site = int32(s.Line)
	}
	return set
}

func (t *Table) intern(f Frame) ID {
	f.Name, f.Linkage, f.File = Valid(f.Name), Valid(f.Linkage), Valid(f.File)
	k := frameKey{f.Name, f.Linkage, f.Module}
	if id, ok := t.ids[k]; ok {
		return id
	}
	t.frames = append(t.frames, f)
	id := ID(len(t.frames) - 1)
	t.ids[k] = id
	return id
}

// maxStarts of a module are remembered. What lies less than startBytes behind one belongs to it.
const (
	maxStarts  = 16
	startBytes = 64
)

// Address names an address that has no symbol: module+0xoffset, or 0xaddress in no module. One at the beginning of a thread's start
// routine is named as that: runtime libraries without symbols have such routines of their own, at the root of their threads' stacks.
func (t *Table) Address(module trace.ModuleID, off uint64) string {
	m := t.modules[module]
	for _, s := range t.starts[module] {
		if m != nil && m.Path != "" && off >= s && off-s < startBytes {
			return fmt.Sprintf("thread start %s+%#x", t.base(m), s)
		}
	}
	switch {
	case m == nil:
		return fmt.Sprintf("%#x", off)
	case m.Path == "":
		return fmt.Sprintf("[anon]+%#x", off)
	}
	return fmt.Sprintf("%s+%#x", t.base(m), off)
}

// base is what a module is called: its file's name. A program is called as it was started, where that says more: Debian's
// redis-server is a link to redis-check-rdb.
func (t *Table) base(m *trace.Module) string {
	if s, ok := t.started[m.Path]; ok {
		return s
	}
	return Valid(filepath.Base(m.Path))
}

// startedAs tells, by path, under which other name programs were started, where all processes of one agree.
func startedAs(list []trace.Process, command []string) map[string]string {
	out := map[string]string{}
	asked := ""
	if len(command) > 0 {
		asked, _, _ = strings.Cut(strings.ReplaceAll(filepath.Base(command[0]), ":", " "), " ") // a title, where it was attached to
	}
	for i := range list {
		p := &list[i]
		if len(p.Cmdline) == 0 || p.Exe == "" {
			continue
		}
		name := Valid(filepath.Base(strings.TrimPrefix(p.Cmdline[0], "-")))
		// A title that the program gave itself is no name of a file, but where it begins with the name of the command that was
		// recorded: redis calls itself "redis-server *:6379".
		if first, _, ok := strings.Cut(strings.ReplaceAll(p.Cmdline[0], ":", " "), " "); ok && first == asked {
			name = Valid(first)
		}
		if strings.ContainsAny(name, " :()[]") || name == "." || name == "/" {
			name = Valid(filepath.Base(p.Exe))
		}
		if before, ok := out[p.Exe]; ok && before != name {
			name = Valid(filepath.Base(p.Exe))
		}
		out[p.Exe] = name
	}
	return out
}

// Title is what a process called itself by writing over its arguments, as servers do: "postgres: checkpointer"; "" where it
// did not. A title has blanks and is the only argument.
func Title(p *trace.Process) string {
	if len(p.Cmdline) != 1 || p.Cmdline[0] == p.Exe {
		return ""
	}
	title := strings.TrimSpace(Valid(p.Cmdline[0]))
	if !strings.Contains(title, " ") || strings.HasPrefix(title, "/") {
		return ""
	}
	return title
}

// Variable names the lock or other variable at an address of the recorded program: by its name, and how far into it the
// address is; "" where that is not recorded, and in a recording of several processes, where an address may mean several
// things.
func (t *Table) Variable(addr uint64) string {
	m := t.moduleAt(addr)
	if m == nil {
		return ""
	}
	switch v := m.Variables[addr-m.Bias]; {
	case v.Name == "":
		return ""
	case v.Off == 0:
		return Valid(v.Name)
	default:
		return fmt.Sprintf("%s+%#x", Valid(v.Name), v.Off)
	}
}

// Object is [Table.Variable] for where there must be something: module+0xoffset, or 0xaddress, where there is no name.
func (t *Table) Object(addr uint64) string {
	if name := t.Variable(addr); name != "" {
		return name
	}
	if m := t.moduleAt(addr); m != nil {
		return t.Address(m.ID, addr-m.Bias)
	}
	return fmt.Sprintf("%#x", addr)
}

// moduleAt finds the file whose code or data an address of the recorded program lies in; nil when there is none.
func (t *Table) moduleAt(addr uint64) *trace.Module {
	for _, m := range t.files {
		if addr >= m.Lo && addr < m.Hi {
			return m
		}
	}
	return nil
}

// Valid returns s as valid UTF-8 without control characters: what is not valid, and what would move a terminal's cursor
// or change its colours, is replaced by U+FFFD, a carriage return by a blank. Names come from the programs that were
// recorded, and other tools print what is exported. Line feeds and tabs stay.
func Valid(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if strings.IndexFunc(s, controls) < 0 {
		return s
	}
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\r':
			return ' '
		case controls(r):
			return '\uFFFD'
		}
		return r
	}, s)
}

func controls(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' }

// Begins says whether a hook is where a program begins: the exec itself. No stack lies below it, and none is missing.
func Begins(m *trace.Meta, h trace.HookID) bool { return h != 0 && m.Hooks[h].Name == "execve" }

// HookName is the name of a wrapped function; "" for 0.
func HookName(m *trace.Meta, h trace.HookID) string {
	if h == 0 {
		return ""
	}
	if i, ok := m.Hooks[h]; ok && i.Name != "" {
		return Valid(i.Name)
	}
	return fmt.Sprintf("hook %d", h)
}
