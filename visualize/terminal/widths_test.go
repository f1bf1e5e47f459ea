package terminal

import (
	"strings"
	"testing"
)

// A flexible column whose cells are all empty takes no room, and leaves it to a long name next to it.
func TestWidthsOfEmptyColumn(t *testing.T) {
	name := strings.Repeat("a_long_name_", 20)
	for _, columns := range [][]Column{
		{{Title: "n", Right: true}, {Title: "function", Flex: 2}, {Flex: 1, Plain: true}},
		{{Flex: 1, Plain: true}, {Title: "function", Flex: 2}},
		{{Flex: 1}, {Flex: 1}},
	} {
		table := &Table{Columns: columns}
		cells := make([]string, len(columns))
		cells[1] = name
		table.Add(cells...)
		for _, line := range table.Lines(80, false) {
			if n := Columns(line); n > 80 || strings.Contains(line, "a_long") && n < 70 {
				t.Errorf("a line of %d columns of 80: %q", n, line)
			}
		}
	}
}

// Any table fits into any width that its columns can be squeezed into, and no cell makes the layout fail.
func FuzzWidths(f *testing.F) {
	f.Add(uint8(3), uint16(0x120), 80, "change", "a very long name of a function that is wider than the terminal it is shown on, by far", "")
	f.Add(uint8(2), uint16(0x11), 5, "", "", "")
	f.Add(uint8(3), uint16(0xfff), 0, "長長長長長長長", "\x1b[2J", "x")
	f.Fuzz(func(t *testing.T, columns uint8, flex uint16, width int, a, b, c string) {
		n := 1 + int(columns)%6
		width = 1 + (width%400+400)%400
		table := &Table{Indent: int(flex>>12) % 5}
		cells := []string{a, b, c}
		for i := range n {
			table.Columns = append(table.Columns, Column{Flex: int(flex>>(2*i)) & 3, Title: cells[(i+1)%3], Right: i%2 == 0, Plain: i%3 == 0})
		}
		for r := range 3 {
			var row []string
			for i := range n {
				row = append(row, cells[(i+r)%3])
			}
			table.Add(row...)
		}
		w := table.Widths(width)
		least := table.Indent + gap*(n-1) + 2*n // squeezed as far as columns can be
		for _, line := range table.Lines(width, false) {
			if got := Columns(line); got > max(width, least) {
				t.Errorf("widths %v: a line of %d columns of %d: %q", w, got, width, line)
			}
		}
		table.Under(max(width, least+40), false, func(_, _ int) []string { return cells })
	})
}
