package page

import (
	"bytes"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hbtrace/hbtrace/internal/chromium"
	"github.com/hbtrace/hbtrace/internal/synthetic"
	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/trace/tracetest"
)

// TestInBrowser runs everything that needs a browser in one.
func TestInBrowser(t *testing.T) {
	b := chromium.Start(t)
	for name, test := range map[string]func(*testing.T, *chromium.Browser){
		"Views":                testViews,
		"BothFormsAnswerAlike": testBothFormsAnswerAlike,
		"ScriptInjection":      testScriptInjection,
		"OwnFunctions":         testOwnFunctions,
		"Interactions":         testInteractions,
		"WaitIsExplained":      testWaitIsExplained,
		"ServerGone":           testServerGone,
		"FewAndOdd":            testFewAndOdd,
		"FrameWork":            testFrameWork,
		"Reader":               testReader,
		"Keyboard":             testKeyboard,
		"Flame":                testFlame,
		"ChainIsFollowed":      testChainIsFollowed,
		"Arrows":               testArrows,
		"SlowRequests":         testSlowRequests,
		"Addresses":            testAddresses,
		"WhileReading":         testWhileReading,
		"ReadyIsTold":          testReadyIsTold,
		"Axe":                  testAxe,
		"Butterfly":            testButterfly,
		"ExactFunction":        testExactFunction,
		"NothingStale":         testNothingStale,
		"Source":               testSource,
		"Collapse":             testCollapse,
		"HeaviestFirst":        testHeaviestFirst,
		"NoBlankLanes":         testNoBlankLanes,
	} {
		t.Run(name, func(t *testing.T) { test(t, b) })
	}
}

var viewNames = []string{"timeline", "flame", "blocks", "slow", "trust"}

// settled waits until the page has asked nothing for a moment.
func settled(p *chromium.Page) {
	p.Await(`globalThis.hbtrace && document.body.dataset.pending === "0"`)
	p.Eval(`new Promise((r) => setTimeout(r, 150))`, nil)
	p.Await(`document.body.dataset.pending === "0"`)
}

func noProblems(t *testing.T, p *chromium.Page, when string) {
	t.Helper()
	if bad := p.Problems(); len(bad) > 0 {
		t.Errorf("%s: %s", when, strings.Join(bad, "\n"))
	}
}

// exported writes src as a page into a file, and gives its address.
func exported(t *testing.T, src trace.Source) string {
	t.Helper()
	return exportedWith(t, src, Options{})
}

func exportedWith(t *testing.T, src trace.Source, o Options) string {
	t.Helper()
	var b bytes.Buffer
	if err := Export(&b, src, o); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "page.html")
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return (&url.URL{Scheme: "file", Path: path}).String()
}

// testViews: every view draws, in both forms of the page, light and dark, narrow and at twice the size.
func testViews(t *testing.T, b *chromium.Browser) {
	for form, address := range map[string]string{"served": serve(t, synthetic.Demo()).URL(), "exported": exported(t, synthetic.Demo())} {
		p := b.Open(t, address, 1400, 900, 1)
		for i, view := range viewNames {
			p.Await("globalThis.hbtrace")
			p.Key(fmt.Sprint(i + 1))
			p.Await(fmt.Sprintf(`hbtrace.shared.state.view === %q`, view))
			settled(p)
			noProblems(t, p, form+" "+view)
			var text string
			p.Eval("document.querySelector('main').innerText", &text)
			if view != "timeline" && len(strings.Fields(text)) < 8 {
				t.Errorf("%s %s says only %q", form, view, text)
			}
		}
		// The lights go out while another view is shown: the timeline has the dark's colours then, too.
		p.Dark(true)
		p.Key("1")
		p.Await(`(() => {
      const lanes = document.querySelector(".timeline .scroller canvas");
      const rgb = getComputedStyle(document.documentElement).getPropertyValue("--s3").trim().match(/[0-9a-f]{2}/gi).map((x) => parseInt(x, 16));
      const { data } = lanes.getContext("2d").getImageData(0, 0, lanes.width, lanes.height);
      let n = 0;
      for (let i = 0; i < data.length; i += 4) if (rgb.every((x, k) => data[i + k] === x)) n++;
      return n > 20;
    })()`)
		for _, size := range [][2]int{{700, 450}, {420, 800}} { // 1400 × 900 at 200 %, and what is narrow at 200 %
			p.Resize(size[0], size[1], 2)
			for i := range viewNames {
				p.Key(fmt.Sprint(i + 1))
				settled(p)
				var wide bool
				p.Eval("document.documentElement.scrollWidth > innerWidth + 1", &wide)
				if wide {
					t.Errorf("%s %s is wider than a window of %d", form, viewNames[i], size[0])
				}
			}
		}
		noProblems(t, p, form+" at 200 %, dark")
		for _, r := range p.Requests() {
			if !strings.HasPrefix(r, address) && !strings.HasPrefix(r, "data:") {
				t.Errorf("%s asked for %s", form, r)
			}
		}
	}
}

// answers are asked of both forms of the page, which find them in different ways. How many allocations the sampled ones
// stand for is a rounded estimate, which may be rounded at another place.
const answers = `(async () => {
  const { store } = hbtrace;
  const len = store.about.length;
  const out = [];
  const name = (s) => store.places.stack(s).map((f) => f.n).join(";");
  const rows = (r) => [...r.value.keys()].map((i) => [r.thread[i], r.state[i], r.value[i], r.state[i] >= 10 ? 0 : r.count[i], name(r.site[i]),
    store.places.object(r.object[i]), r.owner[i], r.releaser[i], name(r.releaseSite[i]), r.release[i], r.flags[i] & 512].join("|")).sort();
  const link = (l) => [l.thread, name(l.site), l.in, store.places.object(l.object), l.kind].join("|");
  const did = (d) => [d.act, d.act === "waiting" ? "" : d.in, d.thread, store.places.object(d.object ?? 0), d.ns].join("|");
  const chains = (c) => [c.chains.map((x) => [x.ns, x.longest, x.count, x.lock, x.links.map(link).join("<"), did(x.end)].join(" ")).sort(), c.rest, c.resolution,
    c.holding.map((x) => [x.thread, name(x.site), store.places.object(x.object), x.owner, x.releaser, x.ns, x.count, x.doing.map((d) => d.ns).sort()].join(" ")).sort()];
  for (const [a, b] of [[0, len], [Math.floor(len / 7), Math.floor(len / 2)], [Math.floor(len * 0.2), Math.floor(len * 0.2) + 1e6]]) {
    for (const threads of [null, [1]]) {
      out.push(rows(await store.sums(threads, a, b, false, false)), rows(await store.sums(threads, a, b, true, true)));
      out.push([...(await store.slowest(threads, a, b, "main", false, 5)).dur], [...(await store.slowest(threads, a, b, "read", true, 5)).start]);
      out.push(chains(await store.chainsOf(threads, a, b)));
      out.push(Object.entries(await store.ready(threads, a, b)).map(([k, v]) => k + [...v]));
      if (threads) out.push(Object.entries(await store.chart(threads, a, b, 20)).map(([k, v]) => k + [...v].map((x) => Math.round(x / 1e4))));
    }
  }
  return JSON.stringify(out);
})()`

// testOwnFunctions: where one function of a wait is named, it is the innermost of the program's own, in both forms.
func testOwnFunctions(t *testing.T, b *chromium.Browser) {
	r := tracetest.New()
	th := r.AddThread(trace.Thread{Proc: r.AddProcess(trace.Process{PID: 1}), TID: 1, Name: "main"})
	r.Wait(th, 1*ms, 9*ms, r.Hook("pthread_mutex_lock"), 0x10, 0, "main", "take_order", "std::lock_guard<std::mutex>::lock_guard", "std::mutex::lock", "__gthread_mutex_lock")
	for i, f := range []string{"app::Table::operator()(int) const", "app::start(int)::{lambda(int)#1}::operator()(int) const",
		"shop::detail::basic_store<char, shop::traits<char> >::orders_that_are_open::append_all(char const*)"} {
		th := r.AddThread(trace.Thread{Proc: 1, TID: i + 2, Name: "other"})
		r.Wait(th, 1*ms, 9*ms, r.Hook("pthread_mutex_lock"), 0x10, 0, "main", f)
	}
	src := r.Source()
	for _, address := range []string{serve(t, src).URL(), exported(t, src)} {
		p := b.Open(t, address, 1200, 800, 1)
		settled(p)
		var got string
		p.Eval(`hbtrace.shared.set({ view: "blocks" }), ""`, &got)
		settled(p)
		p.Eval(`[...document.querySelectorAll("td")].map((x) => x.textContent).join(" | ")`, &got)
		for _, want := range []string{"app::Table::operator()", "app::…::{lambda(int)#1}::operator()", "shop::…::append_all"} {
			if !strings.Contains(got+" ", want+" ") {
				t.Errorf("no function is named %q in\n%s", want, got)
			}
		}
		p.Eval(`(async () => {
  const { store } = hbtrace;
  const rows = await store.lanes([0], 0, store.about.length, 1);
  const site = rows.site[rows.state.indexOf(3)];
  const elsewhere = [...document.querySelectorAll("*")].some((x) => x.children.length === 0 && !x.closest("li, script") &&
    x.textContent.includes("__gthread")); // a stack is a list, and has them
  return [store.places.culprit(site), store.places.caller(site), store.places.leaf(site), elsewhere].join();
})()`, &got)
		if want := "take_order,take_order,pthread_mutex_lock,false"; got != want {
			t.Errorf("the wait is in %s, want %s", got, want)
		}
		p.Close()
	}
}

// testBothFormsAnswerAlike holds the server's answers and those that an exported page finds itself to each other.
func testBothFormsAnswerAlike(t *testing.T, b *chromium.Browser) {
	for name, src := range map[string]trace.Source{"demo": synthetic.Demo(), "synthetic": synthetic.New(6000, 3), "counted": counted(false)} {
		var got [2]string
		for i, address := range []string{serve(t, src).URL(), exported(t, src)} {
			p := b.Open(t, address, 1200, 800, 1)
			settled(p)
			p.Eval(answers, &got[i])
			p.Close()
		}
		if got[0] != got[1] {
			at := 0
			for at < min(len(got[0]), len(got[1])) && got[0][at] == got[1][at] {
				at++
			}
			show := func(s string) string { return s[max(0, at-200):min(len(s), at+200)] }
			t.Errorf("%s: the server and the file differ at %d\nserver …%s…\nfile   …%s…", name, at, show(got[0]), show(got[1]))
		}
		if len(got[0]) < 1000 {
			t.Errorf("%s: answers of %d bytes: this test tests nothing", name, len(got[0]))
		}
	}
}

// testScriptInjection: a recording whose every name is a script runs none, in any view.
func testScriptInjection(t *testing.T, b *chromium.Browser) {
	for form, address := range map[string]string{"served": serve(t, hostile().Source()).URL(), "exported": exported(t, hostile().Source())} {
		p := b.Open(t, address, 1400, 900, 1)
		for i := range viewNames {
			p.Await("globalThis.hbtrace")
			p.Key(fmt.Sprint(i + 1))
			settled(p)
		}
		p.Key("1")
		settled(p)
		clickWait(p)
		p.Await("!document.querySelector('aside').hidden")
		settled(p)
		var ran, img, shown bool
		p.Eval("'pwned' in window", &ran)
		p.Eval("document.querySelector('img, iframe, object, embed, a[href]') !== null", &img)
		p.Eval("document.body.innerText.includes('onerror=')", &shown)
		if ran || img || !shown {
			t.Errorf("%s: a name ran: %v, became an element: %v, is shown as it is: %v", form, ran, img, shown)
		}
		noProblems(t, p, form)
	}
}

// clickWait clicks on the longest wait for a lock in the timeline.
func clickWait(p *chromium.Page) {
	var at struct{ X, Y float64 }
	p.Eval(`(async () => {
    const { store, shared } = hbtrace;
    const all = [...store.about.threads.keys()];
    const r = await store.lanes(all, 0, store.about.length, 1);
    let best = -1;
    for (let i = 0; i < r.length; i++) if (r.state[i] === 3 && (best < 0 || r.value[i] > r.value[best])) best = i;
    shared.choose("open", "");
    shared.zoomTo(r.start[best] - r.value[best], r.start[best] + 2 * r.value[best]);
    shared.set({ threads: [r.thread[best]] });
    await new Promise((f) => setTimeout(f, 400));
    const box = document.querySelector(".timeline .scroller").getBoundingClientRect();
    const gutter = Math.max(140, Math.min(230, document.querySelector(".timeline").getBoundingClientRect().width * 0.16));
    return { X: box.left + gutter + (document.querySelector(".timeline .scroller").clientWidth - gutter - 8) / 2, Y: box.top + 7 + 11 };
  })()`, &at)
	settled(p)
	p.Click(at.X, at.Y)
}

func testInteractions(t *testing.T, b *chromium.Browser) {
	s := serve(t, synthetic.New(20_000, 6))
	p := b.Open(t, s.URL(), 1400, 900, 1)
	settled(p)
	number := func(what string) (x float64) {
		t.Helper()
		p.Eval("Number("+what+")", &x)
		return x
	}
	width := func() float64 { return number("hbtrace.shared.state.to - hbtrace.shared.state.from") }
	whole := width()

	p.Key("w")
	p.Await(fmt.Sprintf("hbtrace.shared.state.to - hbtrace.shared.state.from < %f", whole*0.9))
	zoomed := width()
	p.Wheel(800, 600, -300, true)
	p.Await(fmt.Sprintf("hbtrace.shared.state.to - hbtrace.shared.state.from < %f", zoomed*0.95))
	from := number("hbtrace.shared.state.from")
	p.Key("d")
	p.Await(fmt.Sprintf("hbtrace.shared.state.from > %f", from))
	p.Key("0")
	p.Await(fmt.Sprintf("hbtrace.shared.state.to - hbtrace.shared.state.from === %f", whole))

	// drag selects time, which all views share, and the address keeps
	p.Mouse("mousePressed", 500, 520)
	p.Mouse("mouseMoved", 600, 520)
	p.Mouse("mouseMoved", 800, 520)
	p.Mouse("mouseReleased", 800, 520)
	p.Await("hbtrace.shared.state.picked !== null")
	p.Key("ArrowDown")
	p.Await("hbtrace.shared.state.threads?.length === 1")
	p.Key("2")
	p.Await("hbtrace.shared.state.view === 'flame' && document.querySelectorAll('.functions tbody tr').length > 3")
	settled(p)
	p.Await("location.hash.includes('v=flame') && location.hash.includes('&s=') && location.hash.includes('&t=')")
	var hash, again string
	p.Eval("location.hash", &hash)
	q := b.Open(t, s.URL()+hash, 1400, 900, 1)
	settled(q)
	q.Eval("JSON.stringify(hbtrace.shared.state)", &again)
	q.Close()
	settled(p)
	var state string
	p.Eval("JSON.stringify(hbtrace.shared.state)", &state)
	if state != again {
		t.Errorf("the address opens on %s, not on %s", again, state)
	}

	// flame graph: invert, search, focus, compare
	p.Key("i")
	p.Await("hbtrace.shared.state.options.invert === '1'")
	p.Key("i")
	p.Key("/")
	for _, c := range "module_3" {
		p.Key(string(c))
	}
	p.Await("document.querySelector('.flame .tools').innerText.includes('module_3')")
	p.Key("Enter")
	p.Key("b")
	p.Await("document.querySelector('.flame .tools').innerText.includes('Drop baseline')")
	p.Click(300, 170)
	settled(p)

	p.Key("Escape")
	p.Key("Escape")
	p.Key("Escape")
	p.Key("3")
	p.Await("document.querySelectorAll('.blocks path.band').length > 3")
	p.Eval("[...document.querySelectorAll('.blocks path.band')].find((x) => !x.getAttribute('aria-label').includes('others')).dispatchEvent(new MouseEvent('click', { bubbles: true }))", nil)
	p.Await("hbtrace.shared.state.options.edge && document.querySelector('.blocks path.band.on')")
	p.Key("4")
	p.Await("document.querySelector('.slow-body').innerText.length > 40")
	p.Eval("hbtrace.shared.choose('slow', 't:read')", nil)
	p.Await("document.querySelectorAll('.requests li .strip .bar i').length > 5")
	p.Eval("document.querySelector('.requests .link').click()", nil)
	p.Await("hbtrace.shared.state.view === 'timeline' && hbtrace.shared.state.threads.length === 1")
	settled(p)
	p.Key("Enter") // its calls
	p.Key("n")     // its next wait
	p.Await("!document.querySelector('aside').hidden")
	settled(p)
	p.Key("Escape")
	p.Await("document.querySelector('aside').hidden")
	p.Key("?")
	p.Await("document.querySelector('dialog.help').open")
	p.Key("Escape")
	p.Key("t")
	p.Await("document.documentElement.dataset.theme === 'light'")
	noProblems(t, p, "after all of that")
}

// testWaitIsExplained: a click on a wait says who had the lock and what they did meanwhile.
func testWaitIsExplained(t *testing.T, b *chromium.Browser) {
	p := b.Open(t, serve(t, synthetic.Demo()).URL(), 1400, 900, 1)
	settled(p)
	clickWait(p)
	p.Await("!document.querySelector('aside').hidden")
	p.Await("document.querySelector('aside').innerText.includes('Meanwhile')")
	settled(p)
	var text string
	p.Eval("document.querySelector('aside').innerText", &text)
	for _, want := range []string{"waiting for a lock", "mutex", "held by", "released", "take"} {
		if !strings.Contains(text, want) {
			t.Errorf("the panel lacks %q:\n%s", want, text)
		}
	}
	noProblems(t, p, "the panel")
}

// testServerGone: a page whose server ended says so, once, and goes on showing what it has.
func testServerGone(t *testing.T, b *chromium.Browser) {
	m := read(t, synthetic.Demo())
	s, err := Listen(m, 0)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Serve(t.Context()) }()
	p := b.Open(t, s.URL(), 1200, 800, 1)
	settled(p)
	s.http.Close()
	<-done
	p.Key("2")
	p.Await("!document.querySelector('.problem').hidden && document.querySelector('.problem').innerText.includes('start it again')")
}

// testFewAndOdd: recordings with next to nothing in them give a page that says so.
func testFewAndOdd(t *testing.T, b *chromium.Browser) {
	for name, src := range map[string]trace.Source{"no events": synthetic.New(0, 1), "no threads": synthetic.New(0, 0), "one event": synthetic.New(1, 1), "20,000 threads": synthetic.New(40_000, 20_000),
		"clocks that wrap": synthetic.Hostile().Source(), "nothing at all": tracetest.New().Source()} {
		p := b.Open(t, serve(t, src).URL(), 1200, 800, 1)
		for i := range viewNames {
			p.Await("globalThis.hbtrace")
			p.Key(fmt.Sprint(i + 1))
			settled(p)
		}
		noProblems(t, p, name)
	}
}
