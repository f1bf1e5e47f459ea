package terminal

import (
	"strings"
	"testing"
)

// Lines under a row begin under its last column where they fit there, and to the left of it where they need more room,
// but never under the figures; what does not fit then is cut.
func TestUnder(t *testing.T) {
	for _, tt := range []struct {
		width int
		under string
		want  string
	}{
		{60, "short", "  12  an object of the table  a function\n                              ◂ short"},
		{44, "a longer one", "  12  an object of the table  a function\n                              ◂ a longer one"},
		{44, "a much longer one, too", "  12  an object of the table  a function\n                    ◂ a much longer one, too"},
		{44, strings.Repeat("x", 60), "  12  an object of the table  a function\n      ◂ xxxxxxxxxxxxxx…xxxxxxxxxxxxxxxxxxxxx"},
	} {
		table := &Table{Columns: []Column{{Title: "n", Right: true}, {Title: "object", Flex: 1}, {Title: "function", Flex: 1}}, Indent: 2}
		table.Add("12", "an object of the table", "a function")
		lines := table.Under(tt.width, false, func(_, room int) []string { return []string{tt.under} })
		if got := strings.Join(lines[1:], "\n"); got != tt.want {
			t.Errorf("%d columns, %q:\n%s\nwant\n%s", tt.width, tt.under, got, tt.want)
		}
		for _, l := range lines {
			if Columns(l) > tt.width {
				t.Errorf("%d columns: %q has %d", tt.width, l, Columns(l))
			}
		}
	}
}
