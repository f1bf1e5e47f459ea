// Package picture draws a recording as SVG: a timeline of threads and a flame graph. The files are
// self-contained, need no script, and stay small however much was recorded: what is thinner than a pixel is
// drawn together with its neighbours.
package picture

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/hbtrace/hbtrace/analysis/names"
)

// Fonts and their metrics. Text is measured by a table instead of by a font, because the font is the reader's;
// the widths are those of the widest of the named families, so that labels fit in all of them.
const (
	sans = `ui-sans-serif,system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",Arial,sans-serif`
	mono = `ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace`
)

// Ink on paper, and the greys between.
const (
	ink   = "#1f2933"
	soft  = "#5b6773" // secondary text
	hair  = "#dfe3e8" // grid lines
	paper = "#ffffff"
	shade = "#f4f6f8" // behind lanes
)

// svg writes elements. The first error sticks and is returned by close.
type svg struct {
	w   *bufio.Writer
	err error
}

// openSVG writes the head of a picture of this size in CSS pixels. title and desc are for screen readers.
func openSVG(w io.Writer, width, height float64, title, desc, style string) *svg {
	s := &svg{w: bufio.NewWriterSize(w, 64<<10)}
	s.f(`<svg xmlns="http://www.w3.org/2000/svg" width="%s" height="%s" viewBox="0 0 %[1]s %[2]s" role="img">`+"\n",
		num(width), num(height))
	s.f("<title>%s</title>\n<desc>%s</desc>\n", text(title), text(desc))
	s.f("<style>\ntext{font-family:%s;fill:%s}\n%s</style>\n", sans, ink, style)
	s.f(`<rect width="%s" height="%s" fill="%s"/>`+"\n", num(width), num(height), paper)
	return s
}

func (s *svg) f(format string, args ...any) {
	if s.err == nil {
		_, s.err = fmt.Fprintf(s.w, format, args...)
	}
}

// close ends the picture and returns the first error.
func (s *svg) close() error {
	s.f("</svg>\n")
	if s.err == nil {
		s.err = s.w.Flush()
	}
	if s.err != nil {
		return fmt.Errorf("writing the picture: %w", s.err)
	}
	return nil
}

// label writes a line of text at a baseline; anchor is "", "middle" or "end".
func (s *svg) label(x, y, size float64, class, anchor, content string) {
	s.f(`<text x="%s" y="%s"`, num(x), num(y))
	if size > 0 {
		s.f(` font-size="%s"`, num(size))
	}
	if class != "" {
		s.f(` class="%s"`, class)
	}
	if anchor != "" {
		s.f(` text-anchor="%s"`, anchor)
	}
	s.f(">%s</text>\n", text(content))
}

// num writes a coordinate with two decimals at most.
func num(f float64) string {
	s := strconv.FormatFloat(f, 'f', 2, 64)
	s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	if s == "-0" || s == "" {
		return "0"
	}
	return s
}

// one writes a coordinate with one decimal at most: enough for shapes, and a third less to store.
func one(f float64) string {
	s := strings.TrimSuffix(strconv.FormatFloat(f, 'f', 1, 64), ".0")
	if s == "-0" {
		return "0"
	}
	return s
}

// text escapes arbitrary bytes for XML content and attributes. What XML 1.0 cannot hold at all (most control
// characters, surrogates, U+FFFE) becomes U+FFFD, as do characters that would reorder the text around them.
func text(v string) string {
	plain := true
	for i := 0; i < len(v); i++ {
		if c := v[i]; c < 0x20 || c >= 0x7f || c == '<' || c == '>' || c == '&' || c == '"' || c == '\'' {
			plain = false
			break
		}
	}
	if plain {
		return v
	}
	var b strings.Builder
	for _, r := range v {
		switch {
		case r == '<':
			b.WriteString("&lt;")
		case r == '>':
			b.WriteString("&gt;")
		case r == '&':
			b.WriteString("&amp;")
		case r == '"':
			b.WriteString("&#34;")
		case r == '\'':
			b.WriteString("&#39;")
		case r == '\n':
			b.WriteByte('\n') // tooltips have lines
		case r == '\t' || r == '\r':
			b.WriteByte(' ')
		case r < 0x20, r >= 0x7f && r < 0xa0, r >= 0xfff0 && r <= 0xffff, r&0xfffe == 0xfffe, unicode.Is(unicode.Cf, r):
			b.WriteRune(utf8.RuneError)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// oneLine is text that came from a program, as a part of a line: its line breaks would forge others.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\r' || r == '\t' || r == 0x2028 || r == 0x2029 {
			return ' '
		}
		return r
	}, s)
}

// textWidth estimates the width of s at a font size, in pixels.
func textWidth(s string, size float64) float64 {
	var em float64
	for _, r := range s {
		switch {
		case strings.ContainsRune("iljI.,:;|!'()[]{}ft ", r):
			em += 0.36
		case strings.ContainsRune("mwMW@%", r):
			em += 0.95
		case r >= 'A' && r <= 'Z' || r == '_' || r == '<' || r == '>' || r == '+' || r == '=' || r == '…':
			em += 0.7
		case r >= 0x1100:
			em += 1.05
		default:
			em += 0.61
		}
	}
	return em * size
}

// fit shortens a label to a width in pixels, leaving out its middle; "" where not even a few letters fit.
func fit(s string, size, width float64) string {
	s = oneLine(s)
	if textWidth(s, size) <= width {
		return s
	}
	r := []rune(s)
	lo, hi := 0, len(r) // the largest number of runes kept that fits
	cut := func(n int) string {
		head := n * 2 / 5
		return string(r[:head]) + "…" + string(r[len(r)-(n-head):])
	}
	for lo < hi {
		mid := (lo + hi + 1) / 2
		if textWidth(cut(mid), size) <= width {
			lo = mid
		} else {
			hi = mid - 1
		}
	}
	if lo < 4 {
		return ""
	}
	return cut(lo)
}

// fitName shortens a function's name to a width in pixels: its parameters go first, then namespaces, then its end.
func fitName(name string, size, width float64) string {
	name = oneLine(name)
	if textWidth(name, size) <= width {
		return name
	}
	if len(name) > names.Longest/2 { // more than any picture has room for
		name = strings.ToValidUTF8(name[:names.Longest/2], "")
	}
	name = names.Bare(name)
	for textWidth(name, size) > width {
		rest, ok := names.CutNamespace(name)
		if !ok {
			break
		}
		name = rest
	}
	if textWidth(name, size) <= width {
		return name
	}
	r := []rune(name)
	n, used := 0, 0.7*size // of the ellipsis
	for n < len(r) && used+textWidth(string(r[n]), size) <= width {
		used += textWidth(string(r[n]), size)
		n++
	}
	if n < 3 {
		return ""
	}
	return string(r[:n]) + "…"
}
