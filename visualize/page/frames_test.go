package page

import (
	"testing"

	"github.com/hbtrace/hbtrace/internal/chromium"
	"github.com/hbtrace/hbtrace/internal/synthetic"
)

// BenchmarkFrames zooms and moves a timeline of some ten million spans without a pause, and measures
// the time between frames, in a Chromium without a GPU.
func BenchmarkFrames(b *testing.B) {
	s := serve(b, synthetic.New(4_000_000, 16))
	p := chromium.Start(b).Open(b, s.URL(), 1400, 900, 1)
	settled(p)
	var got struct{ Frame, Worst float64 }
	for b.Loop() {
		p.Eval(`(async () => {
      const { shared, store } = hbtrace;
      const len = store.about.length;
      const frames = [];
      let last = performance.now();
      for (let i = 0; i < 120; i++) {
        const w = len * Math.pow(0.95, i % 60), mid = len * (0.3 + 0.4 * i / 120);
        shared.window(mid - w / 2, mid + w / 2);
        await new Promise((r) => requestAnimationFrame(() => requestAnimationFrame(r)));
        const now = performance.now();
        frames.push((now - last) / 2);
        last = now;
      }
      frames.sort((a, b) => a - b);
      return { Frame: frames[60], Worst: frames[114] };
    })()`, &got)
	}
	b.ReportMetric(got.Frame, "ms/frame")
	b.ReportMetric(got.Worst, "ms/frame-p95")
}
