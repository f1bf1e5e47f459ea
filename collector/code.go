// What processes write about code that they make while they run (perf maps, jitdumps), kept within reach: names are looked
// up when a process may be gone, and with it its view of the file system.
package collector

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/hbtrace/hbtrace/collector/assemble"
	"github.com/hbtrace/hbtrace/symbols"
	"github.com/hbtrace/hbtrace/trace"
	"golang.org/x/sys/unix"
)

const (
	maxCodeProcs = 256 // two descriptors each
	codeSlack    = 2 * time.Second
)

// codeFiles is where one process says what code it made.
type codeFiles struct {
	pid, inner int // in our pid namespace and in its own
	uid        uint32
	began      time.Time
	tmp        *os.File // its /tmp; nil where it could not be opened
	dump       *os.File // its jitdump; nil none was seen
	dumpPath   string
}

// meetCode looks at a process's mappings for signs of code that it made. It is called as often as they are read.
func (s *session) meetCode(uid uint32, pid int, entries []assemble.MapsEntry) {
	makes, dump := false, ""
	for _, e := range entries {
		if e.Exec && (e.Path == "" || e.Path[0] != '/' && e.Path != "[vdso]" && e.Path != "[vsyscall]" || strings.HasPrefix(e.Path, "/memfd:")) {
			makes = true
		}
		if strings.HasPrefix(filepath.Base(e.Path), "jit-") && strings.HasSuffix(e.Path, ".dump") {
			makes, dump = true, e.Path
		}
	}
	c := s.code[uid]
	if !makes || c == nil && len(s.code) >= maxCodeProcs {
		return
	}
	if c == nil {
		c = openCodeFiles(pid)
		if s.code == nil {
			s.code = map[uint32]*codeFiles{}
		}
		s.code[uid] = c
	}
	if dump != "" && c.dump == nil {
		c.dumpPath = dump
		c.dump, _ = openData(filepath.Join(fmt.Sprintf("/proc/%d/root", pid), dump)) // without it there are no names
	}
}

func openCodeFiles(pid int) *codeFiles {
	c := &codeFiles{pid: pid, inner: pid}
	dir := fmt.Sprintf("/proc/%d", pid)
	if b, err := os.ReadFile(dir + "/status"); err == nil {
		if ids := nsPIDs(b); len(ids) > 0 {
			c.inner = ids[len(ids)-1]
		}
	}
	var st unix.Stat_t
	if unix.Stat(dir, &st) == nil {
		c.uid = st.Uid
	}
	if ticks, err := startTicks(pid); err == nil {
		var boot unix.Timespec
		if unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot) == nil {
			const ticksPerSecond = 100 // USER_HZ, on every architecture that we run on
			c.began = time.Now().Add(time.Duration(int64(ticks)*(int64(time.Second)/ticksPerSecond) - boot.Nano()))
		}
	}
	// The directory itself, not /proc/PID/root: it is still there when the process and its mount namespace are not.
	fd, err := unix.Open(dir+"/root/tmp", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err == nil {
		c.tmp = os.NewFile(uintptr(fd), dir+"/root/tmp")
	}
	return c
}

func (c *codeFiles) close() {
	for _, f := range []*os.File{c.tmp, c.dump} {
		if f != nil {
			f.Close()
		}
	}
}

// openData opens a regular file that another program made, without following a link at its end or waiting on a FIFO.
func openData(path string) (*os.File, error) { return openDataAt(unix.AT_FDCWD, path) }

func openDataAt(dir int, path string) (*os.File, error) {
	fd, err := unix.Openat(dir, path, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	f := os.NewFile(uintptr(fd), path)
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		f.Close()
		return nil, &os.PathError{Op: "open", Path: path, Err: unix.EINVAL}
	}
	return f, nil
}

// codeOf opens what was written about the code of a module. A fork child goes on with its parent's.
func (s *session) codeOf(m trace.Module) (files []symbols.CodeFile) {
	uid := uint32(m.Proc)
	for range 16 { // generations
		if c := s.code[uid]; c != nil {
			files = append(files, c.open(&s.notes)...)
		}
		parent, ok := s.forkedFrom[uid]
		if !ok {
			break
		}
		uid = parent
	}
	return files
}

// open opens the process's files that are its own: not those that an earlier process of that number, or another user,
// has left behind.
func (c *codeFiles) open(n *notes) (files []symbols.CodeFile) {
	if c.dump != nil {
		// From its beginning, whoever else has read it.
		if f, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", c.dump.Fd())); err == nil {
			files = append(files, symbols.CodeFile{Name: c.dumpPath, PID: c.inner, File: f})
		}
	}
	if c.tmp == nil {
		return files
	}
	for _, pid := range []int{c.inner, c.pid} {
		name := "perf-" + strconv.Itoa(pid) + ".map"
		f, err := openDataAt(int(c.tmp.Fd()), name)
		if err != nil {
			continue
		}
		st, err := f.Stat()
		if err != nil {
			f.Close()
			continue
		}
		owner := st.Sys().(*syscall.Stat_t).Uid
		switch {
		case owner != c.uid && owner != 0:
			n.addf("/tmp/%s is another user's: its names are not used", name)
			f.Close()
		case !c.began.IsZero() && st.ModTime().Before(c.began.Add(-codeSlack)):
			n.addf("/tmp/%s is older than the process: its names are not used", name)
			f.Close()
		default:
			return append(files, symbols.CodeFile{Name: "/tmp/" + name, File: f})
		}
	}
	return files
}
