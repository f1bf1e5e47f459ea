package goruntime

// Layout is where the fields of the runtime's structs lie in one Go version on amd64: bytes from the struct's beginning.
// What is the same in all: g.stack 0 (lo, hi), g.m 48, g.sched 56 (sp, pc), goid behind atomicstatus.
type Layout struct {
	Status, Reason, Labels, StartPC, SchedBP, CurG, GSignal, ProcID uint32
	Inline                                                          bool // system calls change the state without casgstatus
}

const (
	offStackLo = 0
	offStackHi = 8
	offM       = 48
	offSched   = 56
	offSchedPC = 64
)

// GoID is g.goid.
func (l *Layout) GoID() uint32 { return l.Status + 8 }

// layouts are what the debug information of programs of each version says (TestLayouts).
var layouts = map[int]Layout{
	20: {144, 176, 360, 312, 104, 192, 80, 72, false},
	21: {144, 176, 344, 296, 104, 192, 80, 72, false},
	22: {144, 176, 344, 296, 104, 192, 80, 72, false},
	23: {152, 184, 352, 304, 104, 192, 80, 72, false},
	24: {152, 184, 352, 304, 104, 192, 80, 72, false},
	25: {144, 176, 344, 296, 96, 184, 72, 64, false},
	26: {144, 176, 352, 304, 96, 184, 72, 64, true},
}
