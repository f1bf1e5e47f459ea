// The flame graph: where a weight fell, callers above callees.

package picture

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/hbtrace/hbtrace/analysis/frames"
	"github.com/hbtrace/hbtrace/analysis/weigh"
	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/visualize/number"
)

// FlameOptions of [Flame]. The zero value shows CPU time, or what else was recorded.
type FlameOptions struct {
	Value string // a name of package weigh: cpu, wall, blocked, delay, alloc_space, …; "": the first recorded of cpu, blocked, alloc_space
	Width int    // CSS pixels, 640 to 8192; 0: 1200
}

const (
	flameRow   = 18.0
	flameText  = 11.0
	flameTop   = 64.0
	flameBytes = 1_500_000
	maxLevels  = 160 // deeper frames are not drawn; the picture says so
)

const flameStyle = `.s{font-size:11.5px;fill:` + soft + `}.l{font-size:` + "11px" + `;pointer-events:none}
`

// flameNode is one function under one caller.
type flameNode struct {
	name     string
	module   trace.ModuleID
	plain    bool // no function: grey
	total    int64
	self     int64
	before   int64 // a comparison: what fell on it and what it called, in the one recording
	after    int64 // and in the other
	children []*flameNode
	index    map[flameKey]*flameNode
}

type flameKey struct {
	frame frames.ID
	name  string // of what is no frame: a hook, "[no stack]"
}

func (n *flameNode) child(k flameKey) *flameNode {
	if c := n.index[k]; c != nil {
		return c
	}
	if n.index == nil {
		n.index = map[flameKey]*flameNode{}
	}
	c := &flameNode{name: k.name}
	n.index[k] = c
	n.children = append(n.children, c)
	return c
}

// flame is the picture.
type flame struct {
	src     trace.Source
	table   *weigh.Table
	value   weigh.Value
	root    *flameNode
	width   float64
	module  map[trace.ModuleID]hsl
	weights map[trace.ModuleID]int64 // by module, self
	least   float64                  // px that a box must have
	deepest int
	cut     bool         // by maxLevels
	base    trace.Source // a comparison: what is compared with; nil: none
	body    strings.Builder
	thin    int // boxes that were drawn together with others
}

// Flame draws src's stacks weighted by a value, the root at the top. The picture is SVG, needs no script and
// stays below 2 MB.
func Flame(w io.Writer, src trace.Source, o FlameOptions) error {
	if o.Width <= 0 {
		o.Width = defaultWidth
	}
	f, err := newFlame(src, o)
	if err != nil {
		return err
	}
	f.build()
	f.module = palette(f.weights)
	f.draw()
	return f.write(w)
}

func newFlame(src trace.Source, o FlameOptions) (*flame, error) {
	table, err := weigh.Collect(src, weigh.Options{})
	if err != nil {
		return nil, fmt.Errorf("weighing stacks for the flame graph: %w", err)
	}
	f := &flame{
		src: src, table: table, root: &flameNode{name: "all"}, width: float64(max(leastWidth, min(o.Width, mostWidth))),
		weights: map[trace.ModuleID]int64{},
	}
	if o.Value != "" {
		if f.value, err = weigh.ParseValue(o.Value); err != nil {
			return nil, fmt.Errorf("drawing the flame graph: %w", err)
		}
	} else {
		f.value = weigh.CPU
		for _, v := range []weigh.Value{weigh.CPU, weigh.Blocked, weigh.AllocSpace} {
			if table.Total[v] > 0 {
				f.value = v
				break
			}
		}
	}
	return f, nil
}

// draw draws the boxes. Thin boxes are drawn together until the picture is small enough.
func (f *flame) draw() {
	f.least = 0.5
	for {
		f.body.Reset()
		f.deepest, f.thin, f.cut = 0, 0, false
		f.box(f.root, nil, margin, f.width-2*margin, 0)
		if f.body.Len() <= flameBytes {
			return
		}
		f.least *= 1.5
	}
}

// build makes the tree of all rows with a weight.
func (f *flame) build() {
	f.grow(f.src, f.table, func(frame frames.ID, name string) flameKey {
		if frame != 0 {
			return flameKey{frame: frame}
		}
		return flameKey{name: name}
	}, func(n *flameNode, weight int64) { n.total += weight }, func(n *flameNode, module trace.ModuleID, weight int64) {
		n.self += weight
		f.weights[module] += weight
	})
	f.sort(f.root)
}

// grow adds the rows of a table to the tree. Children are told apart by key; on is called for every node of a row's path, the
// root included, and leaf for its last one.
func (f *flame) grow(src trace.Source, table *weigh.Table, key func(frames.ID, string) flameKey, on func(*flameNode, int64),
	leaf func(*flameNode, trace.ModuleID, int64)) {
	tab := table.Frames
	var path []trace.StackID
	for i := range table.Rows {
		r := &table.Rows[i]
		weight := r.Values[f.value]
		if weight <= 0 {
			continue
		}
		at := f.root
		on(at, weight)
		step := func(frame frames.ID, name string, module trace.ModuleID, plain bool) {
			at = at.child(key(frame, name))
			at.name, at.module, at.plain = name, module, plain
			on(at, weight)
		}
		path = tab.Path(path[:0], r.Stack)
		for _, node := range path {
			for _, a := range tab.Of(node) {
				fr := tab.Frame(a.ID)
				step(a.ID, fr.Name, fr.Module, fr.Mark)
			}
		}
		if len(path) == 0 && !frames.Begins(src.Meta(), r.Hook) {
			name := table.Stack(src, nil, &weigh.Key{Routine: r.Routine})[0].Name
			step(0, name, r.Routine.Module, true)
		}
		module := at.module
		if hook := frames.HookName(src.Meta(), r.Hook); hook != "" {
			step(0, hook, 0, true)
		}
		leaf(at, module, weight)
	}
}

// sort orders siblings by weight.
func (f *flame) sort(n *flameNode) {
	for work := []*flameNode{n}; len(work) > 0; {
		n := work[len(work)-1]
		work = append(work[:len(work)-1], n.children...)
		n.index = nil
		slices.SortFunc(n.children, func(a, b *flameNode) int {
			return cmp.Or(cmp.Compare(b.total, a.total), cmp.Compare(a.name, b.name), cmp.Compare(a.module, b.module))
		})
	}
}

// number writes a weight in its unit.
func (f *flame) number(n int64) string {
	switch f.value.Unit() {
	case "nanoseconds":
		return number.Duration(n)
	case "bytes":
		return number.Bytes(uint64(max(n, 0)))
	}
	return number.Count(n)
}

func (f *flame) about(n, parent *flameNode) string {
	if f.base != nil {
		return f.aboutChange(n)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n%s, %s of all", clip(oneLine(n.name)), f.number(n.total), number.Percent(n.total, f.root.total))
	if parent != nil && parent != f.root {
		fmt.Fprintf(&b, ", %s of its caller", number.Percent(n.total, parent.total))
	}
	if n.self > 0 && n.self != n.total {
		fmt.Fprintf(&b, "\nself %s, %s of all", f.number(n.self), number.Percent(n.self, f.root.total))
	}
	if n.module != 0 {
		b.WriteString("\n" + moduleName(f.table.Frames.Module(n.module)))
	}
	return b.String()
}

// box draws a node and what it called.
func (f *flame) box(n, parent *flameNode, x, width float64, level int) {
	f.deepest = max(f.deepest, level)
	f.rect(x, width, level, f.fill(n), n.name, f.about(n, parent))
	if level+1 >= maxLevels {
		f.cut = f.cut || len(n.children) > 0
		return
	}
	perUnit := width / float64(max(1, n.total))
	at := x
	for i, c := range n.children {
		w := float64(c.total) * perUnit
		if w < f.least {
			var rest int64
			for _, c := range n.children[i:] {
				rest += c.total
			}
			f.thin += len(n.children) - i
			if w = float64(rest) * perUnit; w >= f.least {
				f.deepest = max(f.deepest, level+1)
				name := some(len(n.children)-i, "function")
				f.rect(at, w, level+1, otherModule.hex(8), "", fmt.Sprintf("%s too thin to draw\n%s, %s of all", name, f.number(rest), number.Percent(rest, f.root.total)))
			}
			return
		}
		f.box(c, n, at, w, level+1)
		at += w
	}
}

func (f *flame) fill(n *flameNode) string {
	switch {
	case f.base != nil:
		return changeFill(n.before, n.after)
	case n == f.root:
		return "#e3e7eb"
	case n.plain:
		return otherModule.hex(6)
	}
	c, ok := f.module[n.module]
	if !ok {
		c = otherModule
	}
	return c.shadeOf(n.name)
}

func (f *flame) rect(x, width float64, level int, fill, name, about string) {
	y := flameTop + float64(level)*flameRow
	drawn := width
	if width > 2 {
		drawn -= 0.7
	}
	fmt.Fprintf(&f.body, `<rect x="%s" y="%s" width="%s" height="%s" rx="1.5" fill="%s"><title>%s</title></rect>`+"\n",
		num(x), one(y), num(drawn), one(flameRow-1), fill, text(about))
	if width > 26 && name != "" {
		if shown := fitName(name, flameText, width-8); shown != "" {
			fmt.Fprintf(&f.body, `<text x="%s" y="%s" class="l">%s</text>`+"\n", one(x+4), one(y+flameRow-5.5), text(shown))
		}
	}
}

var flameTitles = map[weigh.Value]string{
	weigh.Samples: "CPU samples", weigh.CPU: "CPU time", weigh.Wall: "CPU and blocked time", weigh.Blocked: "Time blocked",
	weigh.Contentions: "Waits for locks", weigh.Delay: "Time waiting for locks", weigh.AllocObjects: "Objects allocated",
	weigh.AllocSpace: "Bytes allocated", weigh.InuseObjects: "Objects in use at the end", weigh.InuseSpace: "Bytes in use at the end",
}

func (f *flame) write(w io.Writer) error {
	command := oneLine(strings.Join(f.src.Meta().Command, " "))
	if command == "" {
		command = "(no command)"
	}
	bottom := flameTop + float64(f.deepest+1)*flameRow + 10
	height := bottom + 24
	if f.cut || f.table.Doubt.Lost > 0 {
		height += 18
	}
	title := flameTitles[f.value]
	about, what := title+" of "+clip(command), "Flame graph: callers above callees, as wide as their share."
	if f.base != nil {
		about = title + " of " + clip(command) + " compared with " + clip(oneLine(strings.Join(f.base.Meta().Command, " ")))
		what = "Differential flame graph: callers above callees, as wide as the larger of both weights; red grew, blue shrank."
	}
	s := openSVG(w, f.width, height, about, what, flameStyle)
	s.f(`<g font-weight="600">`)
	s.label(margin, 30, 17, "", "", fit(command, 19, f.width-2*margin))
	s.f("</g>\n")
	d := &f.table.Doubt
	parts := []string{title + ": " + f.number(f.root.total)}
	if f.base != nil {
		parts = []string{title + ": " + f.number(f.root.before) + " before, " + f.number(f.root.after) + " after", "red grew, blue shrank"}
	}
	if f.root.total == 0 {
		parts = []string{title + ": nothing was recorded"}
	}
	if d.Stacks > 0 && f.base == nil {
		parts = append(parts, number.Percent(int64(d.Unsymbolised), int64(d.Stacks))+" of stacks without a symbol", number.Percent(int64(d.Cut), int64(d.Stacks))+" cut")
	}
	s.label(margin, 49, 0, "s", "", fit(strings.Join(parts, " · "), 11.5, f.width-2*margin))
	s.f("%s", f.body.String())

	var ids []trace.ModuleID
	for id := range f.module {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(a, b trace.ModuleID) int {
		return cmp.Or(cmp.Compare(f.weights[b], f.weights[a]), cmp.Compare(a, b))
	})
	y := bottom + 6
	if f.base != nil {
		ids = nil // colours are of changes
	}
	s.modules(margin, y, f.width-margin, len(ids), func(i int) (string, string) {
		return clip(moduleName(f.table.Frames.Module(ids[i]))) + " " + number.Percent(f.weights[ids[i]], f.root.total), f.module[ids[i]].hex(0)
	})
	var notes []string
	if f.cut {
		notes = append(notes, fmt.Sprintf("frames deeper than %d are not drawn", maxLevels))
	}
	if d.Lost > 0 {
		notes = append(notes, some(int(min(d.Lost, 1<<60)), "record")+" lost")
	}
	if len(notes) > 0 {
		s.label(margin, y+20, 0, "s", "", strings.Join(notes, " · "))
	}
	return s.close()
}
