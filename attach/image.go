package attach

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"

	"github.com/hbtrace/hbtrace/agent"
	"github.com/hbtrace/hbtrace/hooks"
)

// image is the agent at its place in the program.
type image struct {
	base  uint64
	bytes []byte // as far as the file goes; zeros follow in the program
	end   uint64 // of all of it, from base
	rw    uint64 // where writable pages begin, from base
	text  [2]uint64

	textOffset uint64 // of the text, in the file
	file       *elf.File
	local      map[string]elf.Symbol
	hooks      map[string]uint64 // addresses of the wrappers
}

// parts are read once from the carried object.
func readImage() (*image, error) {
	object, err := agent.Attached()
	if err != nil {
		return nil, err
	}
	f, err := elf.NewFile(bytes.NewReader(object))
	if err != nil {
		return nil, fmt.Errorf("the carried agent: %w", err)
	}
	im := &image{file: f, local: map[string]elf.Symbol{}}
	for _, p := range f.Progs {
		if p.Type != elf.PT_LOAD {
			continue
		}
		im.end = max(im.end, p.Vaddr+p.Memsz)
		if need := p.Vaddr + p.Filesz; need > uint64(len(im.bytes)) {
			im.bytes = append(im.bytes, make([]byte, need-uint64(len(im.bytes)))...)
		}
		if _, err := p.ReadAt(im.bytes[p.Vaddr:p.Vaddr+p.Filesz], 0); err != nil {
			return nil, fmt.Errorf("the carried agent: %w", err)
		}
		switch {
		case p.Flags&elf.PF_W != 0:
			im.rw = p.Vaddr &^ 4095
		case p.Flags&elf.PF_X != 0:
			im.text, im.textOffset = [2]uint64{p.Vaddr, p.Vaddr + p.Memsz}, p.Off
		}
	}
	im.end = (im.end + 4095) &^ 4095
	symbols, err := f.Symbols()
	if err != nil {
		return nil, fmt.Errorf("the carried agent: %w", err)
	}
	for _, s := range symbols {
		im.local[s.Name] = s
	}
	for _, name := range []string{"hb_join", "hb_wanted", "hb_leave", "hb_starts", "hb_thread_begins", "hb_thread_ends"} {
		if im.local[name].Value == 0 {
			return nil, fmt.Errorf("the carried agent has no %s", name)
		}
	}
	return im, nil
}

// at is the address of one of the agent's own symbols in the program.
func (im *image) at(name string) uint64 { return im.base + im.local[name].Value }

// relocate puts the image at base. outside finds what it needs of the program, 0 where there is none.
func (im *image) relocate(base uint64, outside func(name string) uint64) error {
	im.base = base
	dynamic, err := im.file.DynamicSymbols()
	if err != nil {
		return fmt.Errorf("the carried agent: %w", err)
	}
	im.hooks = map[string]uint64{}
	for _, s := range dynamic {
		if s.Section != elf.SHN_UNDEF && elf.ST_TYPE(s.Info) == elf.STT_FUNC {
			im.hooks[s.Name] = base + s.Value
		}
	}
	for _, sec := range im.file.Sections {
		if sec.Type != elf.SHT_RELA {
			continue
		}
		b, err := sec.Data()
		if err != nil {
			return fmt.Errorf("the carried agent: %w", err)
		}
		for ; len(b) >= relaBytes; b = b[relaBytes:] {
			at, info, addend := binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:]), binary.LittleEndian.Uint64(b[16:])
			if at+8 > uint64(len(im.bytes)) {
				return fmt.Errorf("the carried agent has a relocation at %#x, outside of it", at)
			}
			v := base + addend
			switch elf.R_X86_64(info & 0xffffffff) {
			case elf.R_X86_64_RELATIVE:
			case elf.R_X86_64_GLOB_DAT, elf.R_X86_64_JMP_SLOT, elf.R_X86_64_64:
				if i := info >> 32; i == 0 || i > uint64(len(dynamic)) {
					return fmt.Errorf("the carried agent has a relocation of symbol %d", i)
				}
				s := dynamic[info>>32-1]
				v = base + s.Value + addend
				if s.Section == elf.SHN_UNDEF {
					v = outside(s.Name)
				}
			default:
				return fmt.Errorf("the carried agent has a relocation of kind %d", info&0xffffffff)
			}
			binary.LittleEndian.PutUint64(im.bytes[at:], v)
		}
	}
	return nil
}

func (im *image) get64(at uint64) uint64 {
	at -= im.base
	if at+8 > uint64(len(im.bytes)) {
		return 0
	}
	return binary.LittleEndian.Uint64(im.bytes[at:])
}

func (im *image) string(at uint64) string {
	if at -= im.base; at >= uint64(len(im.bytes)) {
		return ""
	}
	return cstring(im.bytes[at:])
}

// wanted is a function that the agent calls in the program: where the agent keeps its address.
type wanted struct {
	name, version string
	slot          uint64
}

// wanted reads the agent's own list, after relocation.
func (im *image) wanted() []wanted {
	s := im.local["hb_wanted"]
	var out []wanted
	for at := im.base + s.Value; at < im.base+s.Value+s.Size; at += 24 {
		out = append(out, wanted{im.string(im.get64(at)), im.string(im.get64(at + 8)), im.get64(at + 16)})
	}
	return out
}

// hooked are the hooks that calls are redirected to, by the symbol's name.
func hooked() map[string]hooks.Info {
	out := map[string]hooks.Info{}
	for _, h := range hooks.Table {
		if h.Version != "syscall" && int(h.ID) < thunkCount { // met inside syscall(2)
			out[h.Name] = h
		}
	}
	return out
}
