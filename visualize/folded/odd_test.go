package folded

import (
	"bytes"
	"errors"
	"io"
	"regexp"
	"strings"
	"testing"

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
			for line := range strings.Lines(b.String()) {
				if !regexp.MustCompile(`^\S.* -?\d+\n$`).MatchString(line) {
					t.Fatalf("no stack and weight: %q", line)
				}
			}
			if lines := strings.Count(b.String(), "\n"); name == "crowd" && lines < 97 {
				t.Errorf("%d stacks", lines)
			}
		})
	}
	if err := Write(synthetic.Gone{}, synthetic.Demo(), Options{}); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("a reader that went away: %v", err)
	}
}
