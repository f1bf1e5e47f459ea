// What a running process shows from outside.

package doctor

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/hbtrace/hbtrace/attach"
	"golang.org/x/sys/unix"
)

// Process is what was found out about a running process.
type Process struct {
	PID      int       `json:"pid"`
	Command  []string  `json:"command,omitempty"`
	Threads  int       `json:"threads,omitempty"`
	Findings []Finding `json:"findings"`

	program *Program
}

// LookProcess describes a process and its program.
func LookProcess(pid int) (*Process, error) {
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	if _, err := os.Stat(dir); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("process %d: no such process", pid)
		}
		return nil, fmt.Errorf("process %d: %w", pid, reason(err))
	}
	p := &Process{PID: pid}
	var f findings
	defer func() { p.Findings = f }()
	if b, err := os.ReadFile(filepath.Join(dir, "cmdline")); err == nil && len(b) > 0 {
		p.Command = strings.Split(string(bytes.TrimRight(b, "\x00")), "\x00")
	}
	st := status(strconv.Itoa(pid))
	if n, err := strconv.Atoi(st["Threads"]); err == nil {
		p.Threads = n
	}
	f.add(OK, "command", "", "%s, %s", strings.Join(p.Command, " "), plural(p.Threads, "thread"))
	lookOwner(&f, st)
	lookSignal(&f, st)
	lookLoaded(&f, dir)
	if err := attach.Check(pid); err != nil {
		f.add(Warn, "attach", "start the program with hbtrace run", "not possible: %v", err)
	} else {
		switch ours, other := attach.Dormant(pid); {
		case ours:
			f.add(OK, "attach", "", "possible without a stop, by the dormant agent that it has preloaded: hbtrace attach %d", pid)
		case other != "":
			f.add(Note, "attach", "", "possible by stopping a thread once: hbtrace attach %d; %s", pid, other)
		default:
			f.add(OK, "attach", "", "possible: hbtrace attach %d", pid)
		}
	}

	// through /proc, so that a deleted or replaced program and one of another mount namespace are still seen
	exe := filepath.Join(dir, "exe")
	name, err := os.Readlink(exe)
	if err != nil {
		f.add(Warn, "program", "run doctor as the process's user or as root", "%v", reason(err))
		return p, nil
	}
	p.program = &Program{Path: name, file: exe}
	if err := p.program.look(); err != nil {
		f.add(Warn, "program", "", "%v", err)
	}
	return p, nil
}

func lookOwner(f *findings, st map[string]string) {
	uids := strings.Fields(st["Uid"])
	if len(uids) < 2 {
		return
	}
	if uid, err := strconv.Atoi(uids[1]); err == nil && uid != os.Geteuid() && os.Geteuid() != 0 {
		f.add(Warn, "owner", "work as that user, or as root", "runs as uid %d, you are %d", uid, os.Geteuid())
		return
	}
	f.add(OK, "owner", "", "uid %s", uids[1])
}

// lookSignal says what the process does with the sampling signal.
func lookSignal(f *findings, st map[string]string) {
	has := func(set string, signal unix.Signal) bool {
		mask, err := strconv.ParseUint(st[set], 16, 64)
		return err == nil && mask&(1<<(uint(signal)-1)) != 0
	}
	is := func(set string) bool { return has(set, unix.SIGURG) }
	switch {
	case is("SigCgt") && !has("SigCgt", unix.SIGWINCH) && !has("SigBlk", unix.SIGWINCH):
		f.add(OK, "SIGURG", "", "has a handler of its own for the sampling signal: SIGWINCH is used instead")
	case is("SigCgt"):
		f.add(Note, "SIGURG", "", "has handlers of its own for SIGURG and SIGWINCH: samples are taken at hooked calls and lean towards them; use --signal rtmin+10")
	case is("SigBlk") || is("SigIgn"):
		f.add(Note, "SIGURG", "", "blocks or ignores the sampling signal: samples are taken at hooks only")
	default:
		f.add(OK, "SIGURG", "", "free for sampling")
	}
}

func lookLoaded(f *findings, dir string) {
	maps, err := os.ReadFile(filepath.Join(dir, "maps"))
	switch {
	case err != nil:
		f.add(Warn, "agent", "run doctor as the process's user or as root", "the process's memory map cannot be read: %v", reason(err))
	case bytes.Contains(maps, []byte("hbtrace")):
		f.add(OK, "agent", "", "loaded: this process is being recorded, or was")
	default:
		f.add(Note, "agent", "", "not loaded")
	}
}
