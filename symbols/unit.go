package symbols

// This file owns compile units: the functions of one, their inlined calls, and their names.

import (
	"debug/dwarf"
	"errors"
	"fmt"
	"sort"
	"strings"

	"github.com/hbtrace/hbtrace/trace"
)

const (
	maxFunctions = 4 << 20 // of one unit, inlined ones included
	maxInline    = 256     // frames at one address; compilers stop at some dozens
	maxDepth     = 4096    // of nested entries
	maxOrigin    = 16      // references from an entry to the one with the name

	attrMIPSLinkage = dwarf.Attr(0x2007) // DW_AT_MIPS_linkage_name: DWARF 3 and before
)

// unit is a decoded compile unit.
type unit struct {
	funcs []function
	at    flatMap // address -> index into funcs, the innermost
	lines *lineTable
	bad   bool // it could not be decoded: the symbol table has to do
}

// function is a DW_TAG_subprogram with code, or a DW_TAG_inlined_subroutine.
type function struct {
	die      dwarf.Offset
	parent   int32 // the function that this one was inlined into; -1 for subprograms
	callFile uint32
	callLine int32
}

// dieName is what the entry of a function and those it refers to say about its name.
type dieName struct{ linkage, name string }

// scopeFrame is one level of the walk through the tree of entries.
type scopeFrame struct {
	fn    int32  // innermost function with code around here; -1 none
	scope string // "ns::Class" around here
}

// decode walks all entries of units[i]. What came before an error is kept.
func (d *dwarfInfo) decode(i int32) *unit {
	ref := &d.units[i]
	if ref.unit != nil {
		return ref.unit
	}
	if d.cached > maxCached {
		for k := range d.units {
			d.units[k].unit = nil
		}
		clear(d.lines)
		clear(d.names)
		clear(d.scopes)
		d.cached = 0
	}
	u := &unit{}
	ref.unit = u
	d.work.start()
	defer d.work.stop()
	if err := d.walk(ref, u); err != nil {
		d.problem(fmt.Errorf("unit at %#x: %w", ref.die, err))
		u.bad = len(u.funcs) == 0 && u.lines == nil
	}
	d.cached += len(u.funcs) + 2*len(u.at.start)
	return u
}

func (d *dwarfInfo) walk(ref *unitRef, u *unit) error {
	rd := d.data.Reader()
	rd.Seek(ref.die)
	root, err := rd.Next()
	if err != nil || root == nil {
		return err
	}
	var lineErr error
	u.lines, lineErr = d.lineTable(root, ref.addrSize)

	var spans []span
	defer func() { u.at = flatten(spans) }()
	stack := []scopeFrame{{fn: -1}}
	if !root.Children {
		stack = nil
	}
	last := root.Offset
	for len(stack) > 0 {
		e, err := rd.Next()
		if err != nil {
			return err
		}
		if e == nil {
			break
		}
		if e.Tag == 0 {
			if err := d.work.spend(1); err != nil {
				return err
			}
			stack = stack[:len(stack)-1]
			continue
		}
		if e.Offset <= last || e.Offset >= ref.end {
			break
		}
		last = e.Offset
		top := stack[len(stack)-1]
		if err := d.work.spend(8 + len(e.Field)); err != nil {
			return err
		}
		switch e.Tag {
		case dwarf.TagSubprogram, dwarf.TagInlinedSubroutine:
			rs, err := d.ranges(e)
			if errors.Is(err, errBudget) {
				return err
			}
			if err != nil { // this function is lost, its neighbours are not
				d.problem(fmt.Errorf("entry at %#x: ranges: %w", e.Offset, err))
			}
			top = d.enter(u, e, top, rs, &spans)
		case dwarf.TagNamespace:
			top.scope = join(top.scope, d.nameOr(e, "(anonymous namespace)"))
		case dwarf.TagStructType, dwarf.TagClassType, dwarf.TagUnionType, dwarf.TagInterfaceType:
			top.scope = join(top.scope, d.nameOr(e, ""))
		case dwarf.TagEnumerationType, dwarf.TagArrayType, dwarf.TagSubroutineType:
			if e.Children {
				rd.SkipChildren()
			}
			continue
		}
		if len(u.funcs) > maxFunctions || len(spans) > maxFunctions {
			return fmt.Errorf("more than %d functions or ranges", maxFunctions)
		}
		if e.Children {
			if len(stack) >= maxDepth {
				return fmt.Errorf("entries nest more than %d deep", maxDepth)
			}
			stack = append(stack, top)
		}
	}
	return lineErr
}

// enter records a function and returns the frame for its children.
func (d *dwarfInfo) enter(u *unit, e *dwarf.Entry, top scopeFrame, ranges [][2]uint64, spans *[]span) scopeFrame {
	inlined := e.Tag == dwarf.TagInlinedSubroutine
	if !inlined {
		origin := e.AttrField(dwarf.AttrAbstractOrigin) != nil || e.AttrField(dwarf.AttrSpecification) != nil
		if !origin && top.scope != "" && d.str(e, dwarf.AttrLinkageName) == "" {
			d.scopes[e.Offset] = top.scope
		}
		if n := d.str(e, dwarf.AttrName); n != "" {
			top.scope = join(top.scope, n)
		}
		top.fn = -1
	}
	if len(ranges) == 0 {
		return top
	}
	f := function{die: e.Offset, parent: -1}
	if inlined {
		f.parent = top.fn
		if v, ok := e.Val(dwarf.AttrCallFile).(int64); ok && v >= 0 && v < 1<<32 {
			f.callFile = uint32(v)
		}
		if v, ok := e.Val(dwarf.AttrCallLine).(int64); ok && v > 0 && v < 1<<31 {
			f.callLine = int32(v)
		}
	}
	// Entries come in the order parent, child: the greater index is the inner function.
	top.fn = int32(len(u.funcs))
	u.funcs = append(u.funcs, f)
	for _, r := range ranges {
		*spans = append(*spans, span{r[0], r[1], top.fn})
	}
	return top
}

func (d *dwarfInfo) nameOr(e *dwarf.Entry, other string) string {
	if n := d.str(e, dwarf.AttrName); n != "" {
		return n
	}
	return other
}

// join adds a name to a scope. Scopes that grow without end belong to no program.
func join(scope, name string) string {
	switch {
	case scope == "" || len(scope) > maxReadable:
		return name
	case name == "" || len(name) > maxReadable:
		return scope
	}
	return scope + "::" + name
}

// lineTable returns the table that a unit's first entry names; nil when it names none.
func (d *dwarfInfo) lineTable(root *dwarf.Entry, addrSize int) (*lineTable, error) {
	off, ok := root.Val(dwarf.AttrStmtList).(int64)
	if !ok {
		return nil, nil
	}
	if t, ok := d.lines[uint64(off)]; ok {
		return t, nil
	}
	t, err := readLineTable(d.secs, cursor{order: d.order}, uint64(off), d.str(root, dwarf.AttrCompDir), addrSize, d.im.executable, &d.work)
	d.lines[uint64(off)] = t
	d.cached += t.rows
	return t, err
}

// str returns a string attribute, also one that lies in the alternative file.
func (d *dwarfInfo) str(e *dwarf.Entry, attr dwarf.Attr) string {
	f := e.AttrField(attr)
	if f == nil {
		return ""
	}
	switch v := f.Val.(type) {
	case string:
		if len(v) > maxLinkage {
			return strings.ToValidUTF8(v[:maxLinkage], "\uFFFD")
		}
		return v
	case int64:
		if f.Class == dwarf.ClassStringAlt && d.alt != nil && v >= 0 {
			return cstring(d.alt.secs.str, uint64(v), maxLinkage)
		}
	}
	return ""
}

// nameAt returns the name of the function whose entry is at off, following it to its abstract origin and
// declaration, which may lie in other units or in the alternative file.
func (d *dwarfInfo) nameAt(off dwarf.Offset, depth int) dieName {
	if n, ok := d.names[off]; ok {
		return n
	}
	if depth > maxOrigin {
		return dieName{}
	}
	d.names[off] = dieName{} // ends a circle of references
	rd := d.data.Reader()
	rd.Seek(off)
	e, err := rd.Next()
	if err != nil || e == nil {
		return dieName{}
	}
	n := dieName{linkage: d.str(e, dwarf.AttrLinkageName), name: d.str(e, dwarf.AttrName)}
	if n.linkage == "" {
		n.linkage = d.str(e, attrMIPSLinkage)
	}
	for _, attr := range []dwarf.Attr{dwarf.AttrAbstractOrigin, dwarf.AttrSpecification} {
		f := e.AttrField(attr)
		if f == nil || n.linkage != "" {
			continue
		}
		var o dieName
		switch v := f.Val.(type) {
		case dwarf.Offset:
			o = d.nameAt(v, depth+1)
		case int64:
			if f.Class == dwarf.ClassReferenceAlt && d.alt != nil {
				o = d.alt.nameAt(dwarf.Offset(v), depth+1)
			}
		}
		n.linkage = o.linkage
		if o.name != "" {
			n.name = o.name
		}
	}
	if n.linkage == "" && n.name != "" {
		n.name = join(d.scopeAt(off), n.name)
	}
	d.names[off] = n
	return n
}

// scopeAt returns the namespace or class around the function whose entry is at off. Only the walk of a unit tells:
// link-time optimisation and dwz put abstract functions into units without code, which are walked for this.
func (d *dwarfInfo) scopeAt(off dwarf.Offset) string {
	if s, ok := d.scopes[off]; ok {
		return s
	}
	i := sort.Search(len(d.units), func(i int) bool { return d.units[i].end > off })
	if i == len(d.units) || d.units[i].unit != nil || !d.units[i].scoped {
		return ""
	}
	d.decode(int32(i))
	return d.scopes[off]
}

// frames returns the functions at addr, innermost first; nil when this debug information knows none. symbol is
// the symbol table's name there, "" none.
func (d *dwarfInfo) frames(addr uint64, symbol string, names *namer) []trace.SymFrame {
	i := d.at.find(addr)
	if i < 0 {
		return nil
	}
	u := d.decode(i)
	if u.bad {
		return nil
	}
	var file string
	var line int
	if u.lines != nil {
		if n, l, ok := u.lines.find(addr); ok {
			file, line = u.lines.fileName(n), l
		}
	}
	fn := u.at.find(addr)
	if fn < 0 {
		if symbol == "" {
			return nil
		}
		return []trace.SymFrame{{Func: names.readable(symbol), Linkage: symbol, File: file, Line: line}}
	}
	var out []trace.SymFrame
	for fn >= 0 {
		f := u.funcs[fn]
		if f.parent >= 0 && len(out) >= maxInline-1 {
			fn = f.parent // leave out the middle, keep the function that has the code
			continue
		}
		n := d.nameAt(f.die, 0)
		s := trace.SymFrame{File: file, Line: line, Inlined: f.parent >= 0}
		if s.Inlined {
			s.Func, s.Linkage = shown(n, names)
		} else {
			s.Func, s.Linkage = outer(n, symbol, names)
		}
		if s.Func == "" {
			s.Func = "(nameless function)"
		}
		out = append(out, s)
		file, line = "", int(f.callLine)
		if u.lines != nil {
			file = u.lines.fileName(uint64(f.callFile))
		}
		fn = f.parent
	}
	return out
}

// shown returns the readable and the linkage form of a name.
func shown(n dieName, names *namer) (fn, linkage string) {
	if n.linkage != "" {
		return names.readable(n.linkage), n.linkage
	}
	return cut(n.name), n.name
}

// outer names a function that has code of its own, for which there is a symbol too. The symbol gives the linkage
// name (with .cold and the like), a better name where DWARF has none (lambdas), and the public name of a function
// that its library calls by a reserved one (malloc, not __libc_malloc), so that a profile says the same with
// and without debug information. The symbol of another function that was folded into this one is not used.
func outer(n dieName, symbol string, names *namer) (fn, linkage string) {
	fn, linkage = shown(n, names)
	switch {
	case symbol == "" || symbol == linkage:
	case n.linkage != "":
		// Constructors have one linkage name in DWARF and several in the symbol table.
		if strings.HasPrefix(symbol, n.linkage) || names.readable(symbol) == fn {
			linkage = symbol
		}
	default:
		linkage = symbol
		if fn == "" || mangled(symbol) || fn[0] == '_' && symbol[0] != '_' {
			fn = names.readable(symbol)
		}
	}
	return fn, linkage
}
