//go:build !(linux && amd64)

package goruntime

import (
	"errors"
	"syscall"

	"github.com/hbtrace/hbtrace/segment"
)

// Supported says whether Go programs can be recorded on this architecture.
const Supported = false

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
	PID     int
	Refused error
}

// Launch starts the program as it is.
func Launch(p *Program, start func(*syscall.SysProcAttr) (int, error), join func(pid int) (Session, error)) (out Started, err error) {
	out.PID, err = start(nil)
	out.Refused = errors.New("Go programs are recorded on x86-64 only")
	return out, err
}
