package goruntime

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/hbtrace/hbtrace/hooks"
)

// TestReasons holds the table against the source of the Go that compiles this test.
func TestReasons(t *testing.T) {
	version, err := minor(runtime.Version())
	if err != nil {
		t.Skipf("compiled by %s, which is no released version", runtime.Version())
	}
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	src, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(out)), "src/runtime/runtime2.go"))
	if err != nil {
		t.Skipf("needs the source of Go's runtime: %v", err)
	}
	names := regexp.MustCompile(`(?m)^\twaitReason(\w+)(?:\s+waitReason = iota)?\s+// "(.*)"$`).FindAllStringSubmatch(string(src), -1)
	text := regexp.MustCompile(`(?m)^\twaitReason(\w+):\s+"(.*)",$`).FindAllStringSubmatch(string(src), -1)
	if len(names) < 30 || len(text) < 30 {
		t.Fatalf("found %d reasons and %d texts in runtime2.go", len(names), len(text))
	}
	says := map[string]string{}
	for _, m := range text {
		says[m[1]] = m[2]
	}
	var want []string
	for _, m := range names {
		want = append(want, says[m[1]])
	}
	if got := Reasons(version); len(got) < len(want) || !slices.Equal(got[:len(want)], want) {
		t.Errorf("reasons of 1.%d:\n%q\nthe runtime's:\n%q", version, got, want)
	}
}

// TestReasonsAreRecorded: what goroutines of a program wait for is recorded in every version, what only the runtime's own
// wait for in none.
func TestReasonsAreRecorded(t *testing.T) {
	for v := oldest; v <= newest; v++ {
		numbers, all := hookNumbers(v), Reasons(v)
		for _, r := range []string{"chan receive", "chan send", "select", "sync.Mutex.Lock", "IO wait", "sleep", "semacquire"} {
			i := slices.Index(all, r)
			if i < 0 || numbers[i] == 0 {
				t.Errorf("1.%d: %s is number %d, and not recorded", v, r, i)
			} else if h, ok := hooks.ByID(waits[r]); !ok || !h.Go() {
				t.Errorf("%s is hook %v", r, h)
			}
		}
		for _, r := range []string{"GC worker (idle)", "force gc (idle)", "finalizer wait"} {
			if i := slices.Index(all, r); i < 0 || numbers[i] != 0 {
				t.Errorf("1.%d: %s is number %d, and recorded", v, r, i)
			}
		}
	}
}
