package symbols

// This file owns compile units: the functions of one, where they lie and what was inlined into them. What they are called
// is found out when it is asked for (lookup.go).

import (
	"errors"
	"fmt"
)

const (
	maxFunctions = 4 << 20 // of one unit, inlined ones included
	maxScopes    = 4 << 20 // of one unit: namespaces, classes, functions
	maxDepth     = 4096    // of nested entries
)

// unit is a decoded compile unit. It does not change but for what lines remembers.
type unit struct {
	funcs   []function
	at      flatMap // address -> index into funcs, the innermost
	lines   *lineTable
	abbrevs *abbrevTable
	scopes  []scope
	inScope map[uint64]int32 // functions without linkage name, by offset: the scope around them
	bad     bool             // it could not be decoded: the symbol table has to do
	split   *dwarfInfo       // what funcs lie in, where it is not the file itself
}

// function is a DW_TAG_subprogram with code, or a DW_TAG_inlined_subroutine.
type function struct {
	die      uint64 // offset of its entry
	parent   int32  // the function that this one was inlined into; -1 for subprograms
	callFile uint32
	callLine int32
}

// scope is a namespace, class or function that names lie in.
type scope struct {
	parent int32
	name   []byte // the section's
}

// level is one level of the walk through the tree of entries.
type level struct {
	fn    int32 // innermost function with code around here; -1 none
	scope int32 // index of the scope around here; -1 none
}

// decode walks all entries of units[i]. What came before an error is kept. It takes no other lock than the unit's and d.mu.
func (d *dwarfInfo) decode(i int32, work *meter) *unit {
	ref := &d.units[i]
	if u := ref.unit.Load(); u != nil {
		return u
	}
	ref.mu.Lock()
	defer ref.mu.Unlock()
	if u := ref.unit.Load(); u != nil {
		return u
	}
	u := &unit{inScope: map[uint64]int32{}}
	if err := d.walk(ref, u, work); err != nil {
		d.problem(fmt.Errorf("unit at %#x: %w", ref.die, err))
		u.bad = len(u.funcs) == 0 && u.lines == nil
	}
	if ref.split && !u.bad {
		if err := d.attach(ref, u, work); err != nil {
			d.problem(fmt.Errorf("unit at %#x: %w", ref.die, err))
		}
	}
	d.cached.Add(u.weight())
	ref.unit.Store(u)
	return u
}

// weight is roughly what a unit holds, in pieces of 16 bytes.
func (u *unit) weight() int64 {
	n := 2*len(u.funcs) + 2*len(u.at.start) + 2*len(u.scopes) + 2*len(u.inScope)
	if u.lines != nil {
		n += u.lines.rows
	}
	if u.split != nil {
		n += u.split.held / 16
	}
	return int64(n)
}

// done says that units[i] is not needed at the moment: if much is held already it is given up.
func (d *dwarfInfo) done(i int32) {
	if d.cached.Load() <= maxCached {
		return
	}
	if u := d.units[i].unit.Swap(nil); u != nil {
		d.cached.Add(-u.weight())
	}
}

func (d *dwarfInfo) walk(ref *unitRef, u *unit, work *meter) error {
	var err error
	if u.abbrevs, err = d.abbrevsOf(ref); err != nil {
		return err
	}
	e := &entry{}
	if err := d.readEntry(ref, u.abbrevs, ref.die, e); err != nil || e.abbrev == nil {
		return err
	}
	var lineErr error
	u.lines, lineErr = d.lineTable(ref, e, work)

	var spans []span
	defer func() { u.at = flatten(spans) }()
	if !e.children {
		return lineErr
	}
	var ranges [][2]uint64
	stack := []level{{-1, -1}}
	for at := e.next; len(stack) > 0 && at < ref.end; at = e.next {
		if err := d.readEntry(ref, u.abbrevs, at, e); err != nil {
			return err
		}
		if err := work.spend(4); err != nil {
			return err
		}
		if e.abbrev == nil {
			stack = stack[:len(stack)-1]
			continue
		}
		top := stack[len(stack)-1]
		switch e.tag {
		case tagSubprogram, tagInlined:
			ranges, err = d.ranges(ref, e, ranges[:0], work)
			if errors.Is(err, errBudget) {
				return err
			}
			if err != nil { // this function is lost, its neighbours are not
				d.problem(fmt.Errorf("entry at %#x: ranges: %w", e.off, err))
			}
			top = d.enter(ref, u, e, top, ranges, &spans)
		case tagNamespace:
			name := d.nameBytes(ref, e)
			if len(name) == 0 {
				name = []byte("(anonymous namespace)")
			}
			top.scope = u.addScope(top.scope, name)
		case tagStruct, tagClass, tagUnion, tagInterface:
			if !ref.scoped && e.pass(ref) {
				continue // of C: no function is inside
			}
			if name := d.nameBytes(ref, e); len(name) > 0 && e.children {
				top.scope = u.addScope(top.scope, name)
			}
		case tagEnum, tagArray, tagSubrType, tagCallSite, tagGNUCallSite:
			if e.pass(ref) {
				continue
			}
		}
		if len(u.funcs) > maxFunctions || len(spans) > maxFunctions || len(u.scopes) > maxScopes {
			return fmt.Errorf("more than %d functions or ranges", maxFunctions)
		}
		if e.children {
			if len(stack) >= maxDepth {
				return fmt.Errorf("entries nest more than %d deep", maxDepth)
			}
			stack = append(stack, top)
		}
	}
	return lineErr
}

// pass moves e.next behind the children, if e says where that is.
func (e *entry) pass(u *unitRef) bool {
	v, ok := e.get(attrSibling)
	to := u.start + v.v
	if !ok || !e.children || v.v > u.end-u.start || to < e.next {
		return false
	}
	switch v.form {
	case formRef1, formRef2, formRef4, formRef8, formRefUdata:
		e.next = to
		return true
	}
	return false
}

func (u *unit) addScope(parent int32, name []byte) int32 {
	u.scopes = append(u.scopes, scope{parent, name})
	return int32(len(u.scopes) - 1)
}

func (d *dwarfInfo) nameBytes(ref *unitRef, e *entry) []byte {
	if v, ok := e.get(attrName); ok {
		return d.bytesOf(ref, v)
	}
	return nil
}

// enter records a function and returns the level of its children.
func (d *dwarfInfo) enter(ref *unitRef, u *unit, e *entry, top level, ranges [][2]uint64, spans *[]span) level {
	const refers = 1<<attrOrigin | 1<<attrSpec
	if e.tag == tagSubprogram {
		if e.has&(refers|1<<attrLinkage) == 0 && top.scope >= 0 {
			u.inScope[e.off] = top.scope
		}
		if name := d.nameBytes(ref, e); len(name) > 0 && e.children && ref.scoped {
			top.scope = u.addScope(top.scope, name)
		}
		top.fn = -1
	}
	if len(ranges) == 0 {
		return top
	}
	f := function{die: e.off, parent: -1}
	if e.tag == tagInlined {
		f.parent = top.fn
		if v, ok := e.val[attrCallFile].constant(); ok && e.has&(1<<attrCallFile) != 0 && v < 1<<32 {
			f.callFile = uint32(v)
		}
		if v, ok := e.val[attrCallLine].constant(); ok && e.has&(1<<attrCallLine) != 0 && v < 1<<31 {
			f.callLine = int32(v)
		}
		// The name is where it refers to: one step less, and shared by all calls that were inlined.
		if v, ok := e.get(attrOrigin); ok && e.has&(1<<attrName|1<<attrLinkage) == 0 {
			if in, off := d.reference(ref, v); in == d {
				f.die = off
			}
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

// lineTable returns the table that a unit's first entry names; nil when it names none.
func (d *dwarfInfo) lineTable(ref *unitRef, root *entry, work *meter) (*lineTable, error) {
	v, ok := root.get(attrStmtList)
	if !ok || d.apart { // a skeleton's lines are in the file itself
		return nil, nil
	}
	off, ok := v.secOffset()
	if !ok {
		return nil, nil
	}
	return readLineTable(d.secs, cursor{order: d.order}, off, d.str(ref, root, attrCompDir), int(ref.addrSize), d.im.executable, work)
}
