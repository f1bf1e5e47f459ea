// A small recording with one of everything, for goldens.

package synthetic

import (
	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/trace/tracetest"
)

// What Demo's tests count on.
const (
	DemoStart       = trace.Ns(5_000_000_000_000)
	DemoBootOffset  = 7_000_000_000
	DemoMutex       = 0x7ffe00001000
	DemoCond        = 0x7ffe00002000
	ms              = trace.Ns(1_000_000)
	demoNameNotUTF8 = "parse\xff\xfename"
)

// Demo is a recording of a program of two threads, of the program that it execs, and of one that reuses the worker's
// thread number. It holds an inlined call, an unsymbolised one, a cut and a shortened stack, waits with and without a
// recorded release, a broadcast with two waiters, a timed-out wait, calls, allocations, loss and CPU tails.
func Demo() *tracetest.Source {
	b := tracetest.New()
	m := b.Meta()
	m.StartNs, m.EndNs, m.BoottimeOffset = DemoStart, DemoStart+100*ms, DemoBootOffset
	m.Command = []string{"./demo", "--fast"}
	b.Stats().Lost = 3
	b.Stats().Notes = []string{"libodd.so: no hook could be set"}
	app := b.AddProcess(trace.Process{PID: 4000, Exe: "/usr/bin/app", Cmdline: []string{"./demo", "--fast"}, Start: DemoStart, End: DemoStart + 60*ms})
	execed := b.AddProcess(trace.Process{PID: 4000, Parent: app, Exe: "/usr/bin/after", Cmdline: []string{"after"}, Start: DemoStart + 60*ms})
	at := func(n float64) trace.Ns { return DemoStart + trace.Ns(n*float64(ms)) }
	main := b.AddThread(trace.Thread{Proc: app, TID: 4000, Name: "app", Main: true, Start: at(0), End: at(60), CPU: int64(30 * ms), WaitNs: int64(5 * ms)})
	worker := b.AddThread(trace.Thread{Proc: app, Parent: main, TID: 4001, Name: "worker", Start: at(1), End: at(40), CPU: int64(6 * ms), WaitNs: int64(12 * ms)})
	helper := b.AddThread(trace.Thread{Proc: app, Parent: main, TID: 4002, Name: "helper\xff", Start: at(1), End: at(55), CPU: 0, WaitNs: int64(9 * ms)})
	reused := b.AddThread(trace.Thread{Proc: app, Parent: main, TID: 4001, Name: "second", Start: at(45), End: at(55), CPU: int64(2 * ms)})
	after := b.AddThread(trace.Thread{Proc: execed, TID: 4000, Name: "after", Main: true, Start: at(60), CPU: int64(10 * ms)})

	ev := func(k trace.Kind, th trace.ThreadID, when float64, flags trace.Flags, stack ...string) {
		b.AddJoined(trace.Event{Kind: k, Thread: th, Time: at(when), Flags: flags, Stack: b.Stack(stack...)})
	}
	ev(trace.KindThreadStart, main, 0, trace.FlagNoStack)
	ev(trace.KindThreadStart, worker, 1, trace.FlagNoStack)
	ev(trace.KindThreadStart, helper, 1, trace.FlagNoStack)

	// The main thread computes; the worker wants the lock that it holds.
	b.Sample(main, at(2), int64(2*ms), "_start", "main", "compute|inner")
	b.Sample(main, at(3), int64(ms), "_start", "main", "compute|inner")
	b.Sample(worker, at(2), int64(ms), "clone3", "work", demoNameNotUTF8)
	// A release of which only the waiter tells.
	b.AddJoined(trace.Event{Kind: trace.KindWait, Hook: b.Hook("pthread_mutex_lock"), Thread: helper, Start: at(1.5), Time: at(2.5),
		Object: DemoMutex + 64, Owner: worker, Releaser: worker, Release: at(2.4), Stack: b.Stack("clone3", "help", "take")})
	ev(trace.KindEnter, worker, 3, 0, "clone3", "work", "take")
	b.AddJoined(trace.Event{Kind: trace.KindRelease, Hook: b.Hook("pthread_mutex_unlock"), Thread: main, Time: at(8), Object: DemoMutex,
		Debt: int64(5 * ms), Release: at(1), Stack: b.Stack("_start", "main", "give")})
	b.AddJoined(trace.Event{Kind: trace.KindWait, Hook: b.Hook("pthread_mutex_lock"), Thread: worker, Start: at(3), Time: at(8.1),
		Object: DemoMutex, Owner: main, Releaser: main, Release: at(8), Flags: trace.FlagCertain, Stack: b.Stack("clone3", "work", "take")})
	b.Sample(worker, at(9), int64(ms), "clone3", "work", "libodd.so!?")
	// One broadcast lets two go.
	b.AddJoined(trace.Event{Kind: trace.KindRelease, Hook: b.Hook("pthread_cond_signal"), Thread: main, Time: at(20), Object: DemoCond,
		Debt: int64(10 * ms), Stack: b.Stack("_start", "main", "tell")})
	for i, th := range []trace.ThreadID{worker, helper} {
		b.AddJoined(trace.Event{Kind: trace.KindWait, Hook: b.Hook("pthread_cond_wait"), Thread: th, Start: at(13), Time: at(20.1 + float64(i)/10),
			Object: DemoCond, Object2: DemoMutex, Releaser: main, Release: at(20), Stack: b.Stack("clone3", "idle")})
	}
	b.AddJoined(trace.Event{Kind: trace.KindWait, Hook: b.Hook("pthread_cond_wait"), Thread: helper, Start: at(22), Time: at(27),
		Object: DemoCond, Object2: DemoMutex, Flags: trace.FlagTimedOut, Result: 110, Stack: b.Stack("clone3", "idle")})
	b.Alloc(main, at(21), 0xa000, 1000, 512<<10, "_start", "main", "grow")
	b.Alloc(main, at(22), 0xb000, 64, 256<<10, "_start", "main", "grow@2")
	b.Alloc(worker, at(22), 0xc000, 1<<20, 1<<20, "clone3", "work", "libc.so.6!malloc")
	b.Free(main, at(23), 0xa000)
	b.Call(main, at(24), at(34), b.Hook("read"), 7, 4096, "_start", "main", "load")
	b.AddJoined(trace.Event{Kind: trace.KindCall, Hook: b.Hook("read"), Thread: main, Start: at(34.5), Time: at(39.5), Object: 7, Result: -4,
		Flags: trace.FlagInterrupted, Stack: b.Stack("_start", "main", "load")})
	b.AddJoined(trace.Event{Kind: trace.KindCPU, Thread: main, Start: at(40), Time: at(50), Count: 11, CPU: int64(11 * ms), Stack: b.Stack("_start", "main", "compute")})
	b.AddJoined(trace.Event{Kind: trace.KindGap, Thread: main, Time: at(51), Flags: trace.FlagStackCut | trace.FlagStackGuessed, Stack: b.Stack("deep=guess")})
	b.AddJoined(trace.Event{Kind: trace.KindCPU, Thread: main, Time: at(52), CPU: int64(ms), Flags: trace.FlagStackOmitted, Stack: b.Stack("_start", "…40", "recurse")})
	ev(trace.KindThreadExit, worker, 40, trace.FlagNoStack)
	b.Add(trace.Event{Kind: trace.KindLost, Thread: helper, Time: at(50), Count: 3})
	b.Add(trace.Event{Kind: trace.KindThreadExit, Thread: helper, Time: at(55), Flags: trace.FlagNoStack})
	ev(trace.KindThreadStart, reused, 45, trace.FlagNoStack)
	ev(trace.KindSync, reused, 45.5, 0, "clone3", "work")
	b.Add(trace.Event{Kind: trace.KindThreadExit, Thread: reused, Time: at(46), CPU: int64(2 * ms), Flags: trace.FlagNoStack})
	b.Add(trace.Event{Kind: trace.KindThreadExit, Thread: main, Time: at(60), Flags: trace.FlagNoStack})

	b.Sample(after, at(62), int64(2*ms), "_start", "after!main")
	b.Sample(after, at(63), int64(ms), "_start", "after!main")
	b.AddJoined(trace.Event{Kind: trace.KindCall, Hook: b.Hook("read"), Thread: after, Start: at(70), Time: at(100), Object: 0,
		Flags: trace.FlagOpen, Stack: b.Stack("_start", "after!main")})
	return b.Source()
}
