package e2e

// perfetto_test.go hands timelines to the real trace processor.

import (
	"os"
	"testing"

	"github.com/hbtrace/hbtrace/internal/agree"
	"github.com/hbtrace/hbtrace/trace"
)

// checkPerfetto is a subtest, so that where the trace processor is missing only this part is skipped.
func checkPerfetto(t *testing.T, path string, src trace.Source) {
	t.Helper()
	if st, err := os.Stat(path); err != nil || st.Size() == 0 {
		t.Errorf("no timeline was written: %v", err)
		return
	}
	t.Run("perfetto", func(t *testing.T) { agree.Perfetto(t, path, src) })
}
