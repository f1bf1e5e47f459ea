package attach

import (
	"os"
	"strings"
	"testing"
)

// TestCheckItself: hbtrace does not attach to itself.
func TestCheckItself(t *testing.T) {
	if err := Check(os.Getpid()); err == nil || !strings.Contains(err.Error(), "itself") && !strings.Contains(err.Error(), "x86-64 only") {
		t.Errorf("%v", err)
	}
}
