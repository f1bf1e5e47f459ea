package page

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hbtrace/hbtrace/internal/chromium"
	"github.com/hbtrace/hbtrace/internal/synthetic"
	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/trace/tracetest"
)

// axe is the source of axe-core, which npm installs in the folder of this package's tests; why says what is missing.
func axe() (source, why string) {
	dir := filepath.Join("testdata", "axe")
	path := filepath.Join(dir, "node_modules", "axe-core", "axe.min.js")
	text, err := os.ReadFile(path)
	if err == nil {
		return string(text), ""
	}
	if _, err := exec.LookPath("npm"); err != nil {
		return "", "needs npm to install axe-core"
	}
	cmd := exec.Command("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		line, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
		return "", fmt.Sprintf("needs axe-core, which npm could not install: %v: %s", err, line)
	}
	if text, err = os.ReadFile(path); err != nil {
		return "", "needs axe-core: " + err.Error()
	}
	return string(text), ""
}

// testAxe: axe-core finds nothing to complain about in any view, light and dark, with a panel open and with the keys shown.
func testAxe(t *testing.T, b *chromium.Browser) {
	source, why := axe()
	if why != "" {
		t.Skip(why)
	}
	p := b.Open(t, serve(t, synthetic.Demo()).URL(), 1400, 900, 1)
	p.Await("globalThis.hbtrace")
	p.Eval(source+"; true", nil)
	check := func(where string) {
		t.Helper()
		settled(p)
		var found []struct {
			ID, Help string
			Nodes    []string
		}
		var text string
		p.Eval(`axe.run(document, {
      runOnly: { type: "tag", values: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice", "experimental"] },
    }).then((r) => JSON.stringify(r.violations.map((v) => ({ ID: v.id, Help: v.help, Nodes: v.nodes.slice(0, 4).map((n) => n.html.slice(0, 200)) }))))`, &text)
		if err := json.Unmarshal([]byte(text), &found); err != nil {
			t.Fatalf("%s: %v: %s", where, err, text)
		}
		for _, f := range found {
			t.Errorf("%s: %s: %s\n  %s", where, f.ID, f.Help, strings.Join(f.Nodes, "\n  "))
		}
	}
	for _, dark := range []bool{false, true} {
		p.Dark(dark)
		for i, view := range viewNames {
			p.Key(fmt.Sprint(i + 1))
			p.Await(fmt.Sprintf(`hbtrace.shared.state.view === %q`, view))
			check(fmt.Sprintf("%s, dark %v", view, dark))
		}
		p.Key("1")
		p.Await(`hbtrace.shared.state.view === "timeline"`)
		settled(p)
		p.Eval(`hbtrace.shared.set({ view: "flame", find: "\"" + hbtrace.store.places.frames.find((f) => f.n.length > 2).n + "\"" })`, nil)
		check(fmt.Sprintf("one function, dark %v", dark))
		p.Eval(`hbtrace.shared.set({ view: "timeline", find: "" })`, nil)
		settled(p)
		p.Key("n") // the panel about a wait
		p.Await(`!document.querySelector("aside").hidden`)
		check(fmt.Sprintf("panel, dark %v", dark))
		p.Key("?")
		check(fmt.Sprintf("keys, dark %v", dark))
		p.Key("Escape")
	}
	// A function with its source.
	file := numbered(t, filepath.Join(t.TempDir(), "work.c"), 50)
	p = b.Open(t, serve(t, sourced(file, file, time.Now())).URL()+"#v=flame&q=%22work%22&o.fold=main%0Ano", 1400, 900, 1)
	p.Await(`document.querySelector(".chip")`)
	p.Eval(source+"; true", nil)
	for _, dark := range []bool{false, true} {
		p.Dark(dark)
		p.Eval(`hbtrace.shared.set({ options: { fold: "nothing" } })`, nil)
		p.Await(`document.querySelector(".lines code.hot")?.innerText.includes("text of work.c")`)
		check(fmt.Sprintf("source, dark %v", dark))
	}
}

// testExactFunction: a click on a function lights that function and no other whose name it is a part of; what is typed is searched for
// in names. testNothingStale is about the rest of what is shown.
func testExactFunction(t *testing.T, b *chromium.Browser) {
	rec := tracetest.New()
	th := rec.AddThread(trace.Thread{Proc: rec.AddProcess(trace.Process{PID: 1}), TID: 1, Name: "app"})
	for i := range 100 {
		name := "work"
		if i%10 == 0 {
			name = "worker"
		}
		rec.Sample(th, trace.Ns(i)*1e6, 1e6, "main", name)
	}
	p := b.Open(t, exported(t, rec.Source())+"#v=flame", 1200, 700, 1)
	settled(p)
	p.Await(`[...document.querySelectorAll(".functions .link")].some((x) => x.innerText === "work")`)
	p.Eval(`[...document.querySelectorAll(".functions .link")].find((x) => x.innerText === "work").click()`, nil)
	p.Await(`document.querySelector(".tools .soft").innerText === "work: 90.0 ms, 90 %"`)
	p.Eval(`hbtrace.shared.set({ find: "work" })`, nil)
	p.Await(`document.querySelector(".tools .soft").innerText.includes(": 100 ms, 100 %")`)
	noProblems(t, p, "exact function")
}

// testNothingStale: the panel about a wait is closed where another view is shown.
func testNothingStale(t *testing.T, b *chromium.Browser) {
	p := b.Open(t, serve(t, synthetic.Demo()).URL(), 1200, 700, 1)
	settled(p)
	p.Key("n")
	p.Await(`!document.querySelector("aside").hidden`)
	p.Key("2")
	p.Await(`hbtrace.shared.state.view === "flame" && document.querySelector("aside").hidden`)
	p.Key("1")
	p.Await(`hbtrace.shared.state.view === "timeline" && document.querySelector("aside").hidden`)
	noProblems(t, p, "another view")
}

// testButterfly: of the one function that is searched for its callers and callees are listed with their weights. A hidden function's
// weight falls on its callers, and comes back.
func testButterfly(t *testing.T, b *chromium.Browser) {
	rec := tracetest.New()
	th := rec.AddThread(trace.Thread{Proc: rec.AddProcess(trace.Process{PID: 1}), TID: 1, Name: "app"})
	for i := range 100 {
		stack := []string{"main", "a", "hub", "x"}
		if i%4 == 0 {
			stack = []string{"main", "b", "hub", "y"}
		}
		rec.Sample(th, trace.Ns(i)*1e6, 1e6, stack...)
	}
	p := b.Open(t, exported(t, rec.Source())+"#v=flame", 1200, 700, 1)
	settled(p)
	p.Eval(`hbtrace.shared.set({ find: '"hub"' })`, nil)
	lists := `[...document.querySelectorAll(".butterfly tbody tr")].filter((r) => !r.closest(".lines")).map((r) => [...r.children].map((c) => c.innerText).join(" ")).join("; ")`
	p.Await(lists + ` === "75.0 ms 75 % a; 25.0 ms 25 % b; 75.0 ms 75 % x; 25.0 ms 25 % y"`)
	functions := `[...document.querySelectorAll(".functions > table tbody tr")].map((r) => r.lastChild.innerText).sort().join(" ")`
	p.Await(functions + ` === "a b hub main x y"`)
	p.Eval(`[...document.querySelectorAll(".butterfly button")].find((x) => x.innerText === "Hide function").click()`, nil)
	p.Await(functions + ` === "a b main x y"`)
	p.Eval(`hbtrace.shared.set({ find: '"x"' })`, nil)
	p.Await(lists + ` === "75.0 ms 100 % a"`)
	p.Eval(`[...document.querySelectorAll(".tools button")].find((x) => x.innerText.startsWith("hidden: hub")).click()`, nil)
	p.Await(functions + ` === "a b hub main x y"`)
	noProblems(t, p, "butterfly")
}
