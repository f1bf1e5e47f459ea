// Which function of a stack to name where there is room for one.

package frames

import (
	"path/filepath"
	"strings"

	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/visualize/names"
)

// NoStack stands where no stack was taken.
const NoStack = "[no stack]"

// Culprit names the function of a stack that a reader can do something about: the innermost one that does not
// belong to the language's or the system's run-time library; the leaf where all do. hook is the hooked function that
// the leaf called, "" for none.
func (t *Table) Culprit(stack trace.StackID, hook string) string {
	path := t.Path(nil, stack)
	leaf := ""
	for i := len(path) - 1; i >= 0; i-- {
		set := t.Of(path[i])
		for j := len(set) - 1; j >= 0; j-- {
			fr := t.Frame(set[j].ID)
			if fr.Mark {
				continue
			}
			if leaf == "" && fr.Name != hook {
				leaf = fr.Name
			}
			if fr.Name != hook && !plumbing(fr, t.Module(fr.Module)) {
				return fr.Name
			}
		}
	}
	switch {
	case leaf != "":
		return leaf
	case stack == 0:
		return NoStack
	}
	return hook
}

var (
	plumbingModules = []string{
		"libc.so", "libc-", "libpthread", "ld-linux", "ld-musl", "libc.musl", "libstdc++", "libc++", "libgcc_s", "librt.so", "librt-",
		"linux-vdso", "[vdso]", "[kernel]",
	}
	plumbingFunctions = []string{
		"std::", "core::", "alloc::", "<std::", "<core::", "<alloc::", "__gthread", "__gnu_cxx::", "__rust", "__rdl_", "__cxx",
		"operator new", "pthread_", "__pthread_",
	}
)

// plumbing tells whether a frame is of a run-time library: what every program waits and allocates through.
func plumbing(fr *Frame, m *trace.Module) bool {
	if m != nil {
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
