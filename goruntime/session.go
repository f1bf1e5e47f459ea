// What a launch needs of the recorder, and what became of it: the same on every architecture.

package goruntime

import "github.com/hbtrace/hbtrace/segment"

// Session is what the mapped code is to write to.
type Session struct {
	Segment             *segment.Segment
	ProcSlot            int
	ThreadSlot          int // stands for the runtime: writes what belongs to no goroutine
	ProcUID, RuntimeUID uint32
	Table               *Table
	CPU                 bool // the program may be sent sampling signals
}

// Started is a program that runs.
type Started struct {
	PID int
	// Refused says why nothing of its runtime was changed; nil: its goroutines are recorded.
	Refused error
}
