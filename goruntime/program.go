package goruntime

import (
	"cmp"
	"debug/buildinfo"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/hbtrace/hbtrace/symbols"
)

// Program is what a Go binary says of itself.
type Program struct {
	Path    string
	Version string // as go version prints it: "go1.26.1"
	Minor   int    // 26
	Layout  Layout
	Static  bool // it needs no library: no agent works in it

	pie       bool
	entry     uint64 // of the file
	text      span   // its first executable segment
	functions map[string]span
	starts    []start // of all functions, ascending
	leaves    [4]span // code of the runtime and of package sync
}

// span is a range of ELF virtual addresses.
type span struct{ lo, hi uint64 }

// ErrNotGo says that a file is no Go program.
var ErrNotGo = symbols.ErrNotGo

// redirection is a function of the runtime that goes through the mapped code.
type redirection struct{ function, to string }

func (p *Program) redirections() []redirection {
	r := []redirection{{"runtime.casgstatus", "hb_go_status"}, {"runtime.exit", "hb_go_quit"}}
	if p.Layout.Inline {
		r = append(r, redirection{"runtime.reentersyscall", "hb_go_enter"}, redirection{"runtime.exitsyscall", "hb_go_exit"})
	}
	return r
}

const oldest, newest = 20, 26

// Versions says which Go versions can be recorded.
const Versions = "Go 1.20 to 1.26"

// Open reads a binary. The error is ErrNotGo for files that are no Go programs; any other says in words for users why a Go
// program cannot be recorded, and the Program has what is known of it.
func Open(path string) (*Program, error) {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, ErrNotGo)
	}
	p := &Program{Path: path, Version: info.GoVersion}
	f, err := elf.Open(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, ErrNotGo)
	}
	defer f.Close()
	p.pie, p.entry, p.Static = f.Type == elf.ET_DYN, f.Entry, true
	for _, s := range f.Progs {
		switch s.Type {
		case elf.PT_INTERP:
			p.Static = false
		case elf.PT_LOAD:
			if p.text == (span{}) && s.Flags&elf.PF_X != 0 {
				p.text = span{s.Vaddr, s.Vaddr + s.Memsz}
			}
		}
	}
	if libs, err := f.ImportedLibraries(); err == nil && len(libs) == 0 {
		p.Static = true // position-independent programs name a loader although they need no library
	}
	if f.Class != elf.ELFCLASS64 || f.Machine != elf.EM_X86_64 {
		return p, fmt.Errorf("it is a Go program for %v: only those for x86-64 can be recorded", f.Machine)
	}
	p.Minor, err = minor(info.GoVersion)
	if err != nil {
		return p, err
	}
	layout, ok := layouts[p.Minor]
	if !ok {
		return p, fmt.Errorf("it was built with %s, whose runtime this hbtrace does not know (%s can be recorded)", info.GoVersion, Versions)
	}
	p.Layout = layout
	if err := p.readFunctions(); err != nil {
		return p, err
	}
	return p, nil
}

// minor is 26 for "go1.26.1", "go1.26rc1" and "go1.26-custom X:nocoverageredesign".
func minor(version string) (int, error) {
	rest, ok := strings.CutPrefix(version, "go1.")
	n := strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' })
	if n < 0 {
		n = len(rest)
	}
	v, err := strconv.Atoi(rest[:n])
	if !ok || err != nil {
		return 0, fmt.Errorf("it was built with %q, which is no released Go version (%s can be recorded)", version, Versions)
	}
	return v, nil
}

// readFunctions finds the functions that matter, and where the code of the runtime and of sync lies.
func (p *Program) readFunctions() error {
	wanted := map[string]bool{"runtime.main": true, "gogo": true, "runtime.gopark": true, "runtime.sigtramp": true,
		"runtime.asyncPreempt": true}
	for _, r := range p.redirections() {
		wanted[r.function] = true
	}
	p.functions = map[string]span{}
	rt, sync, inner := runs{prefix: "runtime."}, runs{prefix: "sync."}, runs{prefix: "internal/sync."}
	err := symbols.GoFunctions(p.Path, func(name string, lo, hi uint64) {
		p.starts = append(p.starts, start{lo, name})
		if wanted[name] {
			p.functions[name] = span{lo, hi}
		}
		rt.add(name, lo, hi)
		sync.add(name, lo, hi)
		inner.add(name, lo, hi)
	})
	if errors.Is(err, ErrNotGo) {
		return errors.New("its table of functions was not found")
	}
	if err != nil {
		return err
	}
	p.leaves = [4]span{rt.longest(), rt.longest(), sync.longest(), inner.longest()}
	for name := range wanted {
		if _, ok := p.functions[name]; !ok {
			return fmt.Errorf("its runtime has no function %s", name)
		}
	}
	return nil
}

// runs gathers where the functions of a package lie: together, but for those in assembly, and for functions that other
// packages give their names to, which lie among them.
type runs struct {
	prefix string
	all    []span
}

func (r *runs) add(name string, lo, hi uint64) {
	const between = 8 << 10 // bytes of code under other names
	switch n := len(r.all); {
	case !strings.HasPrefix(name, r.prefix):
	case n > 0 && lo-r.all[n-1].hi <= between:
		r.all[n-1].hi = hi
	default:
		r.all = append(r.all, span{lo, hi})
	}
}

// longest takes the longest run out; zero when there is none.
func (r *runs) longest() (out span) {
	best := -1
	for i, s := range r.all {
		if best < 0 || s.hi-s.lo > r.all[best].hi-r.all[best].lo {
			best = i
		}
	}
	if best >= 0 {
		out, r.all[best] = r.all[best], span{}
	}
	return out
}

// Text is the range of addresses that the program's code has in its file.
func (p *Program) Text() (lo, hi uint64) { return p.text.lo, p.text.hi }

// Bias is what to add to the file's addresses in a process that runs the program; 0 where that cannot be seen.
func (p *Program) Bias(pid int) uint64 {
	aux, err := auxiliary(pid)
	if err != nil {
		return 0
	}
	return p.base(aux[atEntry])
}

// atEntry and atVDSO are AT_ENTRY and AT_SYSINFO_EHDR; getauxval(3).
const atEntry, atVDSO = 9, 33

// auxiliary is what the kernel told the program when it started it.
func auxiliary(pid int) (map[uint64]uint64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/auxv", pid))
	if err != nil {
		return nil, err
	}
	out := map[uint64]uint64{}
	for ; len(b) >= 16; b = b[16:] {
		out[binary.LittleEndian.Uint64(b)] = binary.LittleEndian.Uint64(b[8:])
	}
	return out, nil
}

// Name is the function that begins at an address of the file; "" unknown.
func (p *Program) Name(addr uint64) string {
	i, ok := slices.BinarySearchFunc(p.starts, addr, func(s start, a uint64) int { return cmp.Compare(s.at, a) })
	if !ok {
		return ""
	}
	return p.starts[i].name
}

// start is where a function begins.
type start struct {
	at   uint64
	name string
}

// base is what to add to ELF virtual addresses, given where the kernel put the file's entry (AT_ENTRY).
func (p *Program) base(entry uint64) uint64 { return entry - p.entry }
