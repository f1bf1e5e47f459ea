package perfetto

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hbtrace/hbtrace/analysis/frames"
	"github.com/hbtrace/hbtrace/analysis/spans"
	"github.com/hbtrace/hbtrace/internal/perfettotest"
	"github.com/hbtrace/hbtrace/internal/synthetic"
	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/trace/tracetest"
)

var update = flag.Bool("update", false, "rewrite the goldens")

func encode(t testing.TB, src trace.Source, o Options) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := Write(&b, src, o); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// file writes the trace of src where the trace processor can read it.
func file(t testing.TB, src trace.Source, o Options) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "test.perfetto-trace")
	if err := os.WriteFile(path, encode(t, src, o), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestGolden(t *testing.T) {
	for _, tt := range []struct {
		name string
		o    Options
	}{
		{"demo", Options{}}, {"demo-raw", Options{Raw: true}}, {"demo-plain", Options{NoCounters: true, NoSupport: true}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			data := encode(t, synthetic.Demo(), tt.o)
			if !bytes.Equal(data, encode(t, synthetic.Demo(), tt.o)) {
				t.Error("equal recordings give different traces")
			}
			im, err := load(data)
			if err != nil {
				t.Fatal(err)
			}
			if im.boot != synthetic.DemoBootOffset {
				t.Errorf("boot time offset %d", im.boot)
			}
			got := im.text(uint64(synthetic.DemoStart))
			// Deflated or not, the trace says the same.
			path := filepath.Join("testdata", strings.TrimSuffix(tt.name, "-raw")+".txt")
			if *update {
				if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("%s differs (run with -update and look at the difference):\n%s", path, got)
			}
			if tt.name != "demo" { // which TestDemoInTraceProcessor checks
				t.Run("trace processor", func(t *testing.T) { perfettotest.Check(t, file(t, synthetic.Demo(), tt.o)) })
			}
		})
	}
}

// TestObjectNames: a lock that is a variable of the program has its name next to its address, where it is waited for and
// where it is released.
func TestObjectNames(t *testing.T) {
	b := tracetest.New()
	p := b.AddProcess(trace.Process{PID: 1})
	waiter, owner := b.AddThread(trace.Thread{Proc: p, TID: 1}), b.AddThread(trace.Thread{Proc: p, TID: 2})
	b.AddModule(trace.Module{
		Kind: trace.ModuleELF, Path: "/opt/app", Lo: 0x7000, Hi: 0x9000, Bias: 0x7000,
		Variables: map[uint64]trace.Variable{0x100: {Name: "cache_lock"}},
	})
	b.Wait(waiter, 1000, 9000, b.Hook("pthread_mutex_lock"), 0x7100, owner, "main")
	b.Wait(waiter, 10000, 19000, b.Hook("pthread_mutex_lock"), 0x7180, owner, "main")
	im, err := load(encode(t, b.Source(), Options{}))
	if err != nil {
		t.Fatal(err)
	}
	got := im.text(0)
	if n := strings.Count(got, "object=0x7100 object_name=cache_lock "); n != 2 { // the wait and the release
		t.Errorf("%d events name the lock, want 2:\n%s", n, got)
	}
	if strings.Count(got, "object=0x7180") != 2 || strings.Count(got, "object_name") != 2 {
		t.Errorf("what has no name has an address alone:\n%s", got)
	}
}

func rows(rs [][]string) string {
	var ls []string
	for _, r := range rs {
		ls = append(ls, strings.Join(r, " | "))
	}
	return strings.Join(ls, "\n")
}

// TestUsageInTraceProcessor: what the kernel counted of threads becomes counters of theirs and of their process, which give back
// the sums; so does what was lost.
func TestUsageInTraceProcessor(t *testing.T) {
	const ms = trace.Ns(1e6)
	b := tracetest.New()
	p := b.AddProcess(trace.Process{PID: 1, Exe: "/bin/x"})
	first, second := b.AddThread(trace.Thread{Proc: p, TID: 1, Name: "first"}), b.AddThread(trace.Thread{Proc: p, TID: 2, Name: "second"})
	at := b.Meta().StartNs
	b.Meta().EndNs = at + 4000*ms
	usage := func(th trace.ThreadID, from, to trace.Ns, minor, major, voluntary, involuntary uint64) {
		b.Add(trace.Event{Kind: trace.KindUsage, Flags: trace.FlagNoStack, Thread: th, Start: at + from*ms, Time: at + to*ms, Count: 1,
			Size: minor, Weight: major, Object: voluntary, Object2: involuntary})
	}
	b.Sample(first, at+900*ms, 10*int64(ms), "main")
	usage(first, 0, 1000, 5000, 0, 100, 20)
	usage(first, 1000, 3000, 4000, 6, 0, 0)
	b.Add(trace.Event{Kind: trace.KindLost, Flags: trace.FlagNoStack, Thread: second, Time: at + 1500*ms, Start: at + 1500*ms, Count: 9})
	usage(second, 1000, 2000, 1000, 0, 300, 0)
	path := file(t, b.Source(), Options{})
	got := perfettotest.CheckQuery(t, path,
		`select th.name, t.name, t.unit, group_concat(((c.ts - (select min(ts) from counter)) / 1000000) || ' ms: ' || cast(round(value) as int), ', ') from counter c
		 join thread_counter_track t on c.track_id = t.id join thread th using (utid) where t.name glob '*faults' or t.name glob '*switches' or t.name glob '*lost'
		 group by t.id order by th.name, t.name`,
		`select t.name, cast(round(max(value)) as int) from counter c join process_counter_track t on c.track_id = t.id
		 where t.name glob '*faults' or t.name glob '*switches' or t.name glob '*lost' group by t.id order by t.name`)
	const want = `first | involuntary context switches | /s | 0 ms: 20, 1000 ms: 0
first | major page faults | /s | 0 ms: 0, 1000 ms: 3, 3000 ms: 0
first | minor page faults | /s | 0 ms: 5000, 1000 ms: 2000, 3000 ms: 0
first | voluntary context switches | /s | 0 ms: 100, 1000 ms: 0
second | minor page faults | /s | 0 ms: 0, 1000 ms: 1000, 2000 ms: 0
second | records lost | [NULL] | 0 ms: 0, 1500 ms: 9, 1510 ms: 0
second | voluntary context switches | /s | 0 ms: 0, 1000 ms: 300, 2000 ms: 0`
	if rows(got[0]) != want {
		t.Errorf("threads:\n%s\nwant\n%s", rows(got[0]), want)
	}
	const sums = `involuntary context switches | 20
major page faults | 3
minor page faults | 5000
records lost | 9
voluntary context switches | 300`
	if rows(got[1]) != sums {
		t.Errorf("the process:\n%s\nwant\n%s", rows(got[1]), sums)
	}
}

// TestManyEvents: a long recording has no tracks of states and no call stacks, and says so.
func TestManyEvents(t *testing.T) {
	src := synthetic.Demo()
	src.Stats().Events = 34
	for most, want := range map[uint64]bool{33: false, 34: true} {
		im, err := load(encode(t, src, Options{maxStated: most}))
		if err != nil {
			t.Fatal(err)
		}
		got := im.text(0)
		if strings.Contains(got, "[state]") != want || (len(im.samples) > 0) != want || strings.Contains(got, " states=left out") == want {
			t.Errorf("at most %d events: states %v, want %v", most, !want, want)
		}
	}
}

// sampled is the CPU time that samples and ends of threads account for, in ns.
func sampled(src trace.Source) (ns int64) {
	trace.Events(src, func(e *trace.Event) error {
		if e.Kind == trace.KindCPU || e.Kind == trace.KindThreadExit {
			ns += e.CPU
		}
		return nil
	})
	return ns
}

// cpuSamples is how many samples of CPU time a recording has.
func cpuSamples(src trace.Source) (n int) {
	trace.Events(src, func(e *trace.Event) error {
		if e.Kind == trace.KindCPU {
			n += int(e.Count)
		}
		return nil
	})
	return n
}

// TestDemoInTraceProcessor asks the real one what it made of the demo.
func TestDemoInTraceProcessor(t *testing.T) {
	path := file(t, synthetic.Demo(), Options{})
	const onThread = ` join thread_track tt on s.track_id = tt.id join thread using (utid) left join process using (upid) `
	tests := []struct{ what, sql, want string }{
		{
			"processes that share a number are two, and so are threads; each has its own",
			`select process.name, pid, thread.name, tid, count(*) from slice s` + onThread + `where s.category is not 'state' group by upid, utid order by min(s.ts), utid`,
			"app | 4000 | app | 4000 | 22\napp | 4000 | worker | 4001 | 14\napp | 4000 | helper\ufffd | 4002 | 11\napp | 4000 | second | 4001 | 3\nafter | 4000 | after | 4000 | 3",
		},
		{
			"arrows go from the releaser to the end of the wait",
			`select o.name, ot.name, i.name, it.name, (i.ts - o.ts) / 1000, p.name, p.ts + p.dur - i.ts
			 from flow f join slice o on f.slice_out = o.id join slice i on f.slice_in = i.id
			 join thread_track a on o.track_id = a.id join thread ot on a.utid = ot.utid
			 join thread_track b on i.track_id = b.id join thread it on b.utid = it.utid
			 join slice p on i.parent_id = p.id where i.category = 'lock' order by i.ts`,
			"release | worker | woken by worker 4001 | helper\ufffd | 100 | pthread_mutex_lock | 0\n" +
				"pthread_mutex_unlock | app | woken by app 4000 | worker | 100 | pthread_mutex_lock | 0\n" +
				"pthread_cond_signal | app | woken by app 4000 | worker | 100 | pthread_cond_wait | 0\n" +
				"release | app | woken by app 4000 | helper\ufffd | 200 | pthread_cond_wait | 0",
		},
		{
			"arrows go from the creator of a thread to its beginning",
			`select o.name, ot.name, i.name, it.name, i.ts - o.ts
			 from flow f join slice o on f.slice_out = o.id join slice i on f.slice_in = i.id
			 join thread_track a on o.track_id = a.id join thread ot on a.utid = ot.utid
			 join thread_track b on i.track_id = b.id join thread it on b.utid = it.utid where i.category = 'life' order by i.ts, it.utid`,
			"creates thread | app | created by app 4000 | worker | 0\n" +
				"creates thread | app | created by app 4000 | helper\ufffd | 0\n" +
				"creates thread | app | created by app 4000 | second | 0",
		},
		{
			"waits and calls lie in their stack, exact",
			`select s.name, s.category, s.dur, group_concat(a.name, '>') from slice s
			 join ancestor_slice(s.id) a where s.category in ('lock', 'call') and s.dur > 0 group by s.id order by s.ts`,
			"pthread_mutex_lock | lock | 1000000 | clone3>help>take\n" +
				"pthread_mutex_lock | lock | 5100000 | clone3>work>take\n" +
				"pthread_cond_wait | lock | 7100000 | clone3>idle\n" +
				"pthread_cond_wait | lock | 7200000 | clone3>idle\n" +
				"pthread_cond_wait | lock | 5000000 | clone3>idle\n" +
				"read | call | 10000000 | _start>main>load\n" +
				"read | call | 5000000 | _start>main>load\n" +
				"read | call | 30000000 | _start>main",
		},
		{
			"a release lies in the function that let go",
			`select s.name, p.name, s.dur from slice s join slice p on s.parent_id = p.id where s.category = 'release' order by s.ts`,
			"release | parse\ufffdname | 0\npthread_mutex_unlock | give | 0\npthread_cond_signal | tell | 0\nrelease | pthread_cond_signal | 0",
		},
		{
			"what threads did, as far as is known, on a track of their own",
			`select thread.name, group_concat(s.name || ' ' || (s.dur / 100000), ', ') from
			 (select * from slice where category = 'state' order by ts) s` + onThread + `where tt.name = 'state' group by utid order by min(s.ts), utid`,
			"app | running 30, off the CPU 210, reading or writing 100, running 5, reading or writing 50, running 105, off the CPU 10, running 10, off the CPU 80\n" +
				"worker | running 10, off the CPU 9, running 1, waiting for a lock 51, running 9, off the CPU 40, waiting for a signal or thread 71, off the CPU 199\n" +
				"helper\ufffd | waiting for a lock 10, waiting for a signal or thread 72, waiting for a signal or thread 50, off the CPU 50\n" +
				"second | running 10\nafter | running 30, reading or writing 300",
		},
		{
			"a thread is in one state at a time, and runs as long as its samples say",
			`select (select count(*) from slice a join slice b using (track_id) where a.category = 'state' and b.category = 'state' and a.id < b.id
			  and a.ts < b.ts + b.dur and b.ts < a.ts + a.dur), (select sum(dur) / 1000000 from slice where category = 'state' and name = 'running')`,
			fmt.Sprintf("0 | %d", sampled(synthetic.Demo())/1_000_000-1), // 1 ms finds no room between the demo's waits
		},
		{
			"a wait is its thread's state",
			`select count(*) from slice s where s.category = 'lock' and s.dur > 0 and not exists
			 (select 1 from slice t join thread_track a on t.track_id = a.id join thread_track b on s.track_id = b.id
			  where t.category = 'state' and a.utid = b.utid and t.ts = s.ts and t.dur = s.dur and t.name glob 'waiting for*')`,
			"0",
		},
		{
			"annotations",
			`select a.key, a.display_value from slice s join args a using (arg_set_id) where s.name = 'pthread_mutex_lock' and s.dur = 5100000 order by a.key`,
			"debug.object | 0x7ffe00001000\ndebug.owner | app 4000\n" +
				"debug.released_ns_before_end | 100000\ndebug.releaser | app 4000\ndebug.releaser_certain | true\ndebug.result | 0\n" +
				"debug.spent_by | app 4000\ndebug.spent_on | running in inner",
		},
		{
			"what an end says is its slice's",
			`select s.name, a.display_value from slice s join args a using (arg_set_id) where a.key = 'debug.stacks' and s.name in ('compute', 'inner') order by s.ts`,
			"compute | 2\ninner | 2\ncompute | 11",
		},
		{
			"time of its own, on a CPU, blocked",
			`select s.name, s.dur / 1000, group_concat(substr(a.key, 7) || ' ' || a.int_value, ', ') from slice s join args a using (arg_set_id)` +
				` where a.key in ('debug.self_us', 'debug.cpu_us', 'debug.blocked_us') and s.name in ('take', 'work', 'inner') group by s.id order by s.ts, s.id`,
			"inner | 2000 | cpu_us 2000\ntake | 1250 | self_us 250, blocked_us 1000\nwork | 7500 | self_us 0, cpu_us 2000, blocked_us 5100\n" +
				"take | 6050 | self_us 950, blocked_us 5100\nwork | 950 | self_us 0",
		},
		{
			"samples as call stacks, each by its thread",
			`select process.name, thread.name, f.name, m.name, count(*) from perf_sample s join thread using (utid) join process using (upid)
			 join stack_profile_callsite c on s.callsite_id = c.id join stack_profile_frame f on c.frame_id = f.id join stack_profile_mapping m on f.mapping = m.id
			 group by upid, utid, f.name order by count(*) desc, f.name`,
			"app | app | compute | /usr/bin/app | 11\napp | app | inner | /usr/bin/app | 2\nafter | after | main | /usr/bin/after | 2\n" +
				"app | worker | libodd.so+0x100f | /usr/bin/libodd.so | 1\napp | worker | parse\ufffdname | /usr/bin/app | 1\napp | app | recurse | /usr/bin/app | 1",
		},
		{
			"as many call stacks as samples of CPU time",
			`select count(*) from perf_sample`,
			fmt.Sprint(cpuSamples(synthetic.Demo())),
		},
		{
			"functions without a symbol, names that are not UTF-8, loss",
			`select distinct s.name from slice s where s.name glob '*+0x*' or s.name glob '*parse*' or s.category = 'lost' order by 1`,
			"libodd.so+0x100f\nparse\ufffdname\nrecords lost",
		},
		{
			"what was lost and how much is known",
			`select a.key, a.display_value from slice s join args a using (arg_set_id) where s.category = 'about' and a.key glob '*lost' or a.key glob '*second 4001' order by 1`,
			"debug.lost | 3 records; 0 gaps, 0 broken, 0 overwritten\ndebug.time of second 4001 | 0.0% exact intervals, 10.0% sampled, 90.0% unknown; 1 stacks",
		},
		{
			"counters of threads",
			`select th.name, t.name, t.unit, cast(round(max(value)) as int) from counter c join thread_counter_track t on c.track_id = t.id
			 join thread th using (utid) where th.name in ('worker', 'app') group by t.id order by th.name, t.name`,
			"app | CPU | % | 100\napp | allocated | bytes/s | 78643200\nworker | CPU | % | 20\nworker | allocated | bytes/s | 104857600\nworker | lock wait | ms/s | 510",
		},
		{
			"counters",
			`select p.name, t.name, t.unit, count(*), cast(round(max(value)) as int) from counter c join process_counter_track t on c.track_id = t.id
			 join process p using (upid) group by t.id order by p.upid, t.name`,
			"app | CPU | % | 6 | 120\napp | allocated | bytes/s | 3 | 183500800\napp | live | bytes | 3 | 1310720\napp | lock wait | ms/s | 2 | 610\napp | records lost | [NULL] | 3 | 3\nafter | CPU | % | 2 | 30",
		},
	}
	var sqls []string
	for _, tt := range tests {
		sqls = append(sqls, tt.sql)
	}
	answers := perfettotest.CheckQuery(t, path, sqls...)
	for i, tt := range tests {
		t.Run(tt.what, func(t *testing.T) {
			if got := rows(answers[i]); got != tt.want {
				t.Errorf("got\n%s\nwant\n%s", got, tt.want)
			}
		})
	}
}

// TestLong holds a longer recording against what the diff reports, once with the small importer and once with the
// trace processor.
func TestLong(t *testing.T) {
	src := synthetic.New(150_000, 9)
	var n tally
	b := spans.New(src, frames.New(src), &n)
	if err := trace.Events(src, b.Add); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if n.arrows == 0 || n.points == 0 || n.spans < 100_000 {
		t.Fatalf("the recording is too plain: %+v", n)
	}
	data := encode(t, src, Options{})
	im, err := load(data)
	if err != nil {
		t.Fatal(err)
	}
	begun := 0
	for _, e := range im.events {
		if e.typ == typeSliceBegin && e.cat != "state" {
			begun++
		}
	}
	if begun != n.spans+n.intervals+1 { // and the one about the recording
		t.Errorf("%d slices, want %d spans and %d intervals", begun, n.spans, n.intervals)
	}
	if size := float64(len(data)) / float64(begun); size > 20 {
		t.Errorf("%.1f bytes per slice", size)
	}
	t.Run("trace processor", func(t *testing.T) {
		path := file(t, src, Options{})
		got := perfettotest.CheckQuery(t, path, `select
			(select count(*) from slice where category is null), (select count(*) from slice where category in ('lock', 'call') and name not glob 'woken by*'),
			(select count(*) from slice where name glob 'woken by*'), (select count(*) from flow),
			(select count(*) from thread_track where name is not 'state'), (select count(*) from slice s join thread_track t on s.track_id = t.id) - (select count(*) from slice)`)[0]
		want := []string{fmt.Sprint(n.spans), fmt.Sprint(n.intervals), fmt.Sprint(n.arrows), fmt.Sprint(n.arrows), "9", "-1"}
		if len(got) != 1 || !slices.Equal(got[0], want) {
			t.Errorf("spans, intervals, wake-ups, flows, tracks, strays: %q, want %q", got, want)
		}
	})
}

type tally struct{ spans, intervals, points, arrows int }

func (n *tally) Begin(*spans.Span) error { return nil }
func (n *tally) End(*spans.Span) error   { n.spans++; return nil }
func (n *tally) Interval(iv *spans.Interval) error {
	n.intervals++
	if iv.Event.Kind == trace.KindWait && iv.Event.Releaser != 0 {
		n.arrows++
	}
	return nil
}
func (n *tally) Return(*spans.Interval) error          { return nil }
func (n *tally) Point(*trace.Event, int, uint64) error { n.points++; return nil }

func TestOddRecordings(t *testing.T) {
	const at = trace.Ns(1e12)
	tests := []struct {
		name string
		make func(b *tracetest.Builder)
		want string // rows of thread name, slice, depth, dur; of the trace processor
	}{
		{"empty", func(*tracetest.Builder) {}, ""},
		{
			"a thread that nothing lists, released by another one",
			func(b *tracetest.Builder) {
				b.Wait(77, at, at+1000, 20, 0x1, 78, "f")
			},
			"[NULL] | f | 0 | 1000\n[NULL] | pthread_mutex_lock | 1 | 1000\n[NULL] | release | 0 | 0\n[NULL] | woken by thread #78 | 2 | 0",
		},
		{
			"a release after the wait's end is drawn at the end",
			func(b *tracetest.Builder) {
				th, o := b.AddThread(trace.Thread{TID: 5, Name: "w"}), b.AddThread(trace.Thread{TID: 6, Name: "r"})
				b.AddJoined(trace.Event{Kind: trace.KindWait, Hook: 20, Thread: th, Start: at, Time: at + 10, Releaser: o, Release: at + 50, Stack: b.Stack("f")})
			},
			"w | f | 0 | 10\nw | pthread_mutex_lock | 1 | 10\nr | release | 0 | 0\nw | woken by r 6 | 2 | 0",
		},
		{
			"a signal handler inside a call that was seen to begin",
			func(b *tracetest.Builder) {
				th := b.AddThread(trace.Thread{TID: 5, Name: "w"})
				b.AddJoined(trace.Event{Kind: trace.KindEnter, Hook: 60, Thread: th, Time: at, Stack: b.Stack("f")})
				b.Sample(th, at+1000, 1, "f", "handler")
				b.Sample(th, at+2000, 1, "f", "handler")
				b.Call(th, at, at+5000, 60, 1, 0, "f")
			},
			"w | f | 0 | 5000\nw | read | 1 | 5000\nw | handler | 2 | 2500",
		},
		{
			"an unknown hook, and none",
			func(b *tracetest.Builder) {
				th := b.AddThread(trace.Thread{TID: 5, Name: "w"})
				b.Call(th, at, at+10, 999, 1, 0, "f")
				b.Call(th, at+20, at+30, 0, 1, 0, "f")
			},
			"w | f | 0 | 30\nw | hook 999 | 1 | 10\nw | wait | 1 | 10",
		},
		{
			"no duration at all",
			func(b *tracetest.Builder) {
				th := b.AddThread(trace.Thread{TID: 5, Name: "w"})
				b.Call(th, at, at, 60, 1, 0, "f", "g")
				b.Call(th, at, at, 60, 1, 0, "f", "h")
			},
			"w | f | 0 | 0\nw | g | 1 | 0\nw | read | 2 | 0\nw | h | 1 | 0\nw | read | 2 | 0",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := tracetest.New()
			b.Meta().StartNs = at
			tt.make(b)
			if _, err := load(encode(t, b.Source(), Options{})); err != nil {
				t.Error(err)
			}
			path := file(t, b.Source(), Options{})
			got := rows(perfettotest.CheckQuery(t, path, `select thread.name, s.name, s.depth, s.dur from slice s
				left join thread_track tt on s.track_id = tt.id left join thread using (utid) where s.category is null or s.category not in ('about', 'state') order by s.ts, s.id`)[0])
			if got != tt.want {
				t.Errorf("got\n%s\nwant\n%s", got, tt.want)
			}
		})
	}
}

// TestOddInput: names of anything, times that wrap, nothing at all, twenty thousand threads, and a run of more samples than there can be.
func TestOddInput(t *testing.T) {
	odd := synthetic.Odd(20_000)
	run := tracetest.New()
	th := run.AddThread(trace.Thread{Proc: run.AddProcess(trace.Process{PID: 1}), TID: 1})
	run.Add(trace.Event{Kind: trace.KindCPU, Thread: th, Time: 2e9, Start: 1e9, Count: 1 << 31, CPU: 1, Stack: run.Stack("f")})
	odd["a long run"] = run.Source()
	for name, src := range odd {
		t.Run(name, func(t *testing.T) {
			im, err := load(encode(t, src, Options{}))
			if err != nil {
				t.Fatal(err)
			}
			if want := map[string]int{"crowd": 20_000, "a long run": maxRun}[name]; want != 0 && len(im.samples) != want {
				t.Errorf("%d samples, want %d", len(im.samples), want)
			}
			if name == "hostile" { // whose names the trace processor cuts at a zero byte: what it is to check of names is not there
				if got := perfettotest.Query(t, file(t, src, Options{}), `select name, value from stats where severity in ('error', 'data_loss') and value > 0`); len(got) > 0 {
					t.Errorf("the trace processor complains: %q", got)
				}
			}
		})
	}
	if err := Write(synthetic.Gone{}, synthetic.Demo(), Options{}); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("a reader that goes away: %v", err)
	}
}

type failing struct{ *tracetest.Source }

func (x failing) EventBatches(f func([]trace.Event, func()) error) error {
	return trace.InBatches(x.each, f)
}

func (failing) each(func(*trace.Event) error) error { return errors.New("block 7 is torn") }

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("disk full") }

func TestErrors(t *testing.T) {
	if err := Write(&bytes.Buffer{}, failing{synthetic.Demo()}, Options{}); err == nil || !strings.Contains(err.Error(), "block 7 is torn") {
		t.Errorf("the source's error is lost: %v", err)
	}
	sources := []trace.Source{synthetic.Demo()}
	for range 20 { // whichever of those that make, pack and write is first to see it
		sources = append(sources, synthetic.New(50_000, 3))
	}
	for _, src := range sources {
		if err := Write(full{}, src, Options{}); err == nil || !strings.Contains(err.Error(), "disk full") {
			t.Errorf("the writer's error is lost: %v", err)
		}
	}
}

// FuzzWrite turns bytes into events, odd ones too: whatever a recording says, slices nest and arrows go forward.
func FuzzWrite(f *testing.F) {
	f.Add([]byte("0123456789abcdefghijklmnopqrstuvwxyz"))
	f.Add(bytes.Repeat([]byte{4, 1, 2, 3, 0, 5, 1, 9}, 20))
	f.Add(bytes.Repeat([]byte{0x15, 0x88, 0x42, 0x07, 0xff, 0x31, 0x10, 0x80}, 40))
	f.Fuzz(func(t *testing.T, data []byte) {
		const start = trace.Ns(1e12)
		b := tracetest.New()
		b.Meta().StartNs, b.Meta().EndNs = start, start+1e9
		p := b.AddProcess(trace.Process{PID: 1})
		for i := range 3 {
			b.AddThread(trace.Thread{Proc: p, TID: i % 2})
		}
		stacks := []trace.StackID{0, b.Stack("a"), b.Stack("a", "b"), b.Stack("a", "b|c"), b.Stack("a", "b@2|c", "d"),
			b.Stack("a", "b@2|c", "d", "x.so!?"), b.Stack("a", "…7", "b"), 60_000}
		now := start
		for ; len(data) >= 8; data = data[8:] {
			d := data[:8]
			now += trace.Ns(d[4]) * 50_000
			if d[7]&0x80 != 0 {
				now -= trace.Ns(d[4]) * 90_000
			}
			b.Add(trace.Event{
				Kind: trace.Kind(d[0] % 14), Hook: trace.HookID(d[1] % 70), Thread: trace.ThreadID(d[2] % 5), Time: now,
				Start: now - trace.Ns(d[3])*20_000, Stack: stacks[d[5]%8], Same: uint32(d[5] >> 4), Count: uint32(d[6] & 3),
				Flags: trace.Flags(d[6])<<8 | trace.Flags(d[1]), CPU: int64(d[3]) << 12, Object: uint64(d[7] & 3), Size: uint64(d[3]), Weight: uint64(d[4]),
				Releaser: trace.ThreadID(d[7] >> 2 & 7), Release: now - trace.Ns(d[7]&0x7f)*10_000,
			})
		}
		if _, err := load(encode(t, b.Source(), Options{Raw: true})); err != nil {
			t.Fatal(err)
		}
	})
}
