package attach

import (
	"encoding/binary"
	"fmt"
	"time"
)

// That no thread is in a piece of code any more, nor returns into it, is proved by its registers and by what lies on its stack. The
// stack is searched for every value that could be a return address: what is found may be stale, what is not found is not there.

const maxStack = 16 << 20

// isInside: the thread may be in [lo, hi), or return there.
func (t *Target) isInside(tid int, lo, hi uint64) bool {
	for range 3 { // one that sleeps is looked at without a stop, and once more afterwards
		state, nr, sp, pc := t.where(tid)
		if state == 'Z' || state == 'X' {
			return false
		}
		if state != 'S' || nr < 0 || sp == 0 {
			break
		}
		if pc-lo < hi-lo || t.stackHolds(sp, lo, hi) {
			return true
		}
		if state2, nr2, sp2, pc2 := t.where(tid); state2 == 'S' && nr2 == nr && sp2 == sp && pc2 == pc {
			return false
		}
	}
	return t.stoppedInside(tid, lo, hi)
}

// stackHolds: between the stack pointer and the end of its mapping lies a value of the range.
func (t *Target) stackHolds(sp, lo, hi uint64) bool {
	sp &^= 7
	m := t.mappingAt(sp)
	if m == nil {
		if t.readMaps() != nil {
			return false
		}
		if m = t.mappingAt(sp); m == nil {
			return true
		}
	}
	b := make([]byte, min(m.hi-sp, maxStack))
	n, _ := t.mem.ReadAt(b, int64(sp))
	for b = b[:n]; len(b) >= 8; b = b[8:] {
		if binary.LittleEndian.Uint64(b)-lo < hi-lo {
			return true
		}
	}
	return false
}

// outside waits until no thread is in [lo, hi). What nobody leads into is left for good: a thread that has been seen outside stays there.
func (t *Target) outside(lo, hi uint64, limit time.Duration) (in []int) {
	seen := map[int]bool{}
	begun := time.Now()
	for round := 0; ; round++ {
		if t.readMaps() != nil {
			return nil
		}
		in = in[:0]
		for _, tid := range t.threads() {
			if seen[tid] {
				continue
			}
			if t.isInside(tid, lo, hi) {
				in = append(in, tid)
			} else {
				seen[tid] = true
			}
		}
		if len(in) == 0 || time.Since(begun) > limit {
			return in
		}
		time.Sleep(time.Duration(min(2+round, 50)) * time.Millisecond)
	}
}

// clearPad makes sure that nobody is in a stub of ours, or of a dead attacher, before another one is written there.
func (t *Target) clearPad() error {
	b := make([]byte, t.pad.bytes)
	if err := t.read(t.pad.at, b); err != nil {
		return err
	}
	dirty := false
	for _, c := range b {
		dirty = dirty || c != 0
	}
	if !dirty {
		return nil
	}
	if in := t.outside(t.pad.at, t.pad.at+t.pad.bytes, 20*time.Second); len(in) > 0 {
		return fmt.Errorf("thread %d of process %d has not left an earlier stub: try again", in[0], t.pid)
	}
	return t.write(t.pad.at, make([]byte, len(b)))
}
