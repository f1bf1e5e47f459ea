// The committed agent is the one that its sources make. No compiler is needed to know.
package agent

import (
	"debug/elf"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/hbtrace/hbtrace/agent/freshness"
)

func TestAgentIsFresh(t *testing.T) {
	t.Run("amd64", func(t *testing.T) { fresh(t, madeAMD64) })
	t.Run("arm64", func(t *testing.T) {
		if _, err := exec.LookPath("aarch64-linux-gnu-gcc"); err != nil {
			t.Skip("needs aarch64-linux-gnu-gcc (gcc-aarch64-linux-gnu): who has no compiler cannot be asked to run it")
		}
		fresh(t, madeARM64)
	})
}

func fresh(t *testing.T, m made) {
	root, err := freshness.Root()
	if err != nil {
		t.Fatal(err)
	}
	if len(m.sources) == 0 || len(m.objectsSHA256) == 0 {
		t.Fatal("no sources or no objects: go run ./agent/build")
	}
	got, err := freshness.Sources(root, m.sources)
	if err != nil {
		t.Fatal(err)
	}
	if got != m.sourcesSHA256 {
		t.Error("the agent's sources changed since it was compiled: go run ./agent/build, and commit what it writes")
	}
	for name, want := range m.objectsSHA256 {
		got, err := freshness.File(filepath.Join(root, name))
		if err != nil {
			t.Error(err)
			continue
		}
		if got != want {
			t.Errorf("%s is not the object that agent/build wrote", name)
		}
		embedded, err := objects.ReadFile(filepath.Base(name))
		if errors.Is(err, fs.ErrNotExist) {
			continue // another machine's
		}
		onDisk, err2 := os.ReadFile(filepath.Join(root, name))
		if err != nil || err2 != nil || string(onDisk) != string(embedded) {
			t.Errorf("%s: the embedded object is another one (%v, %v)", name, err, err2)
		}
	}
}

// The agent must load into any process: no library of its own, no text relocations, no executable stack.
func TestAgentIsSelfContained(t *testing.T) {
	t.Run("amd64", func(t *testing.T) { selfContained(t, "hbagent_linux_amd64.so", elf.EM_X86_64) })
	t.Run("arm64", func(t *testing.T) { selfContained(t, "hbagent_linux_arm64.so", elf.EM_AARCH64) })
}

func selfContained(t *testing.T, object string, machine elf.Machine) {
	f, err := os.Open(object)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	e, err := elf.NewFile(f)
	if err != nil {
		t.Fatal(err)
	}
	if e.Type != elf.ET_DYN || e.Machine != machine {
		t.Fatalf("%v for %v", e.Type, e.Machine)
	}
	libs, err := e.ImportedLibraries()
	if err != nil || len(libs) != 0 {
		t.Errorf("needs %v (%v)", libs, err)
	}
	if v, _ := e.DynValue(elf.DT_TEXTREL); len(v) != 0 {
		t.Error("has text relocations")
	}
	syms, err := e.ImportedSymbols()
	if err != nil {
		t.Fatal(err)
	}
	dyn, err := e.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	weak := map[string]bool{}
	for _, s := range dyn {
		if elf.ST_BIND(s.Info) == elf.STB_WEAK {
			weak[s.Name] = true
		}
	}
	for _, s := range syms {
		if !weak[s.Name] {
			t.Errorf("imports %s, not weakly: a program without it could not load the agent", s.Name)
		}
	}
	for _, p := range e.Progs {
		if p.Type == elf.PT_GNU_STACK && p.Flags&elf.PF_X != 0 {
			t.Error("asks for an executable stack")
		}
		if p.Type == elf.PT_TLS && p.Memsz > 256 {
			t.Errorf("%d bytes of thread-local storage, 256 is what attaching leaves room for", p.Memsz)
		}
	}
}
