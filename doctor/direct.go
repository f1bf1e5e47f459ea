// System calls that a program makes itself, past the C library and so past every hook.

package doctor

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// sleepingNumbers are the system calls that put a thread to sleep, on x86-64 (arch/x86/entry/syscalls/syscall_64.tbl).
var sleepingNumbers = map[uint32]string{
	unix.SYS_READ: "read", unix.SYS_WRITE: "write", unix.SYS_READV: "readv", unix.SYS_WRITEV: "writev", unix.SYS_POLL: "poll",
	unix.SYS_PPOLL: "ppoll", unix.SYS_SELECT: "select", unix.SYS_PSELECT6: "pselect6", unix.SYS_EPOLL_WAIT: "epoll_wait",
	unix.SYS_EPOLL_PWAIT: "epoll_pwait", unix.SYS_EPOLL_PWAIT2: "epoll_pwait2", unix.SYS_PAUSE: "pause",
	unix.SYS_NANOSLEEP: "nanosleep", unix.SYS_CLOCK_NANOSLEEP: "clock_nanosleep", unix.SYS_FUTEX: "futex", unix.SYS_WAIT4: "wait4",
	unix.SYS_WAITID: "waitid", unix.SYS_RECVFROM: "recvfrom", unix.SYS_RECVMSG: "recvmsg", unix.SYS_SENDTO: "sendto",
	unix.SYS_SENDMSG: "sendmsg", unix.SYS_ACCEPT: "accept", unix.SYS_ACCEPT4: "accept4", unix.SYS_CONNECT: "connect",
	unix.SYS_FSYNC: "fsync", unix.SYS_FDATASYNC: "fdatasync", unix.SYS_FLOCK: "flock", unix.SYS_IO_GETEVENTS: "io_getevents",
	unix.SYS_IO_URING_ENTER: "io_uring_enter", unix.SYS_SEMTIMEDOP: "semtimedop", unix.SYS_MSGRCV: "msgrcv",
	unix.SYS_RT_SIGSUSPEND: "rt_sigsuspend", unix.SYS_RT_SIGTIMEDWAIT: "rt_sigtimedwait",
}

// lookDirect names the sleeping system calls in the code of the program and of its libraries, the C library aside.
func lookDirect(f *findings, base string, file *elf.File, c closure) {
	if file.Machine != elf.EM_X86_64 {
		return
	}
	var all []string
	add := func(name string, names []string) {
		if len(names) > 0 {
			all = append(all, fmt.Sprintf("%s: %s", name, strings.Join(names, " ")))
		}
	}
	add(base, directCalls(file))
	for _, l := range c.found {
		if isLibc(l.name) {
			continue
		}
		if lib, err := elf.Open(l.path); err == nil {
			add(filepath.Base(l.name), directCalls(lib))
			lib.Close()
		}
	}
	if len(all) > 0 {
		f.add(Note, "direct calls", "such a thread is seen by sampling while it burns CPU, and as unknown while it sleeps there",
			"sleeping system calls that pass no hook, in %s", strings.Join(all, "; "))
	}
}

// directCalls finds a number being put into eax shortly before a syscall instruction. What takes its number from
// elsewhere (Go's runtime, libc's syscall()) is not found, which other findings tell of; the chance that data among
// the code looks like it is one in some millions.
func directCalls(file *elf.File) []string {
	const (
		most    = 64 << 20 // of code looked at
		between = 24       // bytes from the number to the instruction: the arguments are loaded there
	)
	movEax, syscall := byte(0xb8), []byte{0x0f, 0x05}
	seen := map[string]bool{}
	for _, s := range file.Sections {
		if s.Flags&elf.SHF_EXECINSTR == 0 || s.Type != elf.SHT_PROGBITS || s.FileSize > most {
			continue
		}
		code, err := s.Data()
		if err != nil {
			continue
		}
		for at := 0; ; {
			i := bytes.Index(code[at:], syscall)
			if i < 0 {
				break
			}
			at += i
			window := code[max(at-between, 0):at]
			for k := len(window) - 5; k >= 0; k-- {
				if window[k] != movEax {
					continue
				}
				if name := sleepingNumbers[binary.LittleEndian.Uint32(window[k+1:])]; name != "" {
					seen[name] = true
				}
				break
			}
			at += len(syscall)
		}
	}
	var names []string
	for n := range seen {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}
