package symbols

// This file owns the ELF header, program headers and notes: what a mapping's bias and a build id need, read
// without debug/elf, which would load all section headers.

import (
	"debug/elf"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
)

const (
	maxProgHeaders = 4096    // the linker writes about a dozen
	maxNoteBytes   = 1 << 20 // of one note segment
	maxSections    = 1 << 17
	// Notes come early among the sections; files with more than this have segments as well.
	maxNoteSections = 1 << 10
	maxBuildID      = 64 // bytes; SHA-1 has 20
)

// ErrNoBuildID says that a well-formed ELF file carries no GNU build id.
var ErrNoBuildID = errors.New("no GNU build id")

// Load is one PT_LOAD segment; all fields are bytes as in the program header.
type Load struct {
	Vaddr, Memsz, Off, Filesz uint64
	Flags                     elf.ProgFlag
}

// LoadInfo is the part of an ELF file that says where its addresses lie.
type LoadInfo struct {
	Type    elf.Type
	Machine elf.Machine
	Class   elf.Class
	Entry   uint64
	Loads   []Load
	Lo, Hi  uint64 // ELF virtual addresses [Lo, Hi) that the loads span; 0, 0 when there are none
}

// Bias returns address - ELF virtual address for a mapping that starts at start and shows the file from offset
// fileOff on, both as /proc/PID/maps has them. ok is false when no segment covers that offset.
func (l *LoadInfo) Bias(start, fileOff uint64) (bias uint64, ok bool) {
	const page = 4096 // the smallest: segments are rounded down to it at least
	best := -1
	for i, s := range l.Loads {
		// The kernel maps from the page of Off on. Two segments can share a file page; an executable
		// one is what callers ask for.
		if s.Filesz == 0 || fileOff < s.Off&^(page-1) || fileOff >= s.Off+s.Filesz {
			continue
		}
		if best < 0 || s.Flags&elf.PF_X != 0 && l.Loads[best].Flags&elf.PF_X == 0 {
			best = i
		}
	}
	if best < 0 {
		return 0, false
	}
	s := l.Loads[best]
	return start - (s.Vaddr + fileOff - s.Off), true
}

// executable says whether addr lies in an executable segment.
func (l *LoadInfo) executable(addr uint64) bool {
	for _, s := range l.Loads {
		if s.Flags&elf.PF_X != 0 && addr >= s.Vaddr && addr-s.Vaddr < s.Memsz {
			return true
		}
	}
	return false
}

// ReadLoads reads the ELF header and the PT_LOAD program headers of f.
func ReadLoads(f io.ReaderAt) (LoadInfo, error) {
	h, err := readHeader(f)
	if err != nil {
		return LoadInfo{}, err
	}
	return h.info, nil
}

// BuildID returns f's GNU build id in lower-case hex, from its note segments or else its note sections.
// The error is [ErrNoBuildID] when f is an ELF file without one.
func BuildID(f io.ReaderAt) (string, error) {
	h, err := readHeader(f)
	if err != nil {
		return "", err
	}
	total := 0
	for _, n := range append(h.notes, h.noteSections(f)...) {
		b := readRegion(f, n)
		if id := noteBuildID(b, h.order, n.align); id != "" {
			return id, nil
		}
		if total += len(b); total > 4*maxNoteBytes {
			break
		}
	}
	return "", ErrNoBuildID
}

type region struct{ off, size, align uint64 }

// header is what the first bytes of an ELF file say.
type header struct {
	info                       LoadInfo
	order                      binary.ByteOrder
	notes                      []region
	shoff                      uint64
	shentsize, shnum, shstrndx int
}

func readHeader(f io.ReaderAt) (*header, error) {
	var b [64]byte
	n, err := f.ReadAt(b[:], 0)
	if n < 52 {
		if err == nil || err == io.EOF {
			err = errors.New("too short")
		}
		return nil, fmt.Errorf("reading ELF header: %w", err)
	}
	if string(b[:4]) != elf.ELFMAG {
		return nil, errors.New("not an ELF file")
	}
	h := &header{order: binary.LittleEndian}
	switch elf.Data(b[elf.EI_DATA]) {
	case elf.ELFDATA2LSB:
	case elf.ELFDATA2MSB:
		h.order = binary.BigEndian
	default:
		return nil, fmt.Errorf("ELF byte order %d is unknown", b[elf.EI_DATA])
	}
	h.info.Class = elf.Class(b[elf.EI_CLASS])
	h.info.Type = elf.Type(h.order.Uint16(b[16:]))
	h.info.Machine = elf.Machine(h.order.Uint16(b[18:]))
	var phoff uint64
	var phentsize, phnum, need int
	u16 := func(at int) int { return int(h.order.Uint16(b[at:])) }
	switch h.info.Class {
	case elf.ELFCLASS64:
		if n < 64 {
			return nil, errors.New("reading ELF header: too short")
		}
		h.info.Entry, phoff, h.shoff = h.order.Uint64(b[24:]), h.order.Uint64(b[32:]), h.order.Uint64(b[40:])
		phentsize, phnum = u16(54), u16(56)
		h.shentsize, h.shnum, h.shstrndx = u16(58), u16(60), u16(62)
		need = 56
	case elf.ELFCLASS32:
		h.info.Entry, phoff, h.shoff = uint64(h.order.Uint32(b[24:])), uint64(h.order.Uint32(b[28:])), uint64(h.order.Uint32(b[32:]))
		phentsize, phnum = u16(42), u16(44)
		h.shentsize, h.shnum, h.shstrndx = u16(46), u16(48), u16(50)
		need = 32
	default:
		return nil, fmt.Errorf("ELF class %d is unknown", b[elf.EI_CLASS])
	}
	if phnum == 0 {
		return h, nil
	}
	if phentsize < need || phnum > maxProgHeaders {
		return nil, fmt.Errorf("%d program headers of %d bytes make no sense", phnum, phentsize)
	}
	tab := readRegion(f, region{off: phoff, size: uint64(phentsize * phnum)})
	if len(tab) < phentsize*phnum {
		return nil, errors.New("program headers lie outside of the file")
	}
	for ; len(tab) >= phentsize; tab = tab[phentsize:] {
		h.addProg(tab)
	}
	return h, nil
}

func (h *header) addProg(p []byte) {
	var typ, flags uint32
	var off, vaddr, filesz, memsz, align uint64
	typ = h.order.Uint32(p)
	if h.info.Class == elf.ELFCLASS64 {
		flags = h.order.Uint32(p[4:])
		off, vaddr = h.order.Uint64(p[8:]), h.order.Uint64(p[16:])
		filesz, memsz, align = h.order.Uint64(p[32:]), h.order.Uint64(p[40:]), h.order.Uint64(p[48:])
	} else {
		off, vaddr = uint64(h.order.Uint32(p[4:])), uint64(h.order.Uint32(p[8:]))
		filesz, memsz = uint64(h.order.Uint32(p[16:])), uint64(h.order.Uint32(p[20:]))
		flags, align = h.order.Uint32(p[24:]), uint64(h.order.Uint32(p[28:]))
	}
	switch elf.ProgType(typ) {
	case elf.PT_NOTE:
		h.notes = append(h.notes, region{off, filesz, align})
	case elf.PT_LOAD:
		if vaddr+memsz < vaddr || off+filesz < off {
			return // wraps around: no loader would map it
		}
		l := &h.info
		if len(l.Loads) == 0 || vaddr < l.Lo {
			l.Lo = vaddr
		}
		l.Hi = max(l.Hi, vaddr+memsz)
		l.Loads = append(l.Loads, Load{vaddr, memsz, off, filesz, elf.ProgFlag(flags)})
	}
}

// sectionHeader returns type, flags, offset, size and alignment of section i, zeros when it cannot be read.
func (h *header) sectionHeader(f io.ReaderAt, i int) (typ elf.SectionType, flags elf.SectionFlag, r region) {
	need := 64
	if h.info.Class == elf.ELFCLASS32 {
		need = 40
	}
	if h.shoff == 0 || h.shentsize < need || i < 0 || i > maxSections {
		return
	}
	at := h.shoff + uint64(i)*uint64(h.shentsize)
	if at < h.shoff {
		return
	}
	b := readRegion(f, region{off: at, size: uint64(need)})
	if len(b) < need {
		return
	}
	typ = elf.SectionType(h.order.Uint32(b[4:]))
	if h.info.Class == elf.ELFCLASS64 {
		return typ, elf.SectionFlag(h.order.Uint64(b[8:])),
			region{h.order.Uint64(b[24:]), h.order.Uint64(b[32:]), h.order.Uint64(b[48:])}
	}
	return typ, elf.SectionFlag(h.order.Uint32(b[8:])),
		region{uint64(h.order.Uint32(b[16:])), uint64(h.order.Uint32(b[20:])), uint64(h.order.Uint32(b[32:]))}
}

func (h *header) noteSections(f io.ReaderAt) []region {
	var rs []region
	for i := range min(h.shnum, maxNoteSections) {
		if typ, _, r := h.sectionHeader(f, i); typ == elf.SHT_NOTE {
			rs = append(rs, r)
		}
	}
	return rs
}

// noteBuildID finds the GNU build id in the notes b, padded to align bytes.
func noteBuildID(b []byte, order binary.ByteOrder, align uint64) string {
	if align != 8 {
		align = 4
	}
	pad := func(n uint64) uint64 { return (n + align - 1) &^ (align - 1) }
	for len(b) >= 12 {
		namesz, descsz, typ := uint64(order.Uint32(b)), uint64(order.Uint32(b[4:])), order.Uint32(b[8:])
		descAt := pad(12 + namesz)
		end := descAt + descsz
		if end > uint64(len(b)) {
			return ""
		}
		if typ == 3 && namesz == 4 && string(b[12:16]) == "GNU\x00" && descsz > 0 && descsz <= maxBuildID {
			return hex.EncodeToString(b[descAt:end])
		}
		b = b[min(pad(end), uint64(len(b))):]
	}
	return ""
}

// readRegion returns the bytes of r that exist, at most maxNoteBytes.
func readRegion(f io.ReaderAt, r region) []byte {
	if r.off > 1<<62 {
		return nil
	}
	b := make([]byte, min(r.size, maxNoteBytes))
	n, _ := f.ReadAt(b, int64(r.off)) // a short read shows in the length
	return b[:max(n, 0)]
}
