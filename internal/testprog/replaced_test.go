package testprog

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/hbtrace/hbtrace/internal/validate"
	"github.com/hbtrace/hbtrace/tracefile"
)

// TestReplacedEnvironment: a child whose environment was replaced is recorded, and sees what it was given and nothing else.
func TestReplacedEnvironment(t *testing.T) {
	hb, program := Hbtrace(t), Build(t, "bareenv")
	for _, chain := range []string{"none", "null", "preload", "empty", "none same none same", "preload same null same empty"} {
		t.Run(chain, func(t *testing.T) {
			t.Parallel()
			words, prefix := strings.Fields(chain), filepath.Join(t.TempDir(), "out")
			// The first program sees the two variables that every recorded one does.
			command := append([]string{"env", "-i", program}, words...)
			bare := Run(t, Command{Args: command})
			traced := Run(t, Command{Args: append([]string{hb, "run", "-q", "-o", prefix, "--"}, command...)})
			if bare.Status() != 0 || traced.Status() != 0 || string(bare.Stdout) != string(traced.Stdout) ||
				string(bare.Stderr) != string(traced.Stderr) {
				t.Fatalf("bare   %v\ntraced %v", bare, traced)
			}
			if err := validate.File(prefix + ".hbt"); err != nil {
				t.Fatal(err)
			}
			src, err := tracefile.Open(prefix + ".hbt")
			if err != nil {
				t.Fatal(err)
			}
			defer src.Close()
			images := 0
			for _, p := range src.Processes() {
				if filepath.Base(p.Exe) == filepath.Base(program) {
					images++
				}
			}
			if want := len(words) + 1; images != want {
				t.Errorf("%d programs with a replaced environment were recorded, want %d", images, want)
			}
		})
	}
}
