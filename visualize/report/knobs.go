package report

// knobs.go: which detail --budget gave up, and for how long.

import (
	"fmt"

	"github.com/hbtrace/hbtrace/visualize/number"
)

// givenUp says for each knob that was turned how far, and in how much of the time.
func (f *facts) givenUp() (out []string) {
	whole := f.duration()
	if whole <= 0 {
		return nil
	}
	for _, s := range f.knobs.Spells(f.meta.EndNs) {
		out = append(out, fmt.Sprintf("%s in %s of the time", s.Text, number.Percent(min(s.Ns, whole), whole)))
	}
	return out
}
