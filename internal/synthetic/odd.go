package synthetic

import (
	"fmt"
	"strings"

	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/trace/tracetest"
)

// Hostile has names of markup, quotes, control characters and invalid UTF-8, times that wrap, and events that make no sense.
func Hostile() *tracetest.Builder {
	b := tracetest.New()
	b.Meta().Command = []string{"</title><script>alert(1)</script>", "\xff\xfe\x00\x1b[2J", "a\nb", "\u202e\ufffe", strings.Repeat("長&", 9000)}
	b.Meta().Host = "<&>\x01"
	b.Meta().Hooks[99] = trace.HookInfo{Name: "<hook>\x02&", Class: "CALL"}
	p := b.AddProcess(trace.Process{PID: -1, Exe: "/x/<b>\xf0\x28", Cmdline: []string{"", "\"'><x>"}})
	q := b.AddProcess(trace.Process{PID: 2})
	b.AddModule(trace.Module{Path: "/lib/<mod>&\xff.so"})
	for i := range 5 {
		t := b.AddThread(trace.Thread{Proc: []trace.ProcID{p, q, 99}[i%3], TID: i, Name: "<t>&\"'\x00\xff" + strings.Repeat("n", i*200), Start: trace.Ns(i*50) - 60, End: trace.Ns(200 - i*90)})
		bad := "f<&>\"'\x07\xc3\n]]>" + strings.Repeat("::g<(", i*400)
		b.Sample(t, 10, 1<<62, "<mod>&\xff.so!"+bad, "main", "…7")
		b.Sample(t, 20, -5, bad)
		b.Sample(t, 15, 3)
		b.Wait(t, 90, 40, b.Hook("pthread_mutex_lock"), 1<<63, 2, bad)
		b.Wait(t, 30, 60, b.Hook("pthread_mutex_lock"), 1, trace.ThreadID(i), bad)
		b.Call(t, -1<<63, 1<<62, 99, 1, 0, bad)
		b.Alloc(t, 50, 0, 0, 1<<63, bad)
	}
	for k := range 256 {
		b.Add(trace.Event{Kind: trace.Kind(k), Thread: trace.ThreadID(k % 9), Time: trace.Ns(k) << 55, Start: 1<<63 - 1, Stack: trace.StackID(k * 7919), Hook: trace.HookID(k), Count: 1 << 31, Same: 1 << 31, CPU: 1<<63 - 1, Releaser: trace.ThreadID(k % 5), Release: -1})
	}
	return b
}

// Crowd is n threads of one process, each with a sample, a wait for a lock that the next one has, and a call.
func Crowd(n int) *tracetest.Builder {
	b := tracetest.New()
	p := b.AddProcess(trace.Process{PID: 1, Exe: "/bin/crowd"})
	b.Meta().EndNs = b.Meta().StartNs + trace.Ns(n+20)*ms
	start := b.Meta().StartNs
	for i := range n {
		t := b.AddThread(trace.Thread{Proc: p, TID: 100 + i, Name: fmt.Sprintf("pool-%d", i), Start: start, CPU: int64(ms)})
		at := start + trace.Ns(i+2)*ms
		b.Sample(t, at, int64(ms), "main", "work", fmt.Sprintf("leaf_%d", i%97))
		b.Wait(t, at+ms, at+4*ms, b.Hook("pthread_mutex_lock"), 7, trace.ThreadID((i+1)%n+1), "main", "take")
		b.Call(t, at+5*ms, at+9*ms, b.Hook("read"), 3, 1, "main", "load")
	}
	return b
}
