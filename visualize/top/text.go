package top

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/hbtrace/hbtrace/visualize/number"
	"github.com/hbtrace/hbtrace/visualize/terminal"
)

// Options say how a view is written.
type Options struct {
	Width  int // columns; 0: 80
	Height int // lines, of a terminal; 0: all threads are shown
	Color  bool
	Stacks bool // whole stacks
}

// leastWidth is what a table needs.
const leastWidth = 60

// Text writes a view as a table. No line is wider than the options say, and no more of them than fit.
func (v *View) Text(w io.Writer, o Options) error {
	if o.Width == 0 {
		o.Width = 80
	}
	o.Width = max(o.Width, leastWidth)
	out := terminal.Wrap("", v.head(), o.Width)
	t := terminal.Table{Columns: []terminal.Column{
		{Title: "CPU", Right: true}, {Title: "runnable", Right: true}, {Title: "thread", Flex: 2, Plain: true}, {Title: "state", Color: terminal.Bold},
		{Title: "for", Right: true}, {Title: "in", Flex: 4},
	}}
	for i := range v.Rows {
		r := &v.Rows[i]
		t.Add(percent(r.CPU), percent(r.Ready), v.name(r), r.State, number.Duration(r.ForNs), r.Function)
	}
	lines := t.Lines(o.Width, o.Color)
	out = append(out, lines[0])
	widths := t.Widths(o.Width)
	indent := strings.Repeat(" ", widths[0]+widths[1]+6)
	for i := range v.Rows {
		out = append(out, lines[i+1])
		for _, l := range v.under(&v.Rows[i], o.Width-len(indent), o.Stacks) {
			out = append(out, indent+terminal.Paint(o.Color, terminal.Dim, l))
		}
	}
	if o.Height > 0 && len(out) > o.Height {
		out = append(out[:max(o.Height-1, 0)], terminal.Paint(o.Color, terminal.Dim, "… more threads: --json, or a higher window"))
	}
	_, err := io.WriteString(w, strings.Join(out, "\n")+"\n")
	return err
}

func (v *View) head() []string {
	lost := "nothing lost"
	if v.Lost > 0 {
		lost = number.Plural(v.Lost, "record") + " lost"
	}
	head := []string{
		"hbtrace top: " + terminal.Middle(terminal.Clean(strings.Join(v.Command, " ")), 50), number.Duration(v.ElapsedNs),
		number.Plural(uint64(len(v.Rows)), "thread"),
	}
	if v.CPU != nil {
		head = append(head, "CPU "+percent(v.CPU))
	}
	return append(head, lost)
}

// percent leaves out what is not known: that is not nothing.
func percent(p *float64) string {
	if p == nil {
		return "?"
	}
	return fmt.Sprintf("%.1f %%", *p)
}

// name is a thread's name, with its number where it has to be told from others.
func (v *View) name(r *Row) string {
	n := 0
	for i := range v.Rows {
		if v.Rows[i].Thread == r.Thread {
			n++
		}
	}
	if n == 1 && r.Thread != "" {
		return r.Thread
	}
	return fmt.Sprintf("%s/%d", r.Thread, r.TID)
}

// under is what is written below a thread's row: the call that it sleeps in, who has what it waits for and what that one
// does, and the stack.
func (v *View) under(r *Row, room int, stack bool) (lines []string) {
	if r.Call != "" && (r.Object != "" || r.State != "sleep") {
		call := r.Call
		if r.Object != "" {
			call += ": " + r.Object
		}
		lines = append(lines, terminal.Middle(terminal.Clean(call), room))
	}
	lines = append(lines, v.chain(r, room)...)
	if !stack {
		return lines
	}
	for _, f := range r.Stack {
		lines = append(lines, "  "+terminal.Shorten(f, room-2))
	}
	if r.StackKind == "caller" {
		lines = append(lines, "  …")
	}
	return lines
}

// longest chain of owners that is followed: a deadlock has no end.
const longest = 6

// chain says who has what a thread waits for, what that one is doing, and so on.
func (v *View) chain(r *Row, room int) []string {
	var lines []string
	for o, seen := v.rows[r.owner], 0; o != nil && seen < longest; o, seen = v.rows[o.owner], seen+1 {
		what := terminal.Clean(cmp.Or(o.Call, o.State))
		who := terminal.Middle(terminal.Clean(v.name(o)), max(8, room/3))
		lead := "◂ " + who + ": " + what + " in "
		lines = append(lines, lead+terminal.Shorten(o.Function, max(8, room-terminal.Columns(lead))))
		if o == r {
			return append(lines, "◂ a deadlock")
		}
	}
	return lines
}

// JSON writes a view as one line.
func (v *View) JSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}
