// What one program allows: how it is linked, what it calls, whether its stacks can be walked and named.

package doctor

import (
	"bufio"
	"bytes"
	"debug/buildinfo"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hbtrace/hbtrace/goruntime"
)

// Program is what was found out about a program file.
type Program struct {
	Path    string   `json:"path"`              // absolute
	Real    string   `json:"real,omitempty"`    // where symbolic links lead, when that is another path
	Scripts []string `json:"scripts,omitempty"` // the scripts that led to Path, outermost first
	Static  bool     `json:"static"`
	Libc    string   `json:"libc"` // "glibc 2.36", "musl", "" unknown or none
	Go      string   `json:"go,omitempty"`
	// Libraries found, the loader's order; Missing ones were named and not found.
	Libraries []string `json:"libraries,omitempty"`
	Missing   []string `json:"missing,omitempty"`
	// Hooked and Unhooked are names of imported functions, sorted: wrapped by the agent, and known to block
	// without being wrapped.
	Hooked   []Import  `json:"hooked,omitempty"`
	Unhooked []Import  `json:"unhooked,omitempty"`
	Findings []Finding `json:"findings"`

	file string // Path as it was found: it opens where the directories above may not be searched
}

// maxScripts is the kernel's limit of interpreters that are scripts themselves (BINPRM recursion).
const maxScripts = 5

// LookProgram finds a program as execvp would and describes it. The error says in one line why it cannot be
// started, and how that is put right where that is known.
func LookProgram(name string) (*Program, error) {
	p, err := locate(name)
	if err != nil {
		return nil, err
	}
	return p, p.look()
}

// locate follows a name through $PATH and #! lines to the file that the kernel will load.
func locate(name string) (*Program, error) {
	path, err := find(name)
	if err != nil {
		return nil, err
	}
	p := &Program{}
	for range maxScripts {
		interpreter, isScript, err := shebang(path)
		if err != nil {
			return nil, err
		}
		if !isScript {
			p.file = path
			if p.Path, err = filepath.Abs(path); err != nil {
				return nil, err
			}
			if real, err := filepath.EvalSymlinks(p.Path); err == nil && real != p.Path {
				p.Real = real
			}
			return p, nil
		}
		p.Scripts = append(p.Scripts, path)
		if err := startable(interpreter); err != nil {
			return nil, fmt.Errorf("%s: its interpreter (first line, #!) cannot be started: %w", path, err)
		}
		path = interpreter
	}
	return nil, fmt.Errorf("%s: more than %d scripts interpret one another", name, maxScripts)
}

// find is execvp's search, with reasons.
func find(name string) (string, error) {
	if name == "" {
		return "", errors.New("the program's name is empty")
	}
	if strings.Contains(name, "/") {
		return name, startable(name)
	}
	path, err := exec.LookPath(name)
	if err == nil {
		return path, nil
	}
	if errors.Is(err, exec.ErrDot) {
		return "", fmt.Errorf("%s: found in the working directory through $PATH: write ./%s", name, name)
	}
	if startable(name) == nil {
		return "", fmt.Errorf("%s: not found in $PATH: write ./%s for the one here", name, name)
	}
	return "", fmt.Errorf("%s: not found in $PATH: check the spelling or give its path", name)
}

// startable says why exec would refuse a path.
func startable(path string) error {
	st, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s: no such program: check the path", path)
	case err != nil:
		return fmt.Errorf("%s: %w", path, reason(err))
	case st.IsDir():
		return fmt.Errorf("%s: is a directory, not a program", path)
	case !st.Mode().IsRegular():
		return fmt.Errorf("%s: is not a regular file", path)
	}
	if err := unix.Access(path, unix.X_OK); err != nil {
		if st.Mode()&0o111 == 0 {
			return fmt.Errorf("%s: not executable: chmod +x it, or name its interpreter", path)
		}
		return fmt.Errorf("%s: may not be executed by you: %w", path, err)
	}
	return nil
}

// shebang reads a script's interpreter. A program that may be executed and not read is taken for no script.
func shebang(path string) (interpreter string, isScript bool, err error) {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrPermission) {
		return "", false, nil
	}
	if err != nil {
		return "", false, fmt.Errorf("%s: %w", path, reason(err))
	}
	defer file.Close()
	head, err := bufio.NewReaderSize(file, 256).Peek(256)
	if err != nil && err != io.EOF {
		return "", false, fmt.Errorf("%s: %w", path, reason(err))
	}
	switch {
	case bytes.HasPrefix(head, []byte(elf.ELFMAG)):
		return "", false, nil
	case !bytes.HasPrefix(head, []byte("#!")):
		return "/bin/sh", true, nil // as execvp and shells do
	}
	first, _, _ := bytes.Cut(head[2:], []byte("\n"))
	words := strings.Fields(string(first))
	if len(words) == 0 {
		return "", false, fmt.Errorf("%s: its #! line names no interpreter", path)
	}
	return words[0], true, nil
}

// look fills p from its ELF file.
func (p *Program) look() error {
	path := p.file
	var f findings
	defer func() { p.Findings = f }()
	for _, s := range p.Scripts {
		f.add(OK, "script", "", "%s", s)
	}
	lookPrivilege(&f, path, self())
	file, err := elf.Open(path)
	if errors.Is(err, fs.ErrPermission) {
		f.add(Warn, "file", "", "may be executed and not read: nothing is known about it")
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s: broken ELF file: %w", path, err)
	}
	defer file.Close()
	if file.Type != elf.ET_EXEC && file.Type != elf.ET_DYN {
		return fmt.Errorf("%s: an ELF file of type %v, not a program", path, file.Type)
	}
	p.lookLinking(&f, file)
	p.lookGo(&f, path)
	if p.Static {
		return nil
	}
	closure := resolve(path, file)
	for _, l := range closure.found {
		p.Libraries = append(p.Libraries, l.path)
	}
	p.Missing = closure.missing
	if len(p.Missing) > 0 {
		f.add(Warn, "libraries", "the loader may know more places; otherwise the program will not start",
			"%d found, not found: %s", len(p.Libraries), strings.Join(p.Missing, ", "))
	} else {
		f.add(OK, "libraries", "", "%d", len(p.Libraries))
	}
	p.lookLibc(&f, file, closure)
	lookSanitizers(&f, file, closure)
	p.lookCalls(&f, filepath.Base(p.Path), file, closure)
	lookStacks(&f, file)
	lookNames(&f, filepath.Base(p.Path), file)
	return nil
}

func (p *Program) lookLinking(f *findings, file *elf.File) {
	interp := interpreterOf(file)
	machine := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[runtime.GOARCH]
	if native := file.Class == elf.ELFCLASS64 && file.Machine == machine; !native {
		f.add(Fail, "linking", "this hbtrace records 64-bit programs for "+machine.String(), "%v program for %v", file.Class, file.Machine)
	} else if interp == "" && isLoader(file) {
		p.Static = true // itself; what it loads is not known here
		f.add(Note, "linking", "ask about that program: hbtrace doctor ./app", "a loader: it loads the agent with the program that it is given")
	} else if interp == "" && p.recordsGo() {
		p.Static = true
		f.add(OK, "linking", "", "static")
	} else if interp == "" {
		p.Static = true
		f.add(Fail, "linking", "link it dynamically; to record only the programs that it starts, put env before it",
			"static: it has no loader, so nothing can be loaded into it")
	} else {
		if _, err := os.Stat(interp); err != nil {
			f.add(Fail, "linking", "install the C library that it was built for", "its loader %s is missing", interp)
			return
		}
		f.add(OK, "linking", "", "dynamic, %s", interp)
	}
}

// isLoader: a shared object that needs no loader is one. What is linked with -static-pie looks alike and is marked as
// a program.
func isLoader(file *elf.File) bool {
	if file.Type != elf.ET_DYN {
		return false
	}
	flags, err := file.DynValue(elf.DT_FLAGS_1)
	return err == nil && (len(flags) == 0 || flags[0]&uint64(elf.DF_1_PIE) == 0)
}

// identity is who would start the program.
type identity struct{ uid, euid, egid int }

func self() identity { return identity{os.Getuid(), os.Geteuid(), os.Getegid()} }

// lookPrivilege finds what makes the kernel set AT_SECURE, under which loaders ignore LD_PRELOAD (capabilities(7),
// "Safe execution"). For root, set-uid root and file capabilities change nothing.
func lookPrivilege(f *findings, path string, who identity) {
	var st unix.Stat_t
	if unix.Stat(path, &st) != nil {
		return
	}
	const advice = "the loader ignores LD_PRELOAD: record a copy without the privilege (cp), or record it as the user that it becomes"
	switch {
	case st.Mode&unix.S_ISUID != 0 && int(st.Uid) != who.euid:
		f.add(Fail, "privilege", advice, "set-uid: becomes uid %d", st.Uid)
	case st.Mode&unix.S_ISGID != 0 && st.Mode&unix.S_IXGRP != 0 && int(st.Gid) != who.egid:
		f.add(Fail, "privilege", advice, "set-gid: becomes gid %d", st.Gid)
	default:
		if n, err := unix.Getxattr(path, "security.capability", nil); err == nil && n > 0 && who.uid != 0 {
			f.add(Fail, "privilege", advice, "has file capabilities")
		}
	}
}

// recordsGo says whether run records the program's goroutines.
func (p *Program) recordsGo() bool {
	g, err := goruntime.Open(p.file)
	return err == nil && g.Static
}

func (p *Program) lookGo(f *findings, path string) {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return
	}
	p.Go = info.GoVersion
	if p.recordsGo() {
		f.add(OK, "Go", "", "%s: run records its goroutines, what they wait for and their CPU time; not allocations (docs/go.md)", info.GoVersion)
		return
	}
	if p.Static {
		f.add(Note, "Go", goruntime.Versions+" can be recorded, on x86-64; otherwise use runtime/pprof and runtime/trace", "%s", info.GoVersion)
		return
	}
	f.add(Warn, "Go", "for the Go side use runtime/pprof and runtime/trace as well",
		"%s: its C side is recorded; Go's own locks, I/O and heap do not pass through libc", info.GoVersion)
}

func (p *Program) lookLibc(f *findings, file *elf.File, c closure) {
	interp := filepath.Base(interpreterOf(file))
	switch {
	case strings.HasPrefix(interp, "ld-musl"):
		p.Libc = "musl"
		f.add(OK, "libc", "", "musl")
	case strings.HasPrefix(interp, "ld-linux"):
		p.Libc = "glibc"
		have, need := glibcInstalled(c), glibcNeeded(file)
		if have != "" {
			p.Libc += " " + have
		}
		switch {
		case need != "" && have != "" && versionLess(have, need):
			f.add(Warn, "libc", "the program will not start with this libc", "glibc %s, needs %s", have, need)
		case need != "":
			f.add(OK, "libc", "", "%s, needs %s", p.Libc, need)
		default:
			f.add(OK, "libc", "", "%s", p.Libc)
		}
	default:
		f.add(Note, "libc", "", "neither glibc nor musl (%s): untried", interp)
	}
}

func lookSanitizers(f *findings, file *elf.File, c closure) {
	for _, l := range c.found {
		if strings.HasPrefix(l.name, "libasan") || strings.HasPrefix(l.name, "libclang_rt.asan") {
			f.add(Warn, "sanitizer", "ASan refuses to start behind a preloaded library: set ASAN_OPTIONS=verify_asan_link_order=0 if it complains",
				"AddressSanitizer (%s)", l.name)
			return
		}
		if strings.HasPrefix(l.name, "libtsan") {
			f.add(Note, "sanitizer", "", "ThreadSanitizer: times are those of the instrumented program")
			return
		}
	}
	if symbols, err := file.DynamicSymbols(); err == nil {
		for _, s := range symbols {
			if s.Name == "__asan_init" && s.Section != elf.SHN_UNDEF {
				f.add(Warn, "sanitizer", "set ASAN_OPTIONS=verify_asan_link_order=0 if it complains", "AddressSanitizer, linked in")
				return
			}
		}
	}
}

func interpreterOf(file *elf.File) string {
	for _, s := range file.Progs {
		if s.Type == elf.PT_INTERP && s.Filesz < 4096 {
			b := make([]byte, s.Filesz)
			if _, err := s.ReadAt(b, 0); err == nil {
				return string(bytes.TrimRight(b, "\x00"))
			}
		}
	}
	return ""
}
