// Tables for a terminal: columns as wide as their cells, one that takes what is left, titles in bold where the
// caller wants colour.

package report

import (
	"fmt"
	"io"
	"strings"
)

// column of a table. Cells of a flexible column are shortened to what the other columns leave.
type column struct {
	title string
	right bool
	flex  int  // share of the width that is left; 0 = as wide as its widest cell
	plain bool // shorten as plain text, not as a function's name
	color string
}

// table is rows of cells under titles. A row that is one string long is a note over the whole width.
type table struct {
	columns []column
	rows    [][]string
	indent  int
	chain   bool // every line that under adds is a step further
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

const (
	bold  = "1"
	dim   = "2"
	red   = "31"
	blue  = "34"
	reset = "\x1b[0m"
)

// paint wraps s in an SGR sequence where colour is wanted.
func paint(on bool, sgr, s string) string {
	if !on || sgr == "" || s == "" {
		return s
	}
	return "\x1b[" + sgr + "m" + s + reset
}

const gap = 2 // columns between two cells

// widths gives each column its width so that the whole fits into total.
func (t *table) widths(total int) []int {
	w := make([]int, len(t.columns))
	need := make([]int, len(t.columns))
	flex := 0
	left := total - t.indent
	for i, c := range t.columns {
		need[i] = columns(c.title)
		for _, row := range t.rows {
			if len(row) > 1 && i < len(row) {
				need[i] = max(need[i], columns(clean(row[i])))
			}
		}
		if i > 0 {
			left -= gap
		}
		if c.flex == 0 {
			w[i] = need[i]
			left -= w[i]
		} else {
			flex += c.flex
		}
	}
	// A flexible column that needs less than its share leaves the rest to the others: settle those first.
	for settled := true; settled && flex > 0; {
		settled = false
		for i, c := range t.columns {
			if c.flex == 0 || w[i] != 0 {
				continue
			}
			if share := left * c.flex / flex; need[i] <= share {
				w[i], left, flex, settled = need[i], left-need[i], flex-c.flex, true
			}
		}
	}
	for i, c := range t.columns {
		if c.flex != 0 && w[i] == 0 && flex > 0 {
			w[i] = max(8, left*c.flex/flex)
			left, flex = left-w[i], flex-c.flex
		}
	}
	t.squeeze(w, total)
	return w
}

// squeeze narrows the widest columns where numbers alone are wider than the terminal.
func (t *table) squeeze(w []int, total int) {
	over := t.indent + gap*(len(w)-1) - total
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

// lines lays the table out, its titles first (unless all are empty), each line without trailing blanks.
func (t *table) lines(o Options) []string {
	w := t.widths(o.Width)
	var out []string
	emit := func(cells []string, title bool) {
		var b strings.Builder
		b.WriteString(strings.Repeat(" ", t.indent))
		pad := 0 // blanks are written before the next cell, so that none end a line
		for i, c := range t.columns {
			if i > 0 {
				pad += gap
			}
			cell := ""
			if i < len(cells) {
				cell = clean(cells[i])
			}
			if columns(cell) > w[i] {
				if c.plain || c.flex == 0 || title {
					cell = middle(cell, w[i])
				} else {
					cell = shorten(cell, w[i])
				}
			}
			blank := w[i] - columns(cell)
			if c.right {
				pad += max(blank, 0)
			}
			text := strings.TrimRight(cell, " ")
			trailing := columns(cell) - columns(text)
			if text != "" {
				b.WriteString(strings.Repeat(" ", pad))
				pad = 0
				switch {
				case title:
					text = paint(o.Color, dim, text)
				default:
					text = paint(o.Color, c.color, text)
				}
				b.WriteString(text)
			}
			pad += trailing
			if !c.right {
				pad += max(blank, 0)
			}
		}
		out = append(out, b.String())
	}
	var titles []string
	for _, c := range t.columns {
		titles = append(titles, c.title)
	}
	if strings.Join(titles, "") != "" {
		emit(titles, true)
	}
	for _, row := range t.rows {
		if len(row) == 1 {
			note := strings.Repeat(" ", t.indent) + middle(clean(row[0]), o.Width-t.indent)
			out = append(out, paint(o.Color, dim, strings.TrimRight(note, " ")))
			continue
		}
		emit(row, false)
	}
	return out
}

func (t *table) write(w io.Writer, o Options) {
	for _, l := range t.lines(o) {
		fmt.Fprintln(w, l)
	}
}

// wrap breaks clauses into lines of at most width columns, each continued line indented.
func wrap(lead string, clauses []string, width int) []string {
	const between = " · "
	indent := strings.Repeat(" ", columns(lead))
	var out []string
	line := lead
	empty := true
	for _, c := range clauses {
		c = strings.TrimSpace(clean(c))
		if !empty && columns(line)+columns(between)+columns(c) > width {
			out = append(out, line)
			line, empty = indent, true
		}
		if !empty {
			line += between
		}
		for columns(line)+columns(c) > width { // too long for a line of its own: break it at a blank
			room := width - columns(line)
			at := strings.LastIndexByte(prefix(c, room+1), ' ')
			if at <= 0 {
				break
			}
			out = append(out, line+strings.TrimRight(c[:at], " "))
			line, c = indent, strings.TrimLeft(c[at:], " ")
		}
		line += strings.TrimRight(middle(c, max(8, width-columns(line))), " ")
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
