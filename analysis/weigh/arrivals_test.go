package weigh

import (
	"math"
	"testing"

	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/trace/tracetest"
)

// arrivalTest is a thread whose time is all noticed late, in runs of one origin.
type arrivalTest struct {
	*tracetest.Builder
	thread trace.ThreadID
}

func newArrivalTest(ns int64) arrivalTest {
	b := tracetest.New()
	a := arrivalTest{b, b.AddThread(trace.Thread{Proc: b.AddProcess(trace.Process{PID: 10})})}
	a.add(1, ns, trace.FlagLate, "call")
	return a
}

func (a arrivalTest) add(n int, ns int64, flags trace.Flags, name string) {
	for range n {
		a.Add(trace.Event{Kind: trace.KindCPU, Thread: a.thread, Time: 10, Start: 10, Count: 1, CPU: ns, Object: 0x100, Flags: flags, Stack: a.Stack("main", name)})
	}
}

// shares are percentages by leaf.
func (a arrivalTest) shares(t *testing.T) map[string]float64 {
	t.Helper()
	table, err := Collect(a.Source(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, r := range table.Rows {
		at := table.Frames.Of(r.Stack)
		got[table.Frames.Frame(at[len(at)-1].ID).Name] += 100 * float64(r.Values[CPU]) / float64(table.Total[CPU])
	}
	return got
}

const (
	early     = trace.Flags(0)
	stale     = trace.FlagLate | trace.FlagPreempted
	syscall   = trace.FlagSyscallEnd
	sameCPU   = trace.FlagSameCPU
	allTimeNs = 1_000_000
)

func TestArrivals(t *testing.T) {
	type samples struct {
		n     int
		flags trace.Flags
		name  string
	}
	for _, c := range []struct {
		name string
		in   []samples
		want map[string]float64 // within 0.6
	}{
		{"in time", []samples{{3, early, "a"}, {1, sameCPU, "b"}}, map[string]float64{"a": 75, "b": 25, "call": 0}},
		{"preempted alone", []samples{{3, stale, "a"}, {1, stale, "b"}}, map[string]float64{"a": 75, "b": 25, "call": 0}},
		{"preempted that agree count fully", []samples{{48, early, "a"}, {52, early, "b"}, {500, stale, "a"}, {500, stale, "b"}}, map[string]float64{"a": 49.8, "b": 50.2}},
		{"preempted that differ hardly count", []samples{{500, early, "a"}, {500, early, "b"}, {2000, stale, "a"}, {8000, stale, "b"}}, map[string]float64{"a": 50, "b": 50}},
		{"one that met a place of its own does not matter", []samples{{1000, early, "a"}, {1000, early, "b"}, {1, stale, "c"}}, map[string]float64{"a": 50, "b": 50, "c": 0}},
		{"ends of system calls, as the thread's own processor says", []samples{{700, early, "a"}, {300, syscall, "clock"}, {490, sameCPU, "a"}, {10, syscall | sameCPU, "clock"}},
			map[string]float64{"a": 97.6, "clock": 2.4}},
		{"from other processors only", []samples{{700, early, "a"}, {300, syscall, "clock"}}, map[string]float64{"a": 82.4, "clock": 17.6}},
		{"from the thread's own only", []samples{{70, sameCPU, "a"}, {30, syscall | sameCPU, "clock"}}, map[string]float64{"a": 70, "clock": 30}},
		{"of two that err upwards the less", []samples{{90, early, "a"}, {10, syscall, "clock"}, {6, sameCPU, "a"}, {14, syscall | sameCPU, "clock"}}, map[string]float64{"a": 90, "clock": 10}},
		{"nothing else than ends", []samples{{3, syscall, "open"}, {1, syscall, "close"}}, map[string]float64{"open": 75, "close": 25, "call": 0}},
		{"preempted at ends say nothing", []samples{{90, early, "a"}, {10, early, "b"}, {500, stale | syscall, "clock"}}, map[string]float64{"a": 90, "b": 10, "clock": 0.5}},
		{"unless there is nothing else", []samples{{5, stale | syscall, "clock"}}, map[string]float64{"clock": 100, "call": 0}},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := newArrivalTest(allTimeNs)
			for _, s := range c.in {
				a.add(s.n, 0, s.flags, s.name)
			}
			got, sum := a.shares(t), 0.0
			for _, percent := range got {
				sum += percent
			}
			if math.Abs(sum-100) > 1e-9 {
				t.Errorf("shares add up to %v %%", sum)
			}
			for name, percent := range c.want {
				if math.Abs(got[name]-percent) > 0.6 {
					t.Errorf("%s has %.2f %%, want %.2f", name, got[name], percent)
				}
			}
		})
	}
}

// TestArrivalsCountForTheirWeight: one at a place that few signals reach stands for those that did not.
func TestArrivalsCountForTheirWeight(t *testing.T) {
	a := newArrivalTest(allTimeNs)
	a.add(30, 0, early, "later")
	for range 5 {
		a.Add(trace.Event{Kind: trace.KindCPU, Thread: a.thread, Time: 10, Start: 10, Count: 2, Object: 0x100, Weight: 2 * 256, Stack: a.Stack("main", "first")})
	}
	if got := a.shares(t); math.Abs(got["first"]-40) > 1e-9 {
		t.Errorf("%v, want 40 %% in first", got)
	}
}

// TestTimeInSystemCallsIsTheThreads: how much of it there is all threads say together; from where each makes the call it says itself, by whatever its
// signals met: of threads that wait for a processor few meet it in time.
func TestTimeInSystemCallsIsTheThreads(t *testing.T) {
	a := newArrivalTest(allTimeNs)
	met := func(n int, flags trace.Flags, caller, leaf string) {
		for range n {
			a.Add(trace.Event{Kind: trace.KindCPU, Thread: a.thread, Time: 10, Start: 10, Count: 1, Object: 0x100, Flags: flags, Stack: a.Stack("main", caller, leaf)})
		}
	}
	next := func() {
		a.thread = a.AddThread(trace.Thread{Proc: 1})
		a.add(1, allTimeNs, trace.FlagLate, "call")
	}
	met(60, sameCPU, "common", "work")
	met(10, syscall|sameCPU, "common", "clock")
	next()
	met(10, sameCPU, "rare", "work")
	met(20, syscall|sameCPU, "rare", "clock")
	next() // met once, at the end of a call: that it does nothing else is not said
	met(1, stale|syscall, "short", "clock")
	table, err := Collect(a.Source(), Options{By: ByThread})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, r := range table.Rows {
		name := func(id trace.StackID) string { return table.Frames.Frame(table.Frames.Of(id)[0].ID).Name }
		got[name(table.Frames.Parent(r.Stack))+" "+name(r.Stack)] += 100 * float64(r.Values[CPU]) / allTimeNs
	}
	// Of 100 samples 30 met the end of the clock's system call. Where the short thread works the others say.
	for name, want := range map[string]float64{"common clock": 30, "rare clock": 30, "short clock": 30, "common work": 70 + 70*6.0/7, "rare work": 70 + 70/7.0} {
		if math.Abs(got[name]-want) > 0.3 {
			t.Errorf("%s has %.2f %% of a thread's time, want %.2f", name, got[name], want)
		}
	}
}

// A difference that is spread over many instructions of a function is one of the function.
func TestDifferenceIsSeenAtCallers(t *testing.T) {
	a := newArrivalTest(allTimeNs)
	add := func(n int, flags trace.Flags, function string) {
		for i := range n {
			leaf := string(rune('A' + i%50))
			a.Add(trace.Event{Kind: trace.KindCPU, Thread: a.thread, Time: 10, Start: 10, Count: 1, Object: 0x100, Flags: flags, Stack: a.Stack("main", function, function+leaf)})
		}
	}
	add(500, early, "f")
	add(500, early, "g")
	add(200, stale, "f")
	add(800, stale, "g")
	var inF float64
	for name, percent := range a.shares(t) {
		if name[0] == 'f' {
			inF += percent
		}
	}
	if inF < 48.5 || inF > 50.5 { // 35 if all counted alike
		t.Errorf("f has %.2f %%, want about 50", inF)
	}
}
