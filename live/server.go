package live

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Prefix begins the names of recorders' sockets. Their pid follows, and what makes the name their own.
const Prefix = "hbtrace-live-"

// patience is how long a client may take to read its answer: the next one waits.
const patience = 5 * time.Second

// Server answers one client after the other until it is closed.
type Server struct {
	listener *net.UnixListener
	snapshot func() *Snapshot // nil result: the recording has ended
	wg       sync.WaitGroup

	mu     sync.Mutex
	client *net.UnixConn // who is being answered
	closed bool
}

// Listen starts answering. snapshot is called from one goroutine of the server's.
func Listen(snapshot func() *Snapshot) (*Server, error) {
	var b [8]byte
	if _, err := rand.Read(b[:]); err != nil {
		return nil, fmt.Errorf("draw a name for the session: %w", err)
	}
	name := "@" + Prefix + strconv.Itoa(os.Getpid()) + "-" + hex.EncodeToString(b[:])
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: name, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listen for hbtrace top: %w", err)
	}
	s := &Server{listener: l, snapshot: snapshot}
	s.wg.Go(s.accept)
	return s, nil
}

// Close ends the listening, and hangs up on who is being answered. A snapshot that is being made must return for it to do
// so.
func (s *Server) Close() {
	s.listener.Close()
	s.mu.Lock()
	s.closed = true
	if s.client != nil {
		s.client.Close()
	}
	s.mu.Unlock()
	s.wg.Wait()
}

func (s *Server) accept() {
	for {
		c, err := s.listener.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // out of descriptors, for example: clients wait in the queue
			time.Sleep(10 * time.Millisecond)
			continue
		}
		if s.serving(c) {
			s.answer(c)
		}
		s.serving(nil)
		c.Close()
	}
}

// serving notes who is being answered; false when it is too late for that.
func (s *Server) serving(c *net.UnixConn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.client = c
	return !s.closed
}

// answer writes to a client; one that has gone, or does not read, is its own business.
func (s *Server) answer(c *net.UnixConn) {
	uid, _, err := peer(c)
	if err != nil || uid != os.Geteuid() && uid != 0 {
		return
	}
	snap := s.snapshot()
	if snap == nil {
		return
	}
	for i := range snap.Threads {
		t := &snap.Threads[i]
		t.CPUNs, t.ReadyNs, t.Kernel = -1, -1, ""
		for j := range snap.Processes {
			if p := &snap.Processes[j]; p.ID == t.Proc {
				t.ask(p.PID)
				break
			}
		}
	}
	body, err := json.Marshal(snap)
	if err != nil {
		return
	}
	c.SetWriteDeadline(time.Now().Add(patience))
	c.Write(body)
}

// ask fills in what the kernel says of a thread. A thread of another pid namespace, whose number is not ours, is not found
// below its process.
func (t *Thread) ask(pid int) {
	dir := "/proc/" + strconv.Itoa(pid) + "/task/" + strconv.Itoa(t.TID) + "/"
	if b, err := os.ReadFile(dir + "schedstat"); err == nil {
		if n, err := fmt.Sscan(string(b), &t.CPUNs, &t.ReadyNs); n != 2 || err != nil {
			t.CPUNs, t.ReadyNs = -1, -1
		}
	}
	if b, err := os.ReadFile(dir + "stat"); err == nil {
		if i := bytes.LastIndexByte(b, ')'); i >= 0 && i+2 < len(b) { // the name before it may hold anything
			t.Kernel = string(b[i+2 : i+3])
		}
	}
}

// peer says who is at the other end.
func peer(c *net.UnixConn) (uid, pid int, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, 0, err
	}
	var cred *unix.Ucred
	var asked error
	if err := raw.Control(func(fd uintptr) { cred, asked = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err != nil {
		return 0, 0, err
	}
	if asked != nil {
		return 0, 0, asked
	}
	return int(cred.Uid), int(cred.Pid), nil
}
