// The summary: what a run ends with.

package report

import (
	"cmp"
	"strings"

	"github.com/hbtrace/hbtrace/analysis/weigh"
	"github.com/hbtrace/hbtrace/visualize/terminal"
)

// summaryLines is how long the summary may be.
const summaryLines = 40

// section of the summary. Its rows may be cut to make room, down to its least.
type section struct {
	heading string
	rows    int // wanted
	least   int
	lines   func(rows int) []string
}

func (f *facts) summary(o Options) []string {
	dead := f.deadlockLines(o)
	if len(f.kinds) > 0 && f.stats.Events == 0 && len(f.order) == 0 {
		o.Recording, o.Next = "", "" // no table has more
		out := append(f.head(o), terminal.Wrap("", []string{"nothing was recorded: hbtrace doctor says why"}, o.Width)...)
		return f.fit(o, out, nil, f.foot(o))
	}
	var sections []section
	top := min(o.Top, 6)
	if causes := f.causes(); len(causes) > 0 {
		sections = append(sections, section{"What threads waited for", min(top, len(causes), 4), 2, func(n int) []string {
			return f.chainTable(causes[:min(n, len(causes))], o)
		}})
	} else if locks := contended(f.locks()); f.blame == nil && len(locks) > 0 { // too many events for chains
		sections = append(sections, section{"Contended locks", min(top, len(locks)), 1, func(n int) []string {
			return f.lockLines(locks[:n], o)
		}})
	}
	sums := f.byFunction(weigh.CPU)
	for n := range sums {
		if sums[n].self == 0 { // callers: the table is by self time
			sums = sums[:n]
			break
		}
	}
	if len(sums) > 0 {
		alloc := f.allocCost()
		sections = append(sections, section{"CPU, by function", min(top, len(sums)), 2, func(n int) []string {
			lines := f.cpuTable(sums, n, false, o).Lines(o.Width, o.Color)
			if alloc != "" {
				lines = append(indented(terminal.Wrap("", []string{alloc}, o.Width-2)), lines...)
			}
			return lines
		}})
	}
	if places := f.places(); len(places) > 0 {
		sections = append(sections, section{"Blocked", min(top, len(places)), 2, func(n int) []string {
			return f.blockedTable(places, n, o).Lines(o.Width, o.Color)
		}})
	}
	if sites := f.allocSites(); len(sites) > 0 {
		sections = append(sections, section{"Allocated", min(top, len(sites), 3), 1, func(n int) []string {
			return f.allocTable(sites, n, o).Lines(o.Width, o.Color)
		}})
	}
	for i := range sections {
		s := &sections[i]
		heading, lines := s.heading, s.lines
		s.lines = func(n int) []string {
			return append([]string{terminal.Paint(o.Color, terminal.Bold, heading)}, lines(n)...)
		}
	}
	head := f.head(o)
	if len(dead) > 0 {
		head = append(head, dead[1:min(len(dead), 8)]...) // without the blank line
	}
	return f.fit(o, head, sections, f.foot(o))
}

func indented(lines []string) []string {
	for i := range lines {
		lines[i] = "  " + lines[i]
	}
	return lines
}

// doubtLines are what the doubts may take without anything giving way to them.
const doubtLines = 10

// fit puts the parts together; where they are too long the longest section gives up rows first.
func (f *facts) fit(o Options, head []string, sections []section, foot []string) []string {
	for {
		out := append([]string{}, head...)
		longest := -1
		for i, s := range sections {
			out = append(out, s.lines(s.rows)...)
			if s.rows > s.least && (longest < 0 || s.rows >= sections[longest].rows) {
				longest = i
			}
		}
		out = append(out, f.doubtText(o, max(doubtLines, summaryLines-len(out)-len(foot)))...)
		out = append(out, foot...)
		if len(out) <= summaryLines {
			return out
		}
		if longest < 0 {
			return append(out[:summaryLines-1-len(foot)], append([]string{"…"}, foot...)...)
		}
		sections[longest].rows--
	}
}

// foot names the files and the next command.
func (f *facts) foot(o Options) []string {
	var out []string
	if len(o.Files) > 0 {
		files := o.Files
		lines := wrapWords("wrote     ", files, o.Width)
		out = append(out, lines...)
	}
	if next := cmp.Or(o.Next, f.next(o.Recording)); next != "" {
		out = append(out, terminal.Paint(o.Color, terminal.Bold, "next      ")+terminal.Clean(next))
	}
	return out
}

// wrapWords breaks names into lines without cutting any: they are there to be copied.
func wrapWords(lead string, words []string, width int) []string {
	var out []string
	line := lead
	for i, w := range words {
		w = terminal.Clean(w)
		if i > 0 && terminal.Columns(line)+2+terminal.Columns(w) > width {
			out = append(out, line)
			line = strings.Repeat(" ", terminal.Columns(lead))
		} else if i > 0 {
			line += "  "
		}
		line += w
	}
	return append(out, line)
}
