// The call tree: callers above callees, each with its share.

package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/hbtrace/hbtrace/analysis/frames"
	"github.com/hbtrace/hbtrace/analysis/weigh"
	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/visualize/number"
	"github.com/hbtrace/hbtrace/visualize/terminal"
)

// Bounds of the tree as text. JSON has the whole of it.
const (
	treeShare = 0.01 // of all: what is less is added up to one line
	treeLines = 200
)

// value is what the tree weighs.
func (o *Options) value() (weigh.Value, error) {
	if o.Value == "" {
		return weigh.CPU, nil
	}
	v, err := weigh.ParseValue(o.Value)
	if err != nil {
		return 0, fmt.Errorf("report: %w", err)
	}
	return v, nil
}

// branch is one function under one caller.
type branch struct {
	Function string    `json:"function"`
	Total    int64     `json:"total"`
	Self     int64     `json:"self"`
	File     string    `json:"file"`
	Line     int       `json:"line"` // of most of it
	Children []*branch `json:"children"`

	index map[branchKey]*branch
	lines map[int32]int64
}

type branchKey struct {
	id   frames.ID
	name string // of what is no frame
}

func (b *branch) child(k branchKey, name, file string) *branch {
	c := b.index[k]
	if c == nil {
		c = &branch{Function: name, File: file, Children: []*branch{}}
		if b.index == nil {
			b.index = map[branchKey]*branch{}
		}
		b.index[k] = c
		b.Children = append(b.Children, c)
	}
	return c
}

// tree is all stacks with a weight.
func (f *facts) tree(v weigh.Value) *branch {
	root := &branch{Function: "all", Children: []*branch{}}
	var path []trace.StackID
	for i := range f.weights.Rows {
		r := &f.weights.Rows[i]
		w := r.Values[v]
		if w == 0 {
			continue
		}
		root.Total += w
		at := root
		path = f.frames.Path(path[:0], r.Stack)
		for _, node := range path {
			for _, a := range f.frames.Of(node) {
				fr := f.frames.Frame(a.ID)
				at = at.child(branchKey{id: a.ID}, fr.Name, fr.File)
				at.Total += w
				if at.lines == nil {
					at.lines = map[int32]int64{}
				}
				at.lines[a.Line] += w
			}
		}
		name := f.hook(r.Hook)
		if len(path) == 0 && name == "" {
			name = f.weights.Stack(f.src, nil, &r.Key)[0].Name
		}
		if name != "" && name != at.Function {
			at = at.child(branchKey{name: name}, name, "")
			at.Total += w
		}
		at.Self += w
	}
	root.settle()
	return root
}

// settle sorts siblings by weight and chooses lines.
func (b *branch) settle() {
	for line, w := range b.lines {
		if line > 0 && (b.Line == 0 || w > b.lines[int32(b.Line)] || w == b.lines[int32(b.Line)] && int(line) < b.Line) {
			b.Line = int(line)
		}
	}
	b.index, b.lines = nil, nil
	slices.SortFunc(b.Children, func(x, y *branch) int {
		return cmp.Or(cmp.Compare(y.Total, x.Total), cmp.Compare(x.Function, y.Function), cmp.Compare(x.File, y.File), cmp.Compare(x.Line, y.Line))
	})
	for _, c := range b.Children {
		c.settle()
	}
}

func (f *facts) treeView(o Options) []string {
	v, _ := o.value()
	root := f.tree(v)
	out := f.head(o)
	if root.Total == 0 {
		return f.end(append(out, f.missing(o, v.String(), "cpu")...), o)
	}
	show := number.Duration
	switch v.Unit() {
	case "bytes":
		show = func(n int64) string { return number.Bytes(uint64(max(0, n))) }
	case "count":
		show = func(n int64) string { return number.Count(n) }
	}
	var lines []string
	left := treeLines
	// mark stands before functions that have the indentation of the one above, and are called by it.
	var walk func(b *branch, indent int, mark string)
	walk = func(b *branch, indent int, mark string) {
		for i, c := range b.Children {
			small := float64(c.Total) < treeShare*float64(root.Total)
			if small || left <= 0 {
				var rest int64
				for _, x := range b.Children[i:] {
					rest += x.Total
				}
				if float64(rest) >= treeShare*float64(root.Total) {
					text := fmt.Sprintf("… %s of less than 1 %%", number.Plural(uint64(len(b.Children)-i), "function"))
					if !small {
						text = fmt.Sprintf("… %s more", number.Count(uint64(len(b.Children)-i)))
					}
					lines = append(lines, treeLine(number.Percent(float64(rest), float64(root.Total)), show(rest), indent, mark+text, "", o))
				}
				return
			}
			left--
			lines = append(lines, treeLine(number.Percent(float64(c.Total), float64(root.Total)), show(c.Total), indent, mark+c.Function, fileLine(c.File, c.Line), o))
			// A chain of single callees is indented once: what is deep should not leave the screen.
			next, mark := indent, "└ "
			if len(c.Children) > 1 || c.Self > 0 || indent == 0 {
				next, mark = indent+1, ""
			}
			walk(c, next, mark)
		}
	}
	walk(root, 0, "")
	return f.end(append(out, titled(o, "Call tree by "+v.String()+": callers above callees; └ called by the row above alone", lines)...), o)
}

// treeLine is a share, a weight and a function, indented by its depth as far as there is room.
func treeLine(share, weight string, indent int, name, place string, o Options) string {
	lead := fmt.Sprintf("%8s  %9s  ", share, weight)
	const least = 24 // columns for a name
	indent = min(2*indent, max(0, o.Width-terminal.Columns(lead)-least))
	room := o.Width - terminal.Columns(lead) - indent
	return lead + strings.Repeat(" ", indent) + withPlace(terminal.Shorten(name, room), place, room)
}
