package collector

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/hbtrace/hbtrace/attach"
	"github.com/hbtrace/hbtrace/hooks"
	"github.com/hbtrace/hbtrace/trace"
	"golang.org/x/sys/unix"
)

// Threads that were there before hbtrace came. Those that sleep in one call from before the attach until after the detach never come
// through a hook; they are put into the recording as threads whose only event is that call, open at both ends.

// sleeps are the hooks that stand for system calls in which threads sleep for long.
var sleeps = map[int64]string{
	unix.SYS_READ: "read", unix.SYS_WRITE: "write", unix.SYS_PPOLL: "ppoll", unix.SYS_PSELECT6: "pselect",
	unix.SYS_EPOLL_PWAIT: "epoll_pwait", unix.SYS_NANOSLEEP: "nanosleep", unix.SYS_CLOCK_NANOSLEEP: "clock_nanosleep",
	unix.SYS_RECVFROM: "recvfrom", unix.SYS_RECVMSG: "recvmsg", unix.SYS_ACCEPT: "accept", unix.SYS_ACCEPT4: "accept4",
	unix.SYS_WAIT4: "waitpid", unix.SYS_WAITID: "waitid", unix.SYS_RT_SIGTIMEDWAIT: "sigtimedwait", unix.SYS_FUTEX: "futex_wait",
}

// sleepOf is the name of the hook that stands for a system call; "" none.
func sleepOf(call int64) string { return cmp.Or(sleeps[call], olderSleeps[call]) }

// hookOf is the hook that a thread in a system call sleeps in; false where none stands for it.
func hookOf(call int64) (hooks.Info, bool) {
	name := sleepOf(call)
	i := slices.IndexFunc(hooks.Table, func(h hooks.Info) bool { return name != "" && h.Name == name })
	if i < 0 {
		return hooks.Info{}, false
	}
	return hooks.Table[i], true
}

// describe is what the recording says of the program when it is attached to.
func (t *target) describe() trace.Attached {
	a := trace.Attached{PID: t.id.pid, At: t.at}
	for _, x := range t.Before() {
		b := trace.Before{TID: x.TID, Name: x.Name, State: string(x.State), ForNs: int64(x.For)}
		if x.State != 'R' && x.Call >= 0 {
			b.Call = cmp.Or(sleepOf(x.Call), "system call "+strconv.FormatInt(x.Call, 10))
		}
		a.Threads = append(a.Threads, b)
	}
	return a
}

// unmet completes what the recording says of the programs, and puts the threads into it that slept all the time. It is called when all that
// agents wrote has been read, and before open calls are ended at now.
func (g *targets) unmet(now trace.Ns) {
	if g == nil {
		return
	}
	s := g.s
	for i, t := range g.all {
		a := &s.meta.Attached[i]
		a.Proc, a.Left = trace.ProcID(t.uid.Load()), t.left
		var names []string
		for k := range a.Threads {
			b := &a.Threads[k]
			if b.Thread = g.seen[threadOf{a.Proc, t.Before()[k].Inner}]; b.Thread != 0 {
				continue
			}
			if x := slices.IndexFunc(t.slept, func(x attach.Thread) bool { return x.TID == b.TID }); x >= 0 && a.Proc != 0 && s.keep == nil {
				b.Thread, b.Slept = s.slept(a, &t.slept[x], now)
			}
			if b.Thread == 0 {
				names = append(names, t.Before()[k].String())
			}
		}
		const most = 8
		if n := len(names); n > most {
			names = append(names[:most], fmt.Sprintf("and %d more", n-most))
		}
		if len(names) > 0 {
			s.notes.addf("process %d: threads that made no recorded call: %s", t.id.pid, strings.Join(names, "; "))
		}
	}
}

// slept puts a thread into the recording that slept in one call all the time.
func (s *session) slept(a *trace.Attached, x *attach.Thread, now trace.Ns) (trace.ThreadID, bool) {
	hook, ok := hookOf(x.Call)
	if !ok || a.At >= now {
		return 0, false
	}
	e := trace.Event{Kind: trace.KindCall, Flags: trace.FlagOpen | trace.FlagNoStack, Hook: hook.ID, Count: 1, Start: a.At, Time: now}
	if hook.Class.Waits() {
		e.Kind = trace.KindWait
	}
	if hook.Object == hooks.ObjectAddr || hook.Object == hooks.ObjectFD {
		e.Object = x.Arg
	}
	uid := s.seg.Header().NextThreadUID.Add(1)
	if !s.asm.Slept(uint32(a.Proc), uid, uint32(x.Inner), x.Name, &e) {
		return 0, false
	}
	return trace.ThreadID(uid), true
}
