// The committed agent is the one that its sources make. No compiler is needed to know.
package agent

import (
	"debug/elf"
	"os"
	"path/filepath"
	"testing"

	"github.com/hbtrace/hbtrace/agent/freshness"
)

func TestAgentIsFresh(t *testing.T) {
	root, err := freshness.Root()
	if err != nil {
		t.Fatal(err)
	}
	if len(sources) == 0 {
		t.Fatal("zsources.go names no sources: go run ./agent/build")
	}
	got, err := freshness.Sources(root, sources)
	if err != nil {
		t.Fatal(err)
	}
	if got != sourcesSHA256 {
		t.Error("the agent's sources changed since it was compiled: go run ./agent/build, and commit what it writes")
	}
	for name, want := range objectsSHA256 {
		got, err := freshness.File(filepath.Join(root, name))
		if err != nil {
			t.Error(err)
			continue
		}
		if got != want {
			t.Errorf("%s is not the object that agent/build wrote", name)
		}
		if base := filepath.Base(name); base != "" {
			embedded, err := objects.ReadFile(base)
			if err != nil {
				t.Error(err)
				continue
			}
			onDisk, err := os.ReadFile(filepath.Join(root, name))
			if err != nil || string(onDisk) != string(embedded) {
				t.Errorf("%s: the embedded object is another one (%v)", name, err)
			}
		}
	}
}

// The agent must load into any process: no library of its own, no text relocations, no executable stack.
func TestAgentIsSelfContained(t *testing.T) {
	f, err := os.Open("hbagent_linux_amd64.so")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	e, err := elf.NewFile(f)
	if err != nil {
		t.Fatal(err)
	}
	if e.Type != elf.ET_DYN || e.Machine != elf.EM_X86_64 {
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
