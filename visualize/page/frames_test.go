package page

import (
	"testing"

	"github.com/hbtrace/hbtrace/internal/chromium"
	"github.com/hbtrace/hbtrace/internal/synthetic"
)

// travel zooms and moves the timeline without a pause through a recording's whole length and down to a twentieth of it, frame by
// frame, and gathers what that cost: the time between frames, in between also of frames in which nothing is asked of the page, so that
// a busy machine shows; script run in frames; requests; calls of drawing functions; and tables decoded within a frame.
const travel = `(async (count) => {
  const { shared, store } = hbtrace;
  const len = store.about.length;
  const raf = window.requestAnimationFrame.bind(window);
  const undo = [];
  let inFrame = false, script = 0, drawn = 0, decodedInFrame = 0, askedInFrame = 0, requests = 0;
  const replace = (on, name, f) => {
    const old = on[name];
    on[name] = f(old);
    undo.push(() => { on[name] = old; });
  };
  replace(window, "requestAnimationFrame", () => (f) => raf((t) => {
    const a = performance.now();
    inFrame = true;
    try { f(t); } finally { inFrame = false; script += performance.now() - a; }
  }));
  replace(window, "fetch", (old) => (...a) => { requests++; if (inFrame) askedInFrame++; return old.call(window, ...a); });
  replace(TextDecoder.prototype, "decode", (old) => function (...a) { if (inFrame) decodedInFrame++; return old.apply(this, a); });
  for (const k of ["fillRect", "strokeRect", "fillText", "fill", "stroke", "drawImage", "putImageData"]) {
    replace(CanvasRenderingContext2D.prototype, k, (old) => function (...a) { drawn++; return old.apply(this, a); });
  }
  const frames = [], idle = [], scripts = [], draws = [];
  let last = performance.now();
  for (let i = 0; i < count; i++) {
    const moves = i % 40 < 20; // in turns, so that both see the same machine
    const n = Math.floor(i / 40) * 20 + (i % 20);
    if (moves) {
      const w = len * Math.pow(0.95, n % 60), mid = len * (0.3 + 0.4 * n / 120);
      shared.window(mid - w / 2, mid + w / 2);
    }
    script = drawn = 0;
    await new Promise((r) => raf(() => raf(r)));
    const now = performance.now();
    (moves ? frames : idle).push((now - last) / 2);
    if (moves) { scripts.push(script / 2); draws.push(drawn); }
    last = now;
  }
  for (const f of undo) f();
  const at = (list, share) => list.sort((a, b) => a - b)[Math.floor(list.length * share)];
  return { Frame: at(frames, 0.5), Worst: at(frames, 0.95), Idle: at(idle, 0.5), WorstIdle: at(idle, 0.95), Script: at(scripts, 0.5), WorstScript: at(scripts, 0.95),
    Requests: requests, Drawn: Math.max(...draws), DecodedInFrame: decodedInFrame, AskedInFrame: askedInFrame };
})`

type travelled struct {
	Frame, Worst, Idle, WorstIdle, Script, WorstScript float64 // ms a frame: the median, and what a twentieth exceeds
	Requests, Drawn, DecodedInFrame, AskedInFrame      int
}

// testFrameWork: what a frame amid a movement does is bounded by the picture's size, whatever the recording's. Questions wait for
// a rest or for the answers to others, and no answer is decoded in a frame.
func testFrameWork(t *testing.T, b *chromium.Browser) {
	for _, events := range []int{20_000, 400_000} {
		p := b.Open(t, serve(t, synthetic.New(events, 16)).URL(), 1400, 900, 1)
		settled(p)
		var got travelled
		p.Eval(travel+"(80)", &got)
		if got.DecodedInFrame > 0 || got.AskedInFrame > 0 {
			t.Errorf("%d events: in frames %d answers were decoded and %d questions asked, want none", events, got.DecodedInFrame, got.AskedInFrame)
		}
		if got.Drawn == 0 || got.Drawn > 6000 {
			t.Errorf("%d events: a frame called up to %d drawing functions, want some, and at most 6000", events, got.Drawn)
		}
		if got.Requests == 0 {
			t.Errorf("%d events: no request was made: this test tests nothing", events)
		}
		noProblems(t, p, "moving")
		p.Close()
	}
}

// moves zooms and moves like travel, and measures nothing: what is measured is the browser, from outside.
const moves = `(async (count) => {
  const len = hbtrace.store.about.length;
  for (let n = 0; n < count; n++) {
    const w = len * Math.pow(0.95, n % 60), mid = len * (0.3 + 0.4 * n / 120);
    hbtrace.shared.window(mid - w / 2, mid + w / 2);
    await new Promise((r) => requestAnimationFrame(() => requestAnimationFrame(r)));
  }
})`

// BenchmarkFrames is [travel] through some ten million spans, in a Chromium without a GPU; CPU times are those of the page's main thread.
func BenchmarkFrames(b *testing.B) {
	s := serve(b, synthetic.New(4_000_000, 16))
	p := chromium.Start(b).Open(b, s.URL(), 1400, 900, 1)
	settled(p)
	var got travelled
	var script, task float64 // s of CPU
	n := 0.0
	for b.Loop() {
		p.Eval(travel+"(240)", &got)
		before := p.Metrics()
		p.Eval(moves+"(120)", nil)
		after := p.Metrics()
		script += after["ScriptDuration"] - before["ScriptDuration"]
		task += after["TaskDuration"] - before["TaskDuration"]
		n += 240
	}
	b.ReportMetric(1000*script/n, "cpu-ms-script/frame")
	b.ReportMetric(1000*task/n, "cpu-ms-main-thread/frame")
	b.ReportMetric(got.Frame, "ms/frame")
	b.ReportMetric(got.Worst, "ms/frame-p95")
	b.ReportMetric(got.Idle, "ms/idle-frame")
	b.ReportMetric(got.WorstIdle, "ms/idle-frame-p95")
	b.ReportMetric(got.Script, "ms-script/frame")
	b.ReportMetric(got.WorstScript, "ms-script/frame-p95")
	b.ReportMetric(float64(got.Requests), "requests")
}
