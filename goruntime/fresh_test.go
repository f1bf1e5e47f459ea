// The committed code is the one that its sources make. No compiler is needed to know.
package goruntime

import (
	"path/filepath"
	"testing"

	"github.com/hbtrace/hbtrace/agent/freshness"
	"github.com/hbtrace/hbtrace/segment"
)

func TestImageIsFresh(t *testing.T) {
	root, err := freshness.Root()
	if err != nil {
		t.Fatal(err)
	}
	got, err := freshness.Sources(root, madeAMD64.sources)
	if err != nil {
		t.Fatal(err)
	}
	if got != madeAMD64.sourcesSHA256 {
		t.Error("the sources changed since they were compiled: go run ./agent/build, and commit what it writes")
	}
	if len(madeAMD64.objectsSHA256) != 1 {
		t.Errorf("%d objects", len(madeAMD64.objectsSHA256))
	}
	for name, want := range madeAMD64.objectsSHA256 {
		if got, err := freshness.File(filepath.Join(root, name)); err != nil || got != want {
			t.Errorf("%s is not the object that agent/build wrote (%v)", name, err)
		}
	}
}

func TestImage(t *testing.T) {
	im, err := loadImage()
	if err != nil {
		t.Fatal(err)
	}
	var c segment.GoConfig
	if !c.Decode(im.code) || c.Entries != 1 || c.Segment != 0 {
		t.Errorf("the image begins with %+v", c)
	}
	for _, r := range []redirection{{"", "hb_go_status"}, {"", "hb_go_enter"}, {"", "hb_go_exit"}} {
		if im.symbols[r.to] < segment.GoConfigBytes {
			t.Errorf("%s lies in the configuration, at %#x", r.to, im.symbols[r.to])
		}
	}
}
