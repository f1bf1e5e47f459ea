package picture

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/hbtrace/hbtrace/internal/synthetic"
	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/trace/tracetest"
)

func oneThread() *tracetest.Builder {
	b := tracetest.New()
	t := b.AddThread(trace.Thread{Proc: b.AddProcess(trace.Process{PID: 1, Exe: "/bin/one"}), TID: 1, Main: true})
	b.Sample(t, 1000, 500, "main")
	return b
}

// crowd is 2,000 threads of one process, every one busy and contending, in tens of thousands of events with long names.
func crowd() *tracetest.Builder {
	b := tracetest.New()
	p := b.AddProcess(trace.Process{PID: 1, Exe: "/bin/crowd"})
	for i := range 2000 {
		b.AddThread(trace.Thread{Proc: p, TID: 100 + i, Name: fmt.Sprintf("pool-%d", i)})
	}
	for k := range 20 {
		for i := range 2000 {
			t := trace.ThreadID(i + 1)
			at := trace.Ns(k*10+i%10) * ms
			b.Sample(t, at, ms, "main", fmt.Sprintf("%s_%d", strings.Repeat("long", 100), (i*k)%997), fmt.Sprintf("leaf_%d", k))
			b.Wait(t, at+ms, at+4*ms, b.Hook("pthread_mutex_lock"), 7, trace.ThreadID((i+1)%2000+1), "main", "take")
		}
	}
	return b
}

// dense is one thread with tens of thousands of calls, each of another function.
func dense() *tracetest.Builder {
	b := tracetest.New()
	t := b.AddThread(trace.Thread{Proc: b.AddProcess(trace.Process{PID: 1, Exe: "/bin/dense"}), TID: 1})
	for i := range 40_000 {
		f := fmt.Sprintf("%s::f%d", strings.Repeat("ns", 150), i%3001)
		b.Sample(t, trace.Ns(i)*ms, ms/2, "main", f, f+"a", f+"b", fmt.Sprint("h", i%7))
		b.Call(t, trace.Ns(i)*ms+ms/4, trace.Ns(i)*ms+ms/2, b.Hook("read"), 1, 1, "main", f)
	}
	return b
}

func TestOddRecordings(t *testing.T) {
	deep := tracetest.New()
	th := deep.AddThread(trace.Thread{TID: 1})
	var stack []string
	for i := range 300 {
		stack = append(stack, fmt.Sprint("level", i))
	}
	deep.Sample(th, 10, 10, stack...)
	for name, b := range map[string]*tracetest.Builder{
		"hostile": synthetic.Hostile(), "nothing": tracetest.New(), "one thread": oneThread(), "2000 threads": crowd(), "dense": dense(), "deep": deep, "forks": forks(),
	} {
		src := b.Source()
		for _, o := range []Options{
			{}, {Width: 1}, {Width: 4000, MaxThreads: 5000}, {From: 10, To: 12}, {From: 1 << 62, To: 1}, {From: -1 << 63, To: 1<<63 - 1},
		} {
			t.Run(fmt.Sprintf("%s/%+v", name, o), func(t *testing.T) {
				picture := timelineOf(t, src, o)
				wellFormed(t, picture)
				if !utf8.ValidString(picture) {
					t.Error("not UTF-8")
				}
			})
		}
		for _, v := range []string{"", "cpu", "wall", "blocked", "alloc_space", "contentions"} {
			t.Run(name+"/flame "+v, func(t *testing.T) { wellFormed(t, flameOf(t, src, FlameOptions{Value: v})) })
		}
	}
}

// What is in the recording must be in the picture: titles carry the exact figures.
func TestFigures(t *testing.T) {
	src := server(2, 30).Source()
	picture := timelineOf(t, src, Options{})
	for _, want := range []string{
		"flusher let worker-", "pthread_mutex_lock of 0x7f0010", "waiting for a lock: ", "fsync", "held by flusher", "worker_main",
	} {
		if !strings.Contains(picture, want) {
			t.Errorf("no %q in the timeline", want)
		}
	}
	b := tracetest.New()
	th := b.AddThread(trace.Thread{TID: 1, Name: "t"})
	b.Sample(th, 40, 30, "main", "f")
	b.Sample(th, 60, 10, "main")
	flame := flameOf(t, b.Source(), FlameOptions{})
	for _, want := range []string{"main\n40 ns, 100 % of all\nself 10 ns, 25.0 % of all", "f\n30 ns, 75.0 % of all, 75.0 % of its caller"} {
		if !strings.Contains(flame, want) {
			t.Errorf("no %q in\n%s", want, flame)
		}
	}
	many := timelineOf(t, crowd().Source(), Options{MaxThreads: 5})
	if !strings.Contains(many, "1,995 threads less active") {
		t.Error("the timeline does not say how many threads it leaves out")
	}
}

// The strip's shares: half a column running, half waiting.
func TestShares(t *testing.T) {
	s := scale{0, 100, 10}
	l := &lane{}
	l.add(s, locked, 5, 20)
	l.add(s, running, 26, 40)
	for st, cols := range map[state][]float32{locked: {5, 10, 0, 0, 0}, running: {0, 0, 4, 10, 0}} {
		for c, ns := range cols {
			if got := l.share[st][c]; got != ns {
				t.Errorf("%s in column %d: %v ns, want %v", look[st].name, c, got, ns)
			}
		}
	}
}

func TestTicks(t *testing.T) {
	for _, tt := range []struct {
		span int64
		n    int
		step int64
		last string
	}{
		{100, 10, 10, "90 ns"}, {101, 10, 10, "100 ns"}, {120, 10, 20, "120 ns"}, {960 * ms, 10, 100 * ms, "900 ms"}, {3200 * ms, 8, 500 * ms, "3.0 s"},
		{3600_000 * ms, 10, 500_000 * ms, "3500 s"}, {0, 10, 1, "0 ns"},
	} {
		step, label := ticks(tt.span, tt.n)
		last := tt.span / step * step
		if tt.span%step == 0 && last > 0 && tt.span == 100 {
			last -= step
		}
		if step != tt.step || label(last) != tt.last {
			t.Errorf("ticks(%d, %d) = %d, last %q; want %d, %q", tt.span, tt.n, step, label(last), tt.step, tt.last)
		}
	}
}

func TestFitName(t *testing.T) {
	for _, tt := range []struct {
		name  string
		width float64
		want  string
	}{
		{"short", 100, "short"},
		{"journal::Journal::append(std::string const&)", 130, "journal::Journal::append"},
		{"journal::Journal::append(std::string const&)", 50, "append"},
		{"journal::Journal::append(std::string const&)", 30, "app…"},
		{"std::vector<std::pair<int, ns::T>>::push_back(int)", 60, "push_back"},
		{"anything", 5, ""},
	} {
		if got := fitName(tt.name, 10, tt.width); got != tt.want {
			t.Errorf("fitName(%q, %v) = %q, want %q", tt.name, tt.width, got, tt.want)
		}
	}
}

func FuzzText(f *testing.F) {
	f.Add("</svg>&<\x00\xff\u202e\ufffe]]>")
	f.Add("operator<<(std::ostream&, \"x\")")
	f.Fuzz(func(t *testing.T, s string) {
		var b bytes.Buffer
		b.WriteString(`<a b="` + text(s) + `">` + text(s) + `</a>`)
		if err := xml.Unmarshal(b.Bytes(), new(struct{})); err != nil {
			t.Errorf("text(%q): %v", s, err)
		}
		fitName(s, 10, 40)
		fit(s, 10, 40)
		clip(s)
	})
}
