//go:build !(linux && amd64)

package goruntime

import (
	"errors"
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
