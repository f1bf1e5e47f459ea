// Asking a recorder: to write down its state, for a dump, and how it is.
//
// A recorder listens on an abstract socket, whose name is in session.json. Both sides ask the kernel who the other is: a
// recorder answers its own user and root, and a client believes nobody else. A request is one line of JSON, and so
// is the reply. The connection stays open while the client reads the session's files: a recorder that ends waits for it.

package flight

import (
	"bufio"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Request is what a client wants.
type Request struct {
	Op string // OpStatus or OpDump
}

// What a client may want.
const (
	OpStatus = "status"
	OpDump   = "dump" // write down everything up to now, so that the files can be read
)

// Status is a session's state.
type Status struct {
	Error string `json:",omitempty"` // why there is none

	Held               Held
	Lost               uint64  // records, so far
	EventsPerSecond    float64 // over the last seconds
	Overhead           float64 // CPU of recorder and sampler over the session, as a share of one CPU
	Triggers           []string
	Dumps              []string // files made because of triggers
	Processes, Threads int      // that live
	Now                int64    // CLOCK_MONOTONIC, ns
}

// reading is how long a client may take to copy the session's files when the recorder ends.
const reading = 20 * time.Second

// Server answers clients until it is closed.
type Server struct {
	Name     string // abstract
	listener *net.UnixListener
	answer   func(Request) Status
	clients  sync.WaitGroup
	accepts  sync.WaitGroup
	mu       sync.Mutex
	open     map[*net.UnixConn]bool
}

// Listen begins to listen. answer is called from many goroutines.
func Listen(answer func(Request) Status) (*Server, error) {
	var b [8]byte
	if _, err := rand.Read(b[:]); err != nil {
		return nil, fmt.Errorf("drawing a name for the session: %w", err)
	}
	name := "@hbtrace-flight-" + strconv.Itoa(os.Getpid()) + "-" + hex.EncodeToString(b[:])
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: name, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listening for hbtrace dump: %w", err)
	}
	s := &Server{Name: name, listener: l, answer: answer, open: map[*net.UnixConn]bool{}}
	s.accepts.Go(s.accept)
	return s, nil
}

func (s *Server) accept() {
	for {
		c, err := s.listener.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // out of descriptors, for example
			time.Sleep(10 * time.Millisecond)
			continue
		}
		s.mu.Lock()
		s.open[c] = true
		s.mu.Unlock()
		s.clients.Go(func() {
			s.serve(c)
			c.Close()
			s.mu.Lock()
			delete(s.open, c)
			s.mu.Unlock()
		})
	}
}

// serve answers one client's requests until it hangs up.
func (s *Server) serve(c *net.UnixConn) {
	if uid, err := peerUID(c); err != nil || !mayAsk(uid, os.Geteuid()) {
		return
	}
	in := bufio.NewReader(io.LimitReader(c, 1<<20))
	out := json.NewEncoder(c)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		var r Request
		if json.Unmarshal(line, &r) != nil {
			return
		}
		c.SetWriteDeadline(time.Now().Add(5 * time.Second))
		if out.Encode(s.answer(r)) != nil {
			return
		}
	}
}

// Close ends the listening. Clients that are there may finish reading the files, for a while.
func (s *Server) Close() {
	s.listener.Close()
	s.accepts.Wait()
	done := make(chan struct{})
	go func() { s.clients.Wait(); close(done) }()
	select {
	case <-done:
		return
	case <-time.After(reading):
	}
	s.mu.Lock()
	for c := range s.open {
		c.Close()
	}
	s.mu.Unlock()
	<-done
}

// Client is a connection to a session's recorder.
type Client struct {
	c  *net.UnixConn
	in *bufio.Reader
}

// Connect reaches the recorder of a session.
func Connect(s Session) (*Client, error) {
	if s.Socket == "" {
		return nil, fmt.Errorf("session %s cannot be asked", s.Name)
	}
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: s.Socket, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("session %s does not answer: %w", s.Name, err)
	}
	if uid, err := peerUID(c); err != nil || !mayAsk(os.Geteuid(), uid) && uid != 0 {
		c.Close()
		return nil, fmt.Errorf("session %s belongs to another user", s.Name)
	}
	return &Client{c, bufio.NewReader(c)}, nil
}

// Ask sends a request and waits for the reply.
func (c *Client) Ask(r Request) (*Status, error) {
	c.c.SetDeadline(time.Now().Add(time.Minute))
	b, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	if _, err := c.c.Write(append(b, '\n')); err != nil {
		return nil, fmt.Errorf("asking the recorder: %w", err)
	}
	line, err := c.in.ReadBytes('\n')
	if errors.Is(err, io.EOF) {
		return nil, errors.New("the recorder refused, or ended: it answers its own user and root")
	}
	if err != nil {
		return nil, fmt.Errorf("asking the recorder: %w", err)
	}
	st := &Status{}
	if err := json.Unmarshal(line, st); err != nil {
		return nil, fmt.Errorf("the recorder's answer makes no sense: %w", err)
	}
	if st.Error != "" {
		return nil, errors.New(st.Error)
	}
	return st, nil
}

// Close hangs up: the session's files are not needed any more.
func (c *Client) Close() error { return c.c.Close() }

// mayAsk reports whether a user may ask a recorder of another.
func mayAsk(client, recorder int) bool { return client == recorder || client == 0 }

// peerUID is the user at the other end.
func peerUID(c *net.UnixConn) (int, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	var asked error
	err = raw.Control(func(fd uintptr) { cred, asked = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err = errors.Join(err, asked); err != nil {
		return 0, err
	}
	return int(cred.Uid), nil
}
