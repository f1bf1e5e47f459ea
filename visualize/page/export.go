// Export: the page and what it needs of a recording in one file. What would make the file too large is coarsened:
// pieces of time shorter than a resolution are added up by thread, place and state within stretches of that length,
// so that every sum stays right to that resolution and only the order within a stretch is lost.

package page

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"slices"

	"github.com/hbtrace/hbtrace/analysis/frames"
	"github.com/hbtrace/hbtrace/trace"
)

// Rows that an exported file holds at most, where coarsening can achieve that. A row is some 8 bytes of the file.
const (
	mostPieces = 200_000
	mostCalls  = 200_000
	mostAllocs = 50_000
)

// Options of [Export].
type Options struct {
	NoSource bool // no source lines
}

// Export writes src and the page to look at it with as one HTML file that loads nothing from anywhere.
func Export(w io.Writer, src trace.Source, o Options) error {
	m := New(src)
	if o.NoSource {
		m.HideSource()
	}
	if err := m.Read(context.Background()); err != nil {
		return fmt.Errorf("reading the recording for a page: %w", err)
	}
	data, err := m.bundle()
	if err != nil {
		return fmt.Errorf("packing the recording into a page: %w", err)
	}
	title := "hbtrace"
	if c := src.Meta().Command; len(c) > 0 {
		title = frames.Valid(filepath.Base(c[0])) + " · hbtrace"
	}
	_, err = w.Write(document(title, data))
	return err
}

// bundle is the recording as the page holds it: tables, each behind its length in 4 bytes and padded to 8, compressed,
// in base64. They are about, pieces, allocations (and CPU time without a place in its thread's time), calls, places, chains,
// what parts of waits were spent on, looks, and source lines.
func (m *Model) bundle() ([]byte, error) {
	length := int64(m.to - m.from)
	finest := max(m.finest(), m.res)
	pieces, res := m.coarse(0, m.pieces), m.res
	for next := finest; len(pieces.state) > mostPieces && res < length; next *= 2 {
		if len(pieces.state) > 8*mostPieces {
			next *= 4 // far from it
		}
		pieces, res = m.coarse(next, m.pieces), next
	}
	allocs := m.coarse(0, m.allocations)
	for r := finest; len(allocs.state) > mostAllocs && r < length; r *= 2 {
		allocs = m.coarse(r, m.allocations)
	}
	all := make([]int, len(m.threads))
	for i := range all {
		all[i] = i
	}
	calls := m.calls(all, 0, length, 1)
	for r := finest; len(calls.start) > mostCalls && r < length; r *= 2 {
		calls = m.calls(all, 0, length, r)
	}
	a := m.about()
	a.Resolution = res
	head, err := json.Marshal(a)
	if err != nil {
		return nil, err
	}
	chains, spent := m.chainsTable(), m.spentTable(res) // before places: they give numbers to some
	code, err := m.sourceTable(context.Background())
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	text := base64.NewEncoder(base64.StdEncoding, &out)
	zip, err := gzip.NewWriterLevel(text, gzip.DefaultCompression)
	if err != nil {
		return nil, err
	}
	for _, t := range []*table{
		newTable(json.RawMessage(head)), pieces.columns(newTable(nil)), allocs.columns(newTable(nil)), calls.table(), m.places(0, 0, 0, 0),
		chains, spent, m.looksTable(), code,
	} {
		body, err := t.bytes()
		if err != nil {
			return nil, err
		}
		size := []byte{byte(len(body)), byte(len(body) >> 8), byte(len(body) >> 16), byte(len(body) >> 24), 0, 0, 0, 0}
		if _, err := zip.Write(append(size, body...)); err != nil {
			return nil, err
		}
	}
	if err := zip.Close(); err != nil {
		return nil, err
	}
	if err := text.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// coarse collects what each gives, at a resolution.
func (m *Model) coarse(res int64, each func(i int, t *thread, res int64, out *rows)) *rows {
	m.mu.RLock()
	defer m.mu.RUnlock()
	out := &rows{}
	for i, t := range m.threads {
		each(i, t, res, out)
	}
	return out
}

func (m *Model) pieces(i int, t *thread, res int64, out *rows) {
	bucket := int64(-1)
	var sums []row
	index := map[sumKey]int{}
	put := func() {
		at := int64(0)
		for i, x := range sums { // one behind the other: their order within the stretch is not kept
			if i > 0 {
				x.start = at
			}
			out.add(x)
			at = x.start + x.value
		}
		sums = sums[:0]
		clear(index)
	}
	for _, p := range t.pieces {
		x := m.full(i, t, p)
		if x.value >= res {
			put()
			bucket = p.end / max(res, 1)
			out.add(x)
			continue
		}
		if b := p.start / res; b != bucket {
			put()
			bucket = b
		}
		k := sumKey{x.thread, x.site, x.object, x.owner, x.releaser, x.releaseSite, x.state, x.flags&trace.FlagCertain != 0}
		j, ok := index[k]
		if !ok {
			index[k] = len(sums)
			sums = append(sums, x)
			continue
		}
		sums[j].value += x.value
		sums[j].count += x.count
		sums[j].release = max(sums[j].release, x.release)
	}
	put()
}

func (m *Model) allocations(i int, t *thread, res int64, out *rows) {
	var sums []row
	index := map[uint32]int{}
	bucket := int64(-1)
	t.allocated(selection{nil, 0, 1 << 62}, func(a alloc, objects uint32) {
		if b := a.at / max(res, 1); res == 0 || b != bucket {
			for _, x := range sums {
				out.add(x)
			}
			sums = sums[:0]
			clear(index)
			bucket = b
		}
		j, ok := index[a.site]
		if !ok {
			j = len(sums)
			index[a.site] = j
			sums = append(sums, row{thread: uint32(i), site: a.site, state: allocated, start: a.at, release: -1})
		}
		sums[j].value += int64(a.bytes)
		sums[j].count += objects
	})
	for _, x := range sums {
		out.add(x)
	}
	for _, e := range coarseEnds(slices.Clone(t.ends), max(1, res)) {
		out.add(row{thread: uint32(i), site: e.site, state: freed, start: e.at, value: int64(e.bytes), count: uint32(e.objects), release: e.freed})
	}
	for _, u := range coarseUnplaced(t.unplaced, res) { // CPU time that lies in no piece: sums have it
		out.add(row{thread: uint32(i), site: u.site, state: running, start: u.at, value: u.ns, release: -1})
	}
}
