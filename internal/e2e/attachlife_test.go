package e2e

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hbtrace/hbtrace/internal/testprog"
)

// TestAttachFamily: a program that forks, spawns, loads and unloads while it is attached to, and when it is left, is right; and the
// children that it forked meanwhile are left as well.
func TestAttachFamily(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	library := filepath.Join(dir, "nap.so")
	source := filepath.Join(dir, "nap.c")
	if err := os.WriteFile(source, []byte("#include <unistd.h>\nint nap(void) { return usleep(200); }\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("gcc", "-shared", "-fPIC", "-o", library, source).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	p := testprog.Start(t, testprog.Command{Args: []string{testprog.BuildFile(t, "../../attach/testdata/family.c"), library}})
	eventually(t, "the program's threads", func() bool { return len(tasks(p.PID())) >= 4 })
	hbtrace := testprog.Hbtrace(t)
	for range 2 {
		r := testprog.Start(t, testprog.Command{Args: []string{hbtrace, "attach", "-q", "-o", filepath.Join(dir, "x"), strconv.Itoa(p.PID())}})
		eventually(t, "the attach", func() bool {
			again := testprog.Run(t, testprog.Command{Args: []string{testprog.Hbtrace(t), "detach", strconv.Itoa(p.PID())}})
			skipUntraceable(t, again)
			maps, _ := os.ReadFile(fmt.Sprintf("/proc/%d/maps", p.PID())) // the recorder's lock is there before the agent is
			return bytes.Contains(again.Stderr, []byte("is being recorded by hbtrace already")) && bytes.Contains(maps, []byte("memfd:hbtrace"))
		})
		if err := p.Signal(syscall.SIGUSR1); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the child that stays", func() bool { return stayed(p.PID()) != 0 })
		if err := r.Signal(syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
		if end := r.Wait(t); end.Code != 0 {
			t.Fatalf("attach: %s", end)
		}
	}
	for _, pid := range []int{p.PID(), stayed(p.PID())} {
		eventually(t, "the last of the agent to be taken back", func() bool {
			r := testprog.Run(t, testprog.Command{Args: []string{testprog.Hbtrace(t), "detach", strconv.Itoa(pid)}})
			if r.Code != 0 && !bytes.Contains(r.Stderr, []byte("hbtrace detach")) {
				t.Fatalf("detach: %s", r)
			}
			return r.Code == 0
		})
		maps, _ := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
		code := 0
		for line := range strings.Lines(string(maps)) {
			if strings.Contains(line, "memfd:hbtrace") {
				t.Errorf("process %d has still mapped: %s", pid, line)
			}
			if anonymous.MatchString(strings.TrimSpace(line)) && strings.Contains(line, " r-xp ") {
				code++
			}
		}
		if code != 1 {
			t.Errorf("process %d has %d pieces of executable memory of ours, not one", pid, code)
		}
	}
	right(t, p)
}

// stayed is the child of a family that has lived longest and has no other program: 0 none.
func stayed(parent int) int {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", parent, parent))
	for _, f := range strings.Fields(string(b)) {
		pid, _ := strconv.Atoi(f)
		return pid
	}
	return 0
}

// TestAttachRedis: a server under load answers all that its clients ask, while it is attached to several times.
func TestAttachRedis(t *testing.T) {
	t.Parallel()
	server, client := testprog.LookPath(t, "redis-server", "redis-server"), testprog.LookPath(t, "redis-benchmark", "redis-tools")
	socket := filepath.Join(t.TempDir(), "r.sock")
	p := testprog.Start(t, testprog.Command{Args: []string{server, "--port", "0", "--unixsocket", socket, "--save", "", "--appendonly", "no"}})
	eventually(t, "the server's answer", func() bool { // then it has set up its signals and threads
		c, err := net.Dial("unix", socket)
		if err != nil {
			return false
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(10 * time.Second))
		fmt.Fprintf(c, "PING\r\n")
		var b [5]byte
		_, err = io.ReadFull(c, b[:])
		return err == nil && string(b[:]) == "+PONG"
	})
	load := testprog.Start(t, testprog.Command{Args: []string{client, "-s", socket, "-n", "20000", "-c", "20", "-t", "set,get,lpush", "-q"}})
	before := stateOf(t, p.PID())
	for range 2 {
		attachTo(t, p.PID(), "-d", "200ms")
	}
	r := load.Wait(t)
	if r.Code != 0 || bytes.Contains(r.Stdout, []byte("rror")) || len(r.Stderr) > 0 {
		t.Errorf("clients: %s", r)
	}
	eventually(t, "the clients' end", func() bool { return len(stateOf(t, p.PID()).descriptors) <= len(before.descriptors) })
	after := stateOf(t, p.PID())
	before.descriptors, after.descriptors = nil, nil // clients came and went
	before.maps, after.maps = nil, nil               // a thread of its may sleep in the agent for as long as it has nothing to do
	compareStates(t, before, after)
	if err := p.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if r := p.Wait(t); r.Code != 0 {
		t.Errorf("server: %s", r)
	}
}
