// The kernel's own account of the session's threads, where it may be had.
package collector

import (
	"fmt"
	"slices"

	"github.com/hbtrace/hbtrace/kernel"
	"github.com/hbtrace/hbtrace/trace"
)

// Kernel says whether the kernel is asked.
type Kernel int

const (
	KernelOff  Kernel = iota
	KernelAuto        // where this process may
	KernelOn          // or not at all: an error where it may not
)

// openKernel loads the scheduling program.
func (s *session) openKernel() error {
	if s.opt.Kernel == KernelOff {
		return nil
	}
	t, err := kernel.Open(kernel.Options{Threshold: s.opt.LockThreshold})
	switch {
	case err == nil:
		s.kernel = t
		for _, line := range t.Partial() {
			s.remark(line)
		}
	case s.opt.Kernel == KernelOn:
		return fmt.Errorf("the kernel was to be asked, and cannot be: %w", err)
	default:
		s.remark("the kernel's scheduling events are not recorded (run-queue waits, wake-ups by timers and devices, tracks per CPU): " + err.Error())
	}
	return nil
}

// remark tells what matters only to those who ask for more.
func (s *session) remark(line string) {
	if s.opt.Remark != nil {
		s.opt.Remark(line)
	}
}

// arm has the kernel take up what is started between it and disarm.
func (s *session) arm() {
	if s.kernel != nil {
		if err := s.kernel.Arm(); err != nil {
			s.notes.addf("the kernel's scheduling events are missing: %v", err)
		}
	}
}

func (s *session) disarm() {
	if s.kernel != nil {
		s.kernel.Disarm() // what this process starts later is not the command's; it starts nothing
	}
}

// drainKernel takes in what the kernel sent.
func (s *session) drainKernel() {
	if s.kernel != nil {
		s.kernel.Drain(s.asm.Off)
	}
}

// finishKernel takes in what threads are in now, and says what is missing.
func (s *session) finishKernel() {
	if s.kernel == nil {
		return
	}
	s.kernel.Drain(s.asm.Off)
	s.kernel.StillOff(s.asm.Off)
	st := s.kernel.Stats()
	if st.Lost > 0 {
		s.notes.addf("the kernel dropped %d of %d scheduling events: the buffer was full", st.Lost, st.Lost+st.Records)
	}
	if st.Unheld > 0 {
		s.notes.addf("the kernel's table of threads was full: %d times off a CPU are missing", st.Unheld)
	}
}

// accountKernel tells what of the kernel's account could not be placed: children of vfork before their exec, programs
// that no agent was loaded into.
func (s *session) accountKernel() {
	if n := s.asm.Stats().OffsUnmatched; n > 0 {
		s.remark(fmt.Sprintf("%d times off a CPU were of threads that no agent told of: they are left out", n))
	}
}

// symboliseKernel stores the names of the kernel's addresses.
func (s *session) symboliseKernel(m *trace.Module, addrs []uint64) {
	slices.Sort(addrs)
	addrs = slices.Compact(addrs)
	names, err := kernel.Symbols(addrs)
	if err != nil {
		s.notes.add(err.Error())
		return
	}
	frames := make([][]trace.SymFrame, len(addrs))
	for i, n := range names {
		if n != "" {
			frames[i] = []trace.SymFrame{{Func: n, Linkage: n}}
		}
	}
	s.wrote(s.out.PutSymbols(m.ID, addrs, frames))
}
