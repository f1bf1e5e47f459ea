package live

import (
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/hbtrace/hbtrace/trace"
)

// TestSession: a recorder is found, told apart from others, asked, and gone when it has ended.
func TestSession(t *testing.T) {
	var asked atomic.Int64
	big := make([]trace.Node, 200_000) // more than a socket holds
	s, err := Listen(func() *Snapshot {
		asked.Add(1)
		return &Snapshot{
			Version: Version, Recorder: os.Getpid(), Output: "/nowhere/x.hbt", Command: []string{"x"}, Nodes: big,
			Processes: []trace.Process{{ID: 1, PID: os.Getpid()}},
			Threads:   []Thread{{Thread: trace.Thread{ID: 1, Proc: 1, TID: os.Getpid(), Name: "\xff\n\"<"}}},
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, which := range []string{fmt.Sprint(os.Getpid()), "/nowhere/x.hbt"} {
		session, snap, err := Find(which)
		if err != nil {
			t.Fatalf("%s: %v", which, err)
		}
		if session.PID != os.Getpid() || snap.Output != "/nowhere/x.hbt" || len(snap.Nodes) != len(big) || snap.Threads[0].Name != "\ufffd\n\"<" {
			t.Errorf("%s: %+v, thread %+v", which, session, snap.Threads)
		}
		if snap.Threads[0].CPUNs <= 0 || snap.Threads[0].Kernel == "" {
			t.Errorf("the kernel's word on this thread: %+v", snap.Threads[0])
		}
	}
	if _, _, err := Find("/nowhere/y.hbt"); err == nil || !strings.Contains(err.Error(), "not being recorded") {
		t.Errorf("another file: %v", err)
	}
	all, err := Sessions()
	if err != nil {
		t.Fatal(err)
	}
	var ours Session
	for _, x := range all {
		if x.PID == os.Getpid() {
			ours = x
		}
	}
	// One that asks and does not read is hung up on when the recording ends.
	before := asked.Load()
	c, err := net.Dial("unix", ours.name)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for asked.Load() == before { // until it is being answered; go test's own limit ends this
		runtime.Gosched()
	}
	s.Close()
	if _, err := ours.Snapshot(); !errors.Is(err, ErrEnded) {
		t.Errorf("after the end: %v", err)
	}
}
