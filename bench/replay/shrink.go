package main

import (
	"time"

	"github.com/hbtrace/hbtrace/bench/replay/measure"
	"github.com/hbtrace/hbtrace/bench/replay/tracer"
	"github.com/hbtrace/hbtrace/bench/replay/workload"
)

// shrink.go: halving the buffer and restoring it while everybody writes. What a snapshot right after halving holds says
// whether more went than had to; what one right before restoring held, and one right after no longer does, says
// whether restoring lost anything but what was overwritten meanwhile.

// Shrunk is what came of it.
type Shrunk struct {
	HalfFilled      float64 // share of the halved buffer that holds records, right after halving
	LostByRestoring int     // bytes gone between the snapshots before and after restoring
	WrittenMeantime int     // bytes written between them: so much may have been overwritten
}

// shrinkSteps are what is done after a third and after two thirds of the time.
func (r Replay) shrinkSteps(tr tracer.Tracer, written func() uint64, out *Shrunk) []step {
	z, ok := tr.(tracer.Resizer)
	l, live := tr.(tracer.Live)
	if !ok || !live || !r.Shrink {
		return nil
	}
	half := r.Config.Bytes / 2
	return []step{
		{r.Duration / 3, func() error {
			if err := z.Resize(half); err != nil {
				return err
			}
			bytes, err := kept(l, tr, half, written)
			out.HalfFilled = float64(bytes) / float64(half)
			return err
		}},
		{r.Duration * 2 / 3, func() error {
			// First all that others write against, then the looking.
			before, after := newCopied(r.Config.Bytes), newCopied(r.Config.Bytes)
			from := written()
			if err := l.WalkLive(before.add); err != nil {
				return err
			}
			if err := z.Resize(r.Config.Bytes); err != nil {
				return err
			}
			if err := l.WalkLive(after.add); err != nil {
				return err
			}
			to := written()
			out.WrittenMeantime = int(float64(to-from) * (workload.MeanEntry() + float64(tr.Footprint(0))))
			had, _, err := before.verify(tr, to)
			if err != nil {
				return err
			}
			has, _, err := after.verify(tr, to)
			for st := range had {
				if !has[st] {
					out.LostByRestoring += tr.Footprint(workload.Size(st))
				}
			}
			return err
		}},
	}
}

// copied is a snapshot that is looked at later.
type copied struct {
	bytes []byte
	ends  []int // of the records in bytes
}

// newCopied has room for the records of a buffer of so many bytes, and the memory for it.
func newCopied(bytes int) *copied {
	c := &copied{bytes: make([]byte, 2*bytes), ends: make([]int, 0, 2*bytes/measure.Head)}
	for i := 0; i < len(c.bytes); i += 4096 {
		c.bytes[i] = 1
	}
	c.bytes = c.bytes[:0]
	return c
}

func (c *copied) add(p []byte) {
	c.bytes = append(c.bytes, p...)
	c.ends = append(c.ends, len(c.bytes))
}

// verify checks every record, given how many were written, and tells their stamps and the bytes that they take.
func (c *copied) verify(tr tracer.Tracer, written uint64) (stamps map[uint64]bool, bytes int, err error) {
	stamps = map[uint64]bool{}
	s := measure.NewSnapshot(written, workload.Size)
	at := 0
	for _, end := range c.ends {
		p := c.bytes[at:end]
		at = end
		s.Add(p)
		stamps[measure.Stamp(p)] = true
		bytes += tr.Footprint(len(p))
	}
	return stamps, bytes, s.Err()
}

// kept reads and verifies a snapshot while others write.
func kept(l tracer.Live, tr tracer.Tracer, bytes int, written func() uint64) (took int, err error) {
	c := newCopied(bytes)
	if err := l.WalkLive(c.add); err != nil {
		return 0, err
	}
	_, took, err = c.verify(tr, written())
	return took, err
}

// step is something to be done so long after the start.
type step struct {
	at time.Duration
	do func() error
}
