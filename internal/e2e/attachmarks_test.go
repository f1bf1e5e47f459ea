package e2e

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/hbtrace/hbtrace/internal/testprog"
	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/visualize/perfetto"
)

// TestAttachMarks: a recording says when hbtrace came and left, and has the threads that slept all the time, in the call that they slept in.
func TestAttachMarks(t *testing.T) {
	t.Parallel()
	p := testprog.Start(t, testprog.Command{Args: []string{testprog.BuildFile(t, "../../attach/testdata/sleepers.c")}})
	asleep := map[string]string{"pauser": "34 ", "reader": "0 ", "waiter": "202 "} // by their system calls
	eventually(t, "the sleepers' calls", func() bool {
		n := 0
		for _, tid := range tasks(p.PID()) {
			dir := "/proc/" + strconv.Itoa(p.PID()) + "/task/" + tid
			name, _ := os.ReadFile(dir + "/comm")
			call, _ := os.ReadFile(dir + "/syscall")
			if want := asleep[strings.TrimSpace(string(name))]; want != "" && bytes.HasPrefix(call, []byte(want)) {
				n++
			}
		}
		return n == len(asleep)
	})
	prefix := filepath.Join(t.TempDir(), "x")
	_, src := attachAs(t, prefix, p.PID(), "-d", "300ms")
	marks := src.Meta().Attached
	if len(marks) != 1 || marks[0].PID != p.PID() || marks[0].Proc == 0 {
		t.Fatalf("attached: %+v", marks)
	}
	a := marks[0]
	if a.At <= src.Meta().StartNs || a.Left <= a.At || a.Left > src.Meta().EndNs {
		t.Errorf("attached at %d and left at %d, in a recording from %d to %d", a.At, a.Left, src.Meta().StartNs, src.Meta().EndNs)
	}
	slept := map[trace.ThreadID]string{}
	for _, b := range a.Threads {
		if _, one := asleep[b.Name]; one && (!b.Slept || b.Thread == 0 || b.ForNs <= 0) {
			t.Errorf("%s slept all the time, and the recording has %+v", b.Name, b)
		}
		if b.Slept {
			slept[b.Thread] = b.Name
		} else if b.Name == "worker" && b.Thread == 0 {
			t.Errorf("the worker is not recorded: %+v", b)
		}
	}
	calls := map[string]string{}
	if err := trace.Events(src, func(e *trace.Event) error {
		if name := slept[e.Thread]; name != "" && e.Hook != 0 {
			calls[name] = src.Meta().Hooks[e.Hook].Name
			if e.Start != a.At || e.Time != src.Meta().EndNs || e.Flags != trace.FlagOpen|trace.FlagNoStack {
				t.Errorf("%s: %+v", name, e)
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if calls["pauser"] != "pause" || calls["reader"] != "read" || calls["waiter"] != "futex_wait" {
		t.Errorf("the sleepers' calls: %v", calls)
	}
	hbtrace := testprog.Hbtrace(t)
	text := testprog.Run(t, testprog.Command{Args: []string{hbtrace, "report", "--threads", prefix + ".hbt"}})
	for _, want := range []string{"attached  process " + strconv.Itoa(p.PID()) + " from +", "asleep in one call all the time", "slept on"} {
		if !bytes.Contains(text.Stdout, []byte(want)) {
			t.Errorf("the report lacks %q: %s", want, text)
		}
	}
	var j struct {
		Attached []struct {
			PID  int   `json:"pid"`
			At   int64 `json:"at_ns"`
			Left int64 `json:"left_ns"`
		}
	}
	out := testprog.Run(t, testprog.Command{Args: []string{hbtrace, "report", "--json", prefix + ".hbt"}})
	if err := json.Unmarshal(out.Stdout, &j); err != nil || len(j.Attached) != 1 || j.Attached[0].At != int64(a.At-src.Meta().StartNs) || j.Attached[0].Left <= j.Attached[0].At {
		t.Errorf("as JSON: %+v (%v)", j, err)
	}
	var packets bytes.Buffer
	if err := perfetto.Write(&packets, src, perfetto.Options{Raw: true}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"hbtrace attached", "hbtrace detached"} {
		if !bytes.Contains(packets.Bytes(), []byte(want)) {
			t.Errorf("the Perfetto trace lacks %q", want)
		}
	}
}
