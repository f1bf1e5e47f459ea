package python

import (
	"encoding/binary"

	"github.com/hbtrace/hbtrace/segment"
)

// layout is where a version keeps what stacks are made of; addresses in it count from _PyRuntime.
type layout struct {
	segment.Python        // offsets; addresses are not set
	key            uint64 // of the thread state's key, from _PyRuntime
	gil            uint64 // 0: in the interpreter
}

// layouts are those of x86-64, by version: from each version's own internal headers (Include/internal/pycore_*.h).
var layouts = []layout{
	{key: 1392, gil: 1152, Python: objects(segment.Python{Version: 0x308, FrameInstr: 104, RequestRuntime: 596})},
	{key: 584, gil: 352, Python: objects(segment.Python{Version: 0x309, FrameInstr: 104, RequestInterp: 76})},
	{key: 584, gil: 352, Python: objects(segment.Python{Version: 0x30a, FrameInstr: 96, RequestInterp: 72,
		TsCframe: 48, CframePrevious: 8})},
	{key: 592, gil: 360, Python: segment.Python{
		Version: 0x30b, TsInterp: 16, TsFrame: 56, CframeFrame: 8, CframePrevious: 16,
		FramePrevious: 48, FrameCode: 32, FrameInstr: 56, FrameEntry: 68, FrameOwner: 69,
		CodeCode: 184, CodeTable: 136, CodeQualname: 128, CodeName: 120, CodeFile: 112, CodeFirst: 72,
		AsciiBytes: 48, CompactBytes: 72, KindShift: 2, BytesData: 32,
		GilHolder: 8, GilLocked: 16, GilCond: 32, GilMutex: 80, GilSwitch: 120, RequestInterp: 104, MainInterp: 48,
	}},
	{key: 1544, Python: segment.Python{
		Version: 0x30c, TsInterp: 16, TsFrame: 56, CframeFrame: 0, CframePrevious: 8,
		FramePrevious: 8, FrameCode: 0, FrameInstr: 56, FrameOwner: 70,
		CodeCode: 192, CodeTable: 136, CodeQualname: 128, CodeName: 120, CodeFile: 112, CodeFirst: 68,
		AsciiBytes: 40, CompactBytes: 56, KindShift: 2, BytesData: 32,
		InterpGil: 384, GilHolder: 8, GilLocked: 16, GilCond: 32, GilMutex: 80, GilSwitch: 120, RequestInterp: 372,
		MainInterp: 48,
	}},
	{key: 2160, Python: segment.Python{
		Version: 0x30d, TsInterp: 16, TsFrame: 72,
		FramePrevious: 8, FrameCode: 0, FrameInstr: 56, FrameOwner: 70,
		CodeCode: 200, CodeTable: 136, CodeQualname: 128, CodeName: 120, CodeFile: 112, CodeFirst: 68,
		AsciiBytes: 40, CompactBytes: 56, KindShift: 2, BytesData: 32,
		InterpGil: 16, GilHolder: 8, GilLocked: 16, GilCond: 32, GilMutex: 80, GilSwitch: 120, RequestThread: 24,
		MainInterp: 640,
	}},
	{key: 2160, Python: segment.Python{
		Version: 0x30d, FreeThreaded: 1, TsInterp: 16, TsFrame: 72,
		FramePrevious: 8, FrameCode: 0, FrameInstr: 56, FrameOwner: 70,
		CodeCode: 216, CodeTable: 152, CodeQualname: 144, CodeName: 136, CodeFile: 128, CodeFirst: 84,
		AsciiBytes: 56, CompactBytes: 72, KindShift: 2, BytesData: 48,
		InterpGil: 16, GilHolder: 16, GilLocked: 24, GilCond: 40, GilMutex: 88, GilSwitch: 128, RequestThread: 24,
		MainInterp: 640,
	}},
}

// objects fills in what 3.8 to 3.10 have in common.
func objects(p segment.Python) segment.Python {
	p.TsInterp, p.TsFrame, p.FramePrevious, p.FrameCode = 16, 24, 24, 32
	p.CodeTable, p.CodeName, p.CodeFile, p.CodeFirst = 120, 112, 104, 40
	p.AsciiBytes, p.CompactBytes, p.KindShift, p.BytesData = 48, 72, 2, 32
	p.GilHolder, p.GilLocked, p.GilCond, p.GilMutex, p.GilSwitch, p.MainInterp = 8, 16, 32, 80, 120, 40
	return p
}

// Words of struct _Py_DebugOffsets, which _PyRuntime begins with from 3.13 on: the few that 3.13 and 3.14 are checked
// with and that 3.14's layout is made of.
const (
	debugCookie    = "xdebugpy"
	debugVersion   = 1
	debugThreaded  = 2
	debugWords     = 52
	debugLastKnown = 0x30e
)

// fromDebugOffsets makes the layout of 3.14 from what _PyRuntime says itself.
func fromDebugOffsets(b []byte) (l layout, ok bool) {
	d := func(i int) uint32 { return uint32(binary.LittleEndian.Uint64(b[8*i:])) }
	if len(b) < 8*debugWords || string(b[:8]) != debugCookie || d(debugVersion)>>16 != debugLastKnown {
		return l, false
	}
	gil := d(16)
	if d(18) < gil || d(19) < gil {
		return l, false
	}
	l = layout{key: 2336, Python: segment.Python{
		Version: debugLastKnown, FreeThreaded: d(debugThreaded) & 1, TsInterp: d(25), TsFrame: d(26),
		FramePrevious: d(32), FrameCode: d(33), FrameInstr: d(34), FrameOwner: d(36),
		CodeFile: d(40), CodeName: d(41), CodeQualname: d(42), CodeTable: d(43), CodeFirst: d(44), CodeCode: d(48),
		AsciiBytes: 40, CompactBytes: 56, KindShift: 2, BytesData: 32,
		InterpGil: d(15), GilLocked: d(18) - gil, GilHolder: d(19) - gil, RequestThread: 24, MainInterp: d(5) + 8,
	}}
	if l.FreeThreaded != 0 {
		l.AsciiBytes, l.CompactBytes, l.KindShift, l.BytesData = 56, 72, 8, 48
	}
	l.GilCond = l.GilLocked + 16
	l.GilMutex, l.GilSwitch = l.GilCond+48, l.GilCond+88
	for _, o := range []uint32{l.TsFrame, l.FramePrevious, l.FrameInstr, l.CodeFile, l.CodeName, l.CodeQualname,
		l.CodeTable, l.CodeFirst, l.CodeCode, l.InterpGil} {
		if o >= 1<<16 {
			return l, false
		}
	}
	return l, true
}

// agrees says whether 3.13's own account of its layout is the one that is known.
func (l *layout) agrees(b []byte) bool {
	if len(b) < 8*debugWords || string(b[:8]) != debugCookie {
		return false
	}
	for _, w := range [...]uint32{l.CodeFile, l.CodeName, l.CodeQualname, l.CodeTable, l.CodeFirst, l.CodeCode,
		l.TsFrame} {
		found := false
		for i := 3; i < debugWords && !found; i++ {
			found = binary.LittleEndian.Uint64(b[8*i:]) == uint64(w)
		}
		if !found {
			return false
		}
	}
	return binary.LittleEndian.Uint64(b[8*debugThreaded:]) == uint64(l.FreeThreaded)
}
