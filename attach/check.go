package attach

import (
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Check says in one line why a process cannot be attached to; nil where nothing is known to stand in the way. It changes
// nothing in the process.
func Check(pid int) error {
	if runtime.GOARCH != "amd64" {
		return fmt.Errorf("attaching works on x86-64 only; record the program from its start: hbtrace run PROGRAM")
	}
	if pid == os.Getpid() {
		return fmt.Errorf("process %d is hbtrace itself", pid)
	}
	st := status(pid)
	if st == nil {
		return fmt.Errorf("process %d: there is no such process", pid)
	}
	if leader := st["Tgid"]; leader != strconv.Itoa(pid) {
		return fmt.Errorf("%d is a thread of process %s: attach to that", pid, leader)
	}
	switch {
	case strings.HasPrefix(st["State"], "Z"), strings.HasPrefix(st["State"], "X"):
		return fmt.Errorf("process %d has ended: it is a zombie", pid)
	case st["VmSize"] == "":
		return fmt.Errorf("process %d is a thread of the kernel: it runs no program", pid)
	case strings.HasPrefix(st["State"], "T"):
		return fmt.Errorf("process %d is stopped: let it go on (kill -CONT %d), then attach", pid, pid)
	}
	exe := fmt.Sprintf("/proc/%d/exe", pid)
	f, err := os.Open(exe)
	if err != nil {
		return explainDenied(pid, err)
	}
	defer f.Close()
	if err := checkProgram(pid, f); err != nil {
		return err
	}
	if tracer := st["TracerPid"]; tracer != "0" && tracer != "" {
		return fmt.Errorf("process %d is traced by process %s (a debugger, strace): end that first", pid, tracer)
	}
	mem, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", pid), os.O_RDWR, 0)
	if err != nil {
		return explainDenied(pid, err)
	}
	mem.Close()
	switch {
	case strictSeccomp(st):
		return fmt.Errorf("process %d has confined itself to four system calls (seccomp's strict mode): record it from its start", pid)
	case st["Seccomp"] != "0" && st["Seccomp"] != "" && os.Geteuid() != 0:
		return fmt.Errorf("process %d has confined its system calls by seccomp, and only root can read whether attaching would end it: sudo hbtrace attach %d, or record it from its start", pid, pid)
	}
	return nil
}

// checkProgram looks at the program's file.
func checkProgram(pid int, f *os.File) error {
	e, err := elf.NewFile(f)
	if err != nil {
		return fmt.Errorf("process %d: its program cannot be read: %w", pid, err)
	}
	defer e.Close()
	if e.Class != elf.ELFCLASS64 {
		return fmt.Errorf("process %d is a 32-bit program: only 64-bit programs are recorded", pid)
	}
	if e.Machine != elf.EM_X86_64 {
		return fmt.Errorf("process %d is a program for another machine (%v)", pid, e.Machine)
	}
	interp := ""
	for _, p := range e.Progs {
		if p.Type == elf.PT_INTERP {
			b := make([]byte, min(p.Filesz, 4096))
			if _, err := p.ReadAt(b, 0); err == nil {
				interp = strings.TrimRight(string(b), "\x00")
			}
		}
	}
	if interp == "" && !strings.HasPrefix(filepath.Base(exeName(pid)), "ld-") {
		return fmt.Errorf("process %d is a static program: it calls no function of a shared C library that could be recorded", pid)
	}
	return nil
}

func exeName(pid int) string {
	name, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	return name
}

// explainDenied says what to do about a process that may not be looked into.
func explainDenied(pid int, err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("process %d: there is no such process", pid)
	}
	var st unix.Stat_t
	if unix.Stat(fmt.Sprintf("/proc/%d", pid), &st) == nil && os.Geteuid() != 0 && int(st.Uid) != os.Geteuid() {
		owner := status(pid)["Uid"]
		uid, _, _ := strings.Cut(owner, "\t")
		return fmt.Errorf("process %d belongs to user %s: attach as that user, or as root (sudo hbtrace attach %d)", pid, uid, pid)
	}
	if b, e := os.ReadFile("/proc/sys/kernel/yama/ptrace_scope"); e == nil && os.Geteuid() != 0 {
		switch strings.TrimSpace(string(b)) {
		case "1":
			return fmt.Errorf("the machine lets a program trace its own children only (kernel.yama.ptrace_scope is 1): attach as root (sudo hbtrace attach %d), or allow it: sudo sysctl kernel.yama.ptrace_scope=0", pid)
		case "2":
			return fmt.Errorf("the machine lets only root trace (kernel.yama.ptrace_scope is 2): sudo hbtrace attach %d", pid)
		case "3":
			return fmt.Errorf("the machine lets nobody trace (kernel.yama.ptrace_scope is 3) until it is started again")
		}
	}
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("process %d may not be traced from here (it has more privileges, is not dumpable, or this container lacks CAP_SYS_PTRACE): attach as root outside of it", pid)
	}
	return fmt.Errorf("process %d: %w", pid, err)
}
