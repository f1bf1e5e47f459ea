package depscheck

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// wording are words that only insiders understand, what to say instead, and the folders that are clean of them. The list of folders
// grows; a folder stands for all below it.
var wording = []struct {
	not     string // a regular expression
	say     string
	folders []string
}{
	{`\bbeside\b`, "next to, compared with, in the same run as", []string{
		"cmd", "visualize", "analysis", "trace", "tracefile", "live", "doctor", "stacktable", "diskcache", "scripts", "examples", "docs", "README.md",
		"ARCHITECTURE.md", "CONTRIBUTING.md",
	}},
	{`\blet go by\b`, "released by, woken by", []string{"cmd", "visualize", "docs", "README.md"}},
	{`\b(ready to run|ready), (and no|without a) CPU\b`, "runnable, run-queue delay", []string{"cmd", "visualize", "docs", "README.md"}},
	{`\bstood still\b`, "off-CPU time, blocked time", []string{"cmd", "visualize", "analysis", "trace", "docs", "README.md"}},
	{`\b(left to be asked for|told instead)\b`, "skipped (reason); create it with: COMMAND", []string{"cmd", "visualize", "docs", "README.md"}},
	{`(?i)\bwhoever\b`, "the thread, the recorder, the caller: each by its name", []string{"cmd", "analysis", "trace", "visualize", "docs", "README.md"}},
	{`\btold of\b`, "reports, records, says which", []string{"cmd", "analysis", "trace", "docs", "README.md"}},
	{`\blooked at\b`, "read, checked, polled", []string{"cmd", "analysis", "trace", "visualize", "docs", "README.md"}},
	{`\basked for\b`, "requested, wanted, chosen", []string{"analysis", "trace"}},
}

// TestWording holds folders that are clean of such words to it.
func TestWording(t *testing.T) {
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range wording {
		bad := regexp.MustCompile(w.not)
		for _, folder := range w.folders {
			err := filepath.WalkDir(filepath.Join(root, folder), func(path string, d fs.DirEntry, err error) error {
				switch {
				case err != nil:
					return err
				case d.IsDir() && (d.Name() == "node_modules" || d.Name() == "out" || d.Name() == "testdata" && folder != "cmd"):
					return filepath.SkipDir
				case d.IsDir() || !isText(d.Name()) || strings.HasPrefix(d.Name(), "z") || d.Name() == "words_test.go":
					return nil
				}
				text, err := os.ReadFile(path)
				if err != nil {
					return err
				}
				for i, line := range bytes.Split(text, []byte("\n")) {
					if bad.Match(line) {
						name, _ := filepath.Rel(root, path)
						t.Errorf("%s:%d: say %s instead of %q", name, i+1, w.say, bad.Find(line))
					}
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		}
	}
}

func isText(name string) bool {
	switch filepath.Ext(name) {
	case ".go", ".c", ".h", ".ts", ".css", ".md", ".sh", ".txtar":
		return true
	}
	return false
}
