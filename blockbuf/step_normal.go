//go:build !blockbufmodel

// Where the model checker looks in. In normal builds there is nothing: these compile to no code.

package blockbuf

// patience is how often Resize looks at a block that is being taken.
const patience = 1000

func stepBefore()      {}
func stepAfter(uint64) {}

func hashForModel([]byte) uint64 { return 0 }

func constant(*word) bool { return false }
func changing(*word)      {}
