package page

import (
	"context"
	"fmt"
	"math"
	"net/url"
	"strings"
	"testing"

	"github.com/hbtrace/hbtrace/internal/chromium"
	"github.com/hbtrace/hbtrace/internal/synthetic"
	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/trace/tracetest"
)

// testReader: whatever can be reached by keyboard has a name, every picture says what it is, and what pictures show is in tables, too.
func testReader(t *testing.T, b *chromium.Browser) {
	p := b.Open(t, serve(t, synthetic.Demo()).URL(), 1400, 900, 1)
	p.Await("globalThis.hbtrace && hbtrace.store.about.chained")
	tables := map[string]string{
		"timeline": "What each thread did in the selection", "flame": "Functions by the weight of their own code in the selection",
		"blocks": "Waits by thread, place and releaser", "trust": "What is known of each thread’s time",
	}
	for i, view := range viewNames {
		p.Key(fmt.Sprint(i + 1))
		p.Await(fmt.Sprintf(`hbtrace.shared.state.view === %q`, view))
		settled(p)
		seen := map[string]int{}
		var named []string
		for _, n := range p.Accessible() {
			seen[n.Role]++
			named = append(named, n.Name)
			if n.Name == "" && (n.Focusable && n.Role != "RootWebArea" || n.Role == "img" || n.Role == "image") {
				t.Errorf("%s: a %s has no name", view, n.Role)
			}
		}
		if want := tables[view]; want != "" && !strings.Contains(strings.Join(named, "\n"), want) {
			t.Errorf("%s: no table is called %q", view, want)
		}
		if seen["main"] != 1 || seen["tab"] != len(viewNames) || seen["button"] == 0 {
			t.Errorf("%s: %d main parts, %d tabs, %d buttons", view, seen["main"], seen["tab"], seen["button"])
		}
	}
}

// testKeyboard: Tab reaches everything that a click does, and what has the focus shows it.
func testKeyboard(t *testing.T, b *chromium.Browser) {
	p := b.Open(t, serve(t, synthetic.Demo()).URL(), 1400, 900, 1)
	p.Await("globalThis.hbtrace && hbtrace.store.about.chained")
	for i, view := range viewNames {
		p.Key(fmt.Sprint(i + 1))
		settled(p)
		var deaf []string
		// whatever shows a pointing hand is a button, a link, or can have the focus
		p.Eval(`[...document.querySelectorAll("body *")].filter((e) => e.checkVisibility() && getComputedStyle(e).cursor === "pointer" &&
      !e.closest("button, summary, select, input, [tabindex], canvas") && !e.querySelector("[tabindex]")).map((e) => e.outerHTML.slice(0, 80))`, &deaf)
		if len(deaf) > 0 {
			t.Errorf("%s: clickable, but not by keyboard: %q", view, deaf)
		}
	}
	p.Key("1")
	settled(p)
	p.Eval("document.activeElement.blur()", nil)
	p.Key("Tab")
	var outline string
	p.Eval("getComputedStyle(document.activeElement).outlineStyle", &outline)
	if outline == "none" {
		t.Error("what has the focus does not show it")
	}
}

// testFlame: the flame graph weighs what the model does, whatever is chosen; focus, order, and comparison by the address alone.
func testFlame(t *testing.T, b *chromium.Browser) {
	src := synthetic.New(20_000, 6)
	s := serve(t, src)
	rows, err := s.m.sums(context.Background(), selection{from: 0, to: int64(s.m.to - s.m.from)}, false, false)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]float64{}
	for i, st := range rows.state {
		v := rows.value[i]
		switch st := state(st); {
		case st == allocated:
			want["alloc"] += v
			want["objects"] += float64(rows.count[i])
		case st == inUse:
			want["inuse"] += v
			want["live"] += float64(rows.count[i])
		case st == running:
			want["cpu"] += v
			want["wall"] += v
		case st != off && st != ready:
			want["wall"] += v
			want["blocked"] += v
			if st == locked {
				want["lock"] += v
			}
		}
	}
	p := b.Open(t, s.URL()+"#v=flame", 1400, 900, 1)
	for _, by := range []string{"", "thread"} {
		for _, value := range []string{"cpu", "wall", "blocked", "lock", "alloc", "objects", "inuse", "live"} {
			if by == "thread" && value != "lock" && value != "objects" {
				continue
			}
			p.Await("globalThis.hbtrace")
			p.Eval(fmt.Sprintf(`hbtrace.shared.set({ options: { value: %q, by: %q, order: "time", invert: %q } })`, value, by, map[bool]string{true: "1"}[value == "wall"]), nil)
			settled(p)
			var total float64
			p.Eval("Number(document.querySelector('.flame').dataset.total)", &total)
			if math.Abs(total-want[value]) > 1e-9*want[value] || want[value] == 0 {
				t.Errorf("%s, threads %q: the graph weighs %.0f, the model %.0f", value, by, total, want[value])
			}
		}
	}
	// Focus by keyboard, and out again.
	p.Eval(`hbtrace.shared.set({ options: {} })`, nil)
	settled(p)
	p.Key("ArrowDown")
	p.Key("Enter")
	p.Await("document.querySelector('.flame .tools').innerText.includes('Reset focus')")
	p.Key("Escape")
	p.Await("!document.querySelector('.flame .tools').innerText.includes('Reset focus')")
	// Differential: the second half against the first one, as a reader of the address sees it.
	half := int64(s.m.to-s.m.from) / 2
	q := b.Open(t, fmt.Sprintf("%s#v=flame&s=%d-%d&o.base=0-%d", s.URL(), half, 2*half, half), 1400, 900, 1)
	q.Await("document.querySelector('.flame .tools')?.innerText.includes('Drop baseline')")
	q.Await("[...document.querySelectorAll('.functions th')].some((x) => x.innerText === 'change')")
	var changes []string
	q.Eval("[...document.querySelectorAll('.functions tbody tr')].map((r) => r.cells[2].innerText).filter(Boolean)", &changes)
	if len(changes) == 0 {
		t.Error("no function is said to have changed")
	}
	for _, c := range changes {
		if !strings.HasPrefix(c, "+") && !strings.HasPrefix(c, "−") {
			t.Errorf("a change of %q", c)
		}
	}
	// A selection is no different from itself.
	q.Eval(fmt.Sprintf("hbtrace.shared.choose('base', '%d-%d')", half, 2*half), nil)
	settled(q)
	q.Await("[...document.querySelectorAll('.functions tbody tr')].every((r) => r.cells[2].innerText === '')")
	q.Eval("[...document.querySelectorAll('.flame .tools button')].find((x) => x.innerText.startsWith('Drop')).click()", nil)
	q.Await("!location.hash.includes('base') && ![...document.querySelectorAll('.functions th')].some((x) => x.innerText === 'change')")
	noProblems(t, q, "comparing")
}

// chained is a recording in which waiter waits for middle, which waits for the end, which writes.
func chained() trace.Source { return chainedOften(1) }

// chainedOften is [chained] n times, one after the other.
func chainedOften(n int) trace.Source {
	b := tracetest.New()
	proc := b.AddProcess(trace.Process{PID: 1, Exe: "/bin/chained"})
	at := b.Meta().StartNs
	b.Meta().EndNs = at + 100*ms*trace.Ns(n)
	var ids []trace.ThreadID
	for i, name := range []string{"waiter", "middle", "last"} {
		ids = append(ids, b.AddThread(trace.Thread{Proc: proc, TID: 10 + i, Name: name, Start: at, CPU: ms}))
	}
	wait := func(who, whom int, object uint64, from, to trace.Ns) {
		release := at + to*ms - 1000
		b.AddJoined(trace.Event{Kind: trace.KindRelease, Hook: b.Hook("pthread_mutex_unlock"), Thread: ids[whom], Time: release, Object: object, Stack: b.Stack("main", "give_back")})
		b.AddJoined(trace.Event{Kind: trace.KindWait, Hook: b.Hook("pthread_mutex_lock"), Thread: ids[who], Start: at + from*ms, Time: at + to*ms, Object: object,
			Owner: ids[whom], Releaser: ids[whom], Release: release, Flags: trace.FlagCertain, Stack: b.Stack("main", "get_it")})
	}
	for ; n > 0; n-- {
		b.Call(ids[2], at+12*ms, at+58*ms, b.Hook("read"), 7, 10, "main", "load_from_disk")
		wait(1, 2, 0x200, 11, 60)
		wait(0, 1, 0x100, 10, 62)
		at += 100 * ms
	}
	return b.Source()
}

// testChainIsFollowed: the panel of a wait follows it through waiting threads, the view of all blocks shows the same chain with its stacks,
// and the releaser's link goes there.
func testChainIsFollowed(t *testing.T, b *chromium.Browser) {
	for form, address := range map[string]string{"served": serve(t, chained()).URL(), "exported": exported(t, chained())} {
		p := b.Open(t, address, 1400, 900, 1)
		p.Await("globalThis.hbtrace && hbtrace.store.about.chained")
		settled(p)
		p.Key("ArrowDown")
		p.Await("hbtrace.shared.state.threads?.length === 1")
		p.Key("n")
		p.Await("document.querySelector('aside').innerText.includes('which itself waited')")
		p.Await("document.querySelector('aside').innerText.includes('read in load_from_disk')")
		var text string
		p.Eval("document.querySelector('aside').innerText", &text)
		for _, want := range []string{"held by", "middle", "for last, who meanwhile", "released in", "give_back", "get_it"} {
			if !strings.Contains(text, want) {
				t.Errorf("%s: the panel lacks %q:\n%s", form, want, text)
			}
		}
		p.Eval("[...document.querySelectorAll('aside dd .link')].find((x) => x.innerText === 'middle').click()", nil)
		p.Await("hbtrace.store.about.threads[hbtrace.shared.state.threads[0]].name === 'middle'")
		p.Eval("hbtrace.shared.set({ threads: null })", nil)
		p.Key("3")
		p.Await("document.querySelector('.chains li')")
		p.Eval("document.querySelector('.chains li summary').click()", nil)
		p.Await("document.querySelectorAll('.chains li .stack').length === 3")
		p.Eval("document.querySelector('.chains li').innerText.replace(/\\s+/g, ' ')", &text)
		for _, want := range []string{"waiter in get_it", "middle in get_it", "last read in load_from_disk", "46.0 ms"} {
			if !strings.Contains(text, want) {
				t.Errorf("%s: the chain lacks %q: %s", form, want, text)
			}
		}
		// Chains are those of the selection, of time and of threads.
		p.Eval("hbtrace.shared.set({ picked: [20e6, 21e6] })", nil)
		p.Await("document.querySelectorAll('.chains li').length === 2 && [...document.querySelectorAll('.chains li')].every((x) => x.dataset.ns === '1000000')")
		p.Eval("hbtrace.shared.set({ threads: [1] })", nil)
		p.Await("document.querySelectorAll('.chains li').length === 1 && document.querySelector('.chains li').innerText.startsWith('1.00 ms')")
		p.Eval("hbtrace.shared.set({ picked: null, threads: null })", nil)
		p.Await("document.querySelectorAll('.chains li').length > 3")
		p.Eval("document.querySelector('.blocks .spot[data-id=w1]').dispatchEvent(new MouseEvent('click', { bubbles: true }))", nil)
		p.Await("[...document.querySelectorAll('.chains li')].every((x) => x.querySelector('b + .num + .steps').innerText.startsWith('middle'))")
		noProblems(t, p, form)
		p.Close()
	}
}

// testArrows: waits have arrows from their releaser, and r takes them away; charts above tell the load.
func testArrows(t *testing.T, b *chromium.Browser) {
	p := b.Open(t, serve(t, chained()).URL(), 1400, 900, 1)
	p.Await("globalThis.hbtrace && hbtrace.store.about.chained")
	settled(p)
	count := func() (n int) {
		p.Eval(`(async () => {
      let n = 0;
      const g = CanvasRenderingContext2D.prototype, old = g.bezierCurveTo;
      g.bezierCurveTo = function (...a) { n++; return old.apply(this, a); };
      hbtrace.shared.choose("again", String(Math.random()));
      await new Promise((r) => setTimeout(r, 300));
      g.bezierCurveTo = old;
      return n;
    })()`, &n)
		return n
	}
	if n := count(); n < 2 {
		t.Errorf("%d arrows were drawn, want those of both waits", n)
	}
	p.Key("r")
	p.Await("hbtrace.shared.state.options.arrows === '0'")
	if n := count(); n != 0 {
		t.Errorf("%d arrows were drawn after r", n)
	}
	var lock float64
	p.Eval("hbtrace.store.chart(null, 0, hbtrace.store.about.length, 100).then((c) => c.lock.reduce((n, x) => n + x, 0))", &lock)
	if want := 101e6; math.Abs(lock-want) > 1 {
		t.Errorf("the chart has %.0f ns of waiting for locks, want %.0f", lock, want)
	}
}

// testSlowRequests: a request's parts are all of its time.
func testSlowRequests(t *testing.T, b *chromium.Browser) {
	p := b.Open(t, serve(t, synthetic.New(20_000, 6)).URL()+"#v=slow&o.slow=t:read&o.n=10", 1400, 900, 1)
	p.Await("document.querySelectorAll('.requests li').length === 10 && [...document.querySelectorAll('.requests .parts')].every((x) => x.innerText !== '…')")
	var got []struct {
		Bar   float64
		Parts int
	}
	p.Eval(`[...document.querySelectorAll(".requests li")].map((l) => ({
    Bar: [...l.querySelectorAll(".bar i")].reduce((n, x) => n + parseFloat(x.style.width), 0), Parts: l.querySelectorAll(".part").length }))`, &got)
	for i, g := range got {
		if math.Abs(g.Bar-100) > 0.01 || g.Parts == 0 {
			t.Errorf("request %d: its parts make %.2f %% of it, %d are named", i, g.Bar, g.Parts)
		}
	}
	noProblems(t, p, "slow requests")
}

// testReadyIsTold: runnable time that the kernel counted is shown in words wherever it lies in the selection, and drawn nowhere.
func testReadyIsTold(t *testing.T, b *chromium.Browser) {
	for form, address := range map[string]string{"served": serve(t, counted(false)).URL(), "exported": exported(t, counted(false))} {
		p := b.Open(t, address, 1400, 900, 1)
		settled(p)
		p.Await("document.querySelector('.summary').innerText.includes('runnable without a CPU, at least 1.30 s')")
		p.Await("document.querySelector('.timeline table').innerText.includes('1.30 s to 2.30 s')")
		p.Eval("hbtrace.shared.set({ picked: [0, 500e6] })", nil)
		p.Await("document.querySelector('.timeline table').innerText.includes('at most 300 ms')")
		p.Eval("hbtrace.shared.set({ picked: null })", nil)
		p.Key("5")
		p.Await("document.querySelector('main').innerText.includes('without a CPU, for 1.30 s together')")
		p.Key("4")
		p.Eval("hbtrace.shared.choose('slow', 'f:work')", nil)
		p.Await("[...document.querySelectorAll('.requests .ready')].some((x) => x.innerText.includes('by the kernel’s count: 1.'))")
		noProblems(t, p, form)
		p.Close()
	}
}

// testAddresses: an address shows what it did where it was copied, whatever of it makes sense.
func testAddresses(t *testing.T, b *chromium.Browser) {
	s := serve(t, synthetic.New(5000, 4))
	for _, hash := range []string{
		"#v=flame&w=1000-90000000&s=2000-80000000&t=1.2&q=module_3&o.value=wall&o.by=thread&o.order=name&o.invert=1&o.base=0-5000000-1",
		"#v=blocks&o.edge=w1&o.kinds=all", "#v=slow&o.slow=f%3Amain&o.n=50", "#v=trust", "#v=timeline&o.open=0.2&o.arrows=0",
	} {
		p := b.Open(t, s.URL()+hash, 1200, 800, 1)
		p.Await("globalThis.hbtrace")
		settled(p)
		var again string
		p.Eval("location.hash", &again)
		want, _ := url.ParseQuery(hash[1:])
		got, _ := url.ParseQuery(strings.TrimPrefix(again, "#"))
		for k := range want {
			if got.Get(k) != want.Get(k) {
				t.Errorf("%s became %s: %s", hash, again, k)
			}
		}
		noProblems(t, p, hash)
		p.Close()
	}
	p := b.Open(t, s.URL()+"#%00%ff=&&&=", 1200, 800, 1)
	p.Await("globalThis.hbtrace")
	for _, hash := range []string{
		"#v=evil&w=9-1&s=x&t=99999.-1.a", "#v=flame&o.value=%3Cscript%3E&o.order=__proto__&o.base=9-1-77", "#v=blocks&o.edge=zz,o,w999999&o.kinds=%22",
		"#v=slow&o.slow=t%3A%3Cimg%3E&o.n=-5", "#v=timeline&o.open=constructor.999999999&s=0-99999999999999999999", "#w=0-1e309&o.__proto__=1",
	} {
		p.Eval(fmt.Sprintf("location.hash = %q", hash), nil)
		p.Await("document.querySelector('main').innerText.length > 20")
		settled(p)
		noProblems(t, p, hash)
		var shown bool
		p.Eval("document.querySelector('.problem').hidden", &shown)
		if !shown {
			t.Errorf("%s: the page complains", hash)
		}
	}
}

// paused is a recording whose reading waits in the middle of it.
type paused struct {
	*synthetic.Source
	reached, goOn chan struct{}
	once          bool
}

func (s *paused) EventBatches(f func([]trace.Event, func()) error) error {
	return trace.InBatches(s.each, f)
}

func (s *paused) each(f func(*trace.Event) error) error {
	n, first := 0, !s.once
	s.once = true
	return trace.Events(s.Source, func(e *trace.Event) error {
		if n++; first && n == batch+batch/2 { // questions are answered between batches
			close(s.reached)
			<-s.goOn
		}
		return f(e)
	})
}

// testWhileReading: the page shows how far the recording is read, and then all of it.
func testWhileReading(t *testing.T, b *chromium.Browser) {
	src := &paused{Source: synthetic.New(4*batch, 4), reached: make(chan struct{}), goOn: make(chan struct{})}
	m := New(src)
	s, err := Listen(m, 0)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served, read := make(chan error, 1), make(chan error, 1)
	go func() { served <- s.Serve(ctx) }()
	defer func() { cancel(); <-served }()
	p := b.Open(t, s.URL(), 1200, 800, 1) // nothing is read yet
	p.Await("document.querySelector('footer')?.innerText.includes('reading')")
	go func() { read <- m.Read(ctx) }()
	<-src.reached
	close(src.goOn)
	if err := <-read; err != nil {
		t.Error(err)
	}
	p.Await("hbtrace.store.about.done && hbtrace.store.about.chained && document.querySelector('footer').innerText.includes('exact')")
	p.Key("3")
	p.Await("document.querySelectorAll('.chains li').length > 0")
	noProblems(t, p, "while reading")
}
