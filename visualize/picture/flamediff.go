// The differential flame graph: where a weight grew or shrank from one recording to another.

package picture

import (
	"fmt"
	"io"

	"github.com/hbtrace/hbtrace/analysis/frames"
	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/visualize/number"
)

// FlameDiff draws how src differs from base. Functions are the same by name. A box is as wide as the larger of its two weights, so that
// what is in one recording only is shown as well. Its colour says which is larger, and by how much.
func FlameDiff(w io.Writer, base, src trace.Source, o FlameOptions) error {
	f, err := newFlame(src, o)
	if err != nil {
		return err
	}
	if o.Value == "" {
		o.Value = f.value.String()
	}
	before, err := newFlame(base, o)
	if err != nil {
		return err
	}
	f.base = base
	byName := func(_ frames.ID, name string) flameKey { return flameKey{name: name} }
	selves := map[*flameNode][2]int64{}
	add := func(i int) func(*flameNode, trace.ModuleID, int64) {
		return func(n *flameNode, _ trace.ModuleID, weight int64) {
			x := selves[n]
			x[i] += weight
			selves[n] = x
		}
	}
	f.grow(base, before.table, byName, func(n *flameNode, weight int64) { n.before += weight }, add(0))
	f.grow(src, f.table, byName, func(n *flameNode, weight int64) { n.after += weight }, add(1))
	f.larger(f.root, selves)
	f.sort(f.root)
	f.draw()
	return f.write(w)
}

// larger gives each node room for the larger of its two weights, and for its children.
func (f *flame) larger(n *flameNode, selves map[*flameNode][2]int64) {
	own := selves[n]
	n.self = max(own[0], own[1])
	n.total = n.self
	for _, c := range n.children {
		f.larger(c, selves)
		n.total += c.total
	}
}

// changeFill is red where after is larger, blue where before is, the stronger the more of the larger one that is.
func changeFill(before, after int64) string {
	most := max(before, after)
	if most == 0 || before == after {
		return "#e3e7eb"
	}
	pale := 235 - int(160*float64(max(after-before, before-after))/float64(most))
	if after > before {
		return fmt.Sprintf("#f0%02x%02x", pale, pale)
	}
	return fmt.Sprintf("#%02x%02xf0", pale, pale+(240-pale)/4)
}

func (f *flame) aboutChange(n *flameNode) string {
	sign, by := "+", n.after-n.before
	if by == 0 {
		return fmt.Sprintf("%s\n%s in both", clip(oneLine(n.name)), f.number(n.after))
	}
	if by < 0 {
		sign, by = "−", -by
	}
	text := fmt.Sprintf("%s\n%s before, %s after: %s%s", clip(oneLine(n.name)), f.number(n.before), f.number(n.after), sign, f.number(by))
	if n.before > 0 {
		text += fmt.Sprintf(" (%s%s)", sign, number.Percent(by, n.before))
	}
	return text
}
