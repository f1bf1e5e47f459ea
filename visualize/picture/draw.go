// Drawing of the timeline.

package picture

import (
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hbtrace/hbtrace/analysis/frames"
	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/visualize/number"
)

// Sizes in CSS pixels.
const (
	gutter   = 216.0 // left of the lanes
	margin   = 20.0
	strip    = 20.0 // what a thread was doing
	row      = 14.0 // a level of spans
	rowText  = 9.5
	lanePad  = 12.0
	laneMin  = 34.0 // two lines of text next to it
	thinPad  = 6.0  // between lanes without spans
	procHead = 26.0
)

// Bytes that parts of the picture may take; what exceeds them is drawn coarser. Together they keep it below 2 MB.
const (
	boxBytes   = 700_000
	markBytes  = 200_000
	stripBytes = 300_000
	laneBytes  = 500_000 // tooltips of lanes
	nameBytes  = 240     // of a name in a tooltip
)

const timelineStyle = `.n{font-weight:600;font-size:12px}.s{font-size:10.5px;fill:` + soft + `}.l{font-size:9.5px;pointer-events:none}
.m{font-size:10px;font-weight:600;pointer-events:none}.a{font-size:10.5px;fill:` + soft + `}
`

func (t *timeline) x(at trace.Ns) float64 { return gutter + t.scale.col(at)*t.wide }

func (t *timeline) draw(w io.Writer) error {
	t.colours()
	y := 100.0 // title, subtitle, legend, axis
	multi := t.processes() > 1
	var heads []float64
	last := trace.ProcID(0)
	for i, l := range t.lanes {
		if multi && (i == 0 || l.thread.Proc != last) {
			heads = append(heads, y)
			y += procHead
		}
		last = l.thread.Proc
		l.y = y
		l.spansY = y + strip + 2
		l.height = max(laneMin, strip+2+float64(l.depth)*row)
		if t.levels == 0 {
			l.height = strip - lanePad + thinPad
		}
		y += l.height + lanePad
	}
	bottom := y
	height := bottom + 20
	if t.hidden > 0 || t.lost > 0 || len(t.lanes) == 0 {
		height += 22
	}
	command := oneLine(strings.Join(t.src.Meta().Command, " "))
	s := openSVG(w, float64(t.o.Width), height, "Timeline of "+clip(command),
		"Threads over time: what each was doing, its calls, and who let whom go on.", timelineStyle)
	s.f(`<defs><pattern id="u" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">` +
		`<rect width="6" height="6" fill="#eef1f4"/><rect width="1.6" height="6" fill="#d9dee4"/></pattern>` +
		`<marker id="h" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">` +
		`<path d="M0 0L8 4L0 8z" fill="` + ink + `"/></marker></defs>` + "\n")
	t.drawHead(s, command)
	t.drawAxis(s, bottom)
	paths := t.strips()
	h := 0
	last = 0
	for i, l := range t.lanes {
		if multi && (i == 0 || l.thread.Proc != last) {
			t.drawProcess(s, l, heads[h])
			h++
		}
		last = l.thread.Proc
		s.f("<g shape-rendering=\"crispEdges\" data-thread=\"%d\" data-ns=\"%s\"><title>%s</title>\n", l.thread.ID, l.total.exact(), text(t.about(l)))
		t.drawName(s, l)
		t.drawStrip(s, l, paths[i])
		s.f("</g>\n")
	}
	t.drawSpans(s)
	t.drawMarks(s)
	t.drawArrows(s)
	t.drawFoot(s, bottom)
	return s.close()
}

func (t *timeline) processes() int {
	seen := map[trace.ProcID]bool{}
	for _, l := range t.lanes {
		seen[l.thread.Proc] = true
	}
	return len(seen)
}

// drawHead writes the title, what was recorded, and the legend.
func (t *timeline) drawHead(s *svg, command string) {
	if command == "" {
		command = "(no command)"
	}
	s.f(`<g font-weight="600">`)
	s.label(margin, 30, 17, "", "", fit(command, 19, float64(t.o.Width)-2*margin))
	s.f("</g>\n")
	m := t.src.Meta()
	var cpu int64
	for _, l := range t.lanes {
		cpu += l.total.by[running]
	}
	parts := []string{number.Duration(int64(t.scale.to - t.scale.from))}
	if t.o.From != 0 || t.o.To != 0 {
		parts[0] += fmt.Sprintf(" from %s after the start", number.Duration(int64(t.scale.from-m.StartNs)))
	}
	parts = append(parts, some(len(t.src.Threads()), "thread")+" in "+some(len(t.src.Processes()), "process"),
		"CPU "+number.Duration(cpu+t.hidCPU))
	if m.Host != "" {
		parts = append(parts, fmt.Sprintf("%s, %s, %d CPUs", oneLine(m.Host), oneLine(m.Kernel), m.CPUs))
	}
	s.label(margin, 48, 11.5, "s", "", fit(strings.Join(parts, " · "), 11.5, float64(t.o.Width)-2*margin))

	var used [states]bool
	for _, l := range t.lanes {
		for st := range states {
			used[st] = used[st] || l.total.by[st] > 0
		}
	}
	x, y := margin, 71.0
	entry := func(name, shape string) {
		s.f("%s", shape)
		s.label(x+19, y, 11, "", "", name)
		x += 19 + textWidth(name, 11)*0.93 + 18
	}
	for _, st := range stacked {
		if used[st] {
			entry(look[st].name, fmt.Sprintf(`<rect x="%s" y="%s" width="14" height="11" rx="2" fill="%s"/>`, one(x), one(y-9.5), look[st].fill))
		}
	}
	if t.levels == 0 {
		s.label(gutter-20, 92, 0, "s", "end", "CPU · blocked")
	}
	entry("not observed", fmt.Sprintf(`<rect x="%s" y="%s" width="14" height="11" rx="2" fill="url(#u)" stroke="%s" stroke-width=".5"/>`, one(x), one(y-9.5), hair))
	if len(t.arrows) > 0 {
		entry("let go of", fmt.Sprintf(`<path d="M%s %sh13" stroke="%s" stroke-width="1.3" marker-end="url(#h)"/>`, one(x), one(y-4), ink))
	}
}

// some writes "1 thread", "2 processes".
func some(n int, what string) string {
	switch {
	case n == 1:
		return "1 " + what
	case strings.HasSuffix(what, "s"):
		return number.Count(int64(n)) + " " + what + "es"
	}
	return number.Count(int64(n)) + " " + what + "s"
}

func (t *timeline) drawAxis(s *svg, bottom float64) {
	span := int64(t.scale.to - t.scale.from)
	step, _ := ticks(span, max(2, int((float64(t.o.Width)-gutter-margin)/90)))
	start := int64(t.scale.from - clamp(t.src.Meta().StartNs)) // labels count from the start of the recording
	if start < 0 {
		start = 0
	}
	_, label := ticks(max(span, start+span), int(max(1, (start+span)/step)))
	y := 94.0
	var grid strings.Builder
	first := int64(0)
	if start%step != 0 {
		first = step - start%step
	}
	for at := first; at <= span; at += step {
		x := t.x(t.scale.from + trace.Ns(at))
		fmt.Fprintf(&grid, "M%s %sV%s", one(x), one(y+3), one(bottom))
		anchor := "middle"
		if x > float64(t.o.Width)-margin-14 {
			anchor = "end"
		}
		s.label(x, y-2, 0, "a", anchor, label(start+at))
		if at > span-step {
			break // at += step could overflow
		}
	}
	s.f(`<path d="%s" stroke="%s" fill="none" shape-rendering="crispEdges"/>`+"\n", grid.String(), hair)
}

func (t *timeline) drawProcess(s *svg, l *lane, y float64) {
	s.f(`<rect x="%s" y="%s" width="%s" height="19" rx="3" fill="%s"/>`+"\n", num(margin/2), num(y), num(float64(t.o.Width)-margin), shade)
	name := "unknown process"
	if p := l.proc; p != nil {
		name = oneLine(filepath.Base(p.Exe))
		if p.Exe == "" {
			name = "process"
		}
		name = fmt.Sprintf("%s  %d", name, p.PID)
		if len(p.Cmdline) > 1 {
			name += "   " + oneLine(strings.Join(p.Cmdline[1:], " "))
		}
	}
	s.label(margin, y+13.5, 0, "n", "", fit(clip(name), 13.5, float64(t.o.Width)-3*margin))
}

// laneName is how a thread is called.
func laneName(th *trace.Thread) string {
	switch {
	case th.Name != "":
		return oneLine(clip(th.Name))
	case th.TID != 0:
		return fmt.Sprintf("thread %d", th.TID)
	}
	return fmt.Sprintf("thread #%d", th.ID)
}

func (t *timeline) drawName(s *svg, l *lane) {
	name := laneName(l.thread)
	tid := ""
	if l.thread.TID != 0 && l.thread.Name != "" && t.levels > 0 {
		tid = fmt.Sprint(l.thread.TID)
	}
	room := gutter - margin - 12
	shown := fit(name, 12.5, room-textWidth(tid, 10.5)-8)
	s.f(`<text x="%s" y="%s" class="n">%s<tspan class="s" font-weight="400" dx="7">%s</tspan></text>`+"\n",
		num(margin), num(l.y+14), text(shown), tid)
	line := "CPU " + number.Duration(l.total.by[running]) + " · blocked " + number.Duration(l.total.blocked())
	if t.levels == 0 {
		line = number.Duration(l.total.by[running]) + " · " + number.Duration(l.total.blocked())
		if textWidth(shown, 12)+textWidth(line, 10.5) < room {
			s.label(gutter-12, l.y+14, 0, "s", "end", line)
		}
		return
	}
	s.label(margin, l.y+29, 0, "s", "", fit(line, 10.5, room))
	if l.skip > 0 && l.height > laneMin+row {
		var names []string
		for _, id := range l.under {
			names = append(names, t.tab.Frame(id).Name)
		}
		s.label(margin, l.y+44, 0, "s", "", fit("in "+oneLine(strings.Join(names, " › ")), 10.5, room))
	}
}

// about is the tooltip of a lane: every figure there is.
func (t *timeline) about(l *lane) string {
	var b strings.Builder
	b.WriteString(laneName(l.thread))
	if l.thread.TID != 0 {
		fmt.Fprintf(&b, ", tid %d", l.thread.TID)
	}
	if l.proc != nil {
		fmt.Fprintf(&b, ", %s %d", oneLine(clip(filepath.Base(l.proc.Exe))), l.proc.PID)
	}
	whole := int64(t.scale.to - t.scale.from)
	for _, st := range stacked {
		ns := l.total.by[st]
		if ns == 0 {
			continue
		}
		fmt.Fprintf(&b, "\n%s: %s (%s of the time drawn)", look[st].name, number.Duration(ns), number.Percent(ns, whole))
		if n := l.total.count[st]; n > 0 {
			fmt.Fprintf(&b, ", %s ×, longest %s", number.Count(int64(n)), number.Duration(l.total.longest[st]))
		}
	}
	if l.thread.Lost > 0 {
		fmt.Fprintf(&b, "\n%s records lost", number.Count(int64(l.thread.Lost)))
	}
	if b.Len()*len(t.lanes) > laneBytes {
		return laneName(l.thread)
	}
	for i, id := range l.under {
		if (b.Len()+nameBytes)*len(t.lanes) > laneBytes {
			break
		}
		if i == 0 {
			b.WriteString("\nall within")
		}
		b.WriteString(" › " + clip(oneLine(t.tab.Frame(id).Name)))
	}
	return b.String()
}

// drawStrip draws a lane's life as unobserved, and on it what was observed.
func (t *timeline) drawStrip(s *svg, l *lane, paths []statePath) {
	from, to := max(t.scale.from, clamp(l.thread.Start)), t.scale.to
	if l.thread.End != 0 {
		to = min(to, clamp(l.thread.End))
	}
	if to > from {
		s.f(`<rect x="%s" y="%s" width="%s" height="%s" fill="url(#u)"/>`+"\n",
			one(t.x(from)), one(l.y), one(max(1, t.x(to)-t.x(from))), one(strip))
	}
	for _, p := range paths {
		s.f(`<path d="%s" fill="%s"/>`+"\n", p.d, look[p.state].fill)
	}
}

// statePath is the area of one state in a strip.
type statePath struct {
	state state
	d     string
}

// strips are the areas of all lanes, in as many columns as their share of the file allows.
func (t *timeline) strips() [][]statePath {
	for stride := 1; ; stride *= 2 {
		bytes := 0
		out := make([][]statePath, len(t.lanes))
		for i, l := range t.lanes {
			out[i] = t.areas(l, stride)
			for _, p := range out[i] {
				bytes += len(p.d) + 40
			}
		}
		if bytes <= stripBytes || stride > t.scale.cols {
			return out
		}
	}
}

// areas are how each column of time was spent, as stacked areas: each state covers, from the bottom, its share of
// the column's time. The sum of all states comes first and the lowest last, so that one edge per state is enough.
// stride columns are drawn as one.
func (t *timeline) areas(l *lane, stride int) []statePath {
	per := float64(t.scale.to-t.scale.from) / float64(t.scale.cols)
	n := (t.scale.cols + stride - 1) / stride
	sum, edge := make([]float64, n), make([]float64, n)
	var out []statePath
	for _, st := range stacked {
		if l.share[st] == nil {
			continue
		}
		for c, ns := range l.share[st] {
			sum[c/stride] += float64(ns)
		}
		for c := range edge {
			columns := min(stride, t.scale.cols-c*stride)
			h := min(1, sum[c]/(per*float64(columns))) * strip
			edge[c] = float64(int(h*2+0.5)) / 2
		}
		if d := area(edge, l.y+strip, t.wide*float64(stride), t.wide*float64(t.scale.cols)); d != "" {
			out = append(out, statePath{st, d})
		}
	}
	slices.Reverse(out)
	return out
}

// area is the path of a step line of heights above a base line, each wide pixels wide but for the last, which
// ends at end.
func area(heights []float64, base, wide, end float64) string {
	var b strings.Builder
	at := 0.0 // height of the step that is open
	for c := 0; c <= len(heights); c++ {
		h := 0.0
		if c < len(heights) {
			h = heights[c]
		}
		if h == at {
			continue
		}
		x := one(gutter + min(float64(c)*wide, end))
		if at == 0 {
			fmt.Fprintf(&b, "M%s %s", x, one(base))
		} else {
			fmt.Fprintf(&b, "H%s", x)
		}
		fmt.Fprintf(&b, "V%s", one(base-h))
		if h == 0 {
			b.WriteByte('z')
		}
		at = h
	}
	return b.String()
}

// clip bounds a name, so that a thousand tooltips with the longest of C++ names stay small.
func clip(name string) string {
	if len(name) <= nameBytes {
		return name
	}
	half := nameBytes / 2
	return strings.ToValidUTF8(name[:half], "") + "…" + strings.ToValidUTF8(name[len(name)-half:], "")
}

// frameName is a function as tooltips call it.
func (t *timeline) frameName(id frames.ID) string { return clip(oneLine(t.tab.Frame(id).Name)) }
