package agent

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/hbtrace/hbtrace/agent/freshness"
)

// TestGuest runs testdata/guest.c: the whole agent, its parts called one by one by a constructor of its own.
func TestGuest(t *testing.T) {
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("needs gcc")
	}
	root, err := freshness.Root()
	if err != nil {
		t.Fatal(err)
	}
	object := filepath.Join(t.TempDir(), "guest.so")
	build := exec.Command(gcc, "-std=gnu11", "-O1", "-g", "-shared", "-nostdlib", "-ffreestanding", "-fno-strict-aliasing", "-fPIC",
		"-fvisibility=hidden", "-ftls-model=initial-exec", "-fno-stack-protector", "-U_FORTIFY_SOURCE", "-fno-tree-loop-distribute-patterns",
		"-fno-reorder-blocks-and-partition", "-fomit-frame-pointer", "-fasynchronous-unwind-tables", "-fno-exceptions", "-Wall", "-D_GNU_SOURCE",
		"-Wno-unused-function", "-I.", "-Wl,--version-script=agent/agent.map", "-o", object, "agent/testdata/guest.c")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	run := exec.Command("/bin/true")
	run.Env = append(os.Environ(), "LD_PRELOAD="+object)
	if out, err := run.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
