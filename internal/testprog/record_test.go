package testprog

// record_test.go: a recording of a program, for tests that look into it.

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/hbtrace/hbtrace/internal/validate"
	"github.com/hbtrace/hbtrace/tracefile"
)

// record runs `hbtrace run` with arguments, which has to end with status 0 and leave a valid recording, and opens that.
func record(t *testing.T, args ...string) *tracefile.Reader {
	t.Helper()
	prefix := filepath.Join(t.TempDir(), "out")
	r := Run(t, Command{Args: slices.Concat([]string{Hbtrace(t), "run", "-q", "-o", prefix}, args)})
	if r.Status() != 0 {
		t.Fatal(r)
	}
	if err := validate.File(prefix + ".hbt"); err != nil {
		t.Error(err)
	}
	src, err := tracefile.Open(prefix + ".hbt")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { src.Close() })
	return src
}
