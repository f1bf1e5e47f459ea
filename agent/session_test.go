// Somebody else answers where the session's recorder was: programs that inherited its environment take nothing from them.
package agent_test

import (
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hbtrace/hbtrace/agent"
	"github.com/hbtrace/hbtrace/internal/testprog"
	"github.com/hbtrace/hbtrace/segment"
	"golang.org/x/sys/unix"
)

// answer is what an impostor does differently; all that is zero is as a recorder does it.
type answer struct {
	uid     int                    // that the environment names; -1: ours
	userns  uint64                 // likewise; 0: ours
	give    byte                   // of each byte of the secret that it shows
	bytes   func(uint64) uint64    // that it says the memory has
	seals   int                    // -1: none
	header  func(*segment.Segment) // what it writes there first
	trimmed bool                   // it cuts the memory off once the program has it
}

const givenByte = 0x5a

// impostor runs a program that is handed what a says, and returns what it answered: nil for nothing at all.
// The program itself must be as it always is.
func impostor(t *testing.T, a answer) *segment.Ready {
	t.Helper()
	program := testprog.Build(t, "hello")
	preload, err := agent.Deliver()
	if err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("hbtrace-test-%d-%d", os.Getpid(), time.Now().UnixNano())
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: "@" + name, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if a.uid < 0 {
		a.uid = os.Geteuid()
	}
	if a.userns == 0 {
		var st unix.Stat_t
		if err := unix.Stat("/proc/self/ns/user", &st); err != nil {
			t.Fatal(err)
		}
		a.userns = st.Ino
	}
	ask, give := strings.Repeat("a5", segment.SecretBytes), strings.Repeat(hex.EncodeToString([]byte{givenByte}), segment.SecretBytes)
	value := fmt.Sprintf("%s.%s.%s.%d.%d.0.0", name, ask, give, a.uid, a.userns)
	ready := make(chan *segment.Ready, 1)
	go func() { ready <- a.serve(t, l) }()
	r := testprog.Run(t, testprog.Command{
		Args: []string{program}, Env: append(os.Environ(), "LD_PRELOAD="+preload, agent.SessionVariable+"="+value),
	})
	l.Close()
	if r.Status() != 0 || string(r.Stderr) != "hello on stderr\n" || string(r.Stdout) != "hello, 0 arguments\n" {
		t.Errorf("the program is not as it was: %v", r)
	}
	return <-ready
}

// serve answers one program.
func (a answer) serve(t *testing.T, l *net.UnixListener) *segment.Ready {
	c, err := l.AcceptUnix()
	if err != nil {
		return nil
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(time.Minute))
	var said segment.Ask
	buf := make([]byte, 100)
	n, err := c.Read(buf)
	if err != nil || n == 0 {
		return nil // it saw who answers, and went away
	}
	if n != segment.AskBytes || !said.Decode(buf[:n]) || said.Secret[0] != 0xa5 || said.Secret[segment.SecretBytes-1] != 0xa5 {
		t.Errorf("the agent asked with %x", buf[:n])
		return nil
	}
	seg, err := segment.Create(segment.Config{Threads: 64, Procs: 8, RingBytes: 1 << 16})
	if err != nil {
		t.Error(err)
		return nil
	}
	defer seg.Close()
	if a.header != nil {
		a.header(seg)
	}
	fd := seg.FD()
	if a.seals < 0 { // the same bytes in a file that can be cut off
		if fd, err = unix.MemfdCreate("open", unix.MFD_CLOEXEC); err != nil {
			t.Error(err)
			return nil
		}
		defer unix.Close(fd)
		mem, err := unix.Mmap(seg.FD(), 0, int(seg.Geometry().Bytes), unix.PROT_READ, unix.MAP_SHARED)
		if err != nil {
			t.Error(err)
			return nil
		}
		defer unix.Munmap(mem)
		if _, err := unix.Write(fd, mem); err != nil {
			t.Error(err)
			return nil
		}
	}
	hello := segment.Hello{Magic: segment.Magic, Version: segment.ABIVersion, HostPID: 1, SegmentBytes: seg.Geometry().Bytes}
	for i := range hello.Secret {
		hello.Secret[i] = a.give
	}
	if a.bytes != nil {
		hello.SegmentBytes = a.bytes(hello.SegmentBytes)
	}
	msg := make([]byte, segment.HelloBytes)
	hello.Encode(msg)
	if _, _, err := c.WriteMsgUnix(msg, unix.UnixRights(fd), nil); err != nil {
		return nil
	}
	if a.trimmed {
		unix.Ftruncate(fd, 0)
	}
	var r segment.Ready
	if n, err := c.Read(buf); err != nil || n != segment.ReadyBytes || !r.Decode(buf[:n]) {
		return nil
	}
	return &r
}

func TestImpostors(t *testing.T) {
	me := answer{uid: -1, give: givenByte}
	with := func(change func(*answer)) answer { a := me; change(&a); return a }
	field := func(f func(*segment.Header)) answer {
		return with(func(a *answer) { a.header = func(s *segment.Segment) { f(s.Header()) } })
	}
	for name, c := range map[string]struct {
		a    answer
		want string // "none": no word; "refused"; "attached"
	}{
		"the recorder":                       {me, "attached"},
		"in another user namespace":          {with(func(a *answer) { a.uid, a.userns = 4711, 1 }), "attached"},
		"another user":                       {with(func(a *answer) { a.uid = 4711 }), "none"},
		"without the secret":                 {with(func(a *answer) { a.give = 0xa5 }), "none"},
		"memory that can shrink":             {with(func(a *answer) { a.seals = -1 }), "refused"},
		"and does":                           {with(func(a *answer) { a.seals, a.trimmed = -1, true }), "refused"},
		"less memory than it says":           {with(func(a *answer) { a.bytes = func(n uint64) uint64 { return 2 * n } }), "refused"},
		"more memory than it says":           {with(func(a *answer) { a.bytes = func(n uint64) uint64 { return n / 2 } }), "refused"},
		"nearly none":                        {with(func(a *answer) { a.bytes = func(uint64) uint64 { return 8 } }), "refused"},
		"threads outside":                    {field(func(h *segment.Header) { h.ThreadsCap.Store(1 << 30) }), "refused"},
		"processes outside":                  {field(func(h *segment.Header) { h.ProcsOff.Store(^uint64(0) &^ 63) }), "refused"},
		"processes over the header":          {field(func(h *segment.Header) { h.ProcsOff.Store(0) }), "refused"},
		"no threads":                         {field(func(h *segment.Header) { h.ThreadsCap.Store(0) }), "refused"},
		"between two cache lines":            {field(func(h *segment.Header) { h.ThreadsOff.Store(h.ThreadsOff.Load() + 4) }), "refused"},
		"a ring of no power of two":          {field(func(h *segment.Header) { h.RingBytes.Store(h.RingBytes.Load() - 8) }), "refused"},
		"a signal that kills":                {field(func(h *segment.Header) { h.Signal.Store(uint32(syscall.SIGSEGV)) }), "refused"},
		"a signal of the C library's":        {field(func(h *segment.Header) { h.Signal.Store(33) }), "refused"},
		"a period of 1 ns":                   {field(func(h *segment.Header) { h.CPUPeriodNs.Store(1) }), "refused"},
		"a period of 580 years":              {field(func(h *segment.Header) { h.CPUPeriodNs.Store(1 << 63) }), "refused"},
		"thresholds of 580 years":            {field(func(h *segment.Header) { h.CallThresholdNs.Store(1 << 63); h.ReleaseDebtNs.Store(^uint64(0)) }), "attached"},
		"a table of allocations of any size": {field(func(h *segment.Header) { h.AllocSlots.Store(1 << 31); h.AllocPeriod.Store(^uint64(0)) }), "attached"},
	} {
		t.Run(name, func(t *testing.T) {
			got := "none"
			if r := impostor(t, c.a); r != nil {
				if got = "attached"; r.Refused != 0 {
					got = "refused"
				}
			}
			if got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}

// TestAnothersDirectory: the directory that the agent was loaded from has been made again by somebody. What a program
// starts then does not load the agent from there.
func TestAnothersDirectory(t *testing.T) {
	object, err := agent.Object()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "agent")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	preload := filepath.Join(dir, "agent-$PLATFORM.so")
	for _, name := range []string{preload, filepath.Join(dir, "agent-x86_64.so"), filepath.Join(dir, "agent-haswell.so")} {
		if err := os.WriteFile(name, object, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	var now, ns unix.Stat_t
	if err := errors.Join(unix.Stat(dir, &now), unix.Stat("/proc/self/ns/user", &ns)); err != nil {
		t.Fatal(err)
	}
	secret := strings.Repeat("5a", segment.SecretBytes)
	for _, c := range []struct {
		name     string
		uid      int
		userns   uint64
		dev, ino uint64
		loads    bool
	}{
		{"as it was", os.Geteuid(), ns.Ino, now.Dev, now.Ino, true},
		{"unknown", os.Geteuid(), ns.Ino, 0, 0, true},
		{"in another user namespace", 4711, 1, now.Dev, now.Ino, true},
		{"made again", os.Geteuid(), ns.Ino, now.Dev, now.Ino + 1, false},
		{"on another device", os.Geteuid(), ns.Ino, now.Dev + 1, now.Ino, false},
		{"by another user, who got the same number", 4711, ns.Ino, now.Dev, now.Ino, false},
	} {
		value := fmt.Sprintf("hbtrace-nobody-%d.%s.%s.%d.%d.%d.%d", os.Getpid(), secret, secret, c.uid, c.userns, c.dev, c.ino)
		r := testprog.Run(t, testprog.Command{
			Args: []string{"/bin/sh", "-c", "exec env"}, Env: append(os.Environ(), "LD_PRELOAD="+preload, agent.SessionVariable+"="+value),
		})
		if r.Status() != 0 || len(r.Stderr) > 0 {
			t.Errorf("%s: %v", c.name, r)
		}
		if loads := strings.Contains(string(r.Stdout), "LD_PRELOAD="+dir); loads != c.loads {
			t.Errorf("%s: what it starts loads the agent: %v, want %v", c.name, loads, c.loads)
		}
	}
}
