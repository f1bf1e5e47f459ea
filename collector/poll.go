// What triggers ask of the program while it runs: its state, and event loops that do not come back.
package collector

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/hbtrace/hbtrace/hooks"
	"github.com/hbtrace/hbtrace/segment"
	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/trigger"
)

const (
	stateEvery = time.Second
	stallEvery = 50 * time.Millisecond
)

// loop is a thread that has been seen waiting for events.
type loop struct {
	back  trace.Ns // when it was last known to be back
	calls uint64   // that it had made then
}

// poll looks at what triggers want to know, as often as they need it.
func (f *firing) poll(now time.Time) {
	if f.engine.Has(trigger.KindStall) && now.Sub(f.lastStall) >= stallEvery {
		f.lastStall = now
		f.stalls(now)
	}
	if d := now.Sub(f.lastState); f.engine.Has(trigger.KindState) && d >= stateEvery {
		first := f.lastState.IsZero()
		f.lastState = now
		s := f.state(now, d)
		if first {
			return // shares of CPU are differences
		}
		for _, t := range f.engine.States(s, now) {
			f.fire(t, trace.Dump{Event: fmt.Sprintf("CPU %.0f %%, %.0f threads, %.0f MB resident, longest time without a CPU %s", s.CPU, s.Threads,
				s.RSS/1e6, rounded(time.Duration(s.Runnable)))})
		}
	}
}

// polls are the calls in which an event loop waits.
var polls = func() map[trace.HookID]bool {
	m := map[trace.HookID]bool{}
	for _, h := range hooks.Table {
		switch h.Name {
		case "poll", "ppoll", "__poll_chk", "__ppoll_chk", "select", "pselect", "epoll_wait", "epoll_pwait", "epoll_pwait2", "io_uring_enter",
			"io_getevents":
			m[h.ID] = true
		}
	}
	return m
}()

// stalls looks for threads with an event loop that have not come back to it. A thread that has made calls since the last
// look may have been back in between.
func (f *firing) stalls(now time.Time) {
	at := trace.Ns(segment.Now())
	seg := f.k.s.seg
	alive := map[uint32]bool{}
	for i := range seg.HighThreads() {
		t := seg.Thread(i)
		uid := t.UID.Load()
		if uid == 0 || uid == segment.UIDClaiming || t.State.Load() == segment.StateExited {
			continue
		}
		hook, calls := trace.HookID(t.InHook.Load()), t.Calls.Load()
		l := f.loops[uid]
		if l == nil && !polls[hook] {
			continue
		}
		alive[uid] = true
		if l == nil {
			l = &loop{}
			f.loops[uid] = l
		}
		if polls[hook] || calls != l.calls || l.back == 0 || t.UID.Load() != uid {
			f.cameBack(trace.ThreadID(uid), at)
			l.back, l.calls = at, calls
			continue
		}
		name := f.k.w.Thread(trace.ThreadID(uid)).Name
		if tr := f.engine.Stall(name, time.Duration(at-l.back), now); tr != nil {
			f.fire(tr, trace.Dump{Thread: trace.ThreadID(uid), Start: l.back, End: at, Event: stallText(name, time.Duration(at-l.back), "so far")})
		}
	}
	for uid := range f.loops {
		if !alive[uid] {
			delete(f.loops, uid)
		}
	}
}

// cameBack completes the stall of a thread that a dump waits for.
func (f *firing) cameBack(thread trace.ThreadID, at trace.Ns) {
	for i := range f.pending {
		p := &f.pending[i]
		if p.t.Kind == trigger.KindStall && p.why.Thread == thread && !p.whole {
			p.whole, p.why.End = true, at
			p.why.Event = stallText(f.k.w.Thread(thread).Name, time.Duration(at-p.why.Start), "in all")
		}
	}
}

func stallText(name string, d time.Duration, how string) string {
	return fmt.Sprintf("thread %s did not come back to its event loop for %s %s", nameOr(name, "?"), rounded(d), how)
}

// state adds up what /proc says of the session's processes; d has passed since the last look.
func (f *firing) state(now time.Time, d time.Duration) (s trigger.State) {
	var cpu time.Duration
	f.k.s.mu.Lock()
	var pids []int
	for _, p := range f.k.s.live {
		if p.verified && !p.gone {
			pids = append(pids, p.id.pid)
		}
	}
	f.k.s.mu.Unlock()
	for _, pid := range pids {
		used, threads, rss, ok := processState(pid)
		if ok {
			cpu += used
			s.Threads += float64(threads)
			s.RSS += float64(rss)
		}
	}
	if cpu > f.usedCPU {
		s.CPU = 100 * float64(cpu-f.usedCPU) / float64(d)
	}
	const idle = 0.1 // percent
	if s.CPU > idle {
		f.idleSince = now
	}
	f.usedCPU = cpu
	s.Idle = float64(now.Sub(f.idleSince))
	s.Runnable, f.debt = float64(f.debt), 0
	return s
}

// processState reads a process's /proc/PID/stat.
func processState(pid int) (cpu time.Duration, threads, rss int64, ok bool) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, 0, 0, false
	}
	i := bytes.LastIndexByte(b, ')') // the name before it may hold anything
	if i < 0 {
		return 0, 0, 0, false
	}
	fields := bytes.Fields(b[i+1:]) // from field 3, the state, on
	const utime, stime, numThreads, resident = 14 - 3, 15 - 3, 20 - 3, 24 - 3
	if len(fields) <= resident {
		return 0, 0, 0, false
	}
	n := func(i int) int64 { v, _ := strconv.ParseInt(string(fields[i]), 10, 64); return v }
	const perSecond = 100 // USER_HZ
	return time.Duration(n(utime)+n(stime)) * (time.Second / perSecond), n(numThreads), n(resident) * int64(os.Getpagesize()), true
}
