package report

import (
	"strings"
	"testing"
	"time"

	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/trace/tracetest"
)

// TestCPUAccount: CPU time in no thread's clock is known and named, and more samples than clocks show are said to be that.
func TestCPUAccount(t *testing.T) {
	const ms = int64(time.Millisecond)
	for _, c := range []struct {
		name                     string
		target, clock, sampled   int64
		unrecorded               int64
		want, not                string
		outside, used, accounted int64
	}{
		{"all", 100 * ms, 100 * ms, 99 * ms, 0, "accounted for (99.0 %)", "known but not sampled", 0, 100 * ms, 99 * ms},
		{"ends of threads", 100 * ms, 60 * ms, 60 * ms, 0, "40.0 ms (40.0 %) known but not sampled", "by clocks", 40 * ms, 100 * ms, 60 * ms},
		{"not sampled inside", 100 * ms, 100 * ms, 60 * ms, 0, "accounted for (60.0 %)", "known but not sampled", 0, 100 * ms, 60 * ms},
		{"unrecorded", 100 * ms, 60 * ms, 60 * ms, 40 * ms, "not recorded: 3 processes", "known but not sampled", 0, 100 * ms, 60 * ms},
		{"no last reading", 10 * ms, 20 * ms, 70 * ms, 0, "by samples, 20.0 ms by clocks", "%)", 0, 20 * ms, 70 * ms},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := tracetest.New()
			p := b.AddProcess(trace.Process{PID: 1, Exe: "/bin/app"})
			th := b.AddThread(trace.Thread{Proc: p, TID: 1, Name: "app", Main: true, Start: b.Meta().StartNs, CPU: c.clock})
			b.Sample(th, b.Meta().StartNs+1000, c.sampled, "main", "work")
			b.Stats().TargetCPU = time.Duration(c.target)
			if c.unrecorded > 0 {
				b.Stats().Unrecorded = []trace.Unrecorded{{Program: "/bin/other", Count: 3, CPU: time.Duration(c.unrecorded)}}
			}
			src := b.Source()
			text := render(t, src, ViewSummary, Options{Width: 200})
			head := strings.Split(text, "\n\n")[0]
			if !strings.Contains(head, c.want) || strings.Contains(head, c.not) {
				t.Errorf("wanted %q and not %q:\n%s", c.want, c.not, head)
			}
			f, err := collect(src, false, false, nil)
			if err != nil {
				t.Fatal(err)
			}
			if got := f.cpuAccount(); got != (cpuAccount{c.used, c.accounted, c.outside}) {
				t.Errorf("%+v", got)
			}
		})
	}
}
