package attach

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Target is a process that is attached to, or was.
type Target struct {
	pid    int
	start  uint64   // field 22 of /proc/PID/stat
	mem    *os.File // stays bound to the address space that it was opened for: after an exec it reaches nothing
	holds  []time.Duration
	before []Thread

	diverted int // the thread that ran the last stub

	maps    []mapping
	modules []module
	musl    bool

	bell      *bell  // nil: no dormant agent that this hbtrace wakes
	otherBell uint32 // version of one that it does not; 0: none

	pad    pad
	thunks uint64 // address of the page that stays; 0: none yet
	image  *image
	slots  []slot
	reals  *reals
	join   uint64 // address of struct hb_join in the program
	lock   int    // a socket whose name says that this process works on the target
	socket int    // ours, of the pair that the stub made; -1: none
}

// Holds are how long threads of the program were stopped, in their order.
func (t *Target) Holds() []time.Duration { return t.holds }

// PID is the process's, as this process sees it.
func (t *Target) PID() int { return t.pid }

// ErrGone says that the process has ended, or has become another program by exec.
var ErrGone = errors.New("the process has ended or runs another program now")

func open(pid int) (*Target, error) {
	start, err := startTicks(pid)
	if err != nil {
		return nil, fmt.Errorf("process %d: there is no such process", pid)
	}
	f, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", pid), os.O_RDWR, 0)
	if err != nil {
		return nil, explainDenied(pid, err)
	}
	t := &Target{pid: pid, start: start, mem: f, socket: -1, lock: -1}
	if err := t.readMaps(); err != nil {
		t.Close()
		return nil, err
	}
	return t, nil
}

// own makes sure that one hbtrace at a time works on a process, by a name that vanishes with this process. It waits a moment for a
// detach that is under way.
func (t *Target) own(wait time.Duration) error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("make a socket: %w", err)
	}
	for begun := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		err = unix.Bind(fd, &unix.SockaddrUnix{Name: fmt.Sprintf("@hbtrace-attach-%d-%d", t.pid, t.start)})
		if !errors.Is(err, unix.EADDRINUSE) || time.Since(begun) >= wait {
			break
		}
	}
	if err == nil {
		t.lock = fd
		return nil
	}
	unix.Close(fd)
	if errors.Is(err, unix.EADDRINUSE) {
		return fmt.Errorf("process %d is being recorded by hbtrace already", t.pid)
	}
	return fmt.Errorf("lock process %d: %w", t.pid, err)
}

// Close gives back what this process holds of the target; what is in the target stays.
func (t *Target) Close() {
	t.mem.Close()
	if t.lock >= 0 {
		unix.Close(t.lock)
		t.lock = -1
	}
	if t.socket >= 0 {
		unix.Close(t.socket)
		t.socket = -1
	}
}

// alive: the process that was opened runs, and has not become another program.
func (t *Target) alive() bool {
	start, err := startTicks(t.pid)
	if err != nil || start != t.start {
		return false
	}
	var b [1]byte
	_, err = t.mem.ReadAt(b[:], int64(t.maps[0].lo))
	return err == nil
}

func (t *Target) read(at uint64, b []byte) error {
	n, err := t.mem.ReadAt(b, int64(at))
	if n == len(b) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = ErrGone
	}
	return fmt.Errorf("read %d bytes at %#x of process %d: %w", len(b), at, t.pid, err)
}

func (t *Target) write(at uint64, b []byte) error {
	n, err := t.mem.WriteAt(b, int64(at))
	if n == len(b) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = ErrGone
	}
	return fmt.Errorf("write %d bytes at %#x of process %d: %w", len(b), at, t.pid, err)
}

func (t *Target) read64(at uint64) (uint64, bool) {
	var b [8]byte
	if t.read(at, b[:]) != nil {
		return 0, false
	}
	return binary.LittleEndian.Uint64(b[:]), true
}

func (t *Target) write64(at, v uint64) error {
	return t.write(at, binary.LittleEndian.AppendUint64(nil, v))
}

func (t *Target) write32(at uint64, v uint32) error {
	return t.write(at, binary.LittleEndian.AppendUint32(nil, v))
}

// text is the NUL-terminated string at an address, as far as it can be read.
func (t *Target) text(at uint64) string {
	var out []byte
	for len(out) < 4096 {
		b := make([]byte, 64-at&63)
		if t.read(at, b) != nil {
			break
		}
		if i := bytes.IndexByte(b, 0); i >= 0 {
			return string(append(out, b[:i]...))
		}
		out = append(out, b...)
		at += uint64(len(b))
	}
	return string(out)
}

// mapping is a line of /proc/PID/maps.
type mapping struct {
	lo, hi, offset uint64
	perms          string
	inode          uint64
	path           string
}

func (t *Target) readMaps() error {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", t.pid))
	if err != nil {
		return fmt.Errorf("process %d: %w", t.pid, ErrGone)
	}
	t.maps = t.maps[:0]
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) < 5 {
			continue
		}
		lo, hi, _ := strings.Cut(f[0], "-")
		var m mapping
		m.lo, _ = strconv.ParseUint(lo, 16, 64)
		m.hi, _ = strconv.ParseUint(hi, 16, 64)
		m.offset, _ = strconv.ParseUint(f[2], 16, 64)
		m.inode, _ = strconv.ParseUint(f[4], 10, 64)
		m.perms = f[1]
		if i := strings.Index(line, f[4]+" "); len(f) > 5 && i >= 0 {
			m.path = strings.TrimSpace(line[i+len(f[4]):])
		}
		t.maps = append(t.maps, m)
	}
	if len(t.maps) == 0 {
		return fmt.Errorf("process %d: %w", t.pid, ErrGone)
	}
	return nil
}

func (t *Target) mappingAt(a uint64) *mapping {
	for i := range t.maps {
		if a >= t.maps[i].lo && a < t.maps[i].hi {
			return &t.maps[i]
		}
	}
	return nil
}

// gap is where n bytes may be mapped: in the middle of a large hole, where the kernel's own choice does not come soon. The n-th
// hole from above is taken, so that a second try differs.
func (t *Target) gap(n uint64, try int) (uint64, error) {
	const clear = 64 << 20
	for i := len(t.maps) - 1; i > 0; i-- {
		lo, hi := t.maps[i-1].hi, t.maps[i].lo
		if hi > 0x7ffffffff000 || hi < lo+n+clear || strings.HasPrefix(t.maps[i].path, "[stack") {
			continue
		}
		if try == 0 {
			return (lo + (hi-lo)/2) &^ 4095, nil
		}
		try--
	}
	return 0, fmt.Errorf("process %d has no room of %d bytes in its address space", t.pid, n)
}

// auxv is the program's auxiliary vector.
func auxv(pid int) map[uint64]uint64 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/auxv", pid))
	if err != nil {
		return nil
	}
	out := map[uint64]uint64{}
	for ; len(b) >= 16; b = b[16:] {
		out[binary.LittleEndian.Uint64(b)] = binary.LittleEndian.Uint64(b[8:])
	}
	return out
}

func startTicks(pid int) (uint64, error) {
	f, err := statFields(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(f[19], 10, 64)
}

// statFields are the fields of a stat file from the third on: the state first.
func statFields(path string) ([]string, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(f) < 20 {
		return nil, fmt.Errorf("%s makes no sense: %q", path, b)
	}
	return f, nil
}

// status are the lines of /proc/PID/status by their names.
func status(pid int) map[string]string { return statusOf(fmt.Sprintf("/proc/%d/status", pid)) }

func statusOf(path string) map[string]string {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	out := map[string]string{}
	for line := range strings.Lines(string(b)) {
		k, v, _ := strings.Cut(line, ":")
		out[k] = strings.TrimSpace(v)
	}
	return out
}

// threads lists the thread ids of the process.
func (t *Target) threads() []int {
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", t.pid))
	if err != nil {
		return nil
	}
	out := make([]int, 0, len(entries))
	for _, e := range entries {
		if tid, err := strconv.Atoi(e.Name()); err == nil {
			out = append(out, tid)
		}
	}
	return out
}

// where says what a thread does: its state's letter, and where it sleeps in a system call its number, stack pointer and program
// counter; nr is -1 where it runs.
func (t *Target) where(tid int) (state byte, nr int64, sp, pc uint64) {
	f, err := statFields(fmt.Sprintf("/proc/%d/task/%d/stat", t.pid, tid))
	if err != nil {
		return 'X', -1, 0, 0
	}
	state, nr = f[0][0], -1
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/syscall", t.pid, tid))
	if err != nil {
		return state, nr, 0, 0
	}
	s := strings.Fields(string(b))
	if len(s) < 9 {
		return state, nr, 0, 0
	}
	nr, _ = strconv.ParseInt(s[0], 10, 64)
	sp, _ = strconv.ParseUint(strings.TrimPrefix(s[7], "0x"), 16, 64)
	pc, _ = strconv.ParseUint(strings.TrimPrefix(s[8], "0x"), 16, 64)
	return state, nr, sp, pc
}
