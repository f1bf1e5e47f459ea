// Which function of a stack to name where there is room for one.

package frames

import (
	"path/filepath"
	"strings"

	"github.com/hbtrace/hbtrace/analysis/names"
	"github.com/hbtrace/hbtrace/trace"
)

// NoStack stands where no stack was taken.
const NoStack = "[no stack]"

// Place is a function and where in its source; File is "" and Line 0 where that is not known.
type Place struct {
	Func string
	File string
	Line int
}

// Culprit names the function of a stack that a reader can do something about: the innermost one that does not
// belong to the language's or the system's run-time library; the leaf where all do. hook is the hooked function that
// the leaf called, "" for none.
func (t *Table) Culprit(stack trace.StackID, hook string) string {
	return t.CulpritAt(stack, hook).Func
}

// CulpritAt is [Table.Culprit] with the line at which that function made its call.
func (t *Table) CulpritAt(stack trace.StackID, hook string) Place {
	switch at := t.CulpritFrame(stack, hook); {
	case at.ID != 0:
		fr := t.Frame(at.ID)
		return Place{fr.Name, fr.File, int(at.Line)}
	case stack == 0:
		return Place{Func: NoStack}
	}
	return Place{Func: hook}
}

// CulpritFrame is [Table.Culprit] by number; 0 where the stack has no function but the hooked one.
func (t *Table) CulpritFrame(stack trace.StackID, hook string) At {
	var leaf At
	node := stack
	for range t.Depth(stack) {
		set := t.Of(node)
		for j := len(set) - 1; j >= 0; j-- {
			fr := t.Frame(set[j].ID)
			if fr.Mark || fr.Name == hook {
				continue
			}
			if leaf.ID == 0 && recorder(t.Module(fr.Module)) {
				return At{} // the end of a thread: no function of the program made the call
			}
			if leaf.ID == 0 {
				leaf = set[j]
			}
			if !t.plumbing(set[j].ID) {
				return set[j]
			}
		}
		node = t.Parent(node)
	}
	return leaf
}

var (
	plumbingModules = []string{
		"libc.so", "libc-", "libpthread", "ld-linux", "ld-musl", "libc.musl", "libstdc++", "libc++", "libgcc_s", "librt.so", "librt-",
		"linux-vdso", "[vdso]", "[kernel]",
		"python3", "libpython3", // functions of Python are its user's
	}
	plumbingFunctions = []string{
		"std::", "core::", "alloc::", "<std::", "<core::", "<alloc::", "__gthread", "__gnu_cxx::", "__rust", "__rdl_", "__cxx",
		"operator new", "pthread_", "__pthread_",
		"runtime.", "sync.(*", "internal/sync.", "internal/poll.", "internal/runtime/", // Go's
	}
)

// recorder tells whether a module is hbtrace's own, which is loaded into the program: agent-ARCHITECTURE.so.
func recorder(m *trace.Module) bool {
	if m == nil {
		return false
	}
	dir, base := filepath.Split(m.Path)
	return strings.HasPrefix(base, "agent-") && strings.HasPrefix(filepath.Base(dir), "hbtrace-")
}

// plumbing tells whether a function is of a run-time library, and remembers it.
func (t *Table) plumbing(id ID) bool {
	for int(id) >= len(t.plumbs) {
		t.plumbs = append(t.plumbs, make([]int8, len(t.frames)-len(t.plumbs))...)
	}
	if t.plumbs[id] == 0 {
		fr := t.Frame(id)
		t.plumbs[id] = -1
		if plumbing(fr, t.Module(fr.Module)) {
			t.plumbs[id] = 1
		}
	}
	return t.plumbs[id] > 0
}

// plumbing tells whether a frame is of a run-time library: what every program waits and allocates through.
func plumbing(fr *Frame, m *trace.Module) bool {
	if m != nil && m.Kind != trace.ModulePython {
		base := filepath.Base(m.Path)
		for _, p := range plumbingModules {
			if strings.HasPrefix(base, p) {
				return true
			}
		}
	}
	name := names.DropReturn(fr.Name)
	for _, p := range plumbingFunctions {
		if strings.HasPrefix(name, p) {
			return true
		}
	}
	return false
}
