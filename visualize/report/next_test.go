package report

import (
	"slices"
	"strings"
	"testing"

	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/trace/tracetest"
)

// TestIdleThreadsAreNoCause: of a program that computes while its main thread polls a condition, the summary leads to the CPU time, and
// waits that ended by their time-outs come after those that a thread ended.
func TestIdleThreadsAreNoCause(t *testing.T) {
	b := tracetest.New()
	m := b.Meta()
	m.EndNs, m.Command = m.StartNs+1000*ms, []string{"./pack"}
	p := b.AddProcess(trace.Process{PID: 1, Exe: "/bin/pack"})
	main, worker := b.AddThread(trace.Thread{Proc: p, TID: 1, Name: "pack", Main: true}), b.AddThread(trace.Thread{Proc: p, TID: 2, Name: "worker"})
	at := func(n int) trace.Ns { return m.StartNs + trace.Ns(n)*ms }
	for i := range 9 { // idle
		b.AddJoined(trace.Event{Kind: trace.KindWait, Hook: b.Hook("pthread_cond_wait"), Thread: main, Start: at(i * 100), Time: at(i*100 + 90), Object: 0x10,
			Flags: trace.FlagTimedOut, Result: 110, Stack: b.Stack("main", "poll_progress")})
	}
	b.AddJoined(trace.Event{Kind: trace.KindWait, Hook: b.Hook("pthread_cond_wait"), Thread: main, Start: at(900), Time: at(950), Object: 0x20,
		Releaser: worker, Release: at(949), Flags: trace.FlagCertain, Stack: b.Stack("main", "wait_for_block")})
	for i := range 200 {
		b.Sample(worker, at(i)+ms, ms, "work", "compress")
	}
	lines := strings.Split(strings.TrimSpace(render(t, b.Source(), ViewSummary, Options{Recording: "x.hbt"})), "\n")
	line := func(part string) int {
		return slices.IndexFunc(lines, func(l string) bool { return strings.Contains(l, part) })
	}
	ended, idle := line("wait_for_block"), line("poll_progress")
	if ended < 0 || idle < 0 || ended > idle {
		t.Errorf("the wait that a thread ended is in line %d, the idle one in %d of\n%s", ended, idle, strings.Join(lines, "\n"))
	}
	if last := lines[len(lines)-1]; !strings.HasSuffix(last, "hbtrace report --tree x.hbt") {
		t.Errorf("the last line is %q", last)
	}
}

// TestNotesTogether: what is the same of several modules is said once.
func TestNotesTogether(t *testing.T) {
	const why = "no symbols: build it without stripping, or install its debug package"
	got := together([]string{"module /bin/a: " + why, "the disk was full", "module /bin/b: " + why, "module /lib/c.so: another reason"})
	want := []string{"modules a, b: no symbols: build them without stripping, or install their debug packages", "the disk was full", "module /lib/c.so: another reason"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	var many []string
	for _, m := range strings.Fields("a b c d e f") {
		many = append(many, "module /lib/"+m+": "+why)
	}
	if got := together(many); len(got) != 1 || !strings.HasPrefix(got[0], "modules a, b, c, d and 2 more: no symbols") {
		t.Errorf("%q", got)
	}
}
