// Spans: the calls of each thread, by depth, for the rows below an opened lane and for finding slow calls.

package page

import (
	"cmp"
	"slices"
	"sort"

	"github.com/hbtrace/hbtrace/analysis/frames"
	"github.com/hbtrace/hbtrace/analysis/spans"
)

// finestColumns: where there are too many spans to be kept, those shorter than this part of the recording are counted and left
// out, and than twice as much if that is not enough (coarse.go).
const finestColumns = 1 << 19

type span struct {
	start, end int64
	frame      frames.ID
	stacks     uint32 // samples that show it
}

type spanStore struct {
	byDepth [][]span // each in order of start once finish was called
}

func (s *spanStore) add(depth int, sp span) {
	for len(s.byDepth) <= depth {
		s.byDepth = append(s.byDepth, nil)
	}
	s.byDepth[depth] = append(s.byDepth[depth], sp)
}

// finish puts right what signal handlers' intervals bring out of order.
func (s *spanStore) finish() {
	for _, list := range s.byDepth {
		byStart := func(a, b span) int { return cmp.Compare(a.start, b.start) }
		if !slices.IsSortedFunc(list, byStart) {
			slices.SortStableFunc(list, byStart)
		}
	}
}

// spanSink takes spans as they end.
type spanSink struct {
	spans.Discard
	m *Model
}

// End implements [spans.Sink].
func (k *spanSink) End(s *spans.Span) error {
	start, end := k.m.rel(s.Start), k.m.rel(s.End)
	if end-start < k.m.spanFloor {
		k.m.doubt.ThinSpans++
		return nil
	}
	if end <= start {
		end = start
	}
	_, t := k.m.thread(s.Thread)
	k.m.spanCount++
	t.spans.add(s.Depth, span{start, end, s.Frame, uint32(min(s.Stacks, 1<<32-1))})
	return nil
}

// spanRows is an answer: spans, or runs of spans that are thinner than a column.
type spanRows struct {
	thread, frame, count []uint32
	depth                []uint16
	start, dur           []float64
}

func (r *spanRows) add(thread, depth int, start, end int64, frame, count uint32) {
	r.thread = append(r.thread, uint32(thread))
	r.depth = append(r.depth, uint16(min(depth, 1<<16-1)))
	r.start = append(r.start, float64(start))
	r.dur = append(r.dur, float64(end-start))
	r.frame = append(r.frame, frame)
	r.count = append(r.count, count)
}

func (r *spanRows) table() *table {
	t := newTable(nil)
	t.u32("thread", r.thread)
	t.u16("depth", r.depth)
	t.f64("start", r.start)
	t.f64("dur", r.dur)
	t.u32("frame", r.frame)
	t.u32("count", r.count)
	return t
}

// calls gives the spans of threads in [from, to): each alone where it is as wide as res ns, otherwise together with
// its thin neighbours, under the name of the longest. A count of 0 is one span that is shown alone.
func (m *Model) calls(threads []int, from, to, res int64) *spanRows {
	m.mu.RLock()
	defer m.mu.RUnlock()
	m.naming.Lock()
	defer m.naming.Unlock()
	out := &spanRows{}
	res = max(res, 1)
	for _, i := range threads {
		if i < 0 || i >= len(m.threads) {
			continue
		}
		for depth, list := range m.threads[i].spans.byDepth {
			at := sort.Search(len(list), func(i int) bool { return list[i].end > from })
			var longest int64
			var frame frames.ID
			var start, end int64
			count := uint32(0)
			put := func() {
				if count > 0 {
					out.add(i, depth, start, end, m.frame(frame), count)
				}
				count = 0
			}
			for ; at < len(list) && list[at].start < to; at++ {
				s := list[at]
				if d := s.end - s.start; d < res {
					if count > 0 && (s.end-start > res || s.start < start) {
						put()
					}
					if count == 0 {
						start, longest = s.start, -1
					}
					if d > longest {
						longest, frame = d, s.frame
					}
					count++
					end = s.end
					continue
				}
				put()
				out.add(i, depth, s.start, s.end, m.frame(s.frame), 0)
			}
			put()
		}
	}
	return out
}
