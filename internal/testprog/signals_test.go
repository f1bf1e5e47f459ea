package testprog

// signals_test.go: which signals of a condition are recorded.

import (
	"fmt"
	"os/exec"
	"testing"

	"github.com/hbtrace/hbtrace/hooks"
	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/tracefile"
)

// Of signals that find a waiting thread, those are recorded that wake one.
func TestSignalsThatWakeNoThread(t *testing.T) {
	if version, err := exec.Command("getconf", "GNU_LIBC_VERSION").Output(); err != nil || laterThan(string(version), 2, 40) {
		t.Skipf("%q (%v): the layout of conditions is known of glibc up to 2.40; elsewhere every signal is recorded", version, err)
	}
	src := record(t, Build(t, "signalburst"))
	signals, broadcasts := releases(t, src, "pthread_cond_signal"), releases(t, src, "pthread_cond_broadcast")
	if signals != 4 {
		t.Errorf("%d signals recorded, want 4", signals)
	}
	if broadcasts != 1 {
		t.Errorf("%d broadcasts recorded, want 1", broadcasts)
	}
}

// laterThan: what getconf says of glibc names a later version.
func laterThan(getconf string, major, minor int) bool {
	var ma, mi int
	if _, err := fmt.Sscanf(getconf, "glibc %d.%d", &ma, &mi); err != nil {
		return true
	}
	return ma > major || ma == major && mi > minor
}

// releases counts the recorded releases by a function.
func releases(t *testing.T, src *tracefile.Reader, function string) (n int) {
	t.Helper()
	if err := trace.Events(src, func(e *trace.Event) error {
		if h, _ := hooks.ByID(e.Hook); e.Kind == trace.KindRelease && h.Name == function {
			n++
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return n
}
