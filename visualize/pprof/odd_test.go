package pprof

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/google/pprof/profile"

	"github.com/hbtrace/hbtrace/internal/synthetic"
)

// TestOddInput: names of anything, times that wrap, nothing at all, two thousand threads; and a reader that goes away.
func TestOddInput(t *testing.T) {
	for name, src := range synthetic.Odd(2_000) {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			if err := Write(&b, src, Options{}); err != nil {
				t.Fatal(err)
			}
			p, err := profile.ParseData(b.Bytes())
			if err != nil {
				t.Fatal(err)
			}
			if name == "crowd" && len(p.Sample) < 2_000 {
				t.Errorf("%d samples of two thousand threads", len(p.Sample))
			}
		})
	}
	if err := Write(synthetic.Gone{}, synthetic.Demo(), Options{}); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("a reader that went away: %v", err)
	}
}
