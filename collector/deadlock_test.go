package collector

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A deadlock is told of while it lasts, with the names of both threads; then the program is asked to end.
func TestDeadlockIsToldAtOnce(t *testing.T) {
	bin := compile(t, "../../bench/locks/src/deadlock", "-D_GNU_SOURCE")
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	var told []string
	_, err = Record(ctx, Options{
		Command: []string{bin}, Stdout: null, Output: filepath.Join(t.TempDir(), "out.hbt"),
		Alert: func(line string) { told = append(told, line); cancel() },
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(told) != 1 || !strings.Contains(told[0], "forth (") || !strings.Contains(told[0], "back (") {
		t.Errorf("told %q, want one deadlock of forth and back", told)
	}
}

// Threads that contend for one mutex all the time wait for each other in turn, and are in no deadlock.
func TestContentionIsNoDeadlock(t *testing.T) {
	bin := compile(t, "../../bench/locks/src/truth", "-D_GNU_SOURCE")
	dir := t.TempDir()
	recordIn(t, Options{
		Command: []string{bin, "mutex", "2000", filepath.Join(dir, "truth")},
		Alert:   func(line string) { t.Errorf("told %q", line) },
	})
}
