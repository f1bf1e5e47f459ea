package tracer

import (
	"fmt"

	"github.com/hbtrace/hbtrace/blockbuf"
)

// blockbuf.go: this project's block buffer; one slot for each core.

// Mappings are the ways in which the block buffer can map positions to blocks, its default first.
var Mappings = []string{blockbuf.LateBorrowing.String(), blockbuf.Late.String(), blockbuf.PaperBorrowing.String(), blockbuf.Paper.String()}

type block struct{ buf *blockbuf.Buffer }

func newBlockbuf(c Config) (Tracer, error) {
	o := blockbuf.Options{Bytes: c.Bytes, BlockBytes: c.BlockBytes, Slots: c.Cores, ActivePerSlot: c.Active, Prefault: true}
	if c.Mapping != "" {
		o.Mapping = 1 << 31 // none
		for _, m := range []blockbuf.Mapping{blockbuf.LateBorrowing, blockbuf.Late, blockbuf.PaperBorrowing, blockbuf.Paper} {
			if m.String() == c.Mapping {
				o.Mapping = m
			}
		}
	}
	buf, err := blockbuf.New(o)
	if err != nil {
		return nil, fmt.Errorf("mapping %q: %w", c.Mapping, err)
	}
	return &block{buf}, nil
}

func (b *block) Producer(core, _ int) Producer { return blockWriter{b.buf.Writer(core)} }

type blockWriter struct{ w *blockbuf.Writer }

func (w blockWriter) Write(p []byte) bool { return w.w.Write(p) == nil }

func (w blockWriter) Reserve(n int) ([]byte, func(), bool) {
	r, err := w.w.Reserve(n)
	return r.Data, r.Commit, err == nil
}

func (b *block) Walk(f func(p []byte)) error {
	for _, k := range b.buf.Snapshot() {
		if !k.Records(func(p []byte) bool { f(p); return true }) {
			return fmt.Errorf("block at position %d is not well formed", k.Pos)
		}
	}
	return nil
}

func (b *block) WalkLive(f func(p []byte)) error { return b.Walk(f) }
func (b *block) Resize(bytes int) error          { return b.buf.Resize(bytes) }
func (b *block) Footprint(n int) int             { return blockbuf.RecordBytes(n) }
func (b *block) Close() error                    { return b.buf.Close() }

func (b *block) Counters() map[string]int {
	s := b.buf.Stats()
	return map[string]int{"opened": int(s.Opened), "borrowed": int(s.Borrowed), "lagging": int(s.Lagging), "overtaken": int(s.Overtaken),
		"skipped": int(s.Skipped), "dummy bytes": int(s.DummyBytes)}
}
