package page

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hbtrace/hbtrace/internal/chromium"
	"github.com/hbtrace/hbtrace/internal/synthetic"
	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/trace/tracetest"
)

// sourced is a recording of three lines of work in file, and one of its caller in another.
func sourced(file, other string, started time.Time) trace.Source {
	b := tracetest.New()
	b.Meta().Started = started
	th := b.AddThread(trace.Thread{Proc: b.AddProcess(trace.Process{PID: 1, Exe: "/bin/app"}), TID: 1, Name: "app"})
	module := b.AddModule(trace.Module{Path: "/bin/app"})
	frame := func(parent trace.StackID, off uint64, name, file string, line int) trace.StackID {
		at := trace.Addr{Module: module, Off: off}
		b.SetSymbols(at, []trace.SymFrame{{Func: name, File: file, Line: line}})
		return b.Node(trace.Node{Parent: parent, Addr: at, How: trace.HowTable})
	}
	main := frame(0, 0x100, "main", other, 3)
	var at trace.Ns
	for _, x := range []struct {
		line int
		ms   int
	}{{7, 60}, {9, 30}, {40, 10}} {
		stack := frame(main, 0x200+uint64(x.line), "work", file, x.line)
		for range x.ms {
			at += ms
			b.AddJoined(trace.Event{Kind: trace.KindCPU, Thread: th, Time: at, CPU: int64(ms), Stack: stack})
		}
	}
	return b.Source()
}

// numbered is a file of lines that say which they are.
func numbered(t *testing.T, path string, n int) string {
	t.Helper()
	var text strings.Builder
	for i := range n {
		fmt.Fprintf(&text, "\ttext of %s, line %d <b>&amp;\n", filepath.Base(path), i+1)
	}
	if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(path, old, old); err != nil {
		t.Fatal(err)
	}
	return path
}

// testSource: the details of a function have its lines by weight, with the source where that is there and allowed.
func testSource(t *testing.T, b *chromium.Browser) {
	dir := t.TempDir()
	file, secret := numbered(t, filepath.Join(dir, "work.c"), 50), numbered(t, filepath.Join(dir, "secret.key"), 50)
	before, after := time.Now().Add(-2*time.Hour), time.Now()
	const code = `[...document.querySelectorAll(".lines tbody tr")].map((r) => [...r.cells].map((c) => c.innerText.trim()).join("|")).join("\n")`
	for name, test := range map[string]struct {
		address string
		want    []string // parts of the panel
		not     string
	}{
		"served":          {serve(t, sourced(file, secret, after)).URL(), []string{"60.0 ms|60.0 ms|7|text of work.c, line 7 <b>&amp;", "||6|text of work.c, line 6", "||⋮|", "10.0 ms|10.0 ms|40|text of work.c, line 40"}, "changed"},
		"exported":        {exported(t, sourced(file, secret, after)), []string{"60.0 ms|60.0 ms|7|text of work.c, line 7 <b>&amp;", "||6|text of work.c, line 6", "||⋮|", "10.0 ms|10.0 ms|40|text of work.c, line 40"}, "changed"},
		"changed":         {exported(t, sourced(file, secret, before)), []string{"line 7", "changed after the recording began"}, "No source lines"},
		"hidden, in file": {exportedWith(t, sourced(file, secret, after), Options{NoSource: true}), []string{"60.0 ms|60.0 ms|7|", "No source lines"}, "text of"},
		"gone":            {serve(t, sourced(filepath.Join(dir, "gone.c"), secret, after)).URL(), []string{"30.0 ms|30.0 ms|9|", "the file is not on this machine"}, "text of"},
	} {
		t.Run(name, func(t *testing.T) {
			p := b.Open(t, test.address+"#v=flame", 1400, 900, 1)
			settled(p)
			p.Eval(`hbtrace.shared.set({ find: '"work"' })`, nil)
			p.Await(`document.querySelector(".butterfly")?.innerText.includes("work.c:7 60 %") || document.querySelector(".butterfly")?.innerText.includes("gone.c:7 60 %")`)
			p.Await(`/text of|No source/.test(document.querySelector(".lines").innerText)`)
			var text string
			p.Eval(code+` + "\n" + document.querySelector(".lines").innerText`, &text)
			for _, want := range test.want {
				if !strings.Contains(text, want) {
					t.Errorf("the panel lacks %q:\n%s", want, text)
				}
			}
			if strings.Contains(text, test.not) {
				t.Errorf("the panel has %q:\n%s", test.not, text)
			}
			// What is no source file is not shown, though the recording names it.
			p.Eval(`hbtrace.shared.set({ find: '"main"' })`, nil)
			p.Await(`document.querySelector(".butterfly h2")?.innerText === "main"`)
			p.Await(`document.querySelector(".lines").innerText.includes("No source lines")`)
			p.Eval(`document.body.innerText`, &text)
			if strings.Contains(text, "text of secret") {
				t.Error("a file that is no source file is shown")
			}
			noProblems(t, p, name)
			p.Close()
		})
	}
	// Stacks name lines, too.
	r := tracetest.New()
	th := r.AddThread(trace.Thread{Proc: r.AddProcess(trace.Process{PID: 1}), TID: 1, Name: "main"})
	r.Wait(th, 1*ms, 9*ms, r.Hook("pthread_mutex_lock"), 0x10, 0, "main@12", "take@34")
	p := b.Open(t, exported(t, r.Source())+"#v=blocks", 1200, 800, 1)
	settled(p)
	p.Await(`document.querySelector(".stack")?.innerText.includes("take.c:34") && document.querySelector(".stack").innerText.includes("main.c:12")`)
	p.Close()
}

// TestSourceFiles: nothing is read but regular text files that are called like source code.
func TestSourceFiles(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	numbered(t, path("good.c"), 5)
	numbered(t, path("secret"), 5)
	for link, to := range map[string]string{"link.c": "secret", "fine.c": "good.c"} {
		if err := os.Symlink(path(to), path(link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(path("pipe.c"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(path("dir.c"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path("binary.c"), []byte("a\x00b"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path("huge.c"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path("huge.c"), sourceBytes+1); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path("odd.c"), []byte("\xff\xfe\r\n"+strings.Repeat("長", 2*sourceColumns)+"\nno end"), 0o600); err != nil {
		t.Fatal(err)
	}
	m := New(tracetest.New().Source())
	for name, lines := range map[string]int{"good.c": 5, "fine.c": 5, "odd.c": 3, "secret": 0, "link.c": 0, "pipe.c": 0, "dir.c": 0, "binary.c": 0, "huge.c": 0, "gone.c": 0} {
		f := m.readSource(path(name))
		if len(f.lines) != lines || (f.missing == "") != (lines > 0) {
			t.Errorf("%s: %d lines, want %d (%s)", name, len(f.lines), lines, f.missing)
		}
	}
	if l := m.readSource(path("odd.c")).lines; len([]rune(l[1])) != sourceColumns+1 || l[2] != "no end" {
		t.Errorf("odd lines: %q", l)
	}
	hidden := New(tracetest.New().Source())
	hidden.HideSource()
	if f := hidden.readSource(path("good.c")); f.missing == "" {
		t.Error("a file was read though source lines are hidden")
	}
	for _, p := range []string{"good.c", "", "./good.c"} {
		if f := m.readSource(p); f.missing == "" {
			t.Errorf("%q was read", p)
		}
	}
}

// testCollapse: a collapsed function keeps the weight of what it calls, a collapsed library is one function.
func testCollapse(t *testing.T, b *chromium.Browser) {
	rec := tracetest.New()
	th := rec.AddThread(trace.Thread{Proc: rec.AddProcess(trace.Process{PID: 1}), TID: 1, Name: "app"})
	for i := range 100 {
		rec.Sample(th, trace.Ns(i)*1e6, 1e6, "main", "hub", "libz.so!outer", "libz.so!inner", "back")
	}
	p := b.Open(t, exported(t, rec.Source())+"#v=flame", 1200, 700, 1)
	settled(p)
	functions := `[...document.querySelectorAll(".functions > table tbody tr")].map((r) => r.lastChild.innerText + (r.cells[0].innerText ? "*" : "")).sort().join(" ")`
	click := func(where, text string) {
		p.Eval(fmt.Sprintf(`[...document.querySelectorAll(%q)].find((x) => x.innerText.startsWith(%q)).click()`, where, text), nil)
	}
	p.Await(functions + ` === "back* hub inner main outer"`)
	p.Eval(`hbtrace.shared.set({ find: '"inner"' })`, nil)
	p.Await(`document.querySelector(".butterfly h2")?.innerText === "inner"`)
	click(".butterfly button", "Collapse its library")
	p.Await(functions + ` === "[libz.so] back* hub main"`)
	p.Eval(`hbtrace.shared.set({ find: '"hub"' })`, nil)
	p.Await(`document.querySelector(".butterfly h2")?.innerText === "hub"`)
	click(".butterfly button", "Collapse function")
	p.Await(functions + ` === "hub* main"`)
	click(".tools .chip", "collapsed: hub")
	p.Await(functions + ` === "[libz.so] back* hub main"`)
	click(".tools .chip", "collapsed: libz.so")
	p.Await(functions + ` === "back* hub inner main outer"`)
	noProblems(t, p, "collapsing")
}

// testHeaviestFirst: what is shown unless something is chosen is what weighs most.
func testHeaviestFirst(t *testing.T, b *chromium.Browser) {
	for want, kind := range map[string]func(r *tracetest.Builder, th trace.ThreadID){
		"cpu / all": func(r *tracetest.Builder, th trace.ThreadID) {
			for i := range 50 {
				r.Sample(th, trace.Ns(i+1)*ms, int64(ms), "main", "work")
			}
			r.Wait(th, 51*ms, 52*ms, r.Hook("pthread_mutex_lock"), 0x10, 0, "main", "take")
			r.Wait(th, 53*ms, 99*ms, r.Hook("pthread_cond_wait"), 0x20, 0, "main", "rest")
		},
		"lock / locks": func(r *tracetest.Builder, th trace.ThreadID) {
			for i := range 20 {
				r.Sample(th, trace.Ns(i+1)*ms, int64(ms), "main", "work")
			}
			r.Wait(th, 21*ms, 60*ms, r.Hook("pthread_mutex_lock"), 0x10, 0, "main", "take")
			r.Wait(th, 60*ms, 99*ms, r.Hook("pthread_cond_wait"), 0x20, 0, "main", "rest")
		},
		"blocked / none": func(r *tracetest.Builder, th trace.ThreadID) {
			r.Sample(th, 1*ms, int64(ms), "main", "work")
			r.Call(th, 2*ms, 99*ms, r.Hook("read"), 7, 10, "main", "load")
		},
	} {
		r := tracetest.New()
		r.Meta().EndNs = r.Meta().StartNs + 100*ms
		th := r.AddThread(trace.Thread{Proc: r.AddProcess(trace.Process{PID: 1}), TID: 1, Name: "app"})
		kind(r, th)
		value, kinds, _ := strings.Cut(want, " / ")
		p := b.Open(t, exported(t, r.Source())+"#v=flame", 1200, 700, 1)
		settled(p)
		p.Await(fmt.Sprintf(`document.querySelector(".tools select[data-option=value]").value === %q`, value))
		p.Eval(`hbtrace.shared.set({ view: "blocks" })`, nil)
		settled(p)
		pressed := map[string]string{"all": "Locks, conditions, semaphores, joins", "locks": "Locks", "none": "Locks, conditions, semaphores, joins"}[kinds]
		p.Await(fmt.Sprintf(`document.querySelector(".blocks .tools [aria-pressed=true]").innerText === %q`, pressed))
		p.Close()
	}
}

// testNoBlankLanes: lanes are drawn before it is known what is in them, without the pattern of unknown time. A lane is opened when its calls are
// there, not before: rows without calls would say that there are none.
func testNoBlankLanes(t *testing.T, b *chromium.Browser) {
	m := read(t, synthetic.New(20_000, 6))
	s, err := Listen(m, 0)
	if err != nil {
		t.Fatal(err)
	}
	lanes, calls := make(chan struct{}), make(chan struct{})
	s.http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch filepath.Base(r.URL.Path) {
		case "lanes":
			<-lanes
		case "calls":
			<-calls
		}
		s.ServeHTTP(w, r)
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- s.Serve(ctx) }()
	defer func() {
		cancel()
		<-done
	}()
	p := b.Open(t, s.URL(), 1400, 900, 1)
	pixels := func(colour string) string {
		return fmt.Sprintf(`(() => {
    const c = document.querySelector(".timeline .scroller canvas");
    const { data } = c.getContext("2d").getImageData(0, 0, c.width, c.height);
    const rgb = getComputedStyle(document.documentElement).getPropertyValue("--%s").trim().match(/[0-9a-f]{2}/gi).map((x) => parseInt(x, 16));
    let n = 0;
    for (let i = 0; i < data.length; i += 4) if (rgb.every((x, k) => data[i + k] === x)) n++;
    return n;
  })()`, colour)
	}
	p.Await("globalThis.hbtrace && " + pixels("lane") + " > 5000")
	var n int
	if p.Eval(pixels("hatch"), &n); n > 0 {
		t.Errorf("%d pixels say that time is unknown which was not asked for", n)
	}
	close(lanes)
	p.Await(pixels("s3") + " > 20") // waits for locks are there
	var opened string
	p.Eval(`document.querySelector(".timeline").dataset.opened`, &opened)
	if opened != "0" {
		t.Errorf("%s lanes are open without calls", opened)
	}
	close(calls)
	p.Await(`Number(document.querySelector(".timeline").dataset.opened) > 0`)
	noProblems(t, p, "opening")
}
