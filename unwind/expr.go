package unwind

// DWARF expressions in CFI, as far as they have a shape that rules know (DWARF 5, section 2.5).

// value is what an expression's stack holds: base + 8*index + off, or the word at such an address plus add.
type value struct {
	base, index uint8 // NoIndex: none
	deref       bool
	off, add    int64
}

func constant(n int64) value { return value{base: NoIndex, index: NoIndex, off: n} }

func (v value) isConstant() bool {
	return v.base == NoIndex && v.index == NoIndex && !v.deref
}

// plus adds two values where the sum still has a shape.
func plus(a, b value) (value, bool) {
	if a.isConstant() {
		a, b = b, a
	}
	switch {
	case b.isConstant():
		if a.deref {
			a.add += b.off
		} else {
			a.off += b.off
		}
		return a, true
	case a.deref || b.deref:
		return a, false
	case a.index == NoIndex && b.base == NoIndex && b.index != NoIndex:
		a.index, a.off = b.index, a.off+b.off
		return a, true
	case b.index == NoIndex && a.base == NoIndex && a.index != NoIndex:
		b.index, b.off = a.index, a.off+b.off
		return b, true
	}
	return a, false
}

// timesEight makes a register an index.
func timesEight(a, eight value) (value, bool) {
	if !eight.isConstant() || eight.off != 8 || a.deref || a.base == NoIndex || a.index != NoIndex {
		return a, false
	}
	return value{base: NoIndex, index: a.base, off: 8 * a.off}, true
}

// evaluate runs an expression over symbols. ok is false where it does anything that values cannot hold.
func evaluate(code []byte, m *machine) (v value, ok bool) {
	const depth = 8
	var stack [depth]value
	n := 0
	c := cursor{b: code}
	push := func(v value) bool {
		if n == depth {
			return false
		}
		stack[n] = v
		n++
		return true
	}
	for c.left() > 0 {
		ok := false
		switch op := c.u8(); {
		case op >= 0x70 && op <= 0x8f: // DW_OP_breg0…31
			reg := op - 0x70
			ok = uint64(reg) < m.registers && push(value{base: reg, index: NoIndex, off: c.sleb()})
		case op >= 0x30 && op <= 0x4f: // DW_OP_lit0…31
			ok = push(constant(int64(op - 0x30)))
		case op == 0x08: // DW_OP_const1u
			ok = push(constant(int64(c.u8())))
		case op == 0x09: // DW_OP_const1s
			ok = push(constant(int64(int8(c.u8()))))
		case op == 0x10: // DW_OP_constu
			ok = push(constant(int64(c.uleb())))
		case op == 0x11: // DW_OP_consts
			ok = push(constant(c.sleb()))
		case op == 0x23 && n > 0: // DW_OP_plus_uconst
			stack[n-1], ok = plus(stack[n-1], constant(int64(c.uleb())))
		case op == 0x06 && n > 0: // DW_OP_deref
			ok = !stack[n-1].deref && stack[n-1].base != NoIndex
			stack[n-1].deref = true
		case op == 0x22 && n > 1: // DW_OP_plus
			stack[n-2], ok = plus(stack[n-2], stack[n-1])
			n--
		case op == 0x1e && n > 1: // DW_OP_mul
			stack[n-2], ok = timesEight(stack[n-2], stack[n-1])
			n--
		case op == 0x24 && n > 1: // DW_OP_shl
			shift := stack[n-1]
			if shift.isConstant() && shift.off == 3 {
				stack[n-2], ok = timesEight(stack[n-2], constant(8))
			}
			n--
		}
		if !ok || c.bad {
			return value{}, false
		}
	}
	if n != 1 {
		return value{}, false
	}
	return stack[0], true
}

// pltExpression recognises what linkers write for lazy-binding stubs on x86-64, whose push lies at a fixed place
// in each 16 bytes: breg7 off; breg16 0; lit15; and; lit T; ge; lit3; shl; plus.
func pltExpression(code []byte) (off, threshold int64, ok bool) {
	c := cursor{b: code}
	if c.u8() != 0x77 {
		return 0, 0, false
	}
	off = c.sleb()
	rest := c.b[c.p:]
	if c.bad || len(rest) != 9 || rest[4] < 0x30 || rest[4] > 0x3f {
		return 0, 0, false
	}
	for i, want := range [9]byte{0x80, 0x00, 0x3f, 0x1a, rest[4], 0x2a, 0x33, 0x24, 0x22} {
		if rest[i] != want {
			return 0, 0, false
		}
	}
	return off, int64(rest[4] - 0x30), true
}
