package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/trace/tracetest"
	"github.com/hbtrace/hbtrace/visualize/terminal"
)

var update = flag.Bool("update", false, "rewrite the golden files")

const ms = 1_000_000

// server is a recording with something in every table: two workers that contend for a mutex that a flusher
// holds across fsync, a condition, allocations, an unsymbolised library, loss.
func server() *tracetest.Builder {
	b := tracetest.New()
	m := b.Meta()
	m.Command = []string{"./server", "--threads", "2", "--listen", "127.0.0.1:7000"}
	m.EndNs = 2000 * ms
	m.Freq = 100
	m.Hooks[79] = trace.HookInfo{Name: "fsync", Class: "CALL", Object: "FD"}
	m.Hooks[104] = trace.HookInfo{Name: "epoll_wait", Class: "CALL", Object: "FD"}
	m.Hooks[43] = trace.HookInfo{Name: "futex_wait", Class: "SYNC", Object: "ADDR"}
	p := b.AddProcess(trace.Process{PID: 4100, Exe: "/srv/bin/server", Cmdline: m.Command})
	main := b.AddThread(trace.Thread{Proc: p, TID: 4100, Name: "server", Main: true, CPU: 90 * ms, Samples: 9})
	w1 := b.AddThread(trace.Thread{Proc: p, Parent: main, TID: 4101, Name: "worker-1", Start: 5 * ms, CPU: 900 * ms})
	w2 := b.AddThread(trace.Thread{Proc: p, Parent: main, TID: 4102, Name: "worker-2", Start: 5 * ms, CPU: 850 * ms, AllocBytes: 9 << 20, AllocObjects: 40000, FreeObjects: 39000})
	fl := b.AddThread(trace.Thread{Proc: p, Parent: main, TID: 4103, Name: "flusher", Start: 6 * ms, End: 1990 * ms, CPU: 12 * ms})
	lock, cond, fsync, epoll, futex := b.Hook("pthread_mutex_lock"), b.Hook("pthread_cond_wait"), b.Hook("fsync"), b.Hook("epoll_wait"), b.Hook("futex_wait")
	const insert = "std::pair<cache::Index::iterator, bool> cache::Index<std::string, cache::Entry>::insert<cache::Entry&>(std::string const&, cache::Entry&)"
	for i := range 18 {
		at := trace.Ns(20+i*110) * ms
		for k, t := range []trace.ThreadID{w1, w2} {
			root := []string{"libc.so.6!start_thread", "worker_main"}
			st := func(f ...string) []string { return append(append([]string{}, root...), f...) }
			for j := range 4 {
				b.Sample(t, at+trace.Ns(j*10+k)*ms, 10*ms, st("handle", "parse_request|scan_header")...)
			}
			b.Sample(t, at+trace.Ns(45+k)*ms, 5*ms, st("handle", insert, "libc.so.6!memmove")...)
			b.Sample(t, at+trace.Ns(48+k)*ms, 3*ms, st("handle", "libzip.so.4!?")...)
			b.Alloc(t, at+trace.Ns(49+k)*ms, uint64(0x1000*i+k), 200, 512<<10, st("handle", insert, "libstdc++.so.6!operator new(unsigned long)")...)
			if i%3 == 0 {
				b.Free(t, at+trace.Ns(50+k)*ms, uint64(0x1000*i+k))
			}
			rel := at + 90*ms
			if k == 0 {
				b.AddJoined(trace.Event{Kind: trace.KindRelease, Hook: b.Hook("pthread_mutex_unlock"), Thread: fl, Time: rel, Object: 0x7f0010, Debt: 40 * ms,
					Stack: b.Stack("libc.so.6!start_thread", "flusher_main", "journal::Journal::flush(bool)", "libstdc++.so.6!std::mutex::unlock()")})
			}
			e := trace.Event{Kind: trace.KindWait, Hook: lock, Thread: t, Start: at + 52*ms, Time: rel + 20_000, Object: 0x7f0010,
				Owner: fl, Releaser: fl, Release: rel, Stack: b.Stack(st("handle", "journal::Journal::append(std::string const&)", "std::mutex::lock()")...)}
			if i%2 == 0 {
				e.Flags = trace.FlagCertain
			}
			b.AddJoined(e)
		}
		b.Call(fl, at+51*ms, at+89*ms, fsync, 9, 0, "libc.so.6!start_thread", "flusher_main", "journal::Journal::flush(bool)")
		b.Wait(fl, at+91*ms, at+108*ms, cond, 0x7f0100, w1, "libc.so.6!start_thread", "flusher_main", "wait_for_work")
		b.Call(main, at, at+100*ms, epoll, 4, 1, "main", "event_loop")
	}
	b.Wait(w2, 1985*ms, 1986*ms, futex, 0x7f0200, 0, "libc.so.6!start_thread", "worker_main", "take")
	b.AddJoined(trace.Event{Kind: trace.KindThreadExit, Thread: fl, Time: 1990 * ms, CPU: 12 * ms})
	b.Add(trace.Event{Kind: trace.KindLost, Thread: w1, Time: 1995 * ms, Start: 1995 * ms, Count: 7})
	b.Add(trace.Event{Kind: trace.KindUsage, Flags: trace.FlagNoStack, Thread: w2, Time: 1000 * ms, Start: 10 * ms, Count: 1, Debt: 300 * ms})
	s := b.Stats()
	*s = trace.Stats{
		Records: 5000, RecordBytes: 400_000, Lost: 7, Gaps: 1, EventBytes: 9_000,
		Samples: 2200, SampleEvents: 216, SampleBytes: 1900, NodesCap: 4_194_303, NodeBytes: 90_112, HistoryBytes: 16 << 20, HistoryNs: 1_998_000_000, Ticks: 2000, TicksMissed: 12, SignalsSent: 200,
		CollectorCPU: 21 * time.Millisecond, SamplerCPU: 9 * time.Millisecond, TargetCPU: 1900 * time.Millisecond, Complete: true,
		Notes: []string{"/srv/bin/helper is statically linked: not recorded"},
	}
	return b
}

func render(t *testing.T, src trace.Source, v View, o Options) string {
	t.Helper()
	var b bytes.Buffer
	if err := Write(&b, src, v, o); err != nil {
		t.Fatalf("%s: %v", v, err)
	}
	return b.String()
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v: run go test -update", err)
	}
	if got != string(want) {
		t.Errorf("%s differs; run go test -update and look at the diff. Got\n%s", path, got)
	}
}

func TestGolden(t *testing.T) {
	src := server().Source()
	o := Options{Files: []string{"hbtrace.hbt", "hbtrace.pb.gz", "hbtrace.perfetto-trace"}, Recording: "hbtrace.hbt"}
	for _, v := range Views {
		golden(t, string(v)+".txt", render(t, src, v, o))
		golden(t, string(v)+".json", render(t, src, v, Options{JSON: true, Top: 6}))
	}
	o.Width = 120
	golden(t, "summary-120.txt", render(t, src, ViewSummary, o))
	golden(t, "threads-120.txt", render(t, src, ViewThreads, o))
	o.Width, o.Color = 80, true
	golden(t, "summary-colour.txt", render(t, src, ViewSummary, o))
}

var sgr = regexp.MustCompile("\x1b\\[[0-9]*m")

// hostile has everything a name can do to a terminal, and events that make no sense.
func hostile() *tracetest.Builder {
	b := tracetest.New()
	b.Meta().Command = []string{"a\x1b[2Jb", "\xff\xfe", "new\nline", strings.Repeat("長", 90)}
	b.Stats().Notes = []string{strings.Repeat("n", 300), "\x1b]0;owned\x07"}
	b.Stats().Complete = false
	p := b.AddProcess(trace.Process{PID: 1, Exe: "/x/\x1b[31m", Doubt: trace.ProcDoubt{Disabled: "a\nb"}})
	t1 := b.AddThread(trace.Thread{Proc: p, TID: 1, Name: "\u202egnp.exe\r", CPU: -1})
	bad := "ns::f<\x1b[1m\n" + strings.Repeat("<", 40) + strings.Repeat("x", 300) + "\xff("
	for i := range 30 {
		b.Sample(t1, trace.Ns(i*ms), 1<<62, "main", fmt.Sprint(bad, i))
		b.Wait(t1, trace.Ns(i*ms), trace.Ns(i*ms)-5, b.Hook("pthread_mutex_lock"), uint64(i), 77, "main", bad)
		b.Call(t1, -1<<62, 1<<62, b.Hook("read"), 1, 0, bad)
		b.Alloc(t1, 0, 0, 0, 1<<63, "…5", bad)
	}
	for k := range 256 {
		b.Add(trace.Event{Kind: trace.Kind(k), Thread: trace.ThreadID(k), Stack: trace.StackID(k * 7919), Hook: trace.HookID(k), Count: 1 << 31, Same: 1 << 31, CPU: -1 << 63})
	}
	return b
}

func TestFitsTheTerminal(t *testing.T) {
	crowd := server()
	for i := range 2000 {
		th := crowd.AddThread(trace.Thread{Proc: 1, TID: 5000 + i, Name: fmt.Sprintf("pool-%d", i)})
		crowd.Sample(th, trace.Ns(i*ms), 5, fmt.Sprintf("work_%d", i))
		crowd.Wait(th, trace.Ns(i*ms), trace.Ns(i*ms)+9, crowd.Hook("pthread_mutex_lock"), uint64(i), 0, fmt.Sprintf("take_%d", i))
		crowd.Alloc(th, trace.Ns(i*ms), uint64(i), 1, 1, fmt.Sprintf("grow_%d", i))
	}
	crowd.Stats().Notes = make([]string, 50)
	for i := range crowd.Stats().Notes {
		crowd.Stats().Notes[i] = strings.Repeat("a note of some length ", 4)
	}
	for name, src := range map[string]trace.Source{
		"server": server().Source(), "hostile": hostile().Source(), "crowd": crowd.Source(), "empty": tracetest.New().Source(),
	} {
		for _, v := range Views {
			for _, width := range []int{60, 80, 113, 200} {
				for _, color := range []bool{false, true} {
					out := render(t, src, v, Options{Width: width, Color: color, Recording: "x.hbt"})
					plain := out
					if color {
						plain = sgr.ReplaceAllString(out, "")
					}
					lines := strings.Split(strings.TrimSuffix(plain, "\n"), "\n")
					if v == ViewSummary && len(lines) > summaryLines {
						t.Errorf("%s: summary of %d lines", name, len(lines))
					}
					for _, l := range lines {
						if terminal.Columns(l) > width {
							t.Errorf("%s %s: %d columns of %d: %q", name, v, terminal.Columns(l), width, l)
						}
						if strings.HasSuffix(l, " ") || terminal.Clean(l) != l || !utf8.ValidString(l) {
							t.Errorf("%s %s: not fit to print: %q", name, v, l)
						}
					}
				}
			}
			var parsed map[string]any
			if err := json.Unmarshal([]byte(render(t, src, v, Options{JSON: true})), &parsed); err != nil || parsed["view"] != string(v) {
				t.Errorf("%s %s: JSON: %v", name, v, err)
			}
		}
	}
}

func TestEmptyLists(t *testing.T) {
	src := tracetest.New().Source()
	for v, field := range map[View]string{ViewCPU: "functions", ViewBlocked: "places", ViewLocks: "edges", ViewAlloc: "sites", ViewThreads: "threads"} {
		out := render(t, src, v, Options{JSON: true})
		if !strings.Contains(out, fmt.Sprintf("%q: []", field)) {
			t.Errorf("%s: want an empty list, not null, in\n%s", field, out)
		}
	}
}

func TestParseView(t *testing.T) {
	if v, err := ParseView(""); v != ViewSummary || err != nil {
		t.Errorf("ParseView of nothing = %v, %v", v, err)
	}
	if _, err := ParseView("disk"); err == nil || !strings.Contains(err.Error(), "blocked") {
		t.Errorf("ParseView(disk): %v, want the list of views", err)
	}
	if err := Write(&bytes.Buffer{}, tracetest.New().Source(), "disk", Options{}); err == nil {
		t.Error("Write of an unknown view succeeded")
	}
}

type failing struct{ trace.Source }

var errDisk = errors.New("checksum of section 3")

func (x failing) EventBatches(f func([]trace.Event, func()) error) error {
	return trace.InBatches(x.each, f)
}

func (failing) each(func(*trace.Event) error) error { return errDisk }

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errDisk }

func TestErrors(t *testing.T) {
	if err := Summary(&bytes.Buffer{}, failing{server().Source()}, Options{}); !errors.Is(err, errDisk) {
		t.Errorf("source fails: %v", err)
	}
	if err := Summary(full{}, server().Source(), Options{}); !errors.Is(err, errDisk) {
		t.Errorf("writer fails: %v", err)
	}
}

// A comparison in which no wait and no call differs has an empty column next to names that are wider than the terminal.
func TestDiffOfLongNames(t *testing.T) {
	record := func(ns int64) trace.Source {
		b := tracetest.New()
		th := b.AddThread(trace.Thread{Proc: b.AddProcess(trace.Process{PID: 1}), TID: 1})
		b.Sample(th, 5*ms, ns, "main", strings.Repeat("a_long_name_", 20))
		return b.Source()
	}
	for _, width := range []int{60, 80, 200} {
		var out bytes.Buffer
		if err := Diff(&out, record(ms), record(3*ms), Options{Width: width}); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(out.String(), "+2.00 ms  1.00 ms  3.00 ms  a_long_") {
			t.Errorf("%d columns:\n%s", width, out.String())
		}
	}
}

// TestStoppedEarly: where the recording ended before the program did, a thread's last sample may be newer than its CPU clock's last reading.
func TestStoppedEarly(t *testing.T) {
	b := tracetest.New()
	b.Stats().TargetCPU = 0
	p := b.AddProcess(trace.Process{PID: 1})
	for i, cpu := range []int64{1000 * ms, 940 * ms} {
		th := b.AddThread(trace.Thread{Proc: p, TID: i + 1, Name: "t", CPU: cpu})
		b.Sample(th, 1000*ms, 1000*ms, "main")
	}
	var out bytes.Buffer
	if err := Write(&out, b.Source(), ViewCPU, Options{}); err != nil {
		t.Fatal(err)
	}
	if want := "CPU 2.00 s used, 2.00 s accounted for (100 %)"; !strings.Contains(out.String(), want) {
		t.Errorf("no %q in\n%s", want, out.String())
	}
}
