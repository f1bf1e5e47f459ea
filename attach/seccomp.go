package attach

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// A process under seccomp is attached to where each of its filters lets through every system call that attaching and the agent make.
// The kernel shows the filters as classic BPF. They are evaluated with the number of the call, and with the arguments that are always
// the same; where a filter looks at anything else, both ways are followed.

// need is a system call that is made in the program.
type need struct {
	name  string
	nr    uint32
	args  map[int]uint64 // those that are known
	spare bool           // an error of it does no harm
}

const (
	mapAnon   = unix.MAP_PRIVATE | unix.MAP_ANONYMOUS | unix.MAP_NORESERVE
	auditArch = 0xc000003e // AUDIT_ARCH_X86_64
)

// needs are what the stub and an attached agent call, of the list in ARCHITECTURE.md. Masks are never lent there, so it sends no signal.
var needs = []need{
	{name: "mmap", nr: 9, args: map[int]uint64{2: unix.PROT_READ | unix.PROT_EXEC, 3: mapAnon | unix.MAP_FIXED_NOREPLACE}},
	{name: "mmap", nr: 9, args: map[int]uint64{2: unix.PROT_READ | unix.PROT_WRITE, 3: mapAnon | unix.MAP_FIXED_NOREPLACE}},
	{name: "mmap", nr: 9, args: map[int]uint64{2: unix.PROT_READ | unix.PROT_WRITE, 3: mapAnon | unix.MAP_FIXED}},
	{name: "mmap", nr: 9, args: map[int]uint64{2: unix.PROT_READ | unix.PROT_WRITE, 3: mapAnon}},
	{name: "mmap", nr: 9, args: map[int]uint64{2: unix.PROT_READ | unix.PROT_WRITE, 3: unix.MAP_SHARED}},
	{name: "mmap", nr: 9, args: map[int]uint64{2: unix.PROT_READ, 3: unix.MAP_SHARED}},
	{name: "munmap", nr: 11}, {name: "madvise", nr: 28}, {name: "close", nr: 3}, {name: "read", nr: 0}, {name: "fstat", nr: 5},
	{name: "socketpair", nr: 53, args: map[int]uint64{0: unix.AF_UNIX, 1: unix.SOCK_SEQPACKET | unix.SOCK_CLOEXEC, 2: 0}},
	{name: "recvmsg", nr: 47}, {name: "fcntl", nr: 72, args: map[int]uint64{1: unix.F_GET_SEALS}},
	{name: "rt_sigaction", nr: 13}, {name: "rt_sigprocmask", nr: 14}, {name: "rt_sigreturn", nr: 15}, {name: "rt_sigtimedwait", nr: 128},
	{name: "sigaltstack", nr: 131}, {name: "getpid", nr: 39}, {name: "gettid", nr: 186}, {name: "clock_gettime", nr: 228},
	{name: "sched_yield", nr: 24, spare: true}, {name: "open", nr: 2, spare: true}, {name: "readlink", nr: 89, spare: true},
	{name: "prlimit64", nr: 302, spare: true}, {name: "prctl", nr: 157, args: map[int]uint64{0: unix.PR_GET_NAME}, spare: true},
	{name: "getsockname", nr: 51, spare: true}, {name: "getpeername", nr: 52, spare: true}, {name: "getppid", nr: 110, spare: true},
}

// What a filter returns (include/uapi/linux/seccomp.h).
const (
	retAllow  = 0x7fff0000
	retLog    = 0x7ffc0000
	retErrno  = 0x00050000
	retAction = 0xffff0000
)

// instruction is one of classic BPF.
type instruction struct {
	Code   uint16
	Jt, Jf uint8
	K      uint32
}

// refusedBy is the first system call that a filter does not surely let through; "" none.
func refusedBy(filter []instruction) string {
	for _, n := range needs {
		ok := true
		if err := evaluate(filter, n, func(ret uint32) {
			switch ret & retAction {
			case retAllow, retLog:
			case retErrno:
				ok = ok && n.spare
			default:
				ok = false
			}
		}); err != nil {
			return fmt.Sprintf("%s (%v)", n.name, err)
		}
		if !ok {
			return n.name
		}
	}
	return ""
}

// value is a 32-bit word that is known or not.
type value struct {
	v     uint32
	known bool
}

// machine is the state of a filter at an instruction.
type machine struct {
	pc   int
	a, x value
	mem  [16]value
}

const mostStates = 200_000

// evaluate calls f with all that a filter may return for a system call.
func evaluate(filter []instruction, n need, f func(ret uint32)) error {
	seen := map[machine]bool{}
	todo := []machine{{a: value{0, true}, x: value{0, true}}}
	for len(todo) > 0 {
		m := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for {
			if m.pc >= len(filter) {
				return fmt.Errorf("its filter runs past its end")
			}
			if seen[m] {
				break
			}
			if seen[m] = true; len(seen) > mostStates {
				return fmt.Errorf("its filter has too many ways")
			}
			i := filter[m.pc]
			m.pc++
			class := i.Code & 7
			if class == 6 { // RET
				switch i.Code & 0x18 {
				case 0:
					f(i.K)
				case 0x10:
					if !m.a.known {
						return fmt.Errorf("its filter returns what it computed")
					}
					f(m.a.v)
				default:
					return fmt.Errorf("its filter has an instruction %#x", i.Code)
				}
				break
			}
			if class == 5 { // JMP
				other, fork := m.jump(i)
				if fork {
					todo = append(todo, other)
				}
				continue
			}
			if !m.step(i, n) {
				return fmt.Errorf("its filter has an instruction %#x", i.Code)
			}
		}
	}
	return nil
}

// step does an instruction that is no jump and no return.
func (m *machine) step(i instruction, n need) bool {
	switch i.Code {
	case 0x20: // ld [k]
		m.a = n.load(i.K)
	case 0x80: // ld len
		m.a = value{64, true}
	case 0x81: // ldx len
		m.x = value{64, true}
	case 0x00: // ld #k
		m.a = value{i.K, true}
	case 0x01: // ldx #k
		m.x = value{i.K, true}
	case 0x60: // ld M[k]
		m.a = m.mem[i.K&15]
	case 0x61: // ldx M[k]
		m.x = m.mem[i.K&15]
	case 0x02: // st M[k]
		m.mem[i.K&15] = m.a
	case 0x03: // stx M[k]
		m.mem[i.K&15] = m.x
	case 0x07: // tax
		m.x = m.a
	case 0x87: // txa
		m.a = m.x
	default:
		if i.Code&7 != 4 {
			return false
		}
		by := value{i.K, true}
		if i.Code&8 != 0 {
			by = m.x
		}
		return m.compute(i.Code&0xf0, by)
	}
	return true
}

// compute does arithmetic on the accumulator.
func (m *machine) compute(op uint16, by value) bool {
	if op == 0x80 { // neg
		m.a.v = -m.a.v
		return true
	}
	if !m.a.known || !by.known {
		m.a = value{}
		return op <= 0x70 || op == 0xa0
	}
	a := &m.a.v
	switch op {
	case 0x00:
		*a += by.v
	case 0x10:
		*a -= by.v
	case 0x20:
		*a *= by.v
	case 0x30:
		if by.v == 0 {
			return false
		}
		*a /= by.v
	case 0x40:
		*a |= by.v
	case 0x50:
		*a &= by.v
	case 0x60:
		*a <<= by.v & 31
	case 0x70:
		*a >>= by.v & 31
	case 0xa0:
		*a ^= by.v
	default:
		return false
	}
	return true
}

// jump does a jump. fork: it may also go the way of other.
func (m *machine) jump(i instruction) (other machine, fork bool) {
	if i.Code&0xf0 == 0 { // ja
		m.pc += int(i.K)
		return other, false
	}
	by := value{i.K, true}
	if i.Code&8 != 0 {
		by = m.x
	}
	if !m.a.known || !by.known {
		other = *m
		other.pc += int(i.Jf)
		m.pc += int(i.Jt)
		return other, true
	}
	holds := false
	switch i.Code & 0xf0 {
	case 0x10:
		holds = m.a.v == by.v
	case 0x20:
		holds = m.a.v > by.v
	case 0x30:
		holds = m.a.v >= by.v
	case 0x40:
		holds = m.a.v&by.v != 0
	}
	if holds {
		m.pc += int(i.Jt)
	} else {
		m.pc += int(i.Jf)
	}
	return other, false
}

// load is a word of struct seccomp_data: number, architecture, instruction pointer, six arguments.
func (n *need) load(at uint32) value {
	switch {
	case at == 0:
		return value{n.nr, true}
	case at == 4:
		return value{auditArch, true}
	case at >= 16 && at < 64:
		if v, ok := n.args[int(at-16)/8]; ok {
			if at%8 != 0 {
				v >>= 32
			}
			return value{uint32(v), true}
		}
	}
	return value{}
}

// checkSeccomp reads the filters of the program's threads, and says in one line where one stands in the way.
func (t *Target) checkSeccomp() error {
	st := status(t.pid)
	if st["Seccomp"] == "0" || st["Seccomp"] == "" {
		return nil
	}
	counts := map[string]bool{}
	const most = 32 // threads whose filters are read; others must have as many filters as one of these
	for i, tid := range t.threads() {
		s := threadStatus(t.pid, tid)
		if s == nil || s["Seccomp"] == "0" {
			continue
		}
		kind := s["Seccomp"] + " " + s["Seccomp_filters"]
		if i >= most && counts[kind] {
			continue
		}
		counts[kind] = true
		filters, err := t.filters(tid)
		if err != nil {
			return fmt.Errorf("process %d has confined its system calls by seccomp, and its filters cannot be read (%v): record it from its start", t.pid, err)
		}
		for _, f := range filters {
			if name := refusedBy(f); name != "" {
				return fmt.Errorf("process %d has confined its system calls by seccomp, which would refuse %s, and attaching needs it: record it from its start", t.pid, name)
			}
		}
	}
	return nil
}

// threadStatus are the lines of a thread's status file by their names.
func threadStatus(pid, tid int) map[string]string {
	return statusOf(fmt.Sprintf("/proc/%d/task/%d/status", pid, tid))
}

// strictSeccomp: the mode in which only four system calls are left.
func strictSeccomp(st map[string]string) bool { return strings.TrimSpace(st["Seccomp"]) == "1" }
