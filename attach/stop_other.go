//go:build !amd64

package attach

import "errors"

var errMachine = errors.New("attaching works on x86-64 only")

func (t *Target) runStub([]op, uint64) error             { return errMachine }
func (t *Target) filters(int) ([][]instruction, error)   { return nil, errMachine }
func (t *Target) stoppedInside(int, uint64, uint64) bool { return true }
