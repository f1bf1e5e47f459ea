package synthetic

import (
	"fmt"

	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/trace/tracetest"
)

const queueTurn = trace.Ns(20_000) // ns that each thread has the lock for

// Queue is n threads that all wait for one lock at once, get it one after the other, and queue up again, rounds times:
// every wait sees the lock in n hands. Each eighth turn the holder waits for a second lock, which a writer holds during
// an fsync. When a thread has had its last turn, it waits for a condition, by which a starter wakes all of them.
func Queue(n, rounds int) *tracetest.Builder {
	const first, second, cond = 0x7000, 0x7100, 0x7200
	b := tracetest.New()
	m := b.Meta()
	m.Hooks[79] = trace.HookInfo{Name: "fsync", Class: "CALL", Object: "FD"}
	m.Command = []string{"queue"}
	start := m.StartNs + ms
	p := b.AddProcess(trace.Process{ID: 1, PID: 1, Exe: "/bin/queue"})
	id := func(i int) trace.ThreadID { return trace.ThreadID(i + 3) }
	writer, starter := trace.ThreadID(1), trace.ThreadID(2)
	end := start + trace.Ns(rounds*n)*queueTurn + ms
	m.EndNs = end + ms
	add := func(t trace.ThreadID, name string) {
		b.AddThread(trace.Thread{ID: t, Proc: p, TID: int(t), Name: name, Start: m.StartNs, End: end, Main: t == 1, CPU: 1})
		b.AddJoined(trace.Event{Kind: trace.KindThreadStart, Thread: t, Time: m.StartNs, Flags: trace.FlagNoStack})
	}
	add(writer, "writer")
	add(starter, "starter")
	for i := range n {
		add(id(i), "worker")
	}
	lock, unlock, fsync := b.Hook("pthread_mutex_lock"), b.Hook("pthread_mutex_unlock"), b.Hook("fsync")
	take := b.Stack("clone3", "work", "take")
	for k := range rounds * n {
		t := id(k % n)
		at := start + trace.Ns(k+1)*queueTurn // when it gets the lock
		since := max(start, start+trace.Ns(k-n+2)*queueTurn)
		e := trace.Event{Kind: trace.KindWait, Hook: lock, Thread: t, Start: since, Time: at, Object: first, Stack: take}
		if k > 0 {
			e.Releaser, e.Release, e.Flags = id((k-1)%n), at-200, trace.FlagCertain
		}
		b.AddJoined(e)
		if k%8 == 0 {
			b.Call(writer, at+1000, at+12_000, fsync, 5, 0, "main", "write_out")
			b.AddJoined(trace.Event{Kind: trace.KindRelease, Hook: unlock, Thread: writer, Time: at + 13_000, Object: second,
				Release: at, Debt: 8000, Stack: b.Stack("main", "write_out")})
			b.AddJoined(trace.Event{Kind: trace.KindWait, Hook: lock, Thread: t, Start: at + 2000, Time: at + 13_500,
				Object: second, Owner: writer, Releaser: writer, Release: at + 13_000, Stack: b.Stack("clone3", "work", "note")})
		} else {
			b.Sample(t, at+5000, 1, "clone3", "work", fmt.Sprintf("step_%d", k%5))
		}
		b.AddJoined(trace.Event{Kind: trace.KindRelease, Hook: unlock, Thread: t, Time: at + queueTurn - 200, Object: first,
			Release: at, Debt: int64(queueTurn), Stack: b.Stack("clone3", "work", "give")})
	}
	woken := end - ms/2
	for i := range n {
		b.AddJoined(trace.Event{Kind: trace.KindWait, Hook: b.Hook("pthread_cond_wait"), Thread: id(i), Object: cond,
			Start: start + trace.Ns((rounds-1)*n+i+2)*queueTurn, Time: woken + trace.Ns(i%100),
			Releaser: starter, Release: woken, Stack: b.Stack("clone3", "work", "rest")})
	}
	b.AddJoined(trace.Event{Kind: trace.KindRelease, Hook: b.Hook("pthread_cond_signal"), Thread: starter, Time: woken,
		Object: cond, Debt: int64(ms), Stack: b.Stack("main", "start_all")})
	for t := trace.ThreadID(1); t <= id(n-1); t++ {
		b.AddJoined(trace.Event{Kind: trace.KindThreadExit, Thread: t, Time: end, Flags: trace.FlagNoStack})
	}
	return b
}
