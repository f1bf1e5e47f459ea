// Whoever listens under a name that begins as a recorder's does: nothing that it says, or does not say, harms who looks.
package live

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hbtrace/hbtrace/trace"
)

// as listens like a recorder whose name says pid, and answers everybody with body; nil: never.
func as(t testing.TB, pid int, body []byte) Session {
	t.Helper()
	name := fmt.Sprintf("@%s%d-%d", Prefix, pid, time.Now().UnixNano())
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: name, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			c, err := l.AcceptUnix()
			if err != nil {
				return
			}
			if body != nil {
				c.Write(body)
				c.Close()
			} // else it is open until this process ends
		}
	}()
	t.Cleanup(func() { l.Close() })
	return Session{name, pid}
}

func snapshot(t testing.TB, s Snapshot) []byte {
	t.Helper()
	s.Version, s.Recorder = Version, os.Getpid()
	b, err := json.Marshal(&s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// foreignEnv makes this test's binary a recorder of another user.
const foreignEnv = "HBTRACE_TEST_FOREIGN_RECORDER"

func TestMain(m *testing.M) {
	if body := os.Getenv(foreignEnv); body != "" {
		name := fmt.Sprintf("@%s%d-x", Prefix, os.Getpid())
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: name, Net: "unix"})
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		go func() {
			for {
				c, err := l.AcceptUnix()
				if err != nil {
					return
				}
				c.Write([]byte(body))
				c.Close()
			}
		}()
		fmt.Println("listening")
		io.Copy(io.Discard, os.Stdin) // until the test ends it
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestEmptyCommands(t *testing.T) {
	for _, command := range [][]string{nil, {"/x/\x1b[2Jevil\x1b]0;title\a"}} {
		as(t, os.Getpid(), snapshot(t, Snapshot{Command: command}))
	}
	_, _, err := Find("")
	if err == nil || !strings.Contains(err.Error(), "several recordings run") || !strings.Contains(err.Error(), "(?)") || strings.ContainsAny(err.Error(), "\x1b\a") {
		t.Errorf("%q", err)
	}
}

func TestMuteRecorder(t *testing.T) {
	defer func(d time.Duration) { muteLimit = d }(muteLimit)
	mute := as(t, os.Getpid(), nil)
	as(t, os.Getpid(), snapshot(t, Snapshot{Output: "/nowhere/found.hbt"}))
	muteLimit = time.Second
	for {
		_, snap, err := Find("/nowhere/found.hbt")
		if err == nil {
			if snap.Output != "/nowhere/found.hbt" {
				t.Errorf("%+v", snap)
			}
			break
		}
		if muteLimit *= 2; muteLimit > time.Minute { // the machine may be busy
			t.Fatal(err)
		}
	}
	muteLimit = 10 * time.Millisecond
	if _, err := mute.Snapshot(); err == nil || !strings.Contains(err.Error(), "does not answer") {
		t.Error(err)
	}
}

func TestAnswersThatMakeNoSense(t *testing.T) {
	for name, c := range map[string]struct {
		pid  int
		body []byte
		want string
	}{
		"another process's name": {1, snapshot(t, Snapshot{}), "no recorder of hbtrace does that"},
		"no JSON":                {os.Getpid(), []byte("\x1b[2J"), "makes no sense"},
		"another version":        {os.Getpid(), []byte("{}"), "another version"},
		"a circle of callers":    {os.Getpid(), snapshot(t, Snapshot{Nodes: []trace.Node{{Parent: 2}, {Parent: 1}}}), "makes no sense"},
		"a stack that is not":    {os.Getpid(), snapshot(t, Snapshot{Threads: []Thread{{Stack: 1}}}), "makes no sense"},
	} {
		if _, err := as(t, c.pid, c.body).Snapshot(); err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\x1b") {
			t.Errorf("%s: %q", name, err)
		}
	}
}

// Root is not shown what another user's process says, unless it asks for it.
func TestForeignRecorder(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to have another user's process")
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), foreignEnv+"="+string(snapshot(t, Snapshot{Output: "/nowhere/foreign.hbt"})))
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Skipf("cannot start a process of another user: %v", err)
	}
	defer cmd.Wait()
	defer in.Close()
	if b := make([]byte, 9); true {
		if _, err := io.ReadFull(out, b); err != nil || string(b) != "listening" {
			t.Fatalf("%q, %v", b, err)
		}
	}
	if _, snap, err := Find(""); err == nil && snap.Output == "/nowhere/foreign.hbt" {
		t.Error("taken for the only recording")
	}
	if _, snap, err := Find("/nowhere/foreign.hbt"); err != nil || snap.Output != "/nowhere/foreign.hbt" {
		t.Errorf("asked for: %v", err)
	}
}
