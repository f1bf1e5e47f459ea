// Which processes are the session's, by what the kernel says of them: never by what they say themselves.
package collector

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/hbtrace/hbtrace/segment"
	"golang.org/x/sys/unix"
)

// inode names a file as /proc/PID/maps does.
type inode struct {
	major, minor uint32
	ino          uint64
}

func inodeOf(fd int) (inode, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return inode{}, fmt.Errorf("look at the segment: %w", err)
	}
	return inode{unix.Major(st.Dev), unix.Minor(st.Dev), st.Ino}, nil
}

// mappedInode reads a line of /proc/PID/maps: "lo-hi perms offset major:minor inode   path".
func mappedInode(line string) (in inode, ok bool) {
	var f [5]string
	for i := range f {
		f[i], line, _ = strings.Cut(line, " ")
		line = strings.TrimLeft(line, " ")
	}
	major, minor, ok := strings.Cut(f[3], ":")
	ma, err1 := strconv.ParseUint(major, 16, 32)
	mi, err2 := strconv.ParseUint(minor, 16, 32)
	ino, err3 := strconv.ParseUint(f[4], 10, 64)
	return inode{uint32(ma), uint32(mi), ino}, ok && errors.Join(err1, err2, err3) == nil
}

// mapsSegment: pid has the file mapped. Only a process that was given the session's segment, or a child of one,
// can have.
func mapsSegment(pid int, seg inode) bool {
	file, err := os.Open(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return false
	}
	defer file.Close()
	sc := bufio.NewScanner(file)
	sc.Buffer(make([]byte, 64<<10), 1<<20)
	for sc.Scan() {
		if in, ok := mappedInode(sc.Text()); ok && in == seg {
			return true
		}
	}
	return false
}

// startTicks is field 22 of /proc/PID/stat: with the pid, it names one process for as long as the machine is up.
func startTicks(pid int) (uint64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	i := bytes.LastIndexByte(b, ')')
	f := bytes.Fields(b[i+1:])
	if i < 0 || len(f) < 20 {
		return 0, fmt.Errorf("/proc/%d/stat makes no sense: %q", pid, b)
	}
	return strconv.ParseUint(string(f[19]), 10, 64)
}

// nsPIDs is the NSpid line of a status file: the id in our pid namespace first, in its own last.
func nsPIDs(status []byte) []int {
	for line := range bytes.Lines(status) {
		rest, ok := bytes.CutPrefix(line, []byte("NSpid:"))
		if !ok {
			continue
		}
		var out []int
		for _, f := range bytes.Fields(rest) {
			n, err := strconv.Atoi(string(f))
			if err != nil {
				return nil
			}
			out = append(out, n)
		}
		return out
	}
	return nil
}

// nested: the process numbers its threads in a pid namespace below ours.
func nested(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	return err == nil && len(nsPIDs(b)) > 1
}

// hostTIDs translates the thread ids of a nested process: its own numbers to ours.
func hostTIDs(pid int) map[uint32]int {
	dir := fmt.Sprintf("/proc/%d/task", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	out := make(map[uint32]int, len(entries))
	for _, e := range entries {
		b, err := os.ReadFile(dir + "/" + e.Name() + "/status")
		if err != nil {
			continue
		}
		if ids := nsPIDs(b); len(ids) > 0 {
			out[uint32(ids[len(ids)-1])] = ids[0]
		}
	}
	return out
}

// findNested looks for the process that is inner in its own pid namespace and has the segment mapped.
func findNested(inner int, seg inode) int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		b, err := os.ReadFile("/proc/" + e.Name() + "/status")
		if err != nil {
			continue
		}
		if ids := nsPIDs(b); len(ids) > 1 && ids[len(ids)-1] == inner && mapsSegment(pid, seg) {
			return pid
		}
	}
	return 0
}

// identity is what proves that a pid still is the process that was verified.
type identity struct {
	pid    int
	start  uint64
	nested bool
	pidfd  int // 0: none. (Descriptor 0 itself is never one: the runtime sees to it that it is open.)
}

// identify pins a process that is known to live: the peer of a connection, which waits for us.
func identify(pid int) (identity, error) {
	start, err := startTicks(pid)
	if err != nil {
		return identity{}, fmt.Errorf("look at process %d: %w", pid, err)
	}
	id := identity{pid: pid, start: start, nested: nested(pid)}
	fd, err := unix.PidfdOpen(pid, 0)
	switch {
	case err == nil:
		id.pidfd = fd
	case errors.Is(err, unix.ESRCH):
		return identity{}, fmt.Errorf("open process %d: %w", pid, err)
	}
	// The pidfd could be of a second owner of the pid only if the first died in between.
	if again, err := startTicks(pid); err != nil || again != start {
		id.close()
		return identity{}, fmt.Errorf("process %d went away", pid)
	}
	return id, nil
}

func (id *identity) close() {
	if id.pidfd > 0 {
		unix.Close(id.pidfd)
		id.pidfd = 0
	}
}

// lives is for kernels without pidfd.
func (id *identity) lives() bool {
	start, err := startTicks(id.pid)
	return err == nil && start == id.start && running(id.pid)
}

// running: a process has the pid and is not a zombie.
func running(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	i := bytes.LastIndexByte(b, ')')
	return i < 0 || len(b) < i+3 || (b[i+2] != 'Z' && b[i+2] != 'X')
}

// verifyFork finds the process behind a slot that a fork child claimed. It has never spoken to us: that it has
// the session's segment mapped says that it is one of ours. findNested looks for it in other pid namespaces.
func verifyFork(p *segment.Proc, seg inode, findNested func(int) int) (identity, bool) {
	claimed := int(p.PID.Load())
	if claimed <= 0 || claimed > 1<<22 {
		return identity{}, false
	}
	for _, find := range []func() int{
		func() int {
			if !nested(claimed) && mapsSegment(claimed, seg) {
				return claimed
			}
			return 0
		},
		func() int { return findNested(claimed) },
	} {
		pid := find()
		if pid == 0 {
			continue
		}
		if id, err := identify(pid); err == nil {
			return id, true
		}
	}
	return identity{}, false
}
