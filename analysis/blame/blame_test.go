package blame

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/hbtrace/hbtrace/analysis/frames"
	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/trace/tracetest"
)

const ms = trace.Ns(1e6)

// world is a recording of threads a, b, c, d.
type world struct {
	*tracetest.Builder
	a, b, c, d trace.ThreadID
}

func newWorld() *world {
	b := tracetest.New()
	b.Meta().Hooks[79] = trace.HookInfo{Name: "fsync", Class: "CALL", Object: "FD"}
	b.Meta().Hooks[43] = trace.HookInfo{Name: "futex_wait", Class: "SYNC", Object: "ADDR"}
	p := b.AddProcess(trace.Process{PID: 1, Exe: "/bin/app"})
	add := func(tid int, name string) trace.ThreadID {
		return b.AddThread(trace.Thread{Proc: p, TID: tid, Name: name})
	}
	return &world{b, add(1, "a"), add(2, "b"), add(3, "c"), add(4, "d")}
}

// lock adds a wait for a mutex.
func (w *world) lock(t trace.ThreadID, from, to trace.Ns, object uint64, owner, releaser trace.ThreadID, release trace.Ns, flags trace.Flags, stack ...string) {
	w.AddJoined(trace.Event{Kind: trace.KindWait, Hook: w.Hook("pthread_mutex_lock"), Thread: t, Start: from, Time: to, Object: object,
		Owner: owner, Releaser: releaser, Release: release, Flags: flags, Stack: w.Stack(stack...)})
}

func (w *world) unlock(t trace.ThreadID, at, taken trace.Ns, object uint64, stack ...string) {
	w.AddJoined(trace.Event{Kind: trace.KindRelease, Hook: w.Hook("pthread_mutex_unlock"), Thread: t, Time: at, Release: taken, Object: object, Stack: w.Stack(stack...)})
}

// text shows chains as "a@f:mutex 0x10 > b@g:… = call fsync in h by c 20ms/2".
func text(r *Result, name func(trace.ThreadID) string) []string {
	var out []string
	for _, c := range r.Chains {
		var ls []string
		for _, l := range c.Links {
			ls = append(ls, fmt.Sprintf("%s@%s:%s %#x", name(l.Thread), l.Func, l.Kind, l.Object.Addr))
		}
		s := strings.Join(ls, " > ") + " = " + c.End.String()
		if c.Func != "" {
			s += " " + c.Func
		}
		if c.By != 0 {
			s += " by " + name(c.By)
		}
		out = append(out, fmt.Sprintf("%s %.1fms/%d", s, float64(c.Total)/1e6, c.Count))
	}
	return out
}

func (w *world) analyse(t *testing.T) (*Result, []string) {
	t.Helper()
	src := w.Source()
	r, err := Analyse(src, frames.New(src), Options{})
	if err != nil {
		t.Fatal(err)
	}
	names := map[trace.ThreadID]string{}
	for _, th := range src.Threads() {
		names[th.ID] = th.Name
	}
	got := text(r, func(id trace.ThreadID) string { return names[id] })
	// Whatever is recorded, each wait's time is spent exactly once.
	var waited, spent int64
	trace.Events(src, func(e *trace.Event) error {
		if e.Kind == trace.KindWait {
			waited += int64(e.Time - e.Start)
		}
		return nil
	})
	for _, c := range r.Chains {
		spent += c.Total
	}
	if waited != spent {
		t.Errorf("chains spend %d ns of %d waited:\n%s", spent, waited, strings.Join(got, "\n"))
	}
	return r, got
}

func TestChains(t *testing.T) {
	for _, tt := range []struct {
		name string
		make func(w *world)
		want []string
	}{
		{"the end of the chain is blamed", func(w *world) {
			w.Call(w.c, 10*ms, 50*ms, 79, 3, 0, "main", "flush")
			w.unlock(w.c, 51*ms, 5*ms, 0x20, "main", "flush")
			w.lock(w.b, 12*ms, 51*ms, 0x20, w.c, w.c, 51*ms, trace.FlagCertain, "main", "append")
			w.unlock(w.b, 60*ms, 8*ms, 0x10, "main", "append")
			w.lock(w.a, 20*ms, 60*ms, 0x10, w.b, w.b, 60*ms, trace.FlagCertain, "main", "get")
			w.Sample(w.b, 55*ms, 1e6, "main", "copy")
		}, []string{
			"b@append:mutex 0x20 = call fsync in flush by c 38.0ms/1",
			"a@get:mutex 0x10 > b@append:mutex 0x20 = call fsync in flush by c 30.0ms/1",
			"a@get:mutex 0x10 = running copy by b 6.0ms/1",
			"a@get:mutex 0x10 = unseen append by b 3.0ms/1",
			"a@get:mutex 0x10 > b@append:mutex 0x20 = unseen flush by c 1.0ms/1",
			"b@append:mutex 0x20 = unseen flush by c 1.0ms/1",
		}},
		{"a call that waited for what another thread wrote is a link", func(w *world) {
			w.Call(w.c, 12*ms, 24*ms, 79, 6, 0, "main", "h")
			w.AddJoined(trace.Event{Kind: trace.KindCall, Hook: 60, Thread: w.b, Start: 11 * ms, Time: 25 * ms, Object: 5,
				Releaser: w.c, Release: 25 * ms, Flags: trace.FlagCertain, Stack: w.Stack("main", "g")})
			w.lock(w.a, 10*ms, 26*ms, 0x10, w.b, w.b, 26*ms, trace.FlagCertain, "main", "f")
		}, []string{
			"a@f:mutex 0x10 > b@g:channel 0x5 = call fsync in h by c 12.0ms/1",
			"a@f:mutex 0x10 = unseen by b 2.0ms/1",
			"a@f:mutex 0x10 > b@g:channel 0x5 = unseen by c 2.0ms/1",
		}},
		{"a wait is split where the lock changed hands", func(w *world) {
			w.lock(w.b, 10*ms, 30*ms, 0x10, w.a, w.a, 29*ms, trace.FlagCertain, "f")
			w.Call(w.a, 8*ms, 29*ms, 60, 3, 0, "reading")
			w.Call(w.b, 31*ms, 50*ms, 79, 3, 0, "syncing")
			w.lock(w.c, 12*ms, 52*ms, 0x10, w.a, w.b, 51*ms, trace.FlagCertain, "f")
		}, []string{
			"b@f:mutex 0x10 = call read in reading by a 19.0ms/1",
			"c@f:mutex 0x10 = call fsync in syncing by b 19.0ms/1",
			"c@f:mutex 0x10 = call read in reading by a 17.0ms/1",
			"c@f:mutex 0x10 = hand-over 2.0ms/1",
			"c@f:mutex 0x10 = unseen by b 2.0ms/1",
			"b@f:mutex 0x10 = hand-over 1.0ms/1",
		}},
		{"a signaller that waits for whom it wakes is no circle", func(w *world) {
			w.AddJoined(trace.Event{Kind: trace.KindWait, Hook: 30, Thread: w.a, Start: 10 * ms, Time: 30 * ms, Object: 0x30, Object2: 0x38,
				Releaser: w.b, Release: 29 * ms, Stack: w.Stack("idle")})
			w.AddJoined(trace.Event{Kind: trace.KindCall, Hook: 33, Thread: w.b, Start: 20 * ms, Time: 29 * ms, Object: 0x30,
				Releaser: w.a, Release: 29 * ms, Stack: w.Stack("tell")})
			w.lock(w.c, 22*ms, 31*ms, 0x40, w.b, w.b, 31*ms, trace.FlagCertain, "f")
		}, []string{
			"a@idle:condvar 0x30 = unseen by b 10.0ms/1",
			"a@idle:condvar 0x30 > b@tell:condvar 0x30 = hand-over 9.0ms/1",
			"c@f:mutex 0x40 > b@tell:condvar 0x30 > a@idle:condvar 0x30 = hand-over 7.0ms/1",
			"c@f:mutex 0x40 = unseen by b 2.0ms/1",
			"a@idle:condvar 0x30 = hand-over 1.0ms/1",
		}},
		{"a signaller stands for the holder of what nobody holds", func(w *world) {
			w.Call(w.b, 0*ms+1, 40*ms, 60, 3, 0, "serve")
			w.AddJoined(trace.Event{Kind: trace.KindWait, Hook: 30, Thread: w.a, Start: 10 * ms, Time: 45 * ms, Object: 0x30, Object2: 0x38,
				Releaser: w.b, Release: 41 * ms, Stack: w.Stack("idle")})
		}, []string{"a@idle:condvar 0x30 = call read in serve by b 30.0ms/1", "a@idle:condvar 0x30 = hand-over 4.0ms/1", "a@idle:condvar 0x30 = unseen by b 1.0ms/1"}},
		{"nobody is blamed for a time-out, nor one of two", func(w *world) {
			w.AddJoined(trace.Event{Kind: trace.KindWait, Hook: 30, Thread: w.a, Start: 10 * ms, Time: 45 * ms, Object: 0x30, Flags: trace.FlagTimedOut, Stack: w.Stack("idle")})
			w.lock(w.b, 10*ms, 30*ms, 0x10, w.c, w.d, 30*ms, trace.FlagCertain, "f")
		}, []string{"a@idle:condvar 0x30 = timed-out 35.0ms/1", "b@f:mutex 0x10 = unknown 20.0ms/1"}},
		{"what the kernel saw tells running, ready and blocked apart", func(w *world) {
			w.lock(w.a, 10*ms, 30*ms, 0x10, w.b, w.b, 30*ms, trace.FlagCertain, "f")
			w.unlock(w.b, 30*ms, 0, 0x10, "drop")
			w.Add(trace.Event{Kind: trace.KindOff, Thread: w.b, Start: 12 * ms, Release: 16 * ms, Time: 17 * ms, Result: trace.OffUninterruptible, Count: 1, Stack: w.Stack("fault")})
			w.Add(trace.Event{Kind: trace.KindOff, Thread: w.b, Start: 20 * ms, Time: 26 * ms, Result: trace.OffRunnable, Count: 1, Stack: w.Stack("busy")})
		}, []string{"a@f:mutex 0x10 = running drop by b 9.0ms/1", "a@f:mutex 0x10 = runnable busy by b 6.0ms/1", "a@f:mutex 0x10 = off-cpu fault by b 4.0ms/1", "a@f:mutex 0x10 = runnable fault by b 1.0ms/1"}},
		{"equal chains are one", func(w *world) {
			for i := range trace.Ns(5) {
				w.lock(w.a, (10+20*i)*ms, (20+20*i)*ms, 0x10, w.b, w.b, (20+20*i)*ms, trace.FlagCertain, "f")
			}
		}, []string{"a@f:mutex 0x10 = unseen by b 50.0ms/5"}},
		{"a futex lock, whose owner nobody knows", func(w *world) {
			b := trace.Event{Kind: trace.KindWait, Hook: 43, Thread: w.a, Start: 10 * ms, Time: 20 * ms, Object: 0x50, Releaser: w.b, Release: 20 * ms,
				Stack: w.Stack("work", "std::sys::sync::mutex::futex::Mutex::lock_contended")}
			w.Call(w.b, 11*ms, 19*ms, 79, 3, 0, "store")
			w.AddJoined(b)
		}, []string{"a@work:futex 0x50 = call fsync in store by b 8.0ms/1", "a@work:futex 0x50 = unseen by b 2.0ms/1"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld()
			tt.make(w)
			if _, got := w.analyse(t); !slices.Equal(got, tt.want) {
				t.Errorf("chains\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(tt.want, "\n"))
			}
		})
	}
}

func TestEdgeOfHolder(t *testing.T) {
	w := newWorld()
	w.lock(w.b, 1*ms, 5*ms, 0x10, w.a, w.a, 5*ms, trace.FlagCertain, "take_for_long")
	w.Call(w.b, 11*ms, 19*ms, 79, 3, 0, "store")
	w.unlock(w.b, 20*ms, 0, 0x10, "drop")
	w.lock(w.c, 10*ms, 20*ms, 0x10, w.b, w.b, 20*ms, trace.FlagCertain, "get")
	r, _ := w.analyse(t)
	k := EdgeKey{20, 0x10, w.c, w.b, w.b, w.Stack("get"), trace.Site{Stack: w.Stack("drop"), Hook: 24}}
	e := r.Edges[k]
	if e == nil {
		t.Fatalf("no edge %+v in %v", k, r.Edges)
	}
	if e.Taken != (trace.Site{Stack: w.Stack("take_for_long"), Hook: 20}) {
		t.Errorf("holder took the lock at %+v", e.Taken)
	}
	if len(e.Doing) != 2 || e.Doing[0].Act != Calling || e.Doing[0].Func != "fsync in store" || e.Doing[0].Ns != int64(8*ms) || e.Doing[1].Act != Unseen {
		t.Errorf("holder did %+v", e.Doing)
	}
	if x := r.Accounts().Of(w.c, 20*ms); x.What != "fsync in store" || x.By != w.b {
		t.Errorf("chain end %q by %d", x.What, x.By)
	}
	if n := r.Name(Object{1, 0x10}); n != "mutex of get" {
		t.Errorf("named %q", n)
	}
}

func TestDeadlock(t *testing.T) {
	w := newWorld()
	const open = trace.FlagOpen
	w.lock(w.c, 5*ms, 100*ms, 0x10, w.a, 0, 0, open, "bystander")
	w.lock(w.a, 10*ms, 100*ms, 0x20, w.b, 0, 0, open, "forth")
	w.lock(w.b, 11*ms, 100*ms, 0x10, w.a, 0, 0, open, "back")
	r, _ := w.analyse(t)
	if len(r.Deadlocks) != 1 {
		t.Fatalf("%d deadlocks, want 1: %+v", len(r.Deadlocks), r.Deadlocks)
	}
	d := r.Deadlocks[0]
	if len(d.Threads) != 2 || d.Threads[0].Thread != w.a || d.Threads[1].Thread != w.b || d.Since != 11*ms || d.Until != 100*ms {
		t.Errorf("deadlock %+v", d)
	}
	if len(r.Inversions) != 1 || len(r.Inversions[0].Orders) != 2 {
		t.Errorf("inversions %+v", r.Inversions)
	}

	// The owner at the wait's beginning let go since: no deadlock.
	w = newWorld()
	w.lock(w.a, 10*ms, 100*ms, 0x20, w.b, 0, 0, open, "forth")
	w.unlock(w.b, 12*ms, 0, 0x20, "gone")
	w.lock(w.b, 13*ms, 100*ms, 0x10, w.a, 0, 0, open, "back")
	if r, _ := w.analyse(t); len(r.Deadlocks) != 0 {
		t.Errorf("a deadlock where one had let go: %+v", r.Deadlocks)
	}
}

func TestInversion(t *testing.T) {
	w := newWorld()
	// b has 0x10 and waits for 0x20; a sees it. Later c has 0x20 and waits for 0x10; d sees it.
	w.lock(w.b, 10*ms, 20*ms, 0x20, w.c, w.c, 20*ms, trace.FlagCertain, "forth")
	w.lock(w.a, 9*ms, 21*ms, 0x10, w.b, w.b, 21*ms, trace.FlagCertain, "see")
	w.lock(w.c, 110*ms, 120*ms, 0x10, w.b, w.b, 120*ms, trace.FlagCertain, "back")
	w.lock(w.d, 109*ms, 121*ms, 0x20, w.c, w.c, 121*ms, trace.FlagCertain, "see")
	r, _ := w.analyse(t)
	if len(r.Inversions) != 1 {
		t.Fatalf("%d inversions, want 1", len(r.Inversions))
	}
	o := r.Inversions[0].Orders
	if len(o) != 2 || o[0].Outer != o[1].Inner || o[0].Inner != o[1].Outer || o[0].Count != 1 {
		t.Errorf("orders %+v", o)
	}
	if len(r.Deadlocks) != 0 {
		t.Errorf("deadlocks %+v of waits that ended", r.Deadlocks)
	}
}

// Cycles, odd input and full tables: every wait's time is still spent exactly once, and nothing is endless.
func TestBounded(t *testing.T) {
	w := newWorld()
	threads := []trace.ThreadID{w.a, w.b, w.c, w.d}
	for i := range 400 {
		at := trace.Ns(i) * ms / 7
		x, y, z := threads[i%4], threads[(i*7+1)%4], threads[(i*3+2)%4]
		w.lock(x, at, at+3*ms, uint64(0x10*(i%3)), y, z, at+2*ms, 0, "f", fmt.Sprint("g", i%5))
		if i%5 == 0 {
			w.unlock(z, at+2*ms, at, uint64(0x10*(i%3)), "u")
		}
	}
	w.analyse(t)
	src := w.Source()
	r, err := Analyse(src, frames.New(src), Options{MaxIntervals: 100, MaxSteps: 50, MaxLinks: 4})
	if err != nil {
		t.Fatal(err)
	}
	if r.IntervalsLeft == 0 || r.WaitsEstimated == 0 && r.LinksLeft == 0 {
		t.Errorf("nothing left out: %+v", r)
	}
}

// TestWakers: a third thread that woke a waiter is told apart from its owner and its releaser.
func TestWakers(t *testing.T) {
	w := newWorld()
	off := func(from, to trace.Ns, waker trace.ThreadID, way uint64) {
		w.Add(trace.Event{Kind: trace.KindOff, Thread: w.a, Start: from, Release: to, Time: to, Result: trace.OffInterruptible, Count: 1, Releaser: waker, Weight: way, Stack: w.Stack("futex")})
	}
	off(11*ms, 19*ms, w.c, trace.OffByThread) // c let go and woke a, d came in between
	off(19*ms+1000, 29*ms, w.d, trace.OffByThread)
	w.lock(w.a, 10*ms, 30*ms, 0x10, w.b, w.d, 29*ms, 0, "take")
	off(41*ms, 49*ms, w.c, trace.OffByThread)
	w.lock(w.a, 40*ms, 50*ms, 0x10, w.b, w.d, 42*ms, 0, "take")
	off(61*ms, 69*ms, w.b, trace.OffByThread) // the owner
	w.lock(w.a, 60*ms, 70*ms, 0x10, w.b, w.d, 69*ms, 0, "take")
	off(81*ms, 89*ms, w.c, trace.OffByInterrupt) // c happened to run
	w.lock(w.a, 80*ms, 90*ms, 0x10, w.b, w.d, 89*ms, 0, "take")
	src := w.Source()
	r, err := Analyse(src, frames.New(src), Export())
	if err != nil {
		t.Fatal(err)
	}
	for at, want := range map[trace.Ns]trace.ThreadID{30 * ms: 0, 50 * ms: w.c, 70 * ms: 0, 90 * ms: 0} {
		if got := r.Accounts().Of(w.a, at).Waker; got != want {
			t.Errorf("the wait that ended at %d ms was woken by third thread %d, want %d", at/ms, got, want)
		}
	}
	for _, e := range r.Edges {
		if !slices.Equal(e.Wakers, []Waker{{w.c, 1}}) {
			t.Errorf("wakers %+v", e.Wakers)
		}
	}
}
