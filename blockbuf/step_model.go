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

// constants are words that nobody writes in a scenario: when one is read makes no difference, so it is no step.
var constants map[*word]bool

func constant(w *word) bool { return constants[w] }

func changing(w *word) {
	if constants[w] {
		panic("model: a word is written that is constant in this scenario")
	}
}
