// Package kernel records, where it may, what the kernel itself knows of a session's threads: when each was off a CPU,
// in what state and at what place, who woke it, and on which CPU it went on. sched.bpf.c is the program that runs in
// the kernel; this file loads it and reads what it sends; symbols.go names the kernel's addresses.
//
// What it needs: Linux 5.8 or later with type information (/sys/kernel/btf/vmlinux; 5.15 or later is tested for), and
// CAP_BPF with CAP_PERFMON, or CAP_SYS_ADMIN. Nothing is mounted or set, no tracefs is needed. All of it hangs on file
// descriptors of this process: when it ends, however it ends, the kernel takes everything down.
package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/ringbuf"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"
)

// States of [Off], include/linux/sched.h.
const (
	StateRunnable        = 0 // taken off its CPU although it could have gone on
	StateInterruptible   = 1
	StateUninterruptible = 2 // disk, page faults, some locks of the kernel
	StateStopped         = 4
	StateTraced          = 8
)

// Off is one time that a thread was off a CPU. Ids are those of the initial pid namespace; times are CLOCK_MONOTONIC.
type Off struct {
	Off, Wake, On int64 // ns; Wake 0: nobody woke it. On 0: it is still off
	PID, TID      int
	WakerPID      int // 0: the idle task was running
	WakerTID      int
	State         uint32 // without the flags that only say how it may be woken
	OffCPU, OnCPU int
	Interrupt     bool // woken from an interrupt: the waker only happened to be running
	New           bool // it had not run before: Off is its creation
	Exit          bool // the thread ended at Off; the rest is unset
	Kernel, User  []uint64
}

// Options of Open.
type Options struct {
	Threshold time.Duration // what is shorter is not sent
	NoStacks  bool
}

// Tracer is a loaded program. It is not safe for concurrent use.
type Tracer struct {
	objects schedObjects
	links   []link.Link
	reader  *ringbuf.Reader
	raw     ringbuf.Record
	off     Off
	partial []string // what could not be had, one line each
}

// optional programs tell wake-ups by interrupts from those by threads. Without them all are the running thread's.
var optional = []string{"on_irq", "on_irq_end", "on_softirq", "on_softirq_end", "on_hrtimer", "on_hrtimer_end"}

// Open loads the program and lets it run; it records nothing before a process is added. The error says in one line what
// is missing and what to do.
func Open(o Options) (*Tracer, error) {
	if _, err := os.Stat("/sys/kernel/btf/vmlinux"); err != nil {
		return nil, errors.New("the kernel has no type information (/sys/kernel/btf/vmlinux, CONFIG_DEBUG_INFO_BTF)")
	}
	spec, err := loadSched()
	if err != nil {
		return nil, fmt.Errorf("reading the kernel program: %w", err)
	}
	set := func(name string, v any) error {
		if err := spec.Variables[name].Set(v); err != nil {
			return fmt.Errorf("setting %s of the kernel program: %w", name, err)
		}
		return nil
	}
	stacks := uint8(1)
	if o.NoStacks {
		stacks = 0
	}
	if err := errors.Join(set(schedVarThresholdNs, uint64(max(o.Threshold, 0))), set(schedVarWithStacks, stacks)); err != nil {
		return nil, err
	}
	// Before 5.11 what is loaded counts as locked memory. The limit is put back: the recorded command would inherit it.
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit) == nil && rlimit.RemoveMemlock() == nil {
		defer unix.Setrlimit(unix.RLIMIT_MEMLOCK, &limit)
	}
	t := &Tracer{}
	if err := spec.LoadAndAssign(&t.objects, nil); err != nil {
		return nil, explain(err)
	}
	if err := t.attach(); err != nil {
		t.Close()
		return nil, explain(err)
	}
	if t.reader, err = ringbuf.NewReader(t.objects.Ring); err != nil {
		t.Close()
		return nil, fmt.Errorf("reading from the kernel: %w", err)
	}
	return t, nil
}

func (t *Tracer) attach() error {
	p := &t.objects.schedPrograms
	for _, x := range []struct {
		name     string
		program  *ebpf.Program
		optional bool
	}{
		{"sched_switch", p.OnSwitch, false}, {"sched_waking", p.OnWaking, false}, {"sched_process_fork", p.OnFork, false},
		{"sched_process_exec", p.OnExec, false}, {"sched_process_exit", p.OnExit, false},
		// Ends first: a depth that is counted up once too often would stay.
		{"irq_handler_exit", p.OnIrqEnd, true}, {"softirq_exit", p.OnSoftirqEnd, true}, {"hrtimer_expire_exit", p.OnHrtimerEnd, true},
		{"irq_handler_entry", p.OnIrq, true}, {"softirq_entry", p.OnSoftirq, true}, {"hrtimer_expire_entry", p.OnHrtimer, true},
	} {
		l, err := link.AttachTracing(link.TracingOptions{Program: x.program})
		switch {
		case err == nil:
			t.links = append(t.links, l)
		case x.optional:
			t.partial = append(t.partial, fmt.Sprintf("no tracepoint %s: wake-ups by interrupts may be shown as the interrupted thread's", x.name))
		default:
			return fmt.Errorf("attaching to %s: %w", x.name, err)
		}
	}
	return nil
}

// explain turns the commonest failures into what a user can do.
func explain(err error) error {
	switch {
	case errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) && os.Geteuid() != 0:
		return errors.New("the kernel's scheduling events need root, or CAP_BPF and CAP_PERFMON")
	case errors.Is(err, ebpf.ErrNotSupported) || errors.Is(err, unix.EINVAL):
		return fmt.Errorf("this kernel cannot run the scheduling program (5.8 or later is needed): %w", err)
	}
	var v *ebpf.VerifierError
	if errors.As(err, &v) {
		return fmt.Errorf("the kernel refused the scheduling program: %w", err) // one line: the verifier's last
	}
	return err
}

// Arm adds processes that this one starts from now on; Disarm ends that. Between them only the command to be recorded
// should be started.
func (t *Tracer) Arm() error { return t.objects.ArmedTgid.Set(uint32(os.Getpid())) }

// Disarm ends Arm.
func (t *Tracer) Disarm() error { return t.objects.ArmedTgid.Set(uint32(0)) }

// Add adds a process that runs already. Its threads are seen from their next switch on.
func (t *Tracer) Add(pid int) error {
	if err := t.objects.Procs.Put(uint32(pid), uint8(1)); err != nil {
		return fmt.Errorf("add process %d to what the kernel records: %w", pid, err)
	}
	return nil
}

// Partial says what could not be had, one line each.
func (t *Tracer) Partial() []string { return t.partial }

// Stats is the kernel side's account.
type Stats struct {
	Records uint64 // sent
	Lost    uint64 // not sent: the ring was full
	Unheld  uint64 // not seen: more threads than the table holds
}

// Stats is the account so far.
func (t *Tracer) Stats() (s Stats) {
	for _, x := range []struct {
		v   *ebpf.Variable
		out *uint64
	}{{t.objects.Records, &s.Records}, {t.objects.Lost, &s.Lost}, {t.objects.Unheld, &s.Unheld}} {
		if x.v.Get(x.out) != nil {
			return Stats{}
		}
	}
	return s
}

// Drain calls f for everything that was sent so far, and returns how many that was. The Off is reused.
func (t *Tracer) Drain(f func(*Off)) (n int) {
	t.reader.SetDeadline(time.Unix(1, 0)) // what is there, and no waiting
	for {
		if err := t.reader.ReadInto(&t.raw); err != nil {
			return n // os.ErrDeadlineExceeded: that was all
		}
		if t.decode(t.raw.RawSample) {
			f(&t.off)
			n++
		}
	}
}

// StillOff calls f for every thread that is off a CPU now: On is 0.
func (t *Tracer) StillOff(f func(*Off)) {
	var tid uint32
	raw := make([]byte, t.objects.Threads.ValueSize())
	it := t.objects.Threads.Iterate()
	for it.Next(&tid, &raw) {
		if t.decode(raw) && t.off.Off != 0 {
			t.off.On = 0
			f(&t.off)
		}
	}
}

// Layout of struct off in sched.bpf.c.
const (
	offBytes     = 56
	kernelFrames = 24
	// Bits of a state that say what it is; above them are flags.
	stateMask = 0x7f
)

// decode fills t.off; false for what makes no sense.
func (t *Tracer) decode(b []byte) bool {
	if len(b) < offBytes {
		return false
	}
	le := binary.LittleEndian
	const kindExit = 2
	o := &t.off
	*o = Off{
		Off: int64(le.Uint64(b)), Wake: int64(le.Uint64(b[8:])), On: int64(le.Uint64(b[16:])),
		PID: int(le.Uint32(b[24:])), TID: int(le.Uint32(b[28:])), WakerPID: int(le.Uint32(b[32:])), WakerTID: int(le.Uint32(b[36:])),
		State: le.Uint32(b[40:]) & stateMask, OffCPU: int(le.Uint16(b[44:])), OnCPU: int(le.Uint16(b[46:])),
		Exit: b[48] == kindExit, Interrupt: b[49] != 0, New: b[50] != 0, Kernel: o.Kernel[:0], User: o.User[:0],
	}
	nk, nu := int(b[51]), int(b[52])
	frames := b[offBytes:]
	for i := range min(nk, kernelFrames, len(frames)/8) {
		o.Kernel = append(o.Kernel, le.Uint64(frames[8*i:]))
	}
	for i := kernelFrames; i < kernelFrames+nu && i < len(frames)/8; i++ {
		o.User = append(o.User, le.Uint64(frames[8*i:]))
	}
	return true
}

// Close takes everything down.
func (t *Tracer) Close() {
	if t == nil {
		return
	}
	if t.reader != nil {
		t.reader.Close()
	}
	for _, l := range t.links {
		l.Close()
	}
	t.objects.Close()
}

// Probe says whether Open would work, by trying.
func Probe() error {
	t, err := Open(Options{})
	if err != nil {
		return err
	}
	t.Close()
	return nil
}
