// Reading a session: a copy of what it holds at one moment, whether its recorder runs or not.

package flight

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"github.com/hbtrace/hbtrace/blockbuf"
	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/tracefile"
)

// Content is what a session held when it was read.
type Content struct {
	Info
	dict    *dictionary
	batches []span
	keys    []keyframe // the whole ones, oldest first
	broken  int        // records that made no sense
	missed  int        // blocks that were overwritten while they were read
	alive   bool       // the recorder was
}

// span is a batch of events.
type span struct {
	head
	batch []byte
}

// keyframe is a whole keyframe.
type keyframe struct {
	time   trace.Ns
	first  uint64
	lost   uint64
	used   map[trace.ThreadID]used
	open   []trace.Event
	behind int // batches in front of it
}

// take takes in a part, which may hold anything.
func (k *keyframe) take(part []byte, d *tracefile.BatchDecoder) bool {
	if len(part) == 0 {
		return false
	}
	switch body := part[1:]; part[0] {
	case partThreads:
		return decodeCounters(body, func(t trace.ThreadID, u used) { k.used[t] = u })
	case partOpen:
		return d.Decode(body, func(e *trace.Event) error { k.open = append(k.open, *e); return nil }) == nil
	}
	return false
}

// Read copies what the session in dir holds. Its recorder is not disturbed, and not waited for.
func Read(dir string) (*Content, error) {
	s, err := OpenSession(dir)
	if err != nil {
		return nil, err
	}
	c := &Content{Info: s.Info, alive: s.Alive}
	path := filepath.Join(dir, windowName)
	var blocks []blockbuf.Block
	if s.Alive {
		if blocks, err = c.readAlive(dir, path); err != nil {
			return nil, err
		}
	} else {
		if blocks, _, err = blockbuf.Recover(path); err != nil {
			return nil, fmt.Errorf("reading session %s: %w", s.Name, err)
		}
		if c.dict, err = readDict(dir); err != nil {
			return nil, fmt.Errorf("reading session %s: %w", s.Name, err)
		}
	}
	c.take(blocks)
	return c, nil
}

// readAlive copies the blocks, then the dictionary, and drops the blocks that were overwritten meanwhile: a number in
// them may have been given to something else.
func (c *Content) readAlive(dir, path string) ([]blockbuf.Block, error) {
	buf, err := blockbuf.Open(path)
	if err != nil {
		return nil, fmt.Errorf("reading session %s: %w", c.Name, err)
	}
	blocks := buf.Snapshot()
	c.dict, err = readDict(dir)
	oldest := buf.Oldest()
	runtime.KeepAlive(buf) // it is not closed: that would close the recorder's block
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, fmt.Errorf("session %s has ended", c.Name)
	case err != nil:
		return nil, fmt.Errorf("reading session %s: %w", c.Name, err)
	}
	for len(blocks) > 0 && blocks[0].Pos < oldest {
		blocks = blocks[1:]
		c.missed++
	}
	return blocks, nil
}

// take sorts the records of blocks.
func (c *Content) take(blocks []blockbuf.Block) {
	var d tracefile.BatchDecoder
	var k keyframe // in the making
	next := 0      // part of it
	for _, b := range blocks {
		whole := b.Records(func(p []byte) bool {
			h, batch, ok := parseHead(p)
			switch {
			case !ok:
				c.broken++
			case h.kind == recordEvents:
				c.batches = append(c.batches, span{h, batch})
				next = 0
			case h.part == 0:
				k = keyframe{time: h.begin, first: h.first, lost: h.lost, behind: len(c.batches), used: map[trace.ThreadID]used{}}
				next = 0
				fallthrough
			default:
				if h.part != next {
					next = 0
					break
				}
				next++
				if !k.take(batch, &d) {
					c.broken++
					next = 0
				} else if next == h.parts {
					c.keys = append(c.keys, k)
					next = 0
				}
			}
			return true
		})
		if !whole {
			c.broken++
		}
	}
}

// Events is how many events the session held, or close to it: what is older than the window is not taken off.
func (c *Content) Events() (n uint64) {
	for _, b := range c.batches {
		if len(b.batch) >= 2 {
			n += uint64(b.batch[0]) + uint64(b.batch[1])<<8
		}
	}
	return n
}

// From drops what is in front of the event with number n, and returns how many events from n on are there no more.
// [Content.Next] of an earlier reading is such a number: no event is read twice, and none is passed over in silence.
func (c *Content) From(n uint64) (missed uint64) {
	i := 0
	for i < len(c.batches) && c.batches[i].first < n {
		i++
	}
	c.batches = c.batches[i:]
	for k := range c.keys {
		c.keys[k].behind = max(0, c.keys[k].behind-i)
	}
	if len(c.batches) > 0 && c.batches[0].first > n {
		missed = c.batches[0].first - n
	}
	return missed
}

// Next is the number of the first event behind those that the session held; 0: it held none.
func (c *Content) Next() uint64 {
	if len(c.batches) == 0 {
		return 0
	}
	last := c.batches[len(c.batches)-1]
	if len(last.batch) < 2 {
		return last.first
	}
	return last.first + uint64(last.batch[0]) + uint64(last.batch[1])<<8
}
