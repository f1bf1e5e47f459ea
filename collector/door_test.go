package collector

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hbtrace/hbtrace/segment"
)

// connect is a connection to the server that has said nothing yet.
func connect(t *testing.T, name string) *net.UnixConn {
	t.Helper()
	c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: "@" + name, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func asking(secret [segment.SecretBytes]byte, magic uint64) []byte {
	b := make([]byte, segment.AskBytes)
	(&segment.Ask{Magic: magic, Secret: secret}).Encode(b)
	return b
}

// Who does not know the secret is given nothing, whoever it is.
func TestStrangersAreGivenNothing(t *testing.T) {
	seg := testSegment(t)
	s, got := serve(t, seg, os.Geteuid())
	near := s.secrets.ask
	near[segment.SecretBytes-1]++
	for name, says := range map[string][]byte{
		"another secret":   asking([segment.SecretBytes]byte{}, segment.Magic),
		"nearly":           asking(near, segment.Magic),
		"the other secret": asking(s.secrets.give, segment.Magic),
		"another magic":    asking(s.secrets.ask, segment.Magic+1),
		"too short":        asking(s.secrets.ask, segment.Magic)[:segment.AskBytes-1],
		"too long":         append(asking(s.secrets.ask, segment.Magic), 0),
	} {
		c := connect(t, s.name)
		if _, err := c.Write(says); err != nil {
			t.Fatal(err)
		}
		c.SetReadDeadline(time.Now().Add(time.Minute))
		msg, oob := make([]byte, 100), make([]byte, 100)
		n, on, _, _, err := c.ReadMsgUnix(msg, oob)
		if n > 0 || on > 0 || (err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET)) {
			t.Errorf("%s: was sent %d bytes and %d of descriptors, %v", name, n, on, err)
		}
	}
	connect(t, s.name).Close() // goes away again
	s.close()
	if len(got.attached) != 0 || len(got.refused) != 0 || len(got.remarks) != 6 {
		t.Errorf("attached %+v, refused %q, remarks %q", got.attached, got.refused, got.remarks)
	}
}

// Another user's process that knows the secret, since one of the session's started it, is told why it cannot be recorded.
func TestServerRefusesOtherUsers(t *testing.T) {
	s, got := serve(t, testSegment(t), 12345) // as if this process were another user
	c := connect(t, s.name)
	if _, err := c.Write(asking(s.secrets.ask, segment.Magic)); err != nil {
		t.Fatal(err)
	}
	c.SetReadDeadline(time.Now().Add(time.Minute))
	if n, err := c.Read(make([]byte, 100)); n != 0 && err == nil {
		t.Errorf("was sent %d bytes", n)
	}
	s.close()
	if len(got.attached) != 0 || len(got.refused) != 1 || !strings.Contains(got.refused[0], "belongs to user") {
		t.Errorf("attached %+v, refused %q", got.attached, got.refused)
	}
}

// Another user's silent connections are closed from the oldest on, and those with the secret come through all the same.
func TestDoorStaysFree(t *testing.T) {
	const storm = 4 * maxStrangers
	s, got := serve(t, testSegment(t), 12345)
	var conns []*net.UnixConn
	for range storm {
		conns = append(conns, connect(t, s.name))
	}
	for i, c := range conns[:storm-maxStrangers] {
		c.SetReadDeadline(time.Now().Add(time.Minute))
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
			t.Fatalf("connection %d of %d is open: %v", i, storm, err)
		}
	}
	c := connect(t, s.name)
	if _, err := c.Write(asking(s.secrets.ask, segment.Magic)); err != nil {
		t.Fatal(err)
	}
	c.SetReadDeadline(time.Now().Add(time.Minute))
	c.Read(make([]byte, 1))
	s.door.mu.Lock()
	waiting := len(s.door.waiting[uint32(os.Geteuid())])
	s.door.mu.Unlock()
	if waiting > maxStrangers {
		t.Errorf("%d connections wait", waiting)
	}
	s.close()
	if len(got.refused) != 1 { // because of its user: it was let in
		t.Errorf("refused %q", got.refused)
	}
	if len(s.door.waiting) != 0 {
		t.Errorf("after the end the door knows %v", s.door.waiting)
	}
}

// strangerEnv makes this test's binary a process of another user that tries to get the segment.
const strangerEnv = "HBTRACE_TEST_STRANGER"

func strange(name string) {
	c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: "@" + name, Net: "unixpacket"})
	if err != nil {
		fmt.Println(err)
		return
	}
	c.SetDeadline(time.Now().Add(time.Minute))
	c.Write(asking([segment.SecretBytes]byte{}, segment.Magic))
	msg, oob := make([]byte, 100), make([]byte, 100)
	n, on, _, _, err := c.ReadMsgUnix(msg, oob)
	fmt.Println("given", n, on, err)
}

// The attack as it was made: another user finds the name in /proc/net/unix, and asks.
func TestAnotherUserIsGivenNothing(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to be another user")
	}
	s, got := serve(t, testSegment(t), 0)
	exe := "/proc/self/exe" // the file itself lies where only its owner may look
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), strangerEnv+"="+s.name)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Skipf("cannot start a process of another user: %v", err)
	}
	s.close()
	if !strings.HasPrefix(string(out), "given 0 0") || len(got.attached) != 0 || len(got.remarks) != 1 {
		t.Errorf("it says %q; attached %+v, remarks %q", out, got.attached, got.remarks)
	}
}
