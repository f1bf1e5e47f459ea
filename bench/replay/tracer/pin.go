package tracer

import (
	"fmt"
	"runtime"
	"syscall"
	"unsafe"
)

// CPU is the processor that a core's threads run on: there may be fewer processors than cores.
func CPU(core int) int { return core % runtime.NumCPU() }

// Pin keeps the calling thread on a processor; the goroutine must be locked to the thread.
func Pin(cpu int) error {
	var mask [16]uint64 // 1024 processors
	mask[cpu/64%len(mask)] = 1 << (cpu % 64)
	_, _, errno := syscall.RawSyscall(syscall.SYS_SCHED_SETAFFINITY, 0, unsafe.Sizeof(mask), uintptr(unsafe.Pointer(&mask)))
	if errno != 0 {
		return fmt.Errorf("keeping a thread on processor %d: %w", cpu, errno)
	}
	return nil
}
