package page

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/hbtrace/hbtrace/internal/chromium"
	"github.com/hbtrace/hbtrace/tracefile"
)

// TestPictures makes the pictures of docs/pictures of a recording: HBTRACE_PICTURES_OF=out/demo.hbt, after make demo.
func TestPictures(t *testing.T) {
	of := os.Getenv("HBTRACE_PICTURES_OF")
	if of == "" {
		t.Skip("makes pictures for the documentation: set HBTRACE_PICTURES_OF to a recording of the demo")
	}
	src, err := tracefile.Open(of)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	p := chromium.Start(t).Open(t, serve(t, src).URL(), 1400, 860, 1)
	settled(p)
	shot := func(name string) {
		settled(p)
		if err := os.WriteFile(filepath.Join("..", "..", "docs", "pictures", name), p.Screenshot(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	p.Eval("hbtrace.shared.zoomTo(1.5e9, 1.82e9)", nil)
	shot("page-timeline.png")
	clickWait(p)
	p.Await("document.querySelector('aside').innerText.includes('Meanwhile')")
	shot("page-wait.png")
	p.Key("Escape")
	p.Key("Escape")
	p.Key("0")
	p.Key("2")
	p.Await("document.querySelectorAll('.functions tbody tr').length > 3")
	p.Eval("hbtrace.shared.choose('value', 'wall')", nil)
	shot("page-flame.png")
	p.Eval(`hbtrace.shared.set({ find: '"knead_dough"', options: { value: "cpu" } })`, nil)
	p.Await("[...document.querySelectorAll('.lines code.hot')].some((x) => x.innerText !== '')")
	shot("page-source.png")
	p.Eval(`hbtrace.shared.set({ find: "", options: {} })`, nil)
	p.Key("3")
	p.Await("document.querySelectorAll('.blocks path.band').length > 3")
	shot("page-blocks.png")
	p.Key("4")
	p.Eval("hbtrace.shared.choose('slow', 'f:plate_order')", nil)
	p.Await("document.querySelectorAll('.requests li .strip .bar i').length > 5")
	shot("page-slow.png")
	noProblems(t, p, "the pictures")
}
