package agree

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/hbtrace/hbtrace/internal/synthetic"
	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/trace/tracetest"
	"github.com/hbtrace/hbtrace/visualize/perfetto"
)

const ms = 1_000_000

// crowded is a thread with more CPU time than there is room for between its waits, and samples of calls.
func crowded() trace.Source {
	b := tracetest.New()
	p := b.AddProcess(trace.Process{PID: 1})
	th := b.AddThread(trace.Thread{Proc: p, TID: 1, Name: "main"})
	b.Sample(th, 1*ms, 1*ms, "main", "f")
	b.Sample(th, 2*ms, 3*ms, "main", "g")
	b.Sample(th, 4*ms, 1*ms, "main", "f")
	b.Call(th, 5*ms, 9*ms, b.Hook("read"), 3, 1, "main", "load")
	b.Call(th, 7*ms, 10*ms, b.Hook("read"), 3, 1, "main", "load")
	b.Add(
		trace.Event{
			Kind:   trace.KindCPU,
			Thread: th,
			Time:   11 * ms,
			CPU:    5 * ms,
			Hook:   b.Hook("read"),
			Stack:  b.Stack("main", "load"),
		},
	)
	b.Add(
		trace.Event{
			Kind:    trace.KindOff,
			Thread:  th,
			Start:   12 * ms,
			Time:    14 * ms,
			Result:  trace.OffInterruptible,
			Release: 13 * ms,
		},
	)
	b.Sample(th, 16*ms, 2*ms, "main")
	second := b.AddThread(trace.Thread{Proc: p, TID: 2, Name: "second"})
	b.Wait(second, 3*ms, 8*ms, b.Hook("pthread_mutex_lock"), 0x10, th, "work")
	b.Add(trace.Event{Kind: trace.KindThreadExit, Thread: second, Time: 15 * ms, CPU: 4 * ms})
	return b.Source()
}

func TestOutputsAgree(t *testing.T) {
	for name, src := range map[string]trace.Source{
		"demo": synthetic.Demo(), "synthetic": synthetic.New(60_000, 7), "crowded": crowded(),
	} {
		t.Run(name, func(t *testing.T) {
			if err := Source(src); err != nil {
				t.Error(err)
			}
			if name == "demo" {
				return // package perfetto's own tests ask for its states
			}
			t.Run("perfetto", func(t *testing.T) {
				var out bytes.Buffer
				if err := perfetto.Write(&out, src, perfetto.Options{}); err != nil {
					t.Fatal(err)
				}
				path := filepath.Join(t.TempDir(), "trace")
				if err := os.WriteFile(path, out.Bytes(), 0o600); err != nil {
					t.Fatal(err)
				}
				Perfetto(t, path, src)
			})
		})
	}
}
