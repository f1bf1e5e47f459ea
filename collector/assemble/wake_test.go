// wake_test.go: which waits name who ended them, and which of those for certain.
package assemble

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/hbtrace/hbtrace/hooks"
	"github.com/hbtrace/hbtrace/segment"
	"github.com/hbtrace/hbtrace/trace"
)

func TestJoins(t *testing.T) {
	const from, to = trace.Ns(1_000_000), trace.Ns(2_000_000)
	// The waiter is thread 1, the others 2 and 3; hint is what the agent says of the releaser.
	type rel struct {
		by uint32
		at trace.Ns
	}
	for _, c := range []struct {
		name     string
		hook     trace.HookID
		flags    uint8
		hint     uint32
		releases []rel
		exits    []rel
		releaser trace.ThreadID
		at       trace.Ns
		certain  bool
	}{
		{"mutex, named", hooks.PthreadMutexLock, 0, 2, nil, nil, 2, 1_999_000, true},
		{"mutex, not named", hooks.PthreadMutexLock, 0, 0, []rel{{2, 1_500_000}}, nil, 0, 0, false},
		{"mutex, timed out", hooks.PthreadMutexTimedlock, segment.RecFlagTimedout, 2, nil, nil, 0, 0, false},
		{"rwlock, named", hooks.PthreadRwlockWrlock, 0, 3, nil, nil, 3, 1_999_000, true},
		{"named thread unknown", hooks.PthreadMutexLock, 0, 77, nil, nil, 0, 0, false},
		{"condition, one", hooks.PthreadCondWait, 0, 0, []rel{{2, 1_500_000}}, nil, 2, 1_500_000, true},
		{"condition, one, named", hooks.PthreadCondWait, 0, 2, []rel{{2, 1_500_000}}, nil, 2, 1_999_000, true},
		{"condition, another is named", hooks.PthreadCondWait, 0, 3, []rel{{2, 1_500_000}}, nil, 3, 1_999_000, false},
		{"condition, two", hooks.PthreadCondWait, 0, 0, []rel{{2, 1_500_000}, {3, 1_600_000}}, nil, 3, 1_600_000, false},
		{"condition, two by one", hooks.PthreadCondWait, 0, 2, []rel{{2, 1_500_000}, {2, 1_600_000}}, nil, 2, 1_999_000, true},
		{"condition, its own", hooks.PthreadCondWait, 0, 0, []rel{{1, 1_500_000}, {3, 1_600_000}}, nil, 3, 1_600_000, true},
		{"condition, before", hooks.PthreadCondWait, 0, 0, []rel{{2, 500_000}}, nil, 0, 0, false},
		{"condition, just before", hooks.PthreadCondWait, 0, 0, []rel{{2, from - 5_000}}, nil, 2, from - 5_000, false},
		{"condition, after", hooks.PthreadCondWait, 0, 0, []rel{{2, to + 1}}, nil, 0, 0, false},
		{"condition, timed out", hooks.PthreadCondTimedwait, segment.RecFlagTimedout, 0, []rel{{2, 1_500_000}}, nil, 0, 0, false},
		{"condition, interrupted", hooks.PthreadCondWait, segment.RecFlagInterrupted, 0, []rel{{2, 1_500_000}}, nil, 0, 0, false},
		{"semaphore, one", hooks.SemWait, 0, 0, []rel{{3, 1_500_000}}, nil, 3, 1_500_000, true},
		{"futex, one", hooks.FutexWait, 0, 0, []rel{{3, 1_500_000}}, nil, 3, 1_500_000, true},
		{"barrier, named", hooks.PthreadBarrierWait, 0, 3, nil, nil, 3, 1_999_000, true},
		{"barrier, not named", hooks.PthreadBarrierWait, 0, 0, []rel{{3, 1_500_000}}, nil, 0, 0, false},
		{"join, named", hooks.PthreadJoin, 0, 2, nil, nil, 2, 1_999_000, true},
		{"join of C11, named", hooks.ThrdJoin, 0, 2, nil, nil, 2, 1_999_000, true},
		{"join of C11, one exit", hooks.ThrdJoin, 0, 0, nil, []rel{{2, 1_500_000}}, 2, 1_500_000, true},
		{"join, one exit", hooks.PthreadJoin, 0, 0, nil, []rel{{2, 1_500_000}}, 2, 1_500_000, true},
		{"join, two exits", hooks.PthreadJoin, 0, 0, nil, []rel{{2, 1_500_000}, {3, 1_900_000}}, 3, 1_900_000, false},
		{"join, exit after", hooks.PthreadJoin, 0, 0, nil, []rel{{2, to + 1}}, 0, 0, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := newKit(t, Config{})
			gs := map[uint32]*agent{}
			for uid := uint32(1); uid <= 3; uid++ {
				gs[uid] = newAgent(uid, 1)
				k.put(gs[uid].thread(1))
			}
			k.put(gs[1].interval(c.hook, from, to, func(r *segment.RecInterval) {
				r.Rec.Flags = c.flags
				r.Releaser = c.hint
				r.ReleaseNs = 1_999_000
			}))
			// What the others published lies in sub-buffers that are read later, even in the next pass.
			k.EndPass()
			for _, r := range c.releases {
				k.put(gs[r.by].release(hooks.PthreadCondSignal, r.at, 0xabc))
			}
			k.put(gs[2].release(hooks.PthreadCondSignal, 1_200_000, 0x111)) // another object
			for _, x := range c.exits {
				k.put(gs[x.by].exit(x.at, 0))
			}
			k.EndPass()
			e := k.one(trace.KindWait)
			if e.Releaser != c.releaser || e.Release != c.at || (e.Flags&trace.FlagCertain != 0) != c.certain {
				t.Errorf("releaser %d at %d, certain %v; want %d at %d, %v", e.Releaser, e.Release, e.Flags&trace.FlagCertain != 0, c.releaser, c.at, c.certain)
			}
		})
	}
}

// TestReleaseBeforeItsThread: the sub-buffer with the release is read before that with the releaser's name.
func TestReleaseBeforeItsThread(t *testing.T) {
	k := newKit(t, Config{})
	w, r := newAgent(1, 1), newAgent(2, 1)
	name := r.thread(1)
	k.put(r.release(hooks.PthreadCondSignal, 1_500_000, 0xabc), name, w.thread(1), w.interval(hooks.PthreadCondWait, 1_000_000, 2_000_000, nil))
	k.Flush()
	if e := k.one(trace.KindWait); e.Releaser != 2 || e.Flags&trace.FlagCertain == 0 {
		t.Errorf("%+v", e)
	}
	if n := k.wakes.get(objectKey{0xabc, 1}).n; n != 1 {
		t.Errorf("the release counts %d times", n)
	}
}

// TestForgottenReleasesAreNotCertain: where the history does not reach back to the wait's beginning, one known
// candidate is not the only one.
func TestForgottenReleasesAreNotCertain(t *testing.T) {
	k := newKit(t, Config{})
	w, r := newAgent(1, 1), newAgent(2, 1)
	k.put(w.thread(1), r.thread(1))
	for i := range releasesMost + 5 {
		k.put(w.release(hooks.FutexWake, trace.Ns(1_100_000+i), 0xabc)) // its own: no candidates
	}
	k.put(r.release(hooks.FutexWake, 1_900_000, 0xabc))
	k.put(w.interval(hooks.FutexWait, 1_000_000, 2_000_000, nil))
	k.Flush()
	if e := k.one(trace.KindWait); e.Releaser != 2 || e.Flags&trace.FlagCertain != 0 {
		t.Errorf("%+v", e)
	}
}

// TestBusyObjectsAreCertain: of an object that is let go of often, what happened since a wait that is joined late is
// still known.
func TestBusyObjectsAreCertain(t *testing.T) {
	k := newKit(t, Config{})
	w, r := newAgent(1, 1), newAgent(2, 1)
	k.put(w.thread(1), r.thread(1))
	k.put(w.interval(hooks.SemWait, 1_000_000, 2_000_000, nil))
	k.put(r.release(hooks.SemPost, 1_900_000, 0xabc))
	for i := range 10 * releasesKept {
		k.put(r.release(hooks.SemPost, trace.Ns(2_100_000+i*1000), 0xabc))
	}
	k.Flush()
	if e := k.one(trace.KindWait); e.Releaser != 2 || e.Release != 1_900_000 || e.Flags&trace.FlagCertain == 0 {
		t.Errorf("%+v", e)
	}
}

// TestOneSignalEndsOneWait: what ended a thread's wait is no candidate for its next one, which begins right after.
func TestOneSignalEndsOneWait(t *testing.T) {
	k := newKit(t, Config{})
	w, r := newAgent(1, 1), newAgent(2, 1)
	k.put(w.thread(1), r.thread(1))
	k.put(r.release(hooks.SemPost, 1_990_000, 0xabc))
	k.put(w.interval(hooks.SemWait, 1_000_000, 1_995_000, nil))
	k.put(r.release(hooks.SemPost, 2_990_000, 0xabc))
	k.put(w.interval(hooks.SemWait, 1_998_000, 2_995_000, nil))
	k.Flush()
	for _, e := range k.of(trace.KindWait) {
		if e.Releaser != 2 || e.Release != e.Time-5_000 || e.Flags&trace.FlagCertain == 0 {
			t.Errorf("%+v", e)
		}
	}
}

// TestHistoryIsBounded: objects that are not used any more are forgotten, and what comes back later does not
// claim to be complete.
func TestHistoryIsBounded(t *testing.T) {
	var w wakes
	for i := range uint64(5 * objectsKept) {
		w.released(1, i, release{at: trace.Ns(i), by: 2, left: 1})
	}
	if n := len(w.now) + len(w.old); n > 2*objectsKept {
		t.Errorf("%d objects kept", n)
	}
	w.released(1, 0, release{at: 1e9, by: 2, left: 1})
	if r := w.get(objectKey{0, 1}); r.gone != 1e9 {
		t.Errorf("an object that may have been forgotten is complete since %d", r.gone)
	}
}

func TestOwnerByTID(t *testing.T) {
	k := newKit(t, Config{})
	first, second, other := newAgent(1, 1), newAgent(2, 1), newAgent(3, 2)
	first.tid, second.tid, other.tid = 50, 50, 60
	w := newAgent(4, 1)
	k.put(first.thread(100), first.exit(200, 0), second.thread(300), other.thread(1), w.thread(1))
	wait := func(start trace.Ns, tid uint32) []byte {
		return w.interval(hooks.PthreadMutexLock, start, 1000, func(r *segment.RecInterval) { r.OwnerTID = tid })
	}
	k.put(wait(150, 50), wait(350, 50), wait(350, 60), wait(350, 61))
	k.Flush()
	var got []trace.ThreadID
	for _, e := range k.of(trace.KindWait) {
		got = append(got, e.Owner)
	}
	// tid 60 is a thread of another process.
	for i, want := range []trace.ThreadID{1, 2, 0, 0} {
		if got[i] != want {
			t.Errorf("wait %d: owner %d, want %d", i, got[i], want)
		}
	}
}

// TestTaken: where a lock had been taken comes as a difference to the stack of its release.
func TestTaken(t *testing.T) {
	for _, c := range []struct {
		name     string
		taken    segment.Stack
		pcs      []uint64
		acquired uint64
		want     []uint64 // addresses, root first; nil: no event
		sensible bool
	}{
		{"another leaf", segment.Stack{Same: 1, Count: 1}, pcs(0x40), 1_400_000, []uint64{0x10, 0x40}, true},
		{"the same", segment.Stack{Same: 2}, nil, 1_400_000, []uint64{0x10, 0x30}, true},
		{"nothing in common", segment.Stack{Count: 2}, pcs(0x50, 0x60), 1_400_000, []uint64{0x50, 0x60}, true},
		{"none", segment.Stack{Flags: segment.StackNone}, nil, 0, nil, true},
		{"at no known time", segment.Stack{Same: 1, Count: 1}, pcs(0x40), 0, nil, true},
		{"more than there is", segment.Stack{Same: 3}, nil, 1_400_000, nil, false},
		{"shorter than it says", segment.Stack{Same: 1, Count: 2}, pcs(0x40), 1_400_000, nil, false},
		{"longer than it says", segment.Stack{Same: 1, Count: 1}, pcs(0x40, 0x41), 1_400_000, nil, false},
		{"no way to be found", segment.Stack{Same: 1, Count: 1}, []uint64{0x40}, 1_400_000, nil, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := newKit(t, Config{})
			g := newAgent(1, 1)
			k.put(g.thread(1))
			s, tail := g.delta(pcs(0x10, 0x30), noLimit)
			for _, pc := range c.pcs {
				tail = binary.LittleEndian.AppendUint64(tail, pc)
			}
			r := segment.RecRelease{
				Rec: g.rec(segment.RecTypeRelease, hooks.PthreadMutexUnlock, 1_500_000), Object: 0xabc, DebtNs: 77, AcquiredNs: c.acquired,
				TakenHook: uint32(hooks.PthreadMutexLock), Taken: c.taken, Stack: s,
			}
			k.put(record(&r, segment.RecReleaseBytes, tail))
			k.EndPass()
			k.EndPass()
			held := k.of(trace.KindHold)
			if broken := k.Stats().Broken; (broken == 0) != c.sensible {
				t.Errorf("%d records made no sense", broken)
			}
			if len(held) == 0 && c.want == nil {
				return
			}
			if len(held) != 1 || c.want == nil {
				t.Fatalf("%d events, want one: %v", len(held), c.want != nil)
			}
			e := held[0]
			if e.Start != 1_400_000 || e.Time != 1_500_000 || e.Object != 0xabc || e.Hook != hooks.PthreadMutexLock || e.Same != 0 {
				t.Errorf("%+v", e)
			}
			var got []uint64
			for _, a := range k.stack(e.Stack) {
				got = append(got, a.Off)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("stack %#x, want %#x", got, c.want)
			}
		})
	}
}

// TestSignallerThatSleeps: a signal that had to wait names who may have let it go on.
func TestSignallerThatSleeps(t *testing.T) {
	k := newKit(t, Config{})
	w1, w2, other, g := newAgent(1, 1), newAgent(2, 1), newAgent(3, 1), newAgent(4, 1)
	k.put(w1.thread(1), w2.thread(1), other.thread(1), g.thread(1))
	k.put(g.interval(hooks.PthreadCondSignal, 1_500_000, 2_000_000, nil))
	k.put(w1.interval(hooks.PthreadCondWait, 1_000_000, 1_700_000, nil))
	k.put(w2.interval(hooks.PthreadCondWait, 1_000_000, 2_100_000, nil))    // waited for its mutex, too
	k.put(other.interval(hooks.PthreadCondWait, 2_050_000, 2_060_000, nil)) // came later
	for i := range 3 * releasesKept {                                       // what happens until it is looked at does not push them out
		k.put(other.interval(hooks.PthreadCondWait, trace.Ns(9_000_000+i*1000), trace.Ns(9_000_500+i*1000), nil))
	}
	k.Flush()
	e := k.one(trace.KindCall)
	if e.Releaser != 2 || e.Release != 2_000_000 || e.Weight != 2 || e.Flags&trace.FlagCertain != 0 {
		t.Errorf("%+v", e)
	}
}
