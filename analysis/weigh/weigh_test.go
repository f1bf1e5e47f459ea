package weigh

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/trace/tracetest"
)

// text shows a row as "main;f value=n …", with its labels where there are any.
func text(t *Table, src trace.Source) []string {
	var out []string
	for i := range t.Rows {
		r := &t.Rows[i]
		var fs []string
		for _, f := range t.Stack(src, nil, &r.Key) {
			fs = append(fs, f.Name)
		}
		s := strings.Join(fs, ";")
		if r.Kind != "" {
			s += fmt.Sprintf(" [%s t%d p%d %#x]", r.Kind, r.Thread, r.Proc, r.Object)
		}
		for _, v := range t.Values {
			if r.Values[v] != 0 {
				s += fmt.Sprintf(" %v=%d", v, r.Values[v])
			}
		}
		out = append(out, s)
	}
	return out
}

func build() (*tracetest.Builder, trace.ThreadID, trace.ThreadID) {
	b := tracetest.New()
	p := b.AddProcess(trace.Process{PID: 100, Exe: "/usr/bin/app"})
	t1 := b.AddThread(trace.Thread{Proc: p, TID: 100, Name: "main", Main: true, CPU: 40})
	t2 := b.AddThread(trace.Thread{Proc: p, TID: 101, Name: "worker", CPU: 2})
	return b, t1, t2
}

func TestCollect(t *testing.T) {
	tests := []struct {
		name string
		o    Options
		make func(b *tracetest.Builder, t1, t2 trace.ThreadID)
		want []string
	}{
		{
			name: "cpu comes from periodic samples and the rest at exit alone",
			make: func(b *tracetest.Builder, t1, _ trace.ThreadID) {
				b.Sample(t1, 10, 7, "main", "f")
				b.Sample(t1, 20, 8, "main", "f")
				b.AddJoined(trace.Event{Kind: trace.KindGap, Thread: t1, Time: 30, Stack: b.Stack("main", "g")})
				b.AddJoined(trace.Event{Kind: trace.KindSync, Thread: t1, Time: 40, Hook: 1, Stack: b.Stack("main", "g")})
				b.AddJoined(trace.Event{Kind: trace.KindEnter, Thread: t1, Time: 40, Hook: 60, Stack: b.Stack("main", "g")})
				b.AddJoined(trace.Event{Kind: trace.KindThreadExit, Thread: t1, Time: 50, CPU: 3})
			},
			want: []string{"main;f samples=2 cpu=15 wall=15", "main;g cpu=3 wall=3"},
		},
		{
			name: "merged samples count as many",
			make: func(b *tracetest.Builder, t1, _ trace.ThreadID) {
				b.AddJoined(trace.Event{Kind: trace.KindCPU, Thread: t1, Start: 10, Time: 50, Count: 5, CPU: 33, Stack: b.Stack("main")})
			},
			want: []string{"main samples=5 cpu=33 wall=33"},
		},
		{
			name: "waits, calls and which of them contend",
			o:    Options{By: ByThread | ByObject | ByKind},
			make: func(b *tracetest.Builder, t1, t2 trace.ThreadID) {
				b.Wait(t1, 10, 30, b.Hook("pthread_mutex_lock"), 0x70, t2, "main", "f")
				b.Wait(t1, 40, 45, b.Hook("pthread_mutex_lock"), 0x70, t2, "main", "f")
				b.Wait(t1, 50, 51, b.Hook("pthread_mutex_lock"), 0x90, t2, "main", "f")
				b.Wait(t1, 60, 70, b.Hook("pthread_cond_wait"), 0x80, t2, "main", "f")
				b.Call(t2, 10, 110, b.Hook("read"), 3, 12, "start", "g")
			},
			want: []string{
				"main;f;pthread_mutex_lock [wait t1 p1 0x70] wall=25 blocked=25 contentions=2 delay=25",
				"main;f;pthread_mutex_lock [wait t1 p1 0x90] wall=1 blocked=1 contentions=1 delay=1",
				"main;f;pthread_cond_wait [wait t1 p1 0x80] wall=10 blocked=10",
				"start;g;read [call t2 p1 0x0] wall=100 blocked=100",
			},
		},
		{
			name: "no second frame where the leaf is the hooked function",
			make: func(b *tracetest.Builder, t1, _ trace.ThreadID) {
				b.Call(t1, 10, 110, b.Hook("read"), 3, 12, "main", "libc.so.6!read")
			},
			want: []string{"main;read wall=100 blocked=100"},
		},
		{
			name: "allocations stand for Weight/Size objects, and frees find them",
			o:    Options{Values: []Value{AllocObjects, AllocSpace, InuseObjects, InuseSpace}},
			make: func(b *tracetest.Builder, t1, t2 trace.ThreadID) {
				b.Alloc(t1, 10, 0xa0, 100, 1000, "main", "f")
				b.Alloc(t1, 20, 0xb0, 10, 1000, "main", "g")
				b.Free(t2, 30, 0xa0)
				b.Alloc(t1, 40, 0xa0, 64, 640, "main", "h") // the address again
				b.Sample(t1, 50, 5, "main")                 // no allocation: no row
			},
			want: []string{
				"main;f;malloc alloc_objects=10 alloc_space=1000",
				"main;g;malloc alloc_objects=100 alloc_space=1000 inuse_objects=100 inuse_space=1000",
				"main;h;malloc alloc_objects=10 alloc_space=640 inuse_objects=10 inuse_space=640",
			},
		},
		{
			name: "a free that is stored before its allocation, and one before the next allocation there",
			o:    Options{Values: []Value{InuseSpace}},
			make: func(b *tracetest.Builder, t1, t2 trace.ThreadID) {
				b.Free(t2, 30, 0xa0)
				b.Alloc(t1, 10, 0xa0, 1, 1, "main", "freed at 30")
				b.Alloc(t1, 40, 0xa0, 2, 2, "main", "its free is missing")
				b.Alloc(t1, 60, 0xa0, 4, 4, "main", "lives")
				b.Free(t2, 50, 0xa0) // the missing one, late
			},
			want: []string{"main;lives;malloc inuse_space=4"},
		},
		{
			name: "no stack, and a tail with nothing but a start routine",
			o:    Options{By: ByKind},
			make: func(b *tracetest.Builder, t1, t2 trace.ThreadID) {
				b.Stack("main")
				b.Add(trace.Event{Kind: trace.KindCPU, Thread: t1, Time: 10, Start: 10, Count: 1, CPU: 5, Flags: trace.FlagNoStack})
				b.Add(trace.Event{Kind: trace.KindCPU, Thread: t1, Time: 10, Start: 10, Count: 1, CPU: 5, Stack: 12345})
				t3 := b.AddThread(trace.Thread{Proc: 1, TID: 103, StartRoutine: trace.Addr{Module: 1, Off: 0x77}})
				b.Add(trace.Event{Kind: trace.KindThreadExit, Thread: t3, Time: 20, CPU: 9})
				b.Add(trace.Event{Kind: trace.KindThreadExit, Thread: t2, Time: 20, CPU: 1})
			},
			want: []string{
				"[no stack] [cpu t0 p0 0x0] samples=2 cpu=10 wall=10",
				"thread start app+0x77 [tail t0 p0 0x0] cpu=9 wall=9", "[no stack] [tail t0 p0 0x0] cpu=1 wall=1",
			},
		},
		{
			name: "a tail at the start routine where a node names it",
			make: func(b *tracetest.Builder, _, _ trace.ThreadID) {
				id := b.Stack("worker=exact")
				t3 := b.AddThread(trace.Thread{Proc: 1, TID: 103, StartRoutine: b.Source().Node(id).Addr})
				b.Sample(t3, 10, 5, "elsewhere")
				b.Add(trace.Event{Kind: trace.KindThreadExit, Thread: t3, Time: 20, CPU: 9})
			},
			want: []string{"elsewhere samples=1 cpu=5 wall=5", "worker cpu=9 wall=9"},
		},
		{
			name: "inlined frames and addresses without a symbol",
			make: func(b *tracetest.Builder, t1, _ trace.ThreadID) {
				b.Sample(t1, 10, 5, "main", "f|g", "libx.so!?")
			},
			want: []string{"main;f;g;libx.so+0x100f samples=1 cpu=5 wall=5"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b, t1, t2 := build()
			tt.make(b, t1, t2)
			src := b.Source()
			got, err := Collect(src, tt.o)
			if err != nil {
				t.Fatal(err)
			}
			if rows := text(got, src); !slices.Equal(rows, tt.want) {
				t.Errorf("rows\n%s\nwant\n%s", strings.Join(rows, "\n"), strings.Join(tt.want, "\n"))
			}
		})
	}
}

func TestDoubtAndTotals(t *testing.T) {
	b, t1, t2 := build()
	b.Sample(t1, 10, 20, "main", "libx.so!?")
	b.AddJoined(trace.Event{Kind: trace.KindCPU, Thread: t1, Start: 20, Time: 30, Count: 3, CPU: 15, Flags: trace.FlagStackCut | trace.FlagStackGuessed | trace.FlagLate, Stack: b.Stack("f")})
	b.Add(trace.Event{Kind: trace.KindLost, Thread: t1, Time: 31, Count: 17})
	b.Add(trace.Event{Kind: trace.KindThreadExit, Thread: t2, Time: 40, CPU: 2})
	b.Free(t1, 41, 0x1)
	got, err := Collect(b.Source(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	want := Doubt{Stacks: 4, Cut: 3, Guessed: 3, Unsymbolised: 1, Lost: 17, TailCPU: 2, LateCPU: 15, ThreadCPU: 42, FreesUnmet: 1}
	if got.Doubt != want {
		t.Errorf("doubt %+v, want %+v", got.Doubt, want)
	}
	if got.Total[CPU] != 37 || got.Total[Samples] != 4 {
		t.Errorf("totals %v, want 37 ns of CPU in 4 samples", got.Total)
	}
}

func TestRecordedValues(t *testing.T) {
	b, t1, _ := build()
	b.Meta().Features = []string{"lock"}
	got, err := Collect(b.Source(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if want := []Value{Wall, Blocked, Contentions, Delay}; !slices.Equal(got.Values, want) {
		t.Errorf("values %v, want %v", got.Values, want)
	}
	b.Sample(t1, 10, 5, "main")
	got, _ = Collect(b.Source(), Options{Values: []Value{CPU, AllocSpace}})
	if want := []Value{CPU}; !slices.Equal(got.Values, want) {
		t.Errorf("values %v, want %v", got.Values, want)
	}
}

func TestParseValue(t *testing.T) {
	for v := range NumValues {
		if got, err := ParseValue(v.String()); err != nil || got != v {
			t.Errorf("ParseValue(%q) = %v, %v", v.String(), got, err)
		}
	}
	if _, err := ParseValue("heat"); err == nil || !strings.Contains(err.Error(), "alloc_space") {
		t.Errorf("ParseValue of nonsense: %v, want the list of values", err)
	}
}
