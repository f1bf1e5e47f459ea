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
	cpu(t1, 90, 0x100, true, "main", "call") // runs that began at 0x100: two samples in f, one in g
	cpu(t1, 0, 0x100, false, "main", "f")
	cpu(t2, 10, 0x100, false, "main", "f")
	cpu(t1, 0, 0x100, false, "main", "g")
	cpu(t1, 50, 0x200, true, "main", "other") // nothing arrived in these
	cpu(t1, 7, 0, true, "main", "unknown")    // nobody is signalled here

	for _, c := range []struct {
		by           By
		late, shared int64
	}{{0, 57, 90}, {ByThread, 57, 90}} {
		table, err := Collect(b.Source(), Options{By: c.by})
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]int64{}
		for _, r := range table.Rows {
			at := table.Frames.Of(r.Stack)
			got[table.Frames.Frame(at[len(at)-1].ID).Name] += r.Values[CPU]
		}
		want := map[string]int64{"f": 66, "g": 34, "call": 0, "other": 50, "unknown": 7}
		for name, ns := range want {
			if got[name] != ns {
				t.Errorf("by %d: %s has %d ns, want %d", c.by, name, got[name], ns)
			}
		}
		if table.Total[CPU] != 157 || table.Doubt.LateCPU != c.late || table.Doubt.SharedCPU != c.shared {
			t.Errorf("by %d: total %d, %+v", c.by, table.Total[CPU], table.Doubt)
		}
	}
}

// Signals that found their thread preempted decide where nothing better is known, and hardly matter beside those in time.
func TestPreemptedSamplesCountForLittle(t *testing.T) {
	b := tracetest.New()
	p := b.AddProcess(trace.Process{PID: 10})
	thread := b.AddThread(trace.Thread{Proc: p})
	cpu := func(ns int64, began uint64, flags trace.Flags, name string) {
		b.Add(trace.Event{Kind: trace.KindCPU, Thread: thread, Time: 10, Start: 10, Count: 1, CPU: ns, Object: began, Flags: flags, Stack: b.Stack("main", name)})
	}
	const stale = trace.FlagLate | trace.FlagPreempted
	cpu(400, 0x100, trace.FlagLate, "call")
	for range 3 {
		cpu(0, 0x100, stale, "work")
	}
	cpu(0, 0x100, stale, "syscall")
	cpu(1000, 0x200, trace.FlagLate, "call")
	for range 3 {
		cpu(0, 0x200, 0, "other")
	}
	cpu(0, 0x200, stale, "kernel")
	cpu(1160, 0x300, trace.FlagLate, "call") // together never for more than 16 in time, however many
	for range 100 {
		cpu(0, 0x300, 0, "much")
	}
	for range 10_000 {
		cpu(0, 0x300, stale, "many")
	}

	table, err := Collect(b.Source(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int64{}
	for _, r := range table.Rows {
		at := table.Frames.Of(r.Stack)
		got[table.Frames.Frame(at[len(at)-1].ID).Name] += r.Values[CPU]
	}
	for name, ns := range map[string]int64{"work": 300, "syscall": 100, "other": 960, "kernel": 40, "much": 1000, "many": 160, "call": 0} {
		if got[name] < ns-1 || got[name] > ns+1 { // parts are rounded down, the last has the rest
			t.Errorf("%s has %d ns, want %d", name, got[name], ns)
		}
	}
}
