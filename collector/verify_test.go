// Proving whose a process is, and the handing over of the segment, against peers that behave and that do not.
package collector

import (
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hbtrace/hbtrace/segment"
	"golang.org/x/sys/unix"
)

func testSegment(t *testing.T) *segment.Segment {
	t.Helper()
	seg, err := segment.Create(segment.Config{Threads: 16, Procs: 8, RingBytes: 1 << 16})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { seg.Close() })
	return seg
}

func TestMappedInode(t *testing.T) {
	for _, tc := range []struct {
		line string
		want inode
		ok   bool
	}{
		{"7f0000000000-7f0000001000 rw-s 00000000 00:01 1057                       /memfd:hbtrace (deleted)", inode{0, 1, 1057}, true},
		{"55d0-55d1 r-xp 00001000 fe:03 12 /a b", inode{0xfe, 3, 12}, true},
		{"55d0-55d1 rw-p 00000000 00:00 0 ", inode{0, 0, 0}, true},
		{"55d0-55d1 rw-p 00000000", inode{}, false},
		{"55d0-55d1 rw-p 00000000 xx:00 0", inode{}, false},
		{"", inode{}, false},
	} {
		if got, ok := mappedInode(tc.line); ok != tc.ok || (ok && got != tc.want) {
			t.Errorf("%q: %v, %v", tc.line, got, ok)
		}
	}
}

func TestNSPIDs(t *testing.T) {
	for _, tc := range []struct {
		in   string
		want []int
	}{
		{"Name:\tx\nNSpid:\t10\nOther:\t1\n", []int{10}},
		{"NSpid:\t10\t2\t1\n", []int{10, 2, 1}},
		{"NSpid:\tx\n", nil},
		{"Name:\tx\n", nil},
	} {
		if got := nsPIDs([]byte(tc.in)); !slices.Equal(got, tc.want) {
			t.Errorf("%q: %v", tc.in, got)
		}
	}
}

func TestIdentify(t *testing.T) {
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	id, err := identify(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if id.start == 0 || id.nested || !id.lives() {
		t.Errorf("%+v", id)
	}
	cmd.Process.Kill()
	cmd.Process.Wait()
	if id.lives() {
		t.Error("lives after its death")
	}
	id.close()
	if _, err := identify(cmd.Process.Pid); err == nil {
		t.Error("identified a process that is gone")
	}
}

func TestMapsSegment(t *testing.T) {
	seg := testSegment(t)
	in, err := inodeOf(seg.FD())
	if err != nil {
		t.Fatal(err)
	}
	if !mapsSegment(os.Getpid(), in) {
		t.Error("this process has it mapped")
	}
	if mapsSegment(os.Getppid(), in) || mapsSegment(1<<30, in) {
		t.Error("found where it is not")
	}
	// A slot that names a stranger's pid proves nothing.
	p := seg.Proc(0)
	scan := func(inner int) int { return findNested(inner, in) }
	for _, pid := range []uint32{uint32(os.Getppid()), 1, 0, 1 << 31, 1<<32 - 1} {
		p.PID.Store(pid)
		if id, ok := verifyFork(p, in, scan); ok {
			t.Errorf("slot with pid %d was believed: %+v", pid, id)
		}
	}
	p.PID.Store(uint32(os.Getpid()))
	id, ok := verifyFork(p, in, scan)
	if !ok || id.pid != os.Getpid() {
		t.Errorf("%+v, %v", id, ok)
	}
	id.close()
}

// peers collects what the server says.
type peers struct {
	mu       sync.Mutex
	attached []attachment
	refused  []string
	remarks  []string
}

func serve(t *testing.T, seg *segment.Segment, uid int) (*server, *peers) {
	t.Helper()
	p := &peers{}
	s, err := listen(seg, uid, nil, func(a attachment) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.attached = append(p.attached, a)
		a.id.close()
	}, nil, func(line string) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.refused = append(p.refused, line)
	}, func(line string) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.remarks = append(p.remarks, line)
	})
	if err != nil {
		t.Fatal(err)
	}
	return s, p
}

// dial connects as an agent does and returns the hello and the descriptor that came with it.
func dial(t *testing.T, s *server) (*net.UnixConn, segment.Hello, int) {
	t.Helper()
	c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: "@" + s.name, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	ask := segment.Ask{Magic: segment.Magic, Secret: s.secrets.ask}
	b := make([]byte, segment.AskBytes)
	ask.Encode(b)
	if _, err := c.Write(b); err != nil {
		t.Fatal(err)
	}
	msg, oob := make([]byte, 100), make([]byte, 100)
	n, on, _, _, err := c.ReadMsgUnix(msg, oob)
	if err != nil {
		t.Fatal(err)
	}
	var h segment.Hello
	if n != segment.HelloBytes || !h.Decode(msg[:n]) {
		t.Fatalf("hello of %d bytes", n)
	}
	scm, err := unix.ParseSocketControlMessage(oob[:on])
	if err != nil || len(scm) != 1 {
		t.Fatalf("%d control messages, %v", len(scm), err)
	}
	fds, err := unix.ParseUnixRights(&scm[0])
	if err != nil || len(fds) != 1 {
		t.Fatalf("%v, %v", fds, err)
	}
	return c, h, fds[0]
}

func TestServerHandsOutTheSegment(t *testing.T) {
	seg := testSegment(t)
	s, got := serve(t, seg, os.Geteuid())
	c, hello, fd := dial(t, s)
	defer unix.Close(fd)
	if hello.Magic != segment.Magic || hello.Version != segment.ABIVersion || int(hello.HostPID) != os.Getpid() || hello.SegmentBytes != seg.Geometry().Bytes || hello.Secret != s.secrets.give {
		t.Errorf("hello %+v", hello)
	}
	theirs, err := segment.Map(fd)
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	theirs.Proc(3).UID.Store(7)
	ready := segment.Ready{Magic: segment.Magic, Version: segment.ABIVersion, ProcSlot: 3, ProcUID: 7}
	b := make([]byte, segment.ReadyBytes)
	ready.Encode(b)
	if _, err := c.Write(b); err != nil {
		t.Fatal(err)
	}
	s.close() // waits for the connection in hand
	if len(got.attached) != 1 || len(got.refused) != 0 {
		t.Fatalf("attached %+v, refused %q", got.attached, got.refused)
	}
	if a := got.attached[0]; a.slot != 3 || a.uid != 7 || a.id.pid != os.Getpid() || a.exe == "" || !slices.Equal(a.cmdline, os.Args) {
		t.Errorf("%+v", a)
	}
	if _, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: "@" + s.name, Net: "unixpacket"}); err == nil {
		t.Error("the name is still there after the end")
	}
}

func TestServerRefuses(t *testing.T) {
	good := segment.Ready{Magic: segment.Magic, Version: segment.ABIVersion, ProcSlot: 3, ProcUID: 7}
	for _, tc := range []struct {
		name  string
		ready func(r segment.Ready) []byte
		want  string
	}{
		{"silent", func(segment.Ready) []byte { return nil }, "did not answer"},
		{"short", func(segment.Ready) []byte { return []byte("x") }, "make no sense"},
		{"long", func(r segment.Ready) []byte { b := make([]byte, 200); r.Encode(b); return b }, "make no sense"},
		{"magic", func(r segment.Ready) []byte { r.Magic++; return encode(r) }, "make no sense"},
		{"version", func(r segment.Ready) []byte { r.Version++; return encode(r) }, "another version"},
		{"refused", func(r segment.Ready) []byte { r.Refused = segment.RefuseNoSlot; return encode(r) }, "no free slot"},
		{"refused, unknown", func(r segment.Ready) []byte { r.Refused = 99; return encode(r) }, "reason 99"},
		{"slot outside", func(r segment.Ready) []byte { r.ProcSlot = 8; return encode(r) }, "not its own"},
		{"slot far outside", func(r segment.Ready) []byte { r.ProcSlot = 1<<32 - 1; return encode(r) }, "not its own"},
		{"somebody else's slot", func(r segment.Ready) []byte { r.ProcUID = 8; return encode(r) }, "not its own"},
		{"no uid", func(r segment.Ready) []byte { r.ProcSlot, r.ProcUID = 0, 0; return encode(r) }, "not its own"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			seg := testSegment(t)
			seg.Proc(3).UID.Store(7)
			s, got := serve(t, seg, os.Geteuid())
			c, _, fd := dial(t, s)
			unix.Close(fd)
			if b := tc.ready(good); b != nil {
				if _, err := c.Write(b); err != nil {
					t.Fatal(err)
				}
			} else {
				c.Close()
			}
			s.close()
			if len(got.attached) != 0 || len(got.refused) != 1 || !strings.Contains(got.refused[0], tc.want) {
				t.Errorf("attached %+v, refused %q, want %q", got.attached, got.refused, tc.want)
			}
		})
	}
}

func encode(r segment.Ready) []byte {
	b := make([]byte, segment.ReadyBytes)
	r.Encode(b)
	return b
}

// A peer that takes the segment and says nothing does not hold up the end of the session.
func TestServerEndsInSpiteOfSilentPeers(t *testing.T) {
	for attempt := range 3 {
		s, got := serve(t, testSegment(t), os.Geteuid())
		for range 3 {
			_, _, fd := dial(t, s)
			unix.Close(fd)
		}
		begun := time.Now()
		s.close()
		took := time.Since(begun)
		if len(got.refused) != 3 {
			t.Errorf("refused %q", got.refused)
		}
		if took <= readyLimit/2 {
			return
		}
		t.Logf("attempt %d took %v: the machine's doing, unless each one does", attempt, took)
	}
	t.Error("the end waits for peers that say nothing")
}
