// The recording's account of itself: one slice over all of it, on a track of its own, that says what was lost and
// how much of each thread's time is known.

package perfetto

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/hbtrace/hbtrace/analysis/frames"
	"github.com/hbtrace/hbtrace/analysis/spans"
	"github.com/hbtrace/hbtrace/trace"
)

const aboutTrack = 4 << 32

// Threads whose coverage is listed, the longest lived first.
const aboutThreads = 100

// share is part of a whole in percent; nothing of nothing is nothing.
func share(part, whole int64) float64 {
	if whole <= 0 {
		return 0
	}
	return 100 * float64(part) / float64(whole)
}

func (w *writer) about(cov map[trace.ThreadID]spans.Coverage) error {
	m, st := w.meta, w.src.Stats()
	start, end := max(m.StartNs, 0), max(m.EndNs, m.StartNs, 0)
	w.track(aboutTrack, 0, 0, start, func(b *buffer) { b.string(trackName, "hbtrace: about this recording") })
	var say [][2]string
	add := func(k, format string, args ...any) {
		say = append(say, [2]string{k, frames.Valid(fmt.Sprintf(format, args...))})
	}
	add("recorded_by", "hbtrace %s on %s, %s, %s, %d CPUs", m.Version, m.Host, m.Kernel, m.Arch, m.CPUs)
	add("command", "%s", strings.Join(m.Command, " "))
	add("events", "%d, from %d records", st.Events, st.Records)
	add("lost", "%d records; %d gaps, %d broken, %d overwritten", st.Lost, st.Gaps, st.Broken, st.Overwritten)
	if w.stateless {
		add("states", "left out, with the call stacks of samples: a recording of more than %d events has no tracks of what threads did; hbtrace view shows it", maxStated)
	}
	if !st.Complete {
		add("incomplete", "the recording was not closed properly: its end may be missing")
	}
	for i, n := range st.Notes {
		add(fmt.Sprintf("note %d", i+1), "%s", n)
	}
	life := func(c spans.Coverage) int64 { return c.Exact + c.Sampled + c.Unknown }
	ids := make([]trace.ThreadID, 0, len(cov))
	var all spans.Coverage
	for id, c := range cov {
		ids = append(ids, id)
		all.Exact += c.Exact
		all.Sampled += c.Sampled
		all.Unknown += c.Unknown
		all.Stacks += c.Stacks
		all.Clipped += c.Clipped
	}
	slices.SortFunc(ids, func(x, y trace.ThreadID) int {
		return cmp.Or(cmp.Compare(life(cov[y]), life(cov[x])), cmp.Compare(x, y))
	})
	known := func(c spans.Coverage) string {
		n := life(c)
		s := fmt.Sprintf("%.1f%% exact intervals, %.1f%% sampled, %.1f%% unknown; %d stacks",
			share(c.Exact, n), share(c.Sampled, n), share(c.Unknown, n), c.Stacks)
		if c.Clipped > 0 {
			s += fmt.Sprintf(", %d events overlapped and are clipped", c.Clipped)
		}
		return s
	}
	add("time of all threads", "%s", known(all))
	for i, id := range ids {
		if i == aboutThreads {
			add("time of the rest", "%d threads are not listed", len(ids)-i)
			break
		}
		add("time of "+w.who(id), "%s", known(cov[id]))
	}

	p := &w.out
	for _, typ := range [...]uint64{typeSliceBegin, typeSliceEnd} {
		at := start
		if typ == typeSliceEnd {
			at = end
		}
		pkt, ev := w.event(&w.main, at, typ)
		p.uint(eventTrack, aboutTrack)
		if typ == typeSliceBegin {
			w.name(&w.main, otherAbout)
			w.category(&w.main, catAbout)
			for _, kv := range say {
				a := p.open(eventAnnotation)
				p.string(annotationName, kv[0])
				p.string(annotationString, kv[1])
				p.close(a)
			}
		}
		if err := w.finish(&w.main, pkt, ev); err != nil {
			return err
		}
	}
	return nil
}
