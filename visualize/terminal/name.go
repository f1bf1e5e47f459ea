// Names as a terminal can show them: harmless, and cut where a reader misses least.

package terminal

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/hbtrace/hbtrace/analysis/names"
)

// Clean makes arbitrary bytes fit to print: invalid UTF-8, control characters and characters that reorder text
// become U+FFFD or a space, so that no name can move the cursor or forge a line.
func Clean(s string) string {
	ok := true
	for _, r := range s {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			ok = false
			break
		}
	}
	if ok {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		switch {
		case r == '\t' || r == '\n' || r == '\r' || unicode.Is(unicode.Zs, r):
			b.WriteByte(' ')
		case unicode.IsPrint(r):
			b.WriteRune(r)
		default:
			b.WriteRune(utf8.RuneError)
		}
	}
	return b.String()
}

// wide are the blocks whose characters take two columns on a terminal (UAX #11, W and F, coarsely).
var wide = &unicode.RangeTable{
	R16: []unicode.Range16{
		{0x1100, 0x115f, 1}, {0x2e80, 0x303e, 1}, {0x3041, 0xa4cf, 1}, {0xac00, 0xd7a3, 1},
		{0xf900, 0xfaff, 1}, {0xfe30, 0xfe6f, 1}, {0xff00, 0xff60, 1}, {0xffe0, 0xffe6, 1},
	},
	R32: []unicode.Range32{{0x1f300, 0x1faff, 1}, {0x20000, 0x3fffd, 1}},
}

// runeColumns is the number of columns a printable rune takes.
func runeColumns(r rune) int {
	switch {
	case r < 0x300:
		return 1
	case unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf):
		return 0
	case unicode.Is(wide, r):
		return 2
	}
	return 1
}

// Columns is the number of terminal columns that s takes.
func Columns(s string) int {
	n := 0
	for _, r := range s {
		n += runeColumns(r)
	}
	return n
}

// Shorten fits a function's name into n columns. It gives up, in this order: the type that it returns, the
// parameter list and Rust's hash, template arguments, leading namespaces, and at last the middle. What was given up shows as "…".
func Shorten(name string, n int) string {
	name = Clean(name)
	if Columns(name) <= n {
		return name
	}
	if len(name) > names.Longest {
		return Middle(name, n)
	}
	name = names.Bare(name)
	if Columns(name) <= n {
		return name
	}
	name = names.FoldArguments(name)
	for Columns(name) > n {
		rest, ok := names.DropNamespace(name)
		if !ok || Columns(rest) < n/2 && Columns(rest) < 8 {
			break
		}
		name = rest
	}
	return Middle(name, n)
}

// Thread fits a thread's name into n columns. A goroutine is called "package.Function.func1/17": of that the front goes, part by
// part, before anything is cut in the middle.
func Thread(name string, n int) string {
	number := strings.LastIndexByte(name, '/')
	if number < 0 || Columns(name) <= n {
		return Middle(name, n)
	}
	for rest := name; Columns(rest)+1 > n; {
		i := strings.IndexAny(rest[:strings.LastIndexByte(rest, '/')], "./")
		if i < 0 {
			break
		}
		if rest = rest[i+1:]; Columns(rest)+1 <= n {
			return "…" + rest
		}
	}
	return Middle(name, n)
}

// Middle cuts s to n columns, leaving its beginning and, a little more, its end.
func Middle(s string, n int) string {
	if Columns(s) <= n {
		return s
	}
	if n <= 1 {
		return strings.Repeat("…", max(n, 0))
	}
	r := []rune(s)
	head, tail := (n-1)*2/5, n-1-(n-1)*2/5
	i, w := 0, 0
	for i < len(r) && w+runeColumns(r[i]) <= head {
		w += runeColumns(r[i])
		i++
	}
	j, w := len(r), 0
	for j > i && w+runeColumns(r[j-1]) <= tail {
		w += runeColumns(r[j-1])
		j--
	}
	return string(r[:i]) + "…" + string(r[j:])
}
