//go:build !(linux && amd64)

package goruntime

import (
	"errors"
	"os"
	"syscall"
)

// Supported says whether Go programs can be recorded on this architecture.
const Supported = false

// Launch starts the program as it is.
func Launch(p *Program, start func(*syscall.SysProcAttr) (int, error), join func(pid int) (Session, error)) (out Started, err error) {
	out.PID, err = start(nil)
	out.Refused = errors.New("Go programs are recorded on x86-64 only")
	return out, err
}

// Following is a process that is about to exec a Go program.
type Following struct {
	PID  int
	File os.FileInfo
	Held func() error
	Over func() bool
	Join func(pid int) (Session, error)
}

// Follow lets the process go on.
func Follow(p *Program, f Following) error {
	f.Held()
	return errors.New("Go programs are recorded on x86-64 only")
}
