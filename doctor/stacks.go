// Whether a program's stacks can be walked and its addresses named.

package doctor

import (
	"bytes"
	"debug/elf"
	"encoding/hex"
	"os"
	"path/filepath"

	"github.com/hbtrace/hbtrace/unwind"
)

// A function that keeps a frame pointer moves %rsp to %rbp soon after it begins; compilers put a few instructions
// in between, and before it when a frame is not always needed.
var movRSP = [][]byte{{0x48, 0x89, 0xe5}, {0x48, 0x8b, 0xec}}

const prologue = 48 // bytes read

// lookStacks says how the program's stacks will be walked: by unwind tables where its code has any, else by frame pointers.
func lookStacks(f *findings, file *elf.File) {
	rows := unwindRows(file)
	if rows >= 90 {
		f.add(OK, "stacks", "", "whole, with or without frame pointers: unwind tables for %d%% of its code", rows)
		return
	}
	functions, with := framePointers(file)
	switch {
	case functions < 20:
		f.add(Note, "stacks", "", "unwind tables for %d%% of its code; elsewhere by frame pointers, where it keeps them", rows)
	case with*10 >= functions*5:
		f.add(OK, "stacks", "", "by frame pointers, which %d%% of its functions keep; unwind tables for %d%% of its code", with*100/functions, rows)
	default:
		f.add(Note, "stacks", "compile with -fasynchronous-unwind-tables, or with -fno-omit-frame-pointer (Rust: -C force-frame-pointers=yes)",
			"unwind tables for %d%% of its code, frame pointers in %d%% of its functions: callers may be missing, and stacks say so", rows, with*100/functions)
	}
}

// unwindRows is the share of the executable sections, in percent, that the agent's unwind tables have rows for, by every 64th byte.
// Stubs of the linker's own (.plt) do not count: they never are where time goes.
func unwindRows(file *elf.File) int {
	table, err := unwind.CompileELF(file)
	if err != nil {
		return 0
	}
	all, known := 0, 0
	for _, s := range file.Sections {
		if s.Type != elf.SHT_PROGBITS || s.Flags&elf.SHF_EXECINSTR == 0 || s.Name != ".text" && s.Size < 4096 {
			continue
		}
		for at := s.Addr; at-s.Addr < s.Size && all < 1<<22; at += 64 {
			all++
			if table.Lookup(at).Kind != unwind.None {
				known++
			}
		}
	}
	if all == 0 {
		return 0
	}
	return known * 100 / all
}

func framePointers(file *elf.File) (functions, with int) {
	if file.Machine != elf.EM_X86_64 {
		return 0, 0
	}
	symbols, err := file.Symbols()
	if err != nil {
		if symbols, err = file.DynamicSymbols(); err != nil {
			return 0, 0
		}
	}
	text := map[elf.SectionIndex][]byte{}
	for _, s := range symbols {
		// tiny leaves need none
		if elf.ST_TYPE(s.Info) != elf.STT_FUNC || s.Size < 64 || int(s.Section) >= len(file.Sections) || s.Section == elf.SHN_UNDEF {
			continue
		}
		section := file.Sections[s.Section]
		code, ok := text[s.Section]
		if !ok {
			if section.Type == elf.SHT_PROGBITS {
				code, _ = section.Data() // unreadable: no code, so no function counts
			}
			text[s.Section] = code
		}
		at := s.Value - section.Addr
		if s.Value < section.Addr || at >= uint64(len(code)) || uint64(len(code))-at < prologue {
			continue
		}
		functions++
		head := code[at : at+prologue]
		if bytes.Contains(head, movRSP[0]) || bytes.Contains(head, movRSP[1]) {
			with++
		}
	}
	return functions, with
}

// lookNames says where function names and lines will come from.
func lookNames(f *findings, base string, file *elf.File) {
	has := func(names ...string) bool {
		for _, n := range names {
			if file.Section(n) != nil {
				return true
			}
		}
		return false
	}
	id := buildID(file)
	separate := ""
	if len(id) > 2 {
		separate = filepath.Join("/usr/lib/debug/.build-id", id[:2], id[2:]+".debug")
		if _, err := os.Stat(separate); err != nil {
			separate = ""
		}
	}
	const install = "install its debug symbols (Debian: the -dbgsym package) or build with -g"
	switch {
	case has(".debug_info", ".zdebug_info"):
		f.add(OK, "names", "", "functions, lines and inlined calls, from the file itself")
	case separate != "":
		f.add(OK, "names", "", "functions, lines and inlined calls, from %s", separate)
	case has(".symtab"):
		f.add(OK, "names", "build with -g for lines and inlined calls", "functions")
	default:
		f.add(Note, "names", install, "stripped: only exported functions have names, the rest appears as %s+0x…", base)
	}
	if id == "" {
		f.add(Note, "build id", "link with -Wl,--build-id", "none: separate debug files cannot be matched")
	}
}

// buildID is the GNU build id in hex, "" when there is none.
func buildID(file *elf.File) string {
	s := file.Section(".note.gnu.build-id")
	if s == nil || s.Size > 4096 {
		return ""
	}
	b, err := s.Data()
	if err != nil || len(b) < 16 {
		return ""
	}
	name, desc := file.ByteOrder.Uint32(b), file.ByteOrder.Uint32(b[4:])
	at := 12 + (uint64(name)+3)&^3
	if at+uint64(desc) > uint64(len(b)) {
		return ""
	}
	return hex.EncodeToString(b[at : at+uint64(desc)])
}
