// Looks: how long a thread was ready to run and had no CPU, as the kernel counts it (/proc/PID/task/TID/schedstat). The recorder looks
// at the count up to once a second, so it is known how long that was between two looks, and not when: it is no piece of time, and is
// drawn nowhere. Of a selection that cuts through the time between two looks it says at least how long, and at most.

package page

import (
	"context"
	"slices"
)

// look is how much of [start, end) a thread was ready to run, in ns.
type look struct{ start, end, ready int64 }

// Looks that are kept at most, of a recording and of a page's file: neighbours are added up when there are more.
const (
	mostLooks       = 256 << 10
	mostLooksInFile = 20_000
)

// looked takes a look.
func (m *Model) looked(t *thread, x look) {
	if x.end <= x.start {
		return
	}
	x.ready = max(0, min(x.ready, x.end-x.start))
	m.anyReady = m.anyReady || x.ready > 0
	t.ready += x.ready
	t.looks = append(t.looks, x)
	if m.lookCount++; m.lookCount <= mostLooks {
		return
	}
	m.lookCount = 0
	for _, t := range m.threads {
		t.looks = halved(t.looks)
		m.lookCount += len(t.looks)
	}
	if m.lookCount > mostLooks/2 { // one a thread
		m.lookCount = 0
	}
}

// halved adds up each two looks.
func halved(list []look) []look {
	slices.SortFunc(list, func(a, b look) int { return sign(a.start - b.start) })
	n := 0
	for i := 0; i < len(list); i += 2 {
		x := list[i]
		if i+1 < len(list) {
			x.end, x.ready = max(x.end, list[i+1].end), x.ready+list[i+1].ready
		}
		list[n] = x
		n++
	}
	return list[:n]
}

// tellsReady says whether looks say anything: where the kernel counts no such time it is always 0, and where it counted every
// switch ([trace.KindOff]) pieces say more.
func (m *Model) tellsReady() bool { return m.anyReady && !m.kernel }

// within is the least and the most time of its life in [from, to), until a recording's end, that the thread was ready to run. ok is false
// where no look tells of any of it: they tell of what is before the last of them, as a look at which nothing had been counted is not recorded.
func (t *thread) within(from, to, end int64) (least, most int64, ok bool) {
	last := int64(0)
	if t.end >= 0 {
		end = t.end
	}
	from, to = max(from, t.start), min(to, end)
	for _, x := range t.looks {
		last = max(last, x.end)
		a, b := max(x.start, from), min(x.end, to)
		if b <= a {
			continue
		}
		least += max(0, x.ready-(x.end-x.start-(b-a)))
		most += min(x.ready, b-a)
	}
	return least, most + max(0, to-max(from, last)), from < min(to, last)
}

// ready answers for each thread of a selection for how long it was ready to run, where that is known.
func (m *Model) ready(ctx context.Context, s selection) (*table, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	var threads []uint32
	var least, most []float64
	if m.tellsReady() {
		err := m.each(ctx, s, func(i int, t *thread) {
			if a, b, ok := t.within(s.from, s.to, int64(m.to-m.from)); ok {
				threads = append(threads, uint32(i))
				least, most = append(least, float64(a)), append(most, float64(b))
			}
		})
		if err != nil {
			return nil, err
		}
	}
	out := newTable(nil)
	out.u32("thread", threads)
	out.f64("least", least)
	out.f64("most", most)
	return out, nil
}

// looksTable is what an exported page answers the same from.
func (m *Model) looksTable() *table {
	m.mu.RLock()
	defer m.mu.RUnlock()
	var thread []uint32
	var start, end, ready []float64
	if m.tellsReady() {
		lists, n := make([][]look, len(m.threads)), 0
		for i, t := range m.threads {
			lists[i] = slices.Clone(t.looks)
			n += len(t.looks)
		}
		for before := 0; n > mostLooksInFile && n != before; {
			before, n = n, 0
			for i := range lists {
				lists[i] = halved(lists[i])
				n += len(lists[i])
			}
		}
		for i, list := range lists {
			for _, x := range list {
				thread = append(thread, uint32(i))
				start, end, ready = append(start, float64(x.start)), append(end, float64(x.end)), append(ready, float64(x.ready))
			}
		}
	}
	out := newTable(nil)
	out.u32("thread", thread)
	out.f64("start", start)
	out.f64("end", end)
	out.f64("ready", ready)
	return out
}
