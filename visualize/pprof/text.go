// Where a module's code lies in its file: pprof looks it up there to disassemble it.

package pprof

import (
	"debug/elf"
	"os"

	"github.com/hbtrace/hbtrace/symbols"
	"github.com/hbtrace/hbtrace/trace"
)

const pageBytes = 4096 // as pprof takes it to be everywhere

// text is the executable segment of a file as it is mapped: addresses of the file, and the offset that the first one has in it.
type text struct{ lo, hi, offset uint64 }

// textOf looks into a module's file, where this machine has the very one that was recorded. A mapping that begins anywhere
// else than pprof's rules for segments have it is taken for another file's, and nothing is found in it; so are files
// with several segments of code.
func textOf(m *trace.Module) (text, bool) {
	if m.Kind != trace.ModuleELF || m.BuildID == "" {
		return text{}, false
	}
	if st, err := os.Stat(m.Path); err != nil || !st.Mode().IsRegular() { // to open a pipe is to wait for its writer
		return text{}, false
	}
	f, err := os.Open(m.Path)
	if err != nil {
		return text{}, false
	}
	defer f.Close()
	if id, err := symbols.BuildID(f); err != nil || id != m.BuildID {
		return text{}, false
	}
	e, err := elf.NewFile(f)
	if err != nil {
		return text{}, false
	}
	var found text
	for _, p := range e.Progs {
		if p.Type != elf.PT_LOAD || p.Flags&elf.PF_X == 0 {
			continue
		}
		in := p.Vaddr % pageBytes
		if found.hi != 0 || p.Off < in || p.Memsz > 1<<40 {
			return text{}, false
		}
		found = text{p.Vaddr - in, (p.Vaddr + p.Memsz + pageBytes - 1) / pageBytes * pageBytes, p.Off - in}
	}
	return found, found.hi != 0
}
