package depscheck

import (
	"os"
	"os/exec"
	"runtime"
	"testing"
)

// TestOtherMachine: what attaching does not do on the other machine, it says there; so it compiles there.
func TestOtherMachine(t *testing.T) {
	other := map[string]string{"amd64": "arm64", "arm64": "amd64"}[runtime.GOARCH]
	cmd := exec.Command("go", "build", module+"/attach")
	cmd.Env = append(os.Environ(), "GOOS=linux", "CGO_ENABLED=0", "GOARCH="+other)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%s: %v\n%s", other, err, out)
	}
}
