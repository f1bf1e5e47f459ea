// Which file a command runs, found and judged before anything is created: whether it can be run at all, and
// whether the agent can be loaded into it.
package collector

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/hbtrace/hbtrace/goruntime"
	"golang.org/x/sys/unix"
)

// program is a command's file and what it is.
type program struct {
	path   string   // as found: what execve is given
	args   []string // what execve is given: args[0] is what the user typed
	asan   bool     // needs libasan, which insists on being the first library
	notes  []string
	golang *goruntime.Program // a Go program that can be recorded; nil: none
	shells bool               // neither ELF nor "#!": run by /bin/sh, as shells do
}

// findProgram looks the command up as a shell does, in path (the value of PATH), relative to dir ("" = here).
func findProgram(command []string, path, dir string) (*program, error) {
	if len(command) == 0 || command[0] == "" {
		return nil, errors.New("no program given")
	}
	name := command[0]
	at := func(p string) string { // where to look at it from here
		if dir == "" || filepath.IsAbs(p) {
			return p
		}
		return filepath.Join(dir, p)
	}
	if strings.Contains(name, "/") {
		if err := checkFile(name, at(name)); err != nil {
			return nil, err
		}
		return inspect(name, at(name), command)
	}
	var denied error
	for _, d := range filepath.SplitList(path) {
		if d == "" {
			d = "." // as shells have it
		}
		p := d + "/" + name
		err := checkFile(p, at(p))
		if err == nil {
			return inspect(p, at(p), command)
		}
		if denied == nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, errDirectory) {
			denied = err
		}
	}
	if denied != nil {
		return nil, denied
	}
	if checkFile("./"+name, at("./"+name)) == nil {
		return nil, fmt.Errorf("no such program: %s is not in PATH (here it is ./%s)", name, name)
	}
	return nil, fmt.Errorf("no such program: %s is not in PATH", name)
}

var errDirectory = errors.New("is a directory, not a program")

func checkFile(shown, path string) error {
	fi, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return fmt.Errorf("no such program: %s: %w", shown, fs.ErrNotExist)
	case err != nil:
		return fmt.Errorf("look at %s: %w", shown, err)
	case fi.IsDir():
		return fmt.Errorf("%s %w", shown, errDirectory)
	case !fi.Mode().IsRegular():
		return fmt.Errorf("%s is not a program (%v)", shown, fi.Mode().Type())
	}
	if err := unix.Faccessat(unix.AT_FDCWD, path, unix.X_OK, unix.AT_EACCESS); err != nil {
		if fi.Mode().Perm()&0o111 == 0 {
			return fmt.Errorf("%s is not executable: chmod +x it, or name its interpreter", shown)
		}
		return fmt.Errorf("%s cannot be executed by this user, or is mounted noexec: %w", shown, err)
	}
	return nil
}

// inspect reads the start of the file: an ELF file, a script, or something for /bin/sh.
func inspect(shown, path string, command []string) (*program, error) {
	p := &program{path: shown, args: command}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrPermission) {
		return p, nil // executable and not readable: nothing is known about it
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", shown, err)
	}
	defer f.Close()
	head := make([]byte, 256) // as much as the kernel looks at
	n, err := io.ReadFull(f, head)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read %s: %w", shown, err)
	}
	head = head[:n]
	p.privileges(shown, f)
	switch {
	case bytes.HasPrefix(head, []byte("#!")):
		interp := interpreter(head)
		if interp == "" {
			return nil, fmt.Errorf("%s names no interpreter behind its #!", shown)
		}
		fi, err := os.Stat(interp)
		switch {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
			return nil, fmt.Errorf("%s is a script for %q, which does not exist", shown, interp)
		case err != nil:
			return nil, fmt.Errorf("%s is a script for %s: %w", shown, interp, err)
		case fi.IsDir():
			return nil, fmt.Errorf("%s is a script for %s, which is a directory", shown, interp)
		}
		if err := unix.Faccessat(unix.AT_FDCWD, interp, unix.X_OK, unix.AT_EACCESS); err != nil {
			return nil, fmt.Errorf("%s is a script for %s, which is not executable", shown, interp)
		}
		if err := p.loaded(interp, interp); err != nil {
			return nil, err
		}
	case bytes.HasPrefix(head, []byte(elf.ELFMAG)):
		if err := p.loaded(shown, path); err != nil {
			return nil, err
		}
	default:
		p.shells = true
	}
	return p, nil
}

// interpreter is what the first line of a script names.
func interpreter(head []byte) string {
	line, _, _ := bytes.Cut(head[2:], []byte("\n"))
	if f := bytes.FieldsFunc(line, func(r rune) bool { return r == ' ' || r == '\t' }); len(f) > 0 {
		return string(f[0])
	}
	return ""
}

// privileges notes what makes the kernel start the program in secure mode, in which the loader takes no agent
// from us.
func (p *program) privileges(shown string, f *os.File) {
	fi, err := f.Stat()
	if err != nil {
		return
	}
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return
	}
	const remedy = "the agent cannot be loaded into it and nothing of it is recorded: run hbtrace as that user, or record a copy without the privilege"
	switch {
	case fi.Mode()&fs.ModeSetuid != 0 && int(st.Uid) != os.Getuid():
		p.notes = append(p.notes, fmt.Sprintf("%s is set-user-id: %s", shown, remedy))
	case fi.Mode()&fs.ModeSetgid != 0 && fi.Mode()&0o010 != 0 && int(st.Gid) != os.Getgid():
		p.notes = append(p.notes, fmt.Sprintf("%s is set-group-id: %s", shown, remedy))
	}
	if n, err := unix.Fgetxattr(int(f.Fd()), "security.capability", nil); err == nil && n > 0 && os.Geteuid() != 0 {
		p.notes = append(p.notes, fmt.Sprintf("%s has file capabilities: %s", shown, remedy))
	}
}

// loaded judges the ELF file that the kernel will start. The error is one that makes starting it impossible.
func (p *program) loaded(shown, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	e, err := elf.NewFile(f)
	if err != nil {
		return nil // execve will say
	}
	interp := ""
	for _, ph := range e.Progs {
		if ph.Type == elf.PT_INTERP && ph.Filesz < 4096 {
			b := make([]byte, ph.Filesz)
			if _, err := ph.ReadAt(b, 0); err == nil {
				interp = string(bytes.TrimRight(b, "\x00"))
			}
		}
	}
	if p.inspectGo(shown, path) {
		return nil
	}
	switch {
	case interp == "" && isLoader(e):
		return nil // the loader run by hand: it loads the agent as well as the program that it is given
	case interp == "":
		p.notes = append(p.notes, fmt.Sprintf("%s is statically linked: no agent can be loaded into it and nothing of it is recorded; link it dynamically", shown))
		return nil
	case e.Class != elf.ELFCLASS64 || e.Machine != machine:
		p.notes = append(p.notes, fmt.Sprintf("%s is a program for %v, %v: the agent is for %v and cannot be loaded into it, so nothing of it is recorded", shown, e.Machine, e.Class, machine))
	}
	if _, err := os.Stat(interp); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s needs the loader %s, which does not exist on this machine", shown, interp)
	}
	p.asan = needs(e, path, "libasan.so")
	return nil
}

// isLoader: a loader needs no other and can be run by hand (ld-linux-x86-64.so.2 ./app, or musl's libc.so ./app). It is
// a shared object; what is linked with -static-pie, which looks alike, is marked as a program.
func isLoader(e *elf.File) bool {
	if e.Type != elf.ET_DYN {
		return false
	}
	flags, err := e.DynValue(elf.DT_FLAGS_1)
	return err == nil && (len(flags) == 0 || flags[0]&uint64(elf.DF_1_PIE) == 0)
}

// needs: the file, or a library that it names and that lies where loaders look, needs a library whose name
// begins with prefix.
func needs(e *elf.File, path, prefix string) bool {
	libs, _ := e.ImportedLibraries()
	var dirs []string
	for _, tag := range []elf.DynTag{elf.DT_RUNPATH, elf.DT_RPATH} {
		vs, _ := e.DynString(tag)
		for _, v := range vs {
			for _, d := range strings.Split(v, ":") {
				dirs = append(dirs, strings.NewReplacer("$ORIGIN", filepath.Dir(path), "${ORIGIN}", filepath.Dir(path)).Replace(d))
			}
		}
	}
	dirs = append(dirs, "/lib64", "/usr/lib64", "/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib", "/usr/lib", "/usr/local/lib")
	for _, lib := range libs {
		if strings.HasPrefix(lib, prefix) {
			return true
		}
	}
	for _, lib := range libs {
		for _, d := range dirs {
			le, err := elf.Open(filepath.Join(d, lib))
			if err != nil {
				continue
			}
			inner, _ := le.ImportedLibraries()
			le.Close()
			for _, l := range inner {
				if strings.HasPrefix(l, prefix) {
					return true
				}
			}
			break
		}
	}
	return false
}
