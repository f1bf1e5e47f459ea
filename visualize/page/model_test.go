package page

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"io"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/hbtrace/hbtrace/internal/synthetic"
	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/trace/tracetest"
)

const ms = 1_000_000

func read(t testing.TB, src trace.Source) *Model {
	t.Helper()
	m := New(src)
	if err := m.Read(context.Background()); err != nil {
		t.Fatal(err)
	}
	return m
}

// check holds a model to what every query relies on.
func check(t *testing.T, m *Model) {
	t.Helper()
	length := int64(m.to - m.from)
	for i, th := range m.threads {
		var total [states]int64
		end := int64(0)
		for j, p := range th.pieces {
			if p.start < end || p.end <= p.start || p.end > length {
				t.Fatalf("thread %d piece %d: [%d, %d) after %d, of %d", i, j, p.start, p.end, end, length)
			}
			if p.state == unknown || p.state >= states {
				t.Fatalf("thread %d piece %d: state %d", i, j, p.state)
			}
			end = p.end
			if got := th.before(j); got != total {
				t.Fatalf("thread %d: before(%d) = %v, the pieces sum to %v", i, j, got, total)
			}
			total[p.state] += p.end - p.start
		}
		if total != th.total {
			t.Errorf("thread %d: total %v, its pieces sum to %v", i, th.total, total)
		}
	}
}

// texts shows a thread's pieces.
func texts(m *Model, thread int) string {
	names := [states]string{"unknown", "run", "off", "lock", "signal", "io", "poll", "other", "sleep", "ready"}
	var b strings.Builder
	for _, p := range m.threads[thread].pieces {
		if b.Len() > 0 {
			b.WriteByte(' ')
		}
		f := func(ns int64) string { return strings.TrimSuffix(time.Duration(ns).String(), "ms") }
		b.WriteString(names[p.state] + ":" + f(p.start) + "-" + f(p.end))
	}
	return b.String()
}

// TestQueriesAgree holds every query to a plain sum over pieces.
func TestQueriesAgree(t *testing.T) {
	for name, src := range map[string]trace.Source{"demo": synthetic.Demo(), "synthetic": synthetic.New(60_000, 7)} {
		t.Run(name, func(t *testing.T) {
			m := read(t, src)
			check(t, m)
			r := rand.New(rand.NewPCG(1, 2))
			length := int64(m.to - m.from)
			for range 60 {
				s := selection{from: r.Int64N(length), threads: []int{r.IntN(len(m.threads)), r.IntN(len(m.threads))}}
				s.to = s.from + 1 + r.Int64N(length-s.from)
				if s.threads[0] == s.threads[1] || r.IntN(3) == 0 {
					s.threads = nil
				}
				var want [states]int64
				roomless := int64(0)
				m.each(t.Context(), s, func(_ int, th *thread) {
					for _, u := range th.unplaced {
						if u.at >= s.from && u.at < s.to {
							roomless += u.ns
						}
					}
					for _, p := range th.pieces {
						if ns := min(p.end, s.to) - max(p.start, s.from); ns > 0 {
							want[p.state] += ns
						}
					}
				})
				for _, edges := range []bool{false, true} {
					sums, err := m.sums(t.Context(), s, false, edges)
					if err != nil {
						t.Fatal(err)
					}
					sum := want
					if !edges { // with the CPU time for which there is no room
						sum[running] += roomless
					}
					if got := byState(sums); got != sum {
						t.Errorf("sums of %+v, edges %v: %v, want %v", s, edges, got, sum)
					}
				}
				chart, err := m.chart(t.Context(), selection{threads: all(m), from: s.from, to: s.to}, 1+r.IntN(300))
				if err != nil {
					t.Fatal(err)
				}
				if s.threads == nil {
					if got := sum(t, chart, "cpu"); math.Abs(got-float64(want[running])) > 1e-6*float64(length) {
						t.Errorf("the chart's CPU time is %v, want %d", got, want[running])
					}
				}
			}
			for _, res := range []int64{1, 1000, length / 1000, length / 10, 10 * length} {
				var want [states]int64
				for _, th := range m.threads {
					for st, ns := range th.total {
						want[st] += ns
					}
				}
				lanes, err := m.lanes(t.Context(), selection{from: 0, to: length}, max(1, res))
				if err != nil {
					t.Fatal(err)
				}
				if got := byState(lanes); got != want {
					t.Errorf("lanes at %d ns sum to %v, want %v", res, got, want)
				}
				for i := 1; i < len(lanes.start); i++ {
					if lanes.thread[i] == lanes.thread[i-1] && lanes.start[i] < lanes.start[i-1]+lanes.value[i-1] {
						t.Fatalf("lanes at %d ns: row %d of thread %d begins at %v, in the one before", res, i, lanes.thread[i], lanes.start[i])
					}
				}
				if got := byState(m.coarse(max(1, res), m.pieces)); got != want {
					t.Errorf("pieces coarsened to %d ns sum to %v, want %v", res, got, want)
				}
			}
		})
	}
}

func all(m *Model) []int {
	out := make([]int, len(m.threads))
	for i := range out {
		out[i] = i
	}
	return out
}

func byState(r *rows) (out [states]int64) {
	for i, st := range r.state {
		if state(st) < states {
			out[st] += int64(r.value[i])
		}
	}
	return out
}

// sum adds up a column of a table.
func sum(t *testing.T, tab *table, name string) float64 {
	t.Helper()
	body, err := tab.bytes()
	if err != nil {
		t.Fatal(err)
	}
	n := int(binary.LittleEndian.Uint32(body))
	var head struct{ Columns []column }
	if err := json.Unmarshal(body[4:4+n], &head); err != nil {
		t.Fatal(err)
	}
	at := 4 + n
	for _, c := range head.Columns {
		if c.Name == name {
			total := 0.0
			for i := range c.Rows {
				total += math.Float64frombits(binary.LittleEndian.Uint64(body[at+8*i:]))
			}
			return total
		}
		at += (c.Rows*map[string]int{"f64": 8, "u32": 4, "u16": 2, "u8": 1}[c.Type] + 7) / 8 * 8
	}
	t.Fatalf("no column %s", name)
	return 0
}

func TestWhoHadIt(t *testing.T) {
	b := tracetest.New()
	p := b.AddProcess(trace.Process{PID: 1})
	waiter := b.AddThread(trace.Thread{Proc: p, TID: 1, Name: "waiter"})
	holder := b.AddThread(trace.Thread{Proc: p, TID: 2, Name: "holder"})
	between := b.AddThread(trace.Thread{Proc: p, TID: 3, Name: "between"})
	let := func(th trace.ThreadID, at trace.Ns, object uint64, stack ...string) {
		b.AddJoined(trace.Event{Kind: trace.KindRelease, Hook: b.Hook("pthread_mutex_unlock"), Thread: th, Time: at, Object: object, Stack: b.Stack(stack...)})
	}
	let(holder, 3*ms, 0x90, "other lock")
	let(holder, 4*ms, 0x70, "held it")
	let(between, 8*ms, 0x70, "came between")
	b.AddJoined(trace.Event{Kind: trace.KindWait, Hook: b.Hook("pthread_mutex_lock"), Thread: waiter, Start: 2 * ms, Time: 9 * ms, Object: 0x70,
		Owner: holder, Releaser: between, Release: 8 * ms, Stack: b.Stack("wait")})
	m := read(t, b.Source())
	x := m.full(0, m.threads[0], m.threads[0].pieces[0])
	m.places(0, 0, 0, 0)
	name := func(site uint32) string { return m.tree.names[m.tree.frames[m.tree.parents[m.tree.sites[site]]]].Name }
	if x.owner != 2 || x.releaser != 3 || name(x.releaseSite) != "held it" {
		t.Errorf("owner %d, releaser %d, let go in %q; want 2, 3 and what the holder did, not who came between", x.owner, x.releaser, name(x.releaseSite))
	}
}

func TestSlowest(t *testing.T) {
	b := tracetest.New()
	b.Meta().Hooks[104] = trace.HookInfo{Name: "epoll_wait", Class: "CALL", Object: "FD"}
	th := b.AddThread(trace.Thread{Proc: b.AddProcess(trace.Process{PID: 1}), TID: 1})
	for _, at := range []trace.Ns{1, 21, 34, 61} {
		b.Call(th, at*ms, (at+10)*ms, 104, 5, 1, "loop")
	}
	m := read(t, b.Source())
	out, err := m.slowest(t.Context(), selection{from: 0, to: 100 * ms}, "epoll_wait", true, 2)
	if err != nil {
		t.Fatal(err)
	}
	if got := sum(t, out, "dur"); got != 27*ms {
		t.Errorf("the two longest turns last %v ns, want 17 + 10 ms", got)
	}
	if got := sum(t, out, "start"); got != 55*ms {
		t.Errorf("the two longest turns start at a sum of %v ns, want 44 + 11 ms", got)
	}
}

// TestOdd: whatever a recording holds, it is read, asked and exported without a panic, and the answers hold together.
func TestOdd(t *testing.T) {
	const far = math.MaxInt64
	tests := map[string]func(b *tracetest.Builder){
		"nothing at all": func(*tracetest.Builder) {},
		"a thread and no event": func(b *tracetest.Builder) {
			b.AddThread(trace.Thread{Proc: b.AddProcess(trace.Process{PID: 1}), TID: 1})
		},
		"an event of no thread": func(b *tracetest.Builder) { b.Sample(77, 5*ms, ms, "main") },
		"clocks that wrap": func(b *tracetest.Builder) {
			th := b.AddThread(trace.Thread{TID: 1, Start: far, End: -far})
			b.Sample(th, far, far, "main")
			b.Sample(th, -far, -5, "main")
			b.Call(th, far, -far, b.Hook("read"), 3, 1, "main")
			b.Call(th, -far, far, b.Hook("read"), 3, 1, "main")
			b.Wait(th, 5, 1, b.Hook("pthread_mutex_lock"), far, th, "main")
		},
		"a recording that ends before it began": func(b *tracetest.Builder) {
			b.Meta().StartNs, b.Meta().EndNs = 1000*ms, 5
			th := b.AddThread(trace.Thread{TID: 1})
			b.Sample(th, 2000*ms, ms, "main")
			b.Sample(th, 9_000_000*ms, ms, "main")
		},
		"names that are not text": func(b *tracetest.Builder) {
			b.Meta().Command = []string{"\xff<script>"}
			b.Stats().Notes = []string{"\xfe"}
			th := b.AddThread(trace.Thread{TID: 1, Name: "\xff\x00\n"})
			b.Sample(th, ms, ms, "\xff</script>\n", "\u202e\"'")
		},
		"an allocation that stands for very much": func(b *tracetest.Builder) {
			th := b.AddThread(trace.Thread{TID: 1})
			b.Alloc(th, 5, 1, 0, math.MaxUint64, "main")
			b.Alloc(th, 6, 1, 1, math.MaxUint64, "main")
		},
	}
	for name, make := range tests {
		t.Run(name, func(t *testing.T) {
			b := tracetest.New()
			make(b)
			m := read(t, b.Source())
			check(t, m)
			askAll(t, m)
			var page bytes.Buffer
			if err := Export(&page, b.Source(), Options{}); err != nil {
				t.Error(err)
			}
		})
	}
}

func askAll(t *testing.T, m *Model) {
	t.Helper()
	length := int64(m.to - m.from)
	for _, s := range []selection{{nil, 0, length}, {[]int{0, 5, -1, 1 << 40}, length / 3, length/2 + 1}, {nil, length, length + 1}} {
		m.lanes(t.Context(), s, 1)
		m.sums(t.Context(), s, true, true)
		m.chart(t.Context(), s, 100)
		m.slowest(t.Context(), s, "main", false, 5)
		m.slowest(t.Context(), s, "read", true, 5)
		if _, err := m.calls([]int{0, 7}, s.from, s.to, 1).table().bytes(); err != nil {
			t.Error(err)
		}
	}
	if _, err := m.places(9, 9, 9, 9).bytes(); err != nil {
		t.Error(err)
	}
	if _, err := json.Marshal(m.about()); err != nil {
		t.Error(err)
	}
}

func TestManyThreads(t *testing.T) {
	m := read(t, synthetic.New(60_000, 20_000))
	check(t, m)
	askAll(t, m)
	data, err := m.bundle()
	if err != nil {
		t.Fatal(err)
	}
	if len(data) > 16<<20 {
		t.Errorf("the page of 20,000 threads has %d bytes", len(data))
	}
}

// TestExportIsBounded: a page is small enough to be sent, however long the recording.
func TestExportIsBounded(t *testing.T) {
	m := read(t, synthetic.New(600_000, 8))
	data, err := m.bundle()
	if err != nil {
		t.Fatal(err)
	}
	if len(data) > 8<<20 {
		t.Errorf("the page has %d bytes", len(data))
	}
	if len(m.coarse(0, m.pieces).state) <= mostPieces {
		t.Error("nothing had to be coarsened: this test tests nothing")
	}
}

// TestNoMarkupFromNames: what a recording says never becomes part of the document's markup.
func TestNoMarkupFromNames(t *testing.T) {
	b := hostile()
	var page bytes.Buffer
	if err := Export(&page, b.Source(), Options{}); err != nil {
		t.Fatal(err)
	}
	doc := page.String()
	for _, markup := range []string{"<script>window", "<img", "'pwned"} {
		if i := strings.Index(doc, markup); i >= 0 {
			t.Errorf("a name is in the document as markup: %q", doc[max(0, i-80):][:160])
		}
	}
	_, data, _ := strings.Cut(doc, `id="recording">`)
	data, _, _ = strings.Cut(data, "</script>")
	zipped, err := base64.StdEncoding.DecodeString(data)
	if err != nil {
		t.Fatalf("the data is not base64: %v", err)
	}
	z, err := gzip.NewReader(bytes.NewReader(zipped))
	if err != nil {
		t.Fatal(err)
	}
	plain, err := io.ReadAll(z)
	if err != nil || !bytes.Contains(plain, []byte("pwned")) {
		t.Errorf("the names are not in the data (%v): this test tests nothing", err)
	}
}

// hostile is a recording whose every name tries to be a script.
func hostile() *tracetest.Builder {
	evil := func(where string) string {
		return `"'><img src=x onerror="window.pwned='` + where + `'"><script>window.pwned='` + where + `'</script></script><!--` + "\n\x00\xff\u202e${window.pwned=1}`"
	}
	b := tracetest.New()
	m := b.Meta()
	m.Command, m.Host, m.Kernel, m.Version = []string{"<img src=x onerror=window.pwned=1>", "</title>" + evil("argument")}, evil("host"), evil("kernel"), evil("version")
	m.Hooks[60] = trace.HookInfo{Name: evil("hook"), Class: "CALL", Object: "FD"}
	b.Stats().Notes = []string{evil("note")}
	p := b.AddProcess(trace.Process{PID: 1, Exe: "/" + evil("exe"), Cmdline: []string{evil("cmdline")}, Doubt: trace.ProcDoubt{Disabled: evil("disabled")}})
	one := b.AddThread(trace.Thread{Proc: p, TID: 1, Name: evil("thread"), CPU: ms})
	two := b.AddThread(trace.Thread{Proc: p, TID: 2, Name: evil("other"), CPU: ms})
	for i := range trace.Ns(40) {
		at := i * 10 * ms
		b.Sample(one, at+3*ms, 2*ms, evil("function"), evil("leaf"))
		b.Wait(one, at+4*ms, at+8*ms, b.Hook("pthread_mutex_lock"), 0x70, two, evil("waiter"))
		b.Call(two, at+1*ms, at+7*ms, 60, 3, 1, evil("caller"))
		b.Alloc(one, at+9*ms, 0x1000, 10, 512<<10, evil("allocator"))
	}
	return b
}

// TestCPUsBusy: three threads whose samples are due at the same time ran on two CPUs, one after the other.
func TestCPUsBusy(t *testing.T) {
	b := tracetest.New()
	b.Meta().CPUs = 2
	p := b.AddProcess(trace.Process{PID: 1})
	for i := range 3 {
		th := b.AddThread(trace.Thread{Proc: p, TID: i + 1})
		for at := trace.Ns(30); at <= 300; at += 30 {
			b.Sample(th, at*ms, 20*ms, "main")
		}
	}
	m := read(t, b.Source())
	for _, threads := range [][]int{nil, {0, 1, 2}} {
		chart, err := m.chart(t.Context(), selection{threads: threads, from: 0, to: 300 * ms}, 30)
		if err != nil {
			t.Fatal(err)
		}
		if total := sum(t, chart, "cpu"); math.Abs(total-600*ms) > ms {
			t.Errorf("%v of CPU time, want 600 ms", total)
		}
		n := 0
		for i := range 30 {
			if v := math.Float64frombits(binary.LittleEndian.Uint64(chart.body[8*i:])); v > 2.001*10*ms {
				n++
			}
		}
		if n > 0 {
			t.Errorf("threads %v: %d columns with more than two CPUs busy", threads, n)
		}
	}
}
