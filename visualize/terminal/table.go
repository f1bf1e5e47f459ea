// Package terminal lays text out for a terminal: tables in table.go, names that are harmless and fit in name.go.
//
// A table's columns are as wide as their cells, but for those that take what is left; its titles are emphasised where the
// caller wants colour.
package terminal

import (
	"strings"
)

// Column of a table. Cells of a flexible column are shortened to what the other columns leave.
type Column struct {
	Title string
	Right bool
	Flex  int    // share of the width that is left; 0 = as wide as its widest cell
	Plain bool   // shorten as plain text, not as a function's name
	Color string // an SGR parameter; "" none
}

// Table is rows of cells under titles. A row that is one string long is a note over the whole width.
type Table struct {
	Columns []Column
	Rows    [][]string
	Indent  int
	Chain   bool // lines that the caller adds under a row are each a step further
	Plain   bool // lines under a row have no arrow
}

// Add appends a row.
func (t *Table) Add(cells ...string) { t.Rows = append(t.Rows, cells) }

// Annotate adds a note in brackets to the cells of a column, where the width has room for it. Call it when all rows are there.
func (t *Table) Annotate(column, width int, notes []string) {
	w := t.Widths(width)
	room := width - t.Indent - gap*(len(w)-1)
	for i, n := range w {
		if i != column {
			room -= n
		}
	}
	for i, note := range notes {
		cell := &t.Rows[i][column]
		if note != "" && Columns(Clean(*cell))+Columns(note)+3 <= room {
			*cell += " (" + note + ")"
		}
	}
}

// What Paint can do: SGR parameters.
const (
	Bold  = "1"
	Dim   = "2"
	Red   = "31"
	Blue  = "34"
	reset = "\x1b[0m"
)

// Paint wraps s in an SGR sequence where colour is wanted.
func Paint(on bool, sgr, s string) string {
	if !on || sgr == "" || s == "" {
		return s
	}
	return "\x1b[" + sgr + "m" + s + reset
}

const gap = 2 // columns between two cells

// Widths gives each column its width so that the whole fits into total.
func (t *Table) Widths(total int) []int {
	w := make([]int, len(t.Columns))
	need := make([]int, len(t.Columns))
	flex := 0
	left := total - t.Indent
	for i, c := range t.Columns {
		need[i] = Columns(c.Title)
		for _, row := range t.Rows {
			if len(row) > 1 && i < len(row) {
				need[i] = max(need[i], Columns(Clean(row[i])))
			}
		}
		if i > 0 {
			left -= gap
		}
		if c.Flex == 0 {
			w[i] = need[i]
			left -= w[i]
		} else {
			flex += c.Flex
		}
	}
	// A flexible column that needs less than its share leaves the rest to the others: settle those first.
	done := make([]bool, len(t.Columns)) // a settled column may be 0 wide: its cells are empty
	for settled := true; settled && flex > 0; {
		settled = false
		for i, c := range t.Columns {
			if c.Flex == 0 || done[i] {
				continue
			}
			if share := left * c.Flex / flex; need[i] <= share {
				w[i], left, flex, settled, done[i] = need[i], left-need[i], flex-c.Flex, true, true
				if flex == 0 {
					break
				}
			}
		}
	}
	for i, c := range t.Columns {
		if c.Flex != 0 && !done[i] {
			w[i] = max(8, left*c.Flex/flex)
			left, flex = left-w[i], flex-c.Flex
		}
	}
	t.squeeze(w, total)
	return w
}

// squeeze narrows the widest columns where numbers alone are wider than the terminal.
func (t *Table) squeeze(w []int, total int) {
	over := t.Indent + gap*(len(w)-1) - total
	for _, x := range w {
		over += x
	}
	for ; over > 0; over-- {
		widest := 0
		for i := range w {
			if w[i] > w[widest] {
				widest = i
			}
		}
		if w[widest] <= 2 {
			return
		}
		w[widest]--
	}
}

// Lines lays the table out, its titles first (unless all are empty), each line without trailing blanks.
func (t *Table) Lines(width int, colour bool) []string {
	w := t.Widths(width)
	var out []string
	emit := func(cells []string, title bool) {
		var b strings.Builder
		b.WriteString(strings.Repeat(" ", t.Indent))
		pad := 0 // blanks are written before the next cell, so that none end a line
		for i, c := range t.Columns {
			if i > 0 {
				pad += gap
			}
			cell := ""
			if i < len(cells) {
				cell = Clean(cells[i])
			}
			if Columns(cell) > w[i] {
				if c.Plain || c.Flex == 0 || title {
					cell = Middle(cell, w[i])
				} else {
					cell = Shorten(cell, w[i])
				}
			}
			blank := w[i] - Columns(cell)
			if c.Right {
				pad += max(blank, 0)
			}
			text := strings.TrimRight(cell, " ")
			trailing := Columns(cell) - Columns(text)
			if text != "" {
				b.WriteString(strings.Repeat(" ", pad))
				pad = 0
				switch {
				case title:
					text = Paint(colour, Dim, text)
				default:
					text = Paint(colour, c.Color, text)
				}
				b.WriteString(text)
			}
			pad += trailing
			if !c.Right {
				pad += max(blank, 0)
			}
		}
		out = append(out, b.String())
	}
	var titles []string
	for _, c := range t.Columns {
		titles = append(titles, c.Title)
	}
	if strings.Join(titles, "") != "" {
		emit(titles, true)
	}
	for _, row := range t.Rows {
		if len(row) == 1 {
			note := strings.Repeat(" ", t.Indent) + Middle(Clean(row[0]), width-t.Indent)
			out = append(out, Paint(colour, Dim, strings.TrimRight(note, " ")))
			continue
		}
		emit(row, false)
	}
	return out
}

// Under is Lines with more lines below each row, under its last column: the first after the arrow that says from whom.
// Where there is too little room for them, all begin as far to the left as they need, but not under columns of figures.
func (t *Table) Under(width int, colour bool, more func(row, room int) []string) []string {
	w := t.Widths(width)
	at, least := t.Indent, t.Indent
	for i, x := range w[:len(w)-1] {
		if t.Columns[i].Right {
			least = at + x + gap
		}
		at += x + gap
	}
	if least == at {
		least = min(at, t.Indent+4*gap)
	}
	need := 0
	for i := range t.Rows {
		for _, text := range more(i, width-least-2) {
			need = max(need, Columns(Clean(text)))
		}
	}
	at = max(least, min(at, width-2-need))
	lines := t.Lines(width, colour)
	head := len(lines) - len(t.Rows) // no line of titles where all are empty
	out := lines[:head:head]
	for i := range t.Rows {
		out = append(out, lines[head+i])
		room := width - at - 2
		for j, text := range more(i, room) {
			mark := "◂ "
			if t.Plain || j > 0 && !t.Chain {
				mark = "  "
			}
			text = strings.TrimRight(Middle(Clean(text), room), " ")
			out = append(out, strings.Repeat(" ", at)+Paint(colour, Dim, mark)+text)
		}
	}
	return out
}

// Wrap breaks clauses into lines of at most width columns, each continued line indented.
func Wrap(lead string, clauses []string, width int) []string {
	const between = " · "
	indent := strings.Repeat(" ", Columns(lead))
	var out []string
	line := lead
	empty := true
	for _, c := range clauses {
		c = strings.TrimSpace(Clean(c))
		if !empty && Columns(line)+Columns(between)+Columns(c) > width {
			out = append(out, line)
			line, empty = indent, true
		}
		if !empty {
			line += between
		}
		for Columns(line)+Columns(c) > width { // too long for a line of its own: break it at a blank
			room := width - Columns(line)
			at := strings.LastIndexByte(prefix(c, room+1), ' ')
			if at <= 0 {
				break
			}
			out = append(out, line+strings.TrimRight(c[:at], " "))
			line, c = indent, strings.TrimLeft(c[at:], " ")
		}
		line += strings.TrimRight(Middle(c, max(8, width-Columns(line))), " ")
		empty = false
	}
	if !empty {
		out = append(out, line)
	}
	return out
}

// prefix is the beginning of s that takes at most n columns.
func prefix(s string, n int) string {
	used := 0
	for i, r := range s {
		if used += runeColumns(r); used > n {
			return s[:i]
		}
	}
	return s
}
