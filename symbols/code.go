// Where an object's code lies in its file and in memory.

package symbols

import (
	"debug/elf"

	"github.com/hbtrace/hbtrace/trace"
)

// CodeSegment is the executable segment of an ELF file as it is mapped: whole pages of ELF virtual addresses, and the offset in the file
// of the first. It is zero where there are several, or where file and addresses are laid out so that no mapping shows whole pages of it.
func CodeSegment(e *elf.File) trace.Code {
	const page = 4096
	var found trace.Code
	for _, p := range e.Progs {
		if p.Type != elf.PT_LOAD || p.Flags&elf.PF_X == 0 {
			continue
		}
		in := p.Vaddr % page
		if found.Hi != 0 || p.Off < in || p.Memsz > 1<<40 || p.Vaddr > 1<<62 {
			return trace.Code{}
		}
		found = trace.Code{Lo: p.Vaddr - in, Hi: (p.Vaddr + p.Memsz + page - 1) / page * page, Offset: p.Off - in}
	}
	return found
}
