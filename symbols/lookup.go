package symbols

// This file owns the answer for one address of a file with DWARF: the functions there and their names.

import (
	"sort"
	"strings"

	"github.com/hbtrace/hbtrace/trace"
)

const (
	maxInline  = 256     // frames at one address; compilers stop at some dozens
	maxOrigin  = 16      // references from an entry to the one with the name
	maxOrigins = 1 << 18 // names remembered by one lookup
)

// dieName is what the entry of a function and those it refers to say about its name.
type dieName struct{ linkage, name string }

// lookup is one goroutine's way into a dwarfInfo.
type lookup struct {
	d     *dwarfInfo
	work  *meter
	names map[uint64]dieName // by offset of the entry
	alt   *lookup            // into the file that dwz moved parts to; nil none
	split *lookup            // into what was split off from the unit that was asked for last; nil none
	e     entry
}

func newLookup(d *dwarfInfo) *lookup {
	l := &lookup{d: d, work: &meter{until: d.work.until}, names: map[uint64]dieName{}}
	if d.alt != nil {
		l.alt = &lookup{d: d.alt, work: l.work, names: map[uint64]dieName{}}
	}
	return l
}

// unitAt returns the unit that an offset lies in; nil none.
func (d *dwarfInfo) unitAt(off uint64) (*unitRef, int32) {
	i := sort.Search(len(d.units), func(i int) bool { return d.units[i].end > off })
	if i == len(d.units) || off < d.units[i].die {
		return nil, -1
	}
	return &d.units[i], int32(i)
}

// nameAt returns the name of the function whose entry is at off, following it to its abstract origin and
// declaration, which may lie in other units or in the alternative file.
func (l *lookup) nameAt(off uint64, depth int) dieName {
	if n, ok := l.names[off]; ok {
		return n
	}
	u, i := l.d.unitAt(off)
	if u == nil || depth > maxOrigin {
		return dieName{}
	}
	if len(l.names) >= maxOrigins {
		clear(l.names)
	}
	l.names[off] = dieName{} // ends a circle of references
	t, err := l.d.abbrevsOf(u)
	if err != nil {
		return dieName{}
	}
	e := &l.e
	if err := l.d.readEntry(u, t, off, e); err != nil || e.abbrev == nil {
		return dieName{}
	}
	n := dieName{linkage: l.d.str(u, e, attrLinkage), name: l.d.str(u, e, attrName)}
	var refs [2]value
	refs[0], _ = e.get(attrOrigin)
	refs[1], _ = e.get(attrSpec)
	has := [2]bool{e.has&(1<<attrOrigin) != 0, e.has&(1<<attrSpec) != 0}
	for k, v := range refs { // l.e is another entry from here on
		if !has[k] || n.linkage != "" {
			continue
		}
		var o dieName
		switch in, at := l.d.reference(u, v); {
		case in == nil:
		case in == l.d:
			o = l.nameAt(at, depth+1)
		case l.alt != nil:
			o = l.alt.nameAt(at, depth+1)
		}
		n.linkage = o.linkage
		if o.name != "" {
			n.name = o.name
		}
	}
	if n.linkage == "" && n.name != "" && u.scoped {
		n.name = join(l.scopeAt(off, i), n.name)
	}
	l.names[off] = n
	return n
}

// scopeAt returns the namespace or class around the function whose entry is at off. Only the walk of a unit tells:
// link-time optimisation and dwz put abstract functions into units without code, which are walked for this.
func (l *lookup) scopeAt(off uint64, i int32) string {
	u := l.d.decode(i, l.work)
	at, ok := u.inScope[off]
	if !ok {
		return ""
	}
	var parts []string
	for n := 0; at >= 0 && n < maxDepth; n++ {
		parts = append(parts, cstring(u.scopes[at].name, 0, maxReadable))
		at = u.scopes[at].parent
	}
	out := ""
	for k := len(parts) - 1; k >= 0; k-- {
		out = join(out, parts[k])
	}
	return out
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

// frames returns the functions at addr, which lies in unit i, innermost first; nil when this debug information knows
// none. symbol is the symbol table's name there, "" none. The same is at all addresses of the extent, which is a part of e.
func (l *lookup) frames(i int32, addr uint64, symbol string, names *namer, e extent) ([]trace.SymFrame, extent) {
	u := l.d.decode(i, l.work)
	if u.bad {
		return nil, e
	}
	_, e = l.d.at.part(addr, e)
	var file string
	var line int
	if u.lines != nil {
		var n uint64
		var at int
		var ok bool
		if n, at, ok, e = u.lines.part(addr, e); ok {
			file, line = u.lines.fileName(n), at
		}
	}
	fn, e := u.at.part(addr, e)
	if fn < 0 {
		if symbol == "" {
			return nil, e
		}
		return []trace.SymFrame{{Func: names.readable(symbol), Linkage: symbol, File: file, Line: line}}, e
	}
	from := l.into(u)
	depth := 0
	for f := fn; f >= 0; f = u.funcs[f].parent {
		depth++
	}
	out := make([]trace.SymFrame, 0, min(depth, maxInline))
	for fn >= 0 {
		f := u.funcs[fn]
		if f.parent >= 0 && len(out) >= maxInline-1 {
			fn = f.parent // leave out the middle, keep the function that has the code
			continue
		}
		n := from.nameAt(f.die, 0)
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
	return out, e
}

// into returns the way into the entries of a unit's functions.
func (l *lookup) into(u *unit) *lookup {
	if u.split == nil {
		return l
	}
	if l.split == nil || l.split.d != u.split {
		l.split = &lookup{d: u.split, work: l.work, names: map[uint64]dieName{}}
	}
	return l.split
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
