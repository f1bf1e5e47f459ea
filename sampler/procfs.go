// What the sampler reads under /proc, without allocating: descriptors and bytes only.
package sampler

import (
	"fmt"
	"math"
	"os"
	"runtime"
	"syscall"
	"time"
	"unsafe"

	"github.com/hbtrace/hbtrace/segment"
	"golang.org/x/sys/unix"
)

// path is a NUL-terminated path being built in place.
type path struct {
	b [64]byte
	n int
}

func (p *path) reset() *path { p.n = 0; return p }

func (p *path) str(s string) *path {
	p.n += copy(p.b[p.n:len(p.b)-1], s)
	return p
}

func (p *path) num(v uint32) *path {
	var d [10]byte
	i := len(d)
	for {
		i--
		d[i] = byte('0' + v%10)
		if v /= 10; v == 0 {
			break
		}
	}
	p.n += copy(p.b[p.n:len(p.b)-1], d[i:])
	return p
}

// open opens the path below dirfd; a negative errno if that fails.
func (p *path) open(dirfd int, flags int) int {
	p.b[p.n] = 0
	fd, _, e := syscall.RawSyscall6(unix.SYS_OPENAT, uintptr(dirfd), uintptr(unsafe.Pointer(&p.b[0])),
		uintptr(flags|unix.O_CLOEXEC), 0, 0, 0)
	if e != 0 {
		return -int(e)
	}
	return int(fd)
}

func rawClose(fd int) { syscall.RawSyscall(unix.SYS_CLOSE, uintptr(fd), 0, 0) }

// pread reads from the start of fd; a negative errno if that fails.
func pread(fd int, b []byte) int {
	n, _, e := syscall.RawSyscall6(unix.SYS_PREAD64, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), 0, 0, 0)
	if e != 0 {
		return -int(e)
	}
	return int(n)
}

// saysWchan: this kernel tells in which of its functions a sleeping thread sleeps (CONFIG_KALLSYMS, and nobody hides
// it). One of our own threads is put to sleep to see.
func saysWchan() bool {
	var ends [2]int
	if unix.Pipe2(ends[:], unix.O_CLOEXEC) != nil {
		return false
	}
	tid, done := make(chan int), make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and the thread ends with this
		tid <- unix.Gettid()
		var b [1]byte
		syscall.Read(ends[0], b[:])
	}()
	name := fmt.Sprintf("/proc/self/task/%d/wchan", <-tid)
	told := false
	for range 200 { // it is on its way to sleep
		b, err := os.ReadFile(name)
		if told = err == nil && len(b) > 0 && string(b) != "0"; told || err != nil {
			break
		}
		time.Sleep(time.Millisecond)
	}
	unix.Close(ends[1])
	<-done
	unix.Close(ends[0])
	return told
}

// currentCPU is the CPU that the caller is on at the moment; MaxUint32 when the kernel does not tell.
func currentCPU() uint32 {
	cpu := uint32(math.MaxUint32)
	syscall.RawSyscall(unix.SYS_GETCPU, uintptr(unsafe.Pointer(&cpu)), 0, 0)
	return cpu
}

// clockNs is CLOCK_MONOTONIC. The runtime reads that clock, too, through the vDSO, but from a beginning of its own.
func clockNs() int64 { return clockOffset + int64(time.Since(clockBegin)) }

var (
	clockBegin  = time.Now()
	clockOffset = segment.Now() - int64(time.Since(clockBegin))
)

// processCPUNs is this process's CPU time.
func processCPUNs() uint64 {
	var ts unix.Timespec
	if _, _, e := syscall.RawSyscall(unix.SYS_CLOCK_GETTIME, unix.CLOCK_PROCESS_CPUTIME_ID, uintptr(unsafe.Pointer(&ts)), 0); e != 0 {
		return 0
	}
	return uint64(ts.Nano())
}

// sleepUntil sleeps to an absolute CLOCK_MONOTONIC time, however often signals interrupt it.
func sleepUntil(ns int64) {
	ts := unix.Timespec{Sec: ns / 1e9, Nsec: ns % 1e9}
	for {
		_, _, e := syscall.RawSyscall6(unix.SYS_CLOCK_NANOSLEEP, unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME,
			uintptr(unsafe.Pointer(&ts)), 0, 0, 0)
		if e != syscall.EINTR {
			return
		}
	}
}

// leadingUint is the decimal number that b starts with; false when it starts with none or it does not fit.
func leadingUint(b []byte) (uint64, bool) {
	var v uint64
	i := 0
	for ; i < len(b) && b[i] >= '0' && b[i] <= '9'; i++ {
		if v > (1<<64-10)/10 {
			return 0, false
		}
		v = v*10 + uint64(b[i]-'0')
	}
	return v, i > 0
}

// statStart is field 22 of /proc/PID/stat, the process's start in clock ticks since boot. The command name in
// field 2 may hold anything, so fields are counted from its last ')'.
func statStart(b []byte) (uint64, bool) {
	i := len(b) - 1
	for i >= 0 && b[i] != ')' {
		i--
	}
	if i < 0 {
		return 0, false
	}
	b = b[i+1:]
	for field := 2; len(b) > 0; {
		if b[0] != ' ' {
			b = b[1:]
			continue
		}
		b = b[1:]
		if field++; field == 22 {
			return leadingUint(b)
		}
	}
	return 0, false
}

// statusMask is the hexadecimal value of a line such as "SigBlk:\t…" of /proc/PID/status.
func statusMask(b []byte, key string) (uint64, bool) {
	for len(b) > 0 {
		end := 0
		for end < len(b) && b[end] != '\n' {
			end++
		}
		line := b[:end]
		if len(line) > len(key) && string(line[:len(key)]) == key {
			line = line[len(key):]
			for len(line) > 0 && (line[0] == ' ' || line[0] == '\t') {
				line = line[1:]
			}
			var v uint64
			n := 0
			for ; n < len(line) && n < 16; n++ {
				c := line[n]
				switch {
				case c >= '0' && c <= '9':
					v = v<<4 | uint64(c-'0')
				case c >= 'a' && c <= 'f':
					v = v<<4 | uint64(c-'a'+10)
				default:
					return v, n > 0
				}
			}
			return v, n > 0
		}
		b = b[min(end+1, len(b)):]
	}
	return 0, false
}

// sigInfo is the kernel's siginfo_t for a queued signal, 64-bit layout.
type sigInfo struct {
	signo, errno, code, _ int32
	pid                   int32
	uid                   uint32
	value                 uint64
	_                     [96]byte
}

const _ = -uint(unsafe.Sizeof(sigInfo{}) - 128)

const siQueue = -1

// queue sends the signal to one thread; 0 or a negative errno.
func (si *sigInfo) queue(pid, tid uint32) int {
	_, _, e := syscall.RawSyscall6(unix.SYS_RT_TGSIGQUEUEINFO, uintptr(pid), uintptr(tid), uintptr(si.signo),
		uintptr(unsafe.Pointer(si)), 0, 0)
	return -int(e)
}
