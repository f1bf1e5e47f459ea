package goruntime

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"syscall"
	"unsafe"

	"github.com/hbtrace/hbtrace/segment"
	"golang.org/x/sys/unix"
)

// Supported says whether Go programs can be recorded on this architecture.
const Supported = true

// Launch starts a Go program by start, which is given the attributes that it is to be started with, and hooks its runtime
// before its first instruction that is not the runtime's. join is called when the process exists and nothing of it has been
// changed: it gives the process its place in the session. The error is that of start: then there is no process. Whatever
// fails later leaves the program as it is, and is Refused.
//
// Between the process's first instruction and its runtime.main the kernel kills it if the recorder dies: it has done nothing
// by then.
func Launch(p *Program, start func(*syscall.SysProcAttr) (int, error), join func(pid int) (Session, error)) (out Started, err error) {
	onThread(func() {
		out.PID, err = start(&syscall.SysProcAttr{Ptrace: true})
		if err != nil {
			return
		}
		t := &tracee{pid: out.PID}
		out.Refused = t.hook(p, join)
	})
	return out, err
}

// hook waits for the start, hooks the runtime, and lets the program go on, whatever happens.
func (t *tracee) hook(p *Program, join func(int) (Session, error)) error {
	if err := t.wait(); err != nil { // the exec
		return err
	}
	defer func() {
		step()
		unix.PtraceDetach(t.pid)
	}()
	return t.change(p, join)
}

// change hooks the runtime of a program that has made nothing but its exec.
func (t *tracee) change(p *Program, join func(int) (Session, error)) error {
	if err := unix.PtraceSetOptions(t.pid, unix.PTRACE_O_EXITKILL); err != nil {
		return fmt.Errorf("trace it: %w", err)
	}
	mem, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", t.pid), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer mem.Close()
	t.mem = mem
	aux, err := auxiliary(t.pid)
	if err != nil {
		return err
	}
	base := p.base(aux[atEntry])
	if err := t.reach(base + p.functions["runtime.main"].lo); err != nil {
		return err
	}
	s := &stopped{pid: t.pid, base: base, g: t.regs.R14, sp: t.regs.Rsp, read: t.read}
	if err := p.check(s); err != nil {
		return err
	}
	session, err := join(t.pid)
	if err != nil {
		return err
	}
	if t.mask, err = t.setMask(^uint64(0)); err != nil {
		return err
	}
	err = t.install(p, base, aux[atVDSO], session)
	if _, mask := t.setMask(t.mask); mask != nil {
		err = errors.Join(err, mask)
	}
	if regs := unix.PtraceSetRegs(t.pid, &t.regs); regs != nil {
		err = errors.Join(err, regs)
	}
	return err
}

// reach lets the program run up to addr.
func (t *tracee) reach(addr uint64) error {
	var was [1]byte
	if err := t.read(addr, was[:]); err != nil {
		return err
	}
	if err := t.write(addr, []byte{0xcc}); err != nil {
		return err
	}
	if err := t.cont(); err != nil {
		return err
	}
	if err := t.write(addr, was[:]); err != nil {
		return err
	}
	if err := unix.PtraceGetRegs(t.pid, &t.regs); err != nil {
		return fmt.Errorf("read its registers: %w", err)
	}
	if t.regs.Rip != addr+1 {
		return errTrap
	}
	t.regs.Rip = addr
	return unix.PtraceSetRegs(t.pid, &t.regs)
}

// install maps the code and its memory, and puts the jumps into the runtime's functions last: what fails before leaves the
// program as it was, but for memory that nothing uses.
func (t *tracee) install(p *Program, base, vdso uint64, s Session) (err error) {
	im, err := loadImage()
	if err != nil {
		return err
	}
	patches, rests, code, err := t.prepare(p, base, im)
	if err != nil {
		return err
	}
	t.at = base + p.functions["runtime.main"].lo
	var was [4]byte
	if err := t.read(t.at, was[:]); err != nil {
		return err
	}
	if err := t.write(t.at, []byte{0x0f, 0x05, 0xcc}); err != nil { // syscall; int3
		return err
	}
	defer func() {
		if back := t.write(t.at, was[:]); back != nil {
			err = errors.Join(err, back)
		}
	}()
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", t.pid))
	if err != nil {
		return err
	}
	size := uint64(len(code)+4095) &^ 4095
	place, err := room(string(maps), base+p.text.lo, size)
	if err != nil {
		return err
	}
	const fixedNoReplace = 0x100000
	at, err := t.call(unix.SYS_MMAP, place, size, unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|fixedNoReplace, ^uint64(0), 0)
	if err != nil {
		return fmt.Errorf("map %d bytes of code: %w", size, err)
	}
	if d := int64(at) - int64(base+p.text.hi); d < -1<<31+1<<20 || d > 1<<31-1<<20 {
		return errors.New("the code was mapped out of its reach")
	}
	seg, err := t.share(at, s.Segment.FD(), s.Segment.Geometry().Bytes)
	if err != nil {
		return fmt.Errorf("map the session's memory: %w", err)
	}
	table, err := t.share(at, s.Table.fd, uint64(len(s.Table.mem)))
	if err != nil {
		return fmt.Errorf("map the table of goroutines: %w", err)
	}
	c := p.config(base, s)
	c.Segment, c.Table = seg, table
	c.Clock = t.clock(vdso)
	c.StatusRest, c.EnterRest, c.ExitRest = at+rests["hb_go_status"], at+rests["hb_go_enter"], at+rests["hb_go_exit"]
	c.QuitRest = at + rests["hb_go_quit"]
	c.Image, c.ImageEnd = at, at+size
	c.Preempt = base + p.functions["runtime.asyncPreempt"].lo
	c.Handler = base + p.functions["runtime.sigtramp"].lo
	c.Encode(code)
	for i := range patches {
		patches[i].relocate(code, at)
	}
	if err := t.write(at, code); err != nil {
		return err
	}
	if s.CPU {
		if _, err := t.catch(p, base, table, at, im, s); err != nil {
			return err
		}
	}
	for _, x := range patches {
		if err := t.write(x.at, jump(x.at, at+im.symbols[x.to])); err != nil {
			return err
		}
	}
	return nil
}

// catch puts our handler of the sampling signal in front of the runtime's. A program that ignores the signal, or has it handled
// by others than its runtime, is not sampled.
func (t *tracee) catch(p *Program, base, table, at uint64, im *image, s Session) (handler uint64, err error) {
	scratch := table + uint64(unsafe.Offsetof(segment.GoTable{}.Scratch))
	if _, err := t.call(unix.SYS_RT_SIGACTION, uint64(SamplingSignal), 0, scratch, 8); err != nil {
		return 0, fmt.Errorf("look at its handler of %v: %w", SamplingSignal, err)
	}
	act := &s.Table.Head().Scratch // struct sigaction as the kernel has it: handler, flags, restorer, mask
	tramp := p.functions["runtime.sigtramp"]
	if handler = act[0].Load(); handler != base+tramp.lo {
		return 0, fmt.Errorf("%v does not go to its runtime", SamplingSignal)
	}
	const sigInfo, onStack, restart, restorer = 0x4, 0x08000000, 0x10000000, 0x04000000 // SA_*
	act[0].Store(at + im.symbols["hb_go_signal"])
	act[1].Store(sigInfo | onStack | restart | restorer)
	act[2].Store(at + im.symbols["hb_go_restorer"])
	act[3].Store(^uint64(0))
	if _, err := t.call(unix.SYS_RT_SIGACTION, uint64(SamplingSignal), scratch, 0, 8); err != nil {
		return 0, fmt.Errorf("catch %v: %w", SamplingSignal, err)
	}
	return handler, nil
}

// patch is a jump to be written, and the instructions that it replaces.
type patch struct {
	at   uint64 // the function
	n    int    // bytes that move
	rest uint64 // where to, from the code's beginning
	to   string
}

// prepare lays out the code: the image, and behind it what the jumps displace.
func (t *tracee) prepare(p *Program, base uint64, im *image) (patches []patch, rests map[string]uint64, code []byte, err error) {
	code = bytes.Clone(im.code)
	rests = map[string]uint64{}
	for _, r := range p.redirections() {
		x := patch{at: base + p.functions[r.function].lo, to: r.to}
		head := make([]byte, 16)
		if err := t.read(x.at, head); err != nil {
			return nil, nil, nil, err
		}
		if x.n, err = prologue(head); err != nil {
			return nil, nil, nil, fmt.Errorf("%s %w", r.function, err)
		}
		for len(code)%16 != 0 {
			code = append(code, 0xcc)
		}
		x.rest = uint64(len(code))
		rests[r.to] = x.rest
		code = append(append(code, head[:x.n]...), make([]byte, jumpBytes)...)
		patches = append(patches, x)
	}
	return patches, rests, code, nil
}

// relocate lets the displaced instructions go on behind those that were displaced.
func (x *patch) relocate(code []byte, at uint64) {
	from := x.rest + uint64(x.n)
	copy(code[from:], jump(at+from, x.at+uint64(x.n)))
}

// share maps a descriptor of this process into the program; the path is put where the code will be.
func (t *tracee) share(scratch uint64, fd int, size uint64) (uint64, error) {
	path := fmt.Sprintf("/proc/%d/fd/%d\x00", os.Getpid(), fd)
	if err := t.write(scratch, []byte(path)); err != nil {
		return 0, err
	}
	const here = ^uint64(99) // AT_FDCWD
	theirs, err := t.call(unix.SYS_OPENAT, here, scratch, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	at, err := t.call(unix.SYS_MMAP, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_NORESERVE, theirs, 0)
	if _, closed := t.call(unix.SYS_CLOSE, theirs); err == nil {
		err = closed
	}
	return at, err
}

// clock is the address of the program's vDSO clock; 0: it has none.
func (t *tracee) clock(vdso uint64) uint64 {
	if vdso == 0 {
		return 0
	}
	b := make([]byte, 0, 16<<10)
	for len(b) < cap(b) { // it has one or more pages, and what lies behind need not be there
		page := b[len(b) : len(b)+4096]
		if t.read(vdso+uint64(len(b)), page) != nil {
			break
		}
		b = b[:len(b)+4096]
	}
	if off := clockIn(b); off != 0 {
		return vdso + off
	}
	return 0
}

// config is the mapped code's, but for addresses that are known later.
func (p *Program) config(base uint64, s Session) segment.GoConfig {
	l := &p.Layout
	c := segment.GoConfig{
		GM: offM, MGsignal: l.GSignal, MCurg: l.CurG, MProcid: l.ProcID, GGoid: l.GoID(), GReason: l.Reason, GStartpc: l.StartPC,
		GPC: offSchedPC, GBp: l.SchedBP, GStackLo: offStackLo, GStackHi: offStackHi,
		Entries: Entries, ProcSlot: uint32(s.ProcSlot), ProcUID: s.ProcUID, UID: s.RuntimeUID, ThreadSlot: uint32(s.ThreadSlot),
		Cookie: s.Segment.Cookie(),
		Hooks:  hookNumbers(p.Minor),
	}
	for i, at := range []struct{ lo, hi *uint64 }{
		{&c.Leaf0Lo, &c.Leaf0Hi}, {&c.Leaf1Lo, &c.Leaf1Hi}, {&c.Leaf2Lo, &c.Leaf2Hi}, {&c.Leaf3Lo, &c.Leaf3Hi},
	} {
		if r := p.leaves[i]; r.hi != 0 {
			*at.lo, *at.hi = base+r.lo, base+r.hi
		}
	}
	return c
}
