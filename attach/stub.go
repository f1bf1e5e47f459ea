package attach

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
)

// The stub is what a thread of the program runs for us: system calls and stores, then back to where the thread was. It lies in
// the unused tail of a text page while it is needed. It saves what it uses below the red zone, and the thread goes on by itself
// at its end whether or not the attacher lives.
//
// A thread that was stopped in a system call, where rcx and r11 mean nothing, brings its way back in rcx: nothing has to be written
// while it is held. For one that was stopped elsewhere, the address is written behind the stub.

// op is one thing that the stub does.
type op struct {
	kind opKind
	nr   uint64    // of the system call; the address of a store; the function of a call
	args [6]uint64 // args[0] is the value of a store
	undo bool      // a mapping that is taken back when a later one fails
}

type opKind uint8

const (
	opMap   opKind = iota // mmap at args[0], which must be what it returns
	opCall                // any other system call, whose result does not matter
	opStore               // of 8 bytes
	opFunc                // a C function of one argument, args[0]
)

const (
	sysMmap       = 9
	sysMunmap     = 11
	sysClose      = 3
	sysSocketpair = 53

	redZone = 256
)

// errTraced says that the threads belong to another tracer.
var errTraced = errors.New("it is traced already (by a debugger or strace): end that first")

// mapped is how many bytes the operations map.
func mapped(ops []op) (n uint64) {
	for _, o := range ops {
		if o.kind == opMap {
			n += o.args[1]
		}
	}
	return n
}

// assembler makes the few instructions that the stub needs.
type assembler struct{ b []byte }

func (a *assembler) put(s string) { a.b = append(a.b, s...) }

// register numbers of the system call's arguments: rdi, rsi, rdx, r10, r8, r9
var argRegisters = [6]int{7, 6, 2, 10, 8, 9}

const rax, rcx = 0, 1

// load puts a constant into a register.
func (a *assembler) load(reg int, v uint64) {
	rex := byte(0x40)
	if reg >= 8 {
		rex |= 1
	}
	if v <= 0xffffffff {
		if reg >= 8 {
			a.b = append(a.b, rex)
		}
		a.b = append(a.b, 0xb8|byte(reg&7))
		a.b = binary.LittleEndian.AppendUint32(a.b, uint32(v))
		return
	}
	a.b = append(a.b, rex|8, 0xb8|byte(reg&7))
	a.b = binary.LittleEndian.AppendUint64(a.b, v)
}

func (a *assembler) syscall(nr uint64, args [6]uint64) {
	a.load(rax, nr)
	for i, v := range args {
		a.load(argRegisters[i], v)
	}
	a.put("\x0f\x05")
}

// jump puts a jump whose target is set by land.
func (a *assembler) jump(opcode string) (fixup int) {
	a.put(opcode)
	a.b = append(a.b, 0, 0, 0, 0)
	return len(a.b) - 4
}

func (a *assembler) land(fixup int) {
	binary.LittleEndian.PutUint32(a.b[fixup:], uint32(len(a.b)-fixup-4))
}

// makeStub is the code, and where behind its beginning the address lies that it returns to. done gets 1 when all went well.
func makeStub(ops []op, done uint64) (code []byte, back int) {
	a := &assembler{}
	a.put("\xf3\x0f\x1e\xfa\x48\x8d\xa4\x24") // endbr64; lea -redZone(rsp), rsp
	a.b = binary.LittleEndian.AppendUint32(a.b, ^uint32(redZone)+1)
	a.put("\x9c\x50\x51\x52\x56\x57\x41\x50\x41\x51\x41\x52\x41\x53\xfc") // pushf; push rax rcx rdx rsi rdi r8 r9 r10 r11; cld
	var fails []int                                                       // jumps of those that failed, by op
	var maps []op
	for _, o := range ops {
		switch o.kind {
		case opMap:
			a.syscall(o.nr, o.args)
			a.load(rcx, o.args[0])
			a.put("\x48\x39\xc8") // cmp rcx, rax
			fails = append(fails, a.jump("\x0f\x85"))
			maps = append(maps, o)
		case opCall:
			a.syscall(o.nr, o.args)
		case opStore:
			a.load(rcx, o.nr)
			a.load(rax, o.args[0])
			a.put("\x48\x89\x01") // mov rax, (rcx)
		case opFunc:
			// push rbp; mov rsp, rbp; and $-64, rsp; sub $512, rsp; fxsave64 (rsp)
			a.put("\x55\x48\x89\xe5\x48\x83\xe4\xc0\x48\x81\xec\x00\x02\x00\x00\x48\x0f\xae\x04\x24")
			a.load(7, o.args[0])
			a.load(rax, o.nr)
			a.put("\xff\xd0\x48\x0f\xae\x0c\x24\x48\x89\xec\x5d") // call rax; fxrstor64 (rsp); mov rbp, rsp; pop rbp
		}
	}
	if done != 0 {
		a.load(rcx, done)
		a.put("\xc7\x01\x01\x00\x00\x00") // movl $1, (rcx)
	}
	if len(fails) > 0 {
		end := a.jump("\xe9")
		for i := len(fails) - 1; i >= 0; i-- { // the failure of a mapping takes back those before it
			a.land(fails[i])
			if i > 0 && maps[i-1].undo {
				a.syscall(sysMunmap, [6]uint64{maps[i-1].args[0], maps[i-1].args[1]})
			}
		}
		a.land(end)
	}
	a.put("\x41\x5b\x41\x5a\x41\x59\x41\x58\x5f\x5e\x5a\x59\x58\x9d\x48\x8d\xa4\x24")
	a.b = binary.LittleEndian.AppendUint32(a.b, redZone)
	jump := a.jump("\xff\x25") // jmp *back
	rcxWay := len(a.b)
	a.put("\x3e\xff\xe1") // jmp rcx
	for len(a.b)%8 != 0 {
		a.put("\xcc")
	}
	a.land(jump)
	back = len(a.b)
	a.b = binary.LittleEndian.AppendUint64(a.b, uint64(rcxWay)) // made an address by place
	return a.b, back
}

// pad is room behind the end of an executable segment, in its last page: nobody's bytes.
type pad struct{ at, bytes uint64 }

// findPad looks for n bytes, in the C library first.
func (t *Target) findPad(n uint64) error {
	if t.pad.at != 0 && t.pad.bytes >= n {
		return nil
	}
	for _, libc := range []bool{true, false} {
		for i := range t.modules {
			m := &t.modules[i]
			if isLibc(m.name) != libc {
				continue
			}
			if p, ok := t.padOf(m, n); ok {
				t.pad = p
				return nil
			}
		}
	}
	return fmt.Errorf("process %d has no room of %d bytes behind the code of any library", t.pid, n)
}

func (t *Target) padOf(m *module, n uint64) (pad, bool) {
	d := t.mappingAt(m.dynamic)
	if d == nil || d.inode == 0 {
		return pad{}, false
	}
	base := uint64(0)
	for _, x := range t.maps {
		if x.inode == d.inode && x.offset == 0 {
			base = x.lo
			break
		}
	}
	head := make([]byte, 64)
	if base == 0 || t.read(base, head) != nil || string(head[:4]) != elf.ELFMAG {
		return pad{}, false
	}
	at, count := base+binary.LittleEndian.Uint64(head[32:]), binary.LittleEndian.Uint16(head[56:])
	for ; count > 0; count-- {
		p := make([]byte, 56)
		if t.read(at, p) != nil {
			return pad{}, false
		}
		at += 56
		flags, filesz, memsz := binary.LittleEndian.Uint32(p[4:]), binary.LittleEndian.Uint64(p[32:]), binary.LittleEndian.Uint64(p[40:])
		if elf.ProgType(binary.LittleEndian.Uint32(p)) != elf.PT_LOAD || flags&1 == 0 || filesz != memsz {
			continue
		}
		end := m.bias + binary.LittleEndian.Uint64(p[16:]) + memsz
		room := pad{at: (end + 64 + 15) &^ 15}
		page := (end + 4095) &^ 4095
		x := t.mappingAt(end - 1)
		if x == nil || x.perms[2] != 'x' || x.perms[1] == 'w' || page > x.hi || room.at+n > page {
			continue
		}
		room.bytes = page - room.at
		return room, true
	}
	return pad{}, false
}
