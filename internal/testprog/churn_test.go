package testprog

// churn_test.go: threads that live for microseconds. Each is recorded, with its name and its end; slots are used again.

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/hbtrace/hbtrace/internal/validate"
	"github.com/hbtrace/hbtrace/tracefile"
)

// TestStressChurn makes 100,000 threads when HBTRACE_STRESS is set, else a few more than there are slots (16,384).
func TestStressChurn(t *testing.T) {
	n := 20000
	if os.Getenv("HBTRACE_STRESS") != "" {
		n = 100000
	}
	prefix := filepath.Join(t.TempDir(), "out")
	r := Run(t, Command{Args: []string{Hbtrace(t), "run", "-q", "-m", "64M", "-o", prefix, "--", Build(t, "churn"), fmt.Sprint(n)}})
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
	defer src.Close()
	st := src.Stats()
	if st.ThreadsUnslotted > 0 || st.Broken > 0 {
		t.Errorf("%d threads found no slot, %d records are broken", st.ThreadsUnslotted, st.Broken)
	}
	names := map[string]int{}
	ended := 0
	for _, th := range src.Threads() {
		names[th.Name]++
		if th.End != 0 {
			ended++
		}
	}
	if len(src.Threads()) != n+1 {
		t.Errorf("%d threads recorded, want %d (%d records lost)", len(src.Threads()), n+1, st.Lost)
	}
	if st.Lost > 0 { // where the ring overflows, names may be what is missing
		t.Logf("%d records lost: names and ends are not checked", st.Lost)
		return
	}
	if ended != n+1 {
		t.Errorf("%d of %d threads have an end", ended, n+1)
	}
	for k := range 10 {
		name := fmt.Sprintf("churn-%d", k)
		if names[name] != n/10 {
			t.Errorf("%d threads are called %s, want %d", names[name], name, n/10)
		}
	}
}
