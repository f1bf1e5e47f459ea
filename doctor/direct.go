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
)

// sleepingNumbers are the system calls that put a thread to sleep, on x86-64 (arch/x86/entry/syscalls/syscall_64.tbl).
var sleepingNumbers = map[uint32]string{
	0: "read", 1: "write", 7: "poll", 19: "readv", 20: "writev", 23: "select", 34: "pause", 35: "nanosleep", 42: "connect",
	43: "accept", 44: "sendto", 45: "recvfrom", 46: "sendmsg", 47: "recvmsg", 61: "wait4", 70: "msgrcv", 73: "flock", 74: "fsync",
	75: "fdatasync", 128: "rt_sigtimedwait", 130: "rt_sigsuspend", 202: "futex", 208: "io_getevents", 220: "semtimedop",
	230: "clock_nanosleep", 232: "epoll_wait", 247: "waitid", 270: "pselect6", 271: "ppoll", 281: "epoll_pwait", 288: "accept4",
	426: "io_uring_enter", 441: "epoll_pwait2",
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
		most    = 64 << 20 // of code read
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
