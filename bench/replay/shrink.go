package main

import (
	"fmt"
	"math"
	"sync/atomic"

	"github.com/hbtrace/hbtrace/bench/replay/measure"
	"github.com/hbtrace/hbtrace/bench/replay/tracer"
	"github.com/hbtrace/hbtrace/bench/replay/workload"
)

// shrink.go: halving the buffer and restoring it while everybody writes. What a snapshot right after halving holds says
// whether more went than had to; what one right before restoring held, and one right after no longer does, says
// whether restoring lost anything but what was overwritten meanwhile. At the end the history can hold the half that was
// there and what was written since.
//
// When it is done, and when the run ends, goes by how much was written, not by the clock: on a busy machine the one who does
// it may be kept waiting until everybody would have written what the time was for.

// Shrunk is what came of it.
type Shrunk struct {
	HalfFilled      float64 // share of the halved buffer that a snapshot right after halving has records of
	WrittenHalving  int     // bytes written while it was taken: so much of the oldest may have gone before it was read
	LostByRestoring int     // bytes gone between the snapshots before and after restoring
	WrittenMeantime int     // bytes written between them: so much may have been overwritten
	WrittenSince    int     // bytes written from restoring to the end
	OfWhatFits      float64 // latest fragment at the end over what there was room for: half and WrittenSince, at most all
}

// Times that the buffer has been filled when it is halved, when it is restored, and between that and the end.
const (
	turnsToHalving   = 1.25
	turnsToRestoring = 2.5
	turnsToEnd       = 1.25
)

// shrinking is one run's halving and restoring.
type shrinking struct {
	Shrunk
	halved, before, after *copied
	halvedAt, restoredAt  uint64 // records written by then
	mean                  float64
	goal                  *atomic.Uint64 // records at which the run ends
}

// shrinkSteps are what is done while others write; nil where the tracer cannot.
func (r Replay) shrinkSteps(tr tracer.Tracer, written func() uint64, s *shrinking) []step {
	z, ok := tr.(tracer.Resizer)
	l, live := tr.(tracer.Live)
	if !ok || !live || !r.Shrink {
		return nil
	}
	half := r.Config.Bytes / 2
	s.mean = workload.MeanEntry() + float64(tr.Footprint(0))
	s.halved, s.before, s.after = newCopied(half), newCopied(half), newCopied(r.Config.Bytes)
	s.goal = &atomic.Uint64{}
	s.goal.Store(math.MaxUint64)
	reached := func(turns float64) func() bool {
		records := uint64(turns * float64(r.Config.Bytes) / s.mean)
		return func() bool { return written() >= records }
	}
	return []step{
		{"halve the buffer", reached(turnsToHalving), func() error {
			if err := z.Resize(half); err != nil {
				return err
			}
			from := written()
			err := l.WalkLive(s.halved.add)
			s.halvedAt = written()
			s.WrittenHalving = int(float64(s.halvedAt-from) * s.mean)
			return err
		}},
		{"restore the buffer", reached(turnsToRestoring), func() error {
			from := written()
			if err := l.WalkLive(s.before.add); err != nil {
				return err
			}
			if err := z.Resize(r.Config.Bytes); err != nil {
				return err
			}
			if err := l.WalkLive(s.after.add); err != nil {
				return err
			}
			s.restoredAt = written()
			s.goal.Store(s.restoredAt + uint64(turnsToEnd*float64(r.Config.Bytes)/s.mean))
			s.WrittenMeantime = int(float64(s.restoredAt-from) * s.mean)
			return nil
		}},
	}
}

// judge verifies the snapshots, when all is over. stamps is how many records were written, latest the latest fragment.
func (s *shrinking) judge(r Replay, tr tracer.Tracer, stamps uint64, latest int) (*Shrunk, error) {
	half := r.Config.Bytes / 2
	_, bytes, err := s.halved.verify(tr, s.halvedAt)
	if err != nil {
		return nil, fmt.Errorf("right after halving: %w", err)
	}
	s.HalfFilled = float64(bytes) / float64(half)
	had, _, err := s.before.verify(tr, s.restoredAt)
	if err != nil {
		return nil, fmt.Errorf("before restoring: %w", err)
	}
	has, _, err := s.after.verify(tr, s.restoredAt)
	if err != nil {
		return nil, fmt.Errorf("after restoring: %w", err)
	}
	for st := range had {
		if !has[st] {
			s.LostByRestoring += tr.Footprint(workload.Size(st))
		}
	}
	s.WrittenSince = int(float64(stamps-s.restoredAt) * s.mean)
	s.OfWhatFits = float64(latest) / float64(min(r.Config.Bytes, half+s.WrittenSince))
	return &s.Shrunk, nil
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

// step is something to be done while others write.
type step struct {
	what string
	due  func() bool
	do   func() error
}
