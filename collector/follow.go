// Processes of the session that are about to exec a program without a loader, in which no agent works: where it is a Go program it is
// recorded as one that the recorder starts itself.
package collector

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/hbtrace/hbtrace/goruntime"
	"github.com/hbtrace/hbtrace/segment"
	"golang.org/x/sys/unix"
)

// errFollowed: the connection was no agent's that takes the segment.
var errFollowed = errors.New("an exec")

// execLimit is how long an exec may take from the moment at which its socket is closed.
const execLimit = 2 * time.Second

// execing is a process that is about to exec a file, and waits for held.
type execing struct {
	pid  int
	file *os.File     // that it is about to exec, as it has it open
	held func() error // lets it go on; at most once
	over func() bool  // the exec has failed, or is not waited for any more
}

// execs hands a process that is about to exec its descriptor fd on, and waits for the outcome.
func (s *server) execs(c *net.UnixConn, pid, fd int) {
	done := false
	held := func() error {
		if done {
			return nil
		}
		done = true
		msg := make([]byte, segment.HelloBytes)
		(&segment.Hello{Magic: segment.Magic, Version: segment.ABIVersion, HostPID: uint32(pid), Secret: s.secrets.give}).Encode(msg)
		_, err := c.Write(msg)
		return err
	}
	defer held()
	f, err := os.OpenFile(fmt.Sprintf("/proc/%d/fd/%d", pid, fd), os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil || s.follow == nil {
		return
	}
	defer f.Close()
	said := make(chan time.Time, 1)
	go func() { // its socket is closed by the exec, or with the process; where the exec fails it says so before
		if n, _ := c.Read(make([]byte, 1)); n > 0 {
			said <- time.Time{}
		} else {
			said <- time.Now().Add(execLimit)
		}
	}()
	var deadline time.Time
	closed := false
	s.follow(execing{pid: pid, file: f, held: held, over: func() bool {
		select {
		case <-s.quit:
			return true
		case deadline = <-said:
			closed = true
		default:
		}
		return closed && time.Now().After(deadline)
	}})
}

// followGo records a process from its exec on, if that makes it a Go program.
func (s *session) followGo(e execing) {
	info, err := e.file.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return
	}
	p := s.goFiles.open(e.file, info)
	if p == nil {
		return
	}
	shown, _ := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", e.file.Fd()))
	if p.golang == nil {
		s.notes.add(p.notes...)
		return
	}
	s.setExecing(e.pid, true)
	defer s.setExecing(e.pid, false)
	err = goruntime.Follow(p.golang, goruntime.Following{PID: e.pid, File: info, Held: e.held, Over: e.over,
		Join: func(pid int) (goruntime.Session, error) { return s.joinGo(pid, p.golang) }})
	switch {
	case err == nil:
		s.startGo()
	case !errors.Is(err, goruntime.ErrNoExec):
		s.notes.addf("%s, process %d, is a Go program and is not recorded: %v", shown, e.pid, err)
	}
}

// setExecing: until then nobody says that the process is not recorded.
func (s *session) setExecing(pid int, on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.execing == nil {
		s.execing = map[int]bool{}
	}
	if on {
		s.execing[pid] = true
	} else {
		delete(s.execing, pid)
	}
}

// goFiles are programs that processes of the session were about to exec, so that each file is read once.
type goFiles struct {
	mu    sync.Mutex
	files []goFile
}

type goFile struct {
	info    os.FileInfo
	program *program // nil: no Go program
}

const mostGoFiles = 256

// open says what the file is; nil: no Go program. Its notes say why it cannot be recorded.
func (g *goFiles) open(f *os.File, info os.FileInfo) *program {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, x := range g.files {
		if os.SameFile(x.info, info) && x.info.Size() == info.Size() && x.info.ModTime().Equal(info.ModTime()) {
			return x.program
		}
	}
	path := fmt.Sprintf("/proc/self/fd/%d", f.Fd())
	shown, err := os.Readlink(path)
	if err != nil {
		return nil
	}
	p := &program{path: shown}
	p.privileges(shown, f)
	if !p.inspectGo(shown, path) {
		p = nil
	}
	if len(g.files) >= mostGoFiles {
		g.files = g.files[1:]
	}
	g.files = append(g.files, goFile{info, p})
	return p
}
