// Handing the segment to the session's processes.
//
// The socket's name is abstract, so it is seen in any mount namespace and vanishes with the recorder. Any user reads it in
// /proc/net/unix. So a peer has to show a secret that stands in the environment of the session's processes only
// (door.go). Which process it is, the kernel says (SO_PEERCRED).
package collector

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/hbtrace/hbtrace/segment"
	"golang.org/x/sys/unix"
)

// readyLimit is how long an agent may take to map the segment and answer.
const readyLimit = 10 * time.Second

// server accepts agents until it is closed.
type server struct {
	name     string // of the socket, without the leading NUL
	secrets  secrets
	door     door
	listener *net.UnixListener
	seg      *segment.Segment
	attached func(attachment) // called from any goroutine, one at a time per connection
	refused  func(string)     // likewise; one line: a process that should have been recorded
	remark   func(string)     // likewise: a stranger
	follow   func(execing)    // likewise: a process that is about to exec a program without a loader; returns when it has
	quit     chan struct{}
	wg       sync.WaitGroup
	uid      int
	tables   *tables // nil: none
}

// attachment is an agent that has taken the segment.
type attachment struct {
	slot    int
	uid     uint32
	id      identity // of the process, pinned while it waited for us
	cmdline []string
	exe     string
	mapped  []mapped // what it had mapped then, for its unwind tables
}

// listen starts serving processes of user uid, of all users if that is root. attached takes over the identity that it is given.
func listen(seg *segment.Segment, uid int, tables *tables, attached func(attachment), follow func(execing),
	refused, remark func(string)) (*server, error) {
	var b [16]byte
	if _, err := rand.Read(b[:]); err != nil {
		return nil, fmt.Errorf("draw a name for the session: %w", err)
	}
	name := "hbtrace-" + hex.EncodeToString(b[:])
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: "@" + name, Net: "unixpacket"})
	if err != nil {
		return nil, fmt.Errorf("listen for agents: %w", err)
	}
	secrets, err := drawSecrets()
	if err != nil {
		l.Close()
		return nil, err
	}
	s := &server{name: name, secrets: secrets, door: door{trusted: uint32(uid)}, listener: l, seg: seg, uid: uid, tables: tables,
		attached: attached, follow: follow, refused: refused, remark: remark, quit: make(chan struct{})}
	s.wg.Add(1)
	go s.accept()
	return s, nil
}

// close ends the listening and waits for connections in hand.
func (s *server) close() {
	close(s.quit)
	s.listener.Close()
	s.wg.Wait()
}

func (s *server) accept() {
	defer s.wg.Done()
	for {
		c, err := s.listener.AcceptUnix()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			select { // out of descriptors, for example: connections wait in the queue
			case <-s.quit:
				return
			case <-time.After(10 * time.Millisecond):
			}
			continue
		}
		s.door.enter(c)
		s.wg.Add(1)
		go func() {
			defer s.wg.Done()
			defer c.Close()
			a, err := s.serve(c)
			if errors.Is(err, errStranger) || errors.Is(err, errFollowed) || errors.Is(err, net.ErrClosed) { // closed: by the door
				return
			}
			if err != nil {
				s.refused(err.Error())
				return
			}
			s.attached(a) // before it goes on: what it writes next is its
			if s.tables != nil {
				s.letGo(c, a)
			}
		}()
	}
}

func (s *server) serve(c *net.UnixConn) (a attachment, err error) {
	if err := c.SetDeadline(time.Now().Add(readyLimit)); err != nil {
		return a, err
	}
	stop := make(chan struct{})
	defer close(stop)
	go func() { // the end of the session does not wait for a peer that is silent
		select {
		case <-s.quit:
			c.SetDeadline(time.Now().Add(100 * time.Millisecond))
		case <-stop:
		}
	}()
	cred, err := peer(c)
	if err != nil {
		return a, err
	}
	ask, err := s.admit(c, cred)
	if err != nil {
		return a, err
	}
	if int(cred.Uid) != s.uid && s.uid != 0 {
		return a, fmt.Errorf("process %d belongs to user %d and was not given the session: record it as root", cred.Pid, cred.Uid)
	}
	if cred.Pid <= 0 {
		return a, errors.New("a process asked for the session from a pid namespace that cannot be seen from here: run hbtrace outside of it")
	}
	if ask.ExecFd != 0 {
		s.execs(c, int(cred.Pid), int(ask.ExecFd)-1)
		return a, errFollowed
	}
	// The peer waits for our message, so it lives while this is read.
	a.id, err = identify(int(cred.Pid))
	if err != nil {
		return a, err
	}
	a.cmdline, a.exe = describe(a.id.pid)
	if otherClock(a.id.pid) {
		a.id.close()
		return a, fmt.Errorf("process %d is in another time namespace, where clocks show other times, and is not recorded: %s", a.id.pid, a.exe)
	}
	defer func() {
		if err != nil {
			a.id.close()
		}
	}()
	g := s.seg.Geometry()
	hello := segment.Hello{Magic: segment.Magic, Version: segment.ABIVersion, HostPID: uint32(cred.Pid), SegmentBytes: g.Bytes,
		Secret: s.secrets.give}
	fds := []int{s.seg.FD()}
	if s.tables != nil {
		fds = append(fds, s.tables.fd)
		hello.TablesBytes = tablesBytes
	}
	msg := make([]byte, segment.HelloBytes)
	hello.Encode(msg)
	if _, _, err := c.WriteMsgUnix(msg, unix.UnixRights(fds...), nil); err != nil {
		return a, fmt.Errorf("give process %d the session: %w", cred.Pid, err)
	}
	// While it maps the segment: its program and libraries are mapped already, and what is new of them is being compiled.
	if s.tables != nil {
		a.mapped = s.tables.mapped(a.id.pid)
	}
	buf := make([]byte, segment.ReadyBytes+1)
	n, err := c.Read(buf)
	if err != nil || n == 0 {
		return a, fmt.Errorf("process %d took the session and did not answer (%v)", cred.Pid, err)
	}
	var ready segment.Ready
	if n != segment.ReadyBytes || !ready.Decode(buf[:n]) || ready.Magic != segment.Magic {
		return a, fmt.Errorf("process %d answered with %d bytes that make no sense", cred.Pid, n)
	}
	if ready.Version != segment.ABIVersion {
		return a, fmt.Errorf("process %d has an agent of another version (%d, this hbtrace has %d)", cred.Pid, ready.Version, segment.ABIVersion)
	}
	if ready.Refused != 0 {
		return a, fmt.Errorf("process %d cannot be recorded: %s", cred.Pid, refusal(ready.Refused))
	}
	if uint64(ready.ProcSlot) >= uint64(g.Procs) || ready.ProcUID == 0 || s.seg.Proc(int(ready.ProcSlot)).UID.Load() != ready.ProcUID {
		return a, fmt.Errorf("process %d claims slot %d, which is not its own", cred.Pid, ready.ProcSlot)
	}
	a.slot, a.uid = int(ready.ProcSlot), ready.ProcUID
	return a, nil
}

// letGo publishes the process's unwind tables and tells it to go on; it waits no longer than firstTables.
func (s *server) letGo(c *net.UnixConn, a attachment) {
	if compiled(a.mapped) {
		s.tables.show(a.slot, a.uid, a.mapped)
	} else {
		done := make(chan struct{})
		s.wg.Add(1)
		go func() {
			defer s.wg.Done()
			defer close(done)
			s.tables.show(a.slot, a.uid, a.mapped)
		}()
		select {
		case <-done:
		case <-time.After(firstTables):
		}
	}
	c.Write([]byte{1}) // an agent that is gone needs no answer
}

func refusal(code uint32) string {
	switch code {
	case segment.RefuseVersion:
		return "its agent is of another version"
	case segment.RefuseMMAP:
		return "it could not map the session's memory (a limit on address space?)"
	case segment.RefuseNoSlot:
		return "the session has no free slot for another process"
	case segment.RefuseUnresolved:
		return "a function that the agent needs was not found in its C library"
	}
	return fmt.Sprintf("reason %d", code)
}

func peer(c *net.UnixConn) (*unix.Ucred, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("look at a connection: %w", err)
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return nil, fmt.Errorf("look at a connection: %w", err)
	}
	if credErr != nil {
		return nil, fmt.Errorf("who is connected: %w", credErr)
	}
	return cred, nil
}

// describe reads a process's command line and executable; empty where it cannot.
func describe(pid int) (cmdline []string, exe string) {
	if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); err == nil {
		cmdline = arguments(b)
	}
	exe, _ = os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	return cmdline, exe
}

// arguments are those in a /proc/PID/cmdline. Where the process has written a title over them, that is the only one: it has
// blanks in it, and zeros behind it up to the end of what it was written over.
func arguments(b []byte) []string {
	if len(b) == 0 {
		return nil
	}
	b = bytes.TrimSuffix(b, []byte{0})
	if title := bytes.TrimRight(b, "\x00"); len(title) < len(b) && !bytes.ContainsRune(title, 0) && bytes.ContainsRune(title, ' ') {
		b = title
	}
	var out []string
	for _, a := range bytes.Split(b, []byte{0}) {
		out = append(out, string(bytes.ToValidUTF8(a, []byte("\uFFFD"))))
	}
	return out
}

// otherClock says whether a process's CLOCK_MONOTONIC may differ from the recorder's (time_namespaces(7)). Where that cannot be
// read it does not: an unprivileged process cannot make such a namespace.
func otherClock(pid int) bool {
	own, err := os.Readlink("/proc/self/ns/time")
	if err != nil {
		return false
	}
	its, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/time", pid))
	return err == nil && its != own
}
