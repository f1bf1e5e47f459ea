// Drawing of what lies in the lanes: spans, intervals, arrows; and what the picture leaves out.

package picture

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/hbtrace/hbtrace/analysis/frames"
	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/visualize/number"
)

// modules writes a legend of modules and the rest, as many as there is room for.
func (s *svg) modules(x, y, end float64, n int, entry func(i int) (name, fill string)) {
	for i := 0; i <= n; i++ {
		name, fill := "others", otherModule.hex(0)
		if i < n {
			name, fill = entry(i)
		}
		name = fit(clip(name), 11, 240)
		width := textWidth(name, 11) * 0.95
		if x+19+width > end {
			return
		}
		s.f(`<rect x="%s" y="%s" width="14" height="11" rx="2" fill="%s"/>`, one(x), one(y-9.5), fill)
		s.label(x+19, y, 11, "", "", name)
		x += 19 + width + 18
	}
}

// colours gives the modules of the drawn spans their colours, the widest first.
func (t *timeline) colours() {
	ns := map[trace.ModuleID]int64{}
	for _, l := range t.lanes {
		for _, b := range l.boxes {
			ns[t.tab.Frame(b.frame).Module] += int64(b.end - b.start)
		}
	}
	t.module = palette(ns)
}

// palette gives colours to the heaviest modules; the rest is grey.
func palette(weight map[trace.ModuleID]int64) map[trace.ModuleID]hsl {
	var ids []trace.ModuleID
	for id := range weight {
		if id != 0 {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(a, b trace.ModuleID) int {
		return cmp.Or(cmp.Compare(weight[b], weight[a]), cmp.Compare(a, b))
	})
	out := map[trace.ModuleID]hsl{}
	for i, id := range ids {
		if i == len(modulePalette) {
			break
		}
		out[id] = modulePalette[i]
	}
	return out
}

// fill is the colour of a function.
func (t *timeline) fill(id frames.ID) string {
	f := t.tab.Frame(id)
	c, ok := t.module[f.Module]
	if !ok {
		c = otherModule
	}
	return c.shadeOf(f.Name)
}

// laneBox is a box and where it is.
type laneBox struct {
	*lane
	box
}

// drawSpans draws the widest spans one by one until their share of the file is used, and the rest together.
func (t *timeline) drawSpans(s *svg) {
	var all []laneBox
	for _, l := range t.lanes {
		for _, b := range l.boxes {
			all = append(all, laneBox{l, b})
		}
	}
	slices.SortStableFunc(all, func(a, b laneBox) int { return cmp.Compare(b.end-b.start, a.end-a.start) })
	drawn := 0
	var parts []string
	for i, b := range all {
		part := t.span(b)
		if drawn+len(part) > boxBytes*3/4 {
			for _, rest := range all[i:] {
				rest.thin(t.scale, rest.level, rest.box.frame, rest.start, rest.end)
			}
			break
		}
		drawn += len(part)
		parts = append(parts, part)
	}
	t.drawThin(s, boxBytes-drawn)
	for _, p := range parts {
		s.f("%s", p)
	}
}

// span is the element of one box.
func (t *timeline) span(b laneBox) string {
	x, end := t.x(b.start), t.x(b.end)
	width := max(0.7, end-x-0.6) // a hairline between neighbours
	y := b.spansY + float64(b.level)*row
	f := t.tab.Frame(b.box.frame)
	about := fmt.Sprintf("%s\n%s, seen %s ×\n%s", t.frameName(b.box.frame), number.Duration(int64(b.end-b.start)),
		number.Count(int64(b.stacks)), moduleName(t.tab.Module(f.Module)))
	out := fmt.Sprintf(`<rect x="%s" y="%s" width="%s" height="%s" rx="1.5" fill="%s"><title>%s</title></rect>`+"\n",
		one(x), one(y), one(width), one(row-1), t.fill(b.box.frame), text(about))
	if width > 22 {
		if name := fitName(f.Name, rowText, width-6); name != "" {
			out += fmt.Sprintf(`<text x="%s" y="%s" class="l">%s</text>`+"\n", one(x+3), one(y+row-4), text(name))
		}
	}
	return out
}

// drawThin draws runs of columns whose thin spans are mostly of one function, paler than single spans.
func (t *timeline) drawThin(s *svg, budget int) {
	per := float64(t.scale.to-t.scale.from) / float64(t.scale.cols)
	for _, l := range t.lanes {
		for level, votes := range l.small {
			for c := 0; c < len(votes); {
				v := votes[c]
				if float64(v.ns) < per/4 { // mostly nothing here
					c++
					continue
				}
				end, ns, calls := c, 0.0, uint32(0)
				for end < len(votes) && votes[end].frame == v.frame && float64(votes[end].ns) >= per/4 {
					ns += float64(votes[end].ns)
					calls += votes[end].number
					end++
				}
				about := fmt.Sprintf("%s %s, mostly %s", number.Count(int64(calls)), "calls too short to draw", t.frameName(v.frame))
				part := fmt.Sprintf(`<rect x="%s" y="%s" width="%s" height="%s" fill="%s" fill-opacity=".6"><title>%s</title></rect>`+"\n",
					one(gutter+float64(c)*t.wide), one(l.spansY+float64(level)*row), one(float64(end-c)*t.wide), one(row-1),
					t.fill(v.frame), text(about))
				if budget -= len(part); budget < 0 {
					return
				}
				s.f("%s", part)
				c = end
			}
		}
	}
}

// drawMarks gives intervals a tooltip, an outline, and a label where there is room.
func (t *timeline) drawMarks(s *svg) {
	type laneMark struct {
		*lane
		mark
	}
	var all []laneMark
	for _, l := range t.lanes {
		for _, m := range l.marks {
			all = append(all, laneMark{l, m})
		}
	}
	slices.SortStableFunc(all, func(a, b laneMark) int { return cmp.Compare(b.end-b.start, a.end-a.start) })
	budget := markBytes
	for _, m := range all {
		x, width := t.x(m.start), t.x(m.end)-t.x(m.start)
		outline := ""
		if width >= 8 { // around thinner ones it would wash the colour out
			outline = ` stroke="` + paper + `" stroke-width=".7"`
		}
		part := fmt.Sprintf(`<rect x="%s" y="%s" width="%s" height="%s" fill-opacity="0"%s><title>%s</title></rect>`+"\n",
			one(x), one(m.y), one(width), one(strip), outline, text(t.aboutMark(m.mark)))
		name := frames.HookName(t.src.Meta(), m.hook)
		for _, label := range []string{name + "  " + number.Duration(m.took), number.Duration(m.took)} {
			if textWidth(label, 10.5) < width-8 {
				part += fmt.Sprintf(`<text x="%s" y="%s" class="m" style="fill:%s">%s</text>`+"\n", one(x+5), one(m.y+14), look[m.state].text, text(label))
				break
			}
		}
		if budget -= len(part); budget < 0 {
			return
		}
		s.f("%s", part)
	}
}

// object names what a hook waited for.
func (t *timeline) object(h trace.HookID, o uint64) string {
	if t.src.Meta().Hooks[h].Object == trace.HookFD {
		return fmt.Sprintf("descriptor %d", int64(o))
	}
	return clip(oneLine(t.tab.Object(o)))
}

// aboutMark is the tooltip of an interval.
func (t *timeline) aboutMark(m mark) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s in %s", look[m.state].name, number.Duration(m.took), frames.HookName(t.src.Meta(), m.hook))
	if m.object != 0 {
		b.WriteString(" of " + t.object(m.hook, m.object))
	}
	if m.flags&trace.FlagOpen != 0 {
		b.WriteString(", unfinished")
	}
	if m.flags&trace.FlagTimedOut != 0 {
		b.WriteString(", timed out")
	}
	if fs := t.tab.Of(m.stack); len(fs) > 0 {
		b.WriteString("\ncalled by " + t.frameName(fs[len(fs)-1].ID))
	}
	if m.owner != 0 {
		b.WriteString("\nheld by " + t.thread(m.owner))
	}
	if m.releaser != 0 {
		b.WriteString("\nlet go by " + t.thread(m.releaser))
		if m.flags&trace.FlagCertain == 0 {
			b.WriteString(", likely")
		}
	}
	return b.String()
}

// thread names one that may have no lane.
func (t *timeline) thread(id trace.ThreadID) string {
	if l := t.byID.Get(id); l != nil {
		return laneName(l.thread)
	}
	list := t.src.Threads()
	for i := range list {
		if list[i].ID == id {
			return laneName(&list[i])
		}
	}
	return fmt.Sprintf("thread #%d", id)
}

// drawArrows draws who let whom go, for the longest waits, leaving out those that would cover another.
func (t *timeline) drawArrows(s *svg) {
	type place struct {
		from, to *lane
		x        int
	}
	taken := map[place]bool{}
	n := 0
	for _, a := range t.arrows {
		from, to := t.byID.Get(a.releaser), t.byID.Get(a.waiter)
		if from == nil || to == nil || n == maxArrows {
			continue
		}
		x1, x2 := t.x(max(a.release, t.scale.from)), t.x(a.mark.end)
		p := place{from, to, int(x2) / 6}
		if taken[p] {
			continue
		}
		taken[p] = true
		n++
		y1, y2 := from.y+strip, to.y-1.5
		if from.y > to.y {
			y1, y2 = from.y, to.y+strip+1.5
		}
		bend := (y2 - y1) / 2
		d := fmt.Sprintf("M%s %sC%s %s %s %s %s %s", one(x1), one(y1), one(x1), one(y1+bend), one(x2), one(y2-bend), one(x2), one(y2))
		about := fmt.Sprintf("%s let %s go on after %s\n%s of %s", t.thread(a.releaser), t.thread(a.waiter), number.Duration(a.took),
			frames.HookName(t.src.Meta(), a.hook), t.object(a.hook, a.object))
		if a.flags&trace.FlagCertain == 0 {
			about += ", likely"
		}
		s.f(`<g fill="none"><title>%s</title><path d="%s" stroke="%s" stroke-width="3.5" stroke-opacity=".85"/>`+
			`<path d="%[2]s" stroke="%[4]s" stroke-width="1.3" marker-end="url(#h)"/><circle cx="%[5]s" cy="%[6]s" r="2.4" fill="%[4]s"/></g>`+"\n",
			text(about), d, paper, ink, one(x1), one(y1))
	}
}

// drawFoot says what the picture does not show.
func (t *timeline) drawFoot(s *svg, y float64) {
	var parts []string
	if len(t.lanes) == 0 {
		parts = append(parts, "no events in this time")
	}
	if t.hidden > 0 {
		parts = append(parts, fmt.Sprintf("%s less active, with %s of CPU time, not drawn", some(t.hidden, "thread"), number.Duration(t.hidCPU)))
	}
	if t.lost > 0 {
		parts = append(parts, some(int(min(t.lost, 1<<60)), "record")+" lost")
	}
	if len(parts) > 0 {
		s.label(margin, y+32, 11.5, "s", "", strings.Join(parts, " · "))
	}
	if t.levels == 0 || len(t.module) == 0 {
		return
	}
	var ids []trace.ModuleID
	for id := range t.module {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(a, b trace.ModuleID) int {
		return cmp.Or(cmp.Compare(slices.Index(modulePalette, t.module[a]), slices.Index(modulePalette, t.module[b])), cmp.Compare(a, b))
	})
	s.label(margin, y+12, 11, "s", "", "calls, by module")
	s.modules(gutter, y+12, float64(t.o.Width)-margin, len(ids), func(i int) (string, string) {
		return moduleName(t.tab.Module(ids[i])), t.module[ids[i]].hex(0)
	})
}
