package unwind

import (
	"encoding/binary"
	"fmt"
)

// Kind says how a rule finds the canonical frame address (CFA): the stack pointer after the return.
type Kind uint8

// The kinds, numbered as in modules.h.
const (
	None   Kind = iota // nothing is known about this address
	SP                 // CFA = SP + Off; arm64: the return address lies at CFA + Add, also for FP and Reg
	FP                 // CFA = FP + Off
	PLT                // CFA = SP + Off, and 8 more where the low four bits of the pc are at least Add
	Reg                // CFA = Base + Off
	Deref              // CFA = *(Base + 8*Index + Off) + Add
	End                // outermost frame
	Signal             // signal frame
	Other              // known, but not expressible
	Link               // CFA = SP + Off; the return address is in register Base
	kinds
)

func (k Kind) String() string {
	names := [kinds]string{"none", "sp", "fp", "plt", "reg", "deref", "end", "signal", "other", "link"}
	if int(k) < len(names) {
		return names[k]
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// FPKind says how a rule finds the caller's frame pointer.
type FPKind uint8

// The kinds, numbered as in modules.h.
const (
	FPSame FPKind = iota // not changed
	FPCFA                // *(CFA + FPOff)
	FPFP                 // *(FP + FPOff)
	FPSP                 // *(SP + FPOff)
	FPReg                // in register FPOff
)

// NoIndex is Rule.Index where the address has no scaled register.
const NoIndex = 0xff

// Rule finds the caller of a frame from the frame's registers (struct hb_rule in modules.h). Base and Index are DWARF
// register numbers; offsets are bytes. A kind that does not use a field leaves it zero, so that equal rules
// compare equal.
type Rule struct {
	Kind   Kind
	FPKind FPKind
	Base   uint8
	Index  uint8
	Off    int32
	Add    int32
	FPOff  int32
}

func (r Rule) String() string {
	var cfa string
	switch r.Kind {
	case SP, FP:
		cfa = fmt.Sprintf("%s%+d", r.Kind, r.Off)
	case PLT:
		cfa = fmt.Sprintf("plt%+d/%d", r.Off, r.Add)
	case Link:
		cfa = fmt.Sprintf("sp%+d ra=r%d", r.Off, r.Base)
	case Reg:
		cfa = fmt.Sprintf("r%d%+d", r.Base, r.Off)
	case Deref:
		cfa = fmt.Sprintf("*(r%d%+d)%+d", r.Base, r.Off, r.Add)
		if r.Index != NoIndex {
			cfa = fmt.Sprintf("*(r%d+8*r%d%+d)%+d", r.Base, r.Index, r.Off, r.Add)
		}
	default:
		return r.Kind.String()
	}
	if r.Add != 0 && (r.Kind == SP || r.Kind == FP || r.Kind == Reg) {
		cfa += fmt.Sprintf(" ra=c%+d", r.Add)
	}
	switch r.FPKind {
	case FPCFA:
		cfa += fmt.Sprintf(" fp=c%+d", r.FPOff)
	case FPFP:
		cfa += fmt.Sprintf(" fp=*(fp%+d)", r.FPOff)
	case FPSP:
		cfa += fmt.Sprintf(" fp=*(sp%+d)", r.FPOff)
	case FPReg:
		cfa += fmt.Sprintf(" fp=r%d", r.FPOff)
	}
	return cfa
}

const ruleBytes = 16

func (r Rule) put(b []byte) {
	b[0], b[1], b[2], b[3] = byte(r.Kind), byte(r.FPKind), r.Base, r.Index
	binary.LittleEndian.PutUint32(b[4:], uint32(r.Off))
	binary.LittleEndian.PutUint32(b[8:], uint32(r.Add))
	binary.LittleEndian.PutUint32(b[12:], uint32(r.FPOff))
}

func ruleFrom(b []byte) Rule {
	return Rule{
		Kind: Kind(b[0]), FPKind: FPKind(b[1]), Base: b[2], Index: b[3],
		Off:   int32(binary.LittleEndian.Uint32(b[4:])),
		Add:   int32(binary.LittleEndian.Uint32(b[8:])),
		FPOff: int32(binary.LittleEndian.Uint32(b[12:])),
	}
}

// Packed rules, HB_WORD_* of modules.h.
const (
	wordNone = iota
	wordSP
	wordFP
	wordChain
	wordEnd
	wordSignal
	wordSlow

	wordFPShift = 15
	wordFPFP    = 0xfff
)

// word packs the rule into 27 bits; wordSlow says that it does not fit.
func (r Rule) word() uint32 {
	var kind uint32
	switch r.Kind {
	case None:
		return wordNone
	case End:
		return wordEnd
	case Signal:
		return wordSignal
	case SP:
		kind = wordSP
	case FP:
		kind = wordFP
	default:
		return wordSlow
	}
	if r.Off < 0 || r.Off%8 != 0 || r.Off>>15 != 0 {
		return wordSlow
	}
	if r.Add != 0 && (r.FPKind != FPCFA || r.Add != r.FPOff+8) { // arm64: in 27 bits it is saved behind FP
		return wordSlow
	}
	var fp uint32
	switch {
	case r.FPKind == FPSame:
	case r.FPKind == FPFP && r.FPOff == 0:
		fp = wordFPFP
	case r.FPKind == FPCFA && r.FPOff < 0 && r.FPOff%8 == 0 && -r.FPOff/8 < wordFPFP:
		fp = uint32(-r.FPOff / 8)
	default:
		return wordSlow
	}
	return kind | uint32(r.Off) | fp<<wordFPShift
}
