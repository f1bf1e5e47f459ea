package weigh

import (
	"testing"

	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/trace/tracetest"
)

func TestLateTimeIsShared(t *testing.T) {
	b := tracetest.New()
	p := b.AddProcess(trace.Process{PID: 10})
	t1, t2 := b.AddThread(trace.Thread{Proc: p}), b.AddThread(trace.Thread{Proc: p})
	cpu := func(thread trace.ThreadID, ns int64, began uint64, late bool, stack ...string) {
		e := trace.Event{Kind: trace.KindCPU, Thread: thread, Time: 10, Start: 10, Count: 1, CPU: ns, Object: began, Stack: b.Stack(stack...)}
		if late {
			e.Flags = trace.FlagLate
		}
		b.Add(e)
	}
	t3 := b.AddThread(trace.Thread{Proc: p})
	cpu(t1, 90, 0x100, true, "main", "call") // runs that began at 0x100: two samples in f, one in g
	cpu(t1, 0, 0x100, false, "main", "f")
	cpu(t2, 10, 0x100, false, "main", "f") // its own sample knows where this thread was
	cpu(t1, 0, 0x100, false, "main", "g")
	cpu(t3, 60, 0x100, true, "main", "call")  // none of its own
	cpu(t1, 50, 0x200, true, "main", "other") // nothing arrived in these
	cpu(t1, 7, 0, true, "main", "unknown")    // nobody is signalled here

	for _, c := range []struct {
		by           By
		late, shared int64
	}{{0, 57, 150}, {ByThread, 57, 150}} {
		table, err := Collect(b.Source(), Options{By: c.by})
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]int64{}
		for _, r := range table.Rows {
			at := table.Frames.Of(r.Stack)
			got[table.Frames.Frame(at[len(at)-1].ID).Name] += r.Values[CPU]
		}
		want := map[string]int64{"f": 45 + 10 + 40, "g": 45 + 20, "call": 0, "other": 50, "unknown": 7}
		for name, ns := range want {
			if got[name] != ns {
				t.Errorf("by %d: %s has %d ns, want %d", c.by, name, got[name], ns)
			}
		}
		if table.Total[CPU] != 217 || table.Doubt.LateCPU != c.late || table.Doubt.SharedCPU != c.shared {
			t.Errorf("by %d: total %d, %+v", c.by, table.Total[CPU], table.Doubt)
		}
	}
}
