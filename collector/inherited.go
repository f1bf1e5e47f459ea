// What the recorder was started with and its runtime has changed since: signals that were ignored or blocked. Both
// are inherited through exec, programs rely on them (nohup, IgnoreSIGPIPE= of services, shells' background jobs),
// and the command is to find them as if nobody stood in between.
//
// The Go runtime installs handlers before any code of ours runs, and exec resets those to the default in the
// command; it also unblocks what it handles. But it remembers what it found, in runtime.fwdSig and
// runtime.initSigmask, which signal.Ignored does not tell for most signals. They are read by their symbols. A binary
// without a symbol table, or a runtime that has renamed them, leaves what signal.Ignored knows: SIGHUP and SIGINT.
//
// Not restored: SIGCHLD (a recorder that ignored it, be it for the length of the launch, might lose the command's
// status), SIGURG and SIGPROF (the runtime's own), and descriptors 0 to 2 that were closed, which the runtime opened
// on /dev/null.
package collector

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// inheritance is what the recorder was started with.
type inheritance struct {
	ignored []os.Signal
	blocked unix.Sigset_t
}

var inherited = sync.OnceValue(func() inheritance {
	h, err := rememberedByRuntime()
	if err != nil {
		h = inheritance{}
		for _, s := range []os.Signal{unix.SIGHUP, unix.SIGINT} {
			if signal.Ignored(s) {
				h.ignored = append(h.ignored, s)
			}
		}
	}
	return h
})

func (h *inheritance) ignores(s os.Signal) bool { return slices.Contains(h.ignored, s) }

// around calls start, which starts a process, as if this one were as it was when it began: the signals are ignored
// and blocked that were then. The calling thread's mask is what a child inherits. Signals that are ignored stay so,
// until somebody asks to be notified of them.
func (h *inheritance) around(start func() error) error {
	if len(h.ignored) > 0 {
		signal.Ignore(h.ignored...)
	}
	if h.blocked == (unix.Sigset_t{}) {
		return start()
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before unix.Sigset_t
	if err := unix.PthreadSigmask(unix.SIG_BLOCK, &h.blocked, &before); err != nil {
		return fmt.Errorf("block the signals that were blocked: %w", err)
	}
	err := start()
	return errors.Join(err, unix.PthreadSigmask(unix.SIG_SETMASK, &before, nil))
}

// rememberedByRuntime reads the runtime's notes in this process.
func rememberedByRuntime() (h inheritance, err error) {
	const exe = "/proc/self/exe"
	file, err := elf.Open(exe)
	if err != nil {
		return h, err
	}
	defer file.Close()
	forwards, err := variable(file, "runtime.fwdSig")
	if err != nil {
		return h, err
	}
	mask, err := variable(file, "runtime.initSigmask")
	if err != nil {
		return h, err
	}
	const signals = 64
	if len(forwards) != 8*(signals+1) || len(mask) != signals/8 {
		return h, fmt.Errorf("the runtime's notes on signals have %d and %d bytes", len(forwards), len(mask))
	}
	for n := 1; n <= signals; n++ {
		const sigIgn = 1 // SIG_IGN; signal(7)
		s := syscall.Signal(n)
		if binary.NativeEndian.Uint64(forwards[8*n:]) != sigIgn {
			continue
		}
		if s != unix.SIGCHLD && s != unix.SIGURG && s != unix.SIGPROF {
			h.ignored = append(h.ignored, s)
		}
	}
	h.blocked.Val[0] = binary.NativeEndian.Uint64(mask)
	return h, nil
}

// variable reads a variable of this process by its symbol in the file that the process runs.
func variable(file *elf.File, name string) ([]byte, error) {
	table, names := file.Section(".symtab"), file.Section(".strtab")
	if table == nil || names == nil || file.Class != elf.ELFCLASS64 {
		return nil, errors.New("this binary has no symbol table")
	}
	symbols, err := table.Data()
	if err != nil {
		return nil, err
	}
	text, err := names.Data()
	if err != nil {
		return nil, err
	}
	at := bytes.Index(text, []byte("\x00"+name+"\x00"))
	if at < 0 {
		return nil, fmt.Errorf("this binary has no %s", name)
	}
	for ; len(symbols) >= elf.Sym64Size; symbols = symbols[elf.Sym64Size:] {
		if file.ByteOrder.Uint32(symbols) != uint32(at+1) {
			continue
		}
		address, size := file.ByteOrder.Uint64(symbols[8:]), file.ByteOrder.Uint64(symbols[16:])
		entry, err := entryPoint()
		if err != nil {
			return nil, err
		}
		memory, err := os.Open("/proc/self/mem")
		if err != nil {
			return nil, err
		}
		defer memory.Close()
		value := make([]byte, min(size, 4096))
		_, err = memory.ReadAt(value, int64(address+entry-file.Entry))
		return value, err
	}
	return nil, fmt.Errorf("this binary has no %s", name)
}

// entryPoint is where this process began: the file's entry, moved by where the file was loaded.
func entryPoint() (uint64, error) {
	const atEntry = 9 // AT_ENTRY; getauxval(3)
	auxv, err := os.ReadFile("/proc/self/auxv")
	if err != nil {
		return 0, err
	}
	for ; len(auxv) >= 16; auxv = auxv[16:] {
		if binary.NativeEndian.Uint64(auxv) == atEntry {
			return binary.NativeEndian.Uint64(auxv[8:]), nil
		}
	}
	return 0, errors.New("/proc/self/auxv has no AT_ENTRY")
}
