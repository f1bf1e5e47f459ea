//go:build blockbufmodel

// The model checker's hold on the code: every access to shared memory first asks a scheduler for leave, and then
// tells what it has seen. See explore_test.go.

package blockbuf

const patience = 2

var (
	stepBefore   = func() {}
	stepAfter    = func(uint64) {}
	hashForModel = func([]byte) uint64 { return 0 }
)
