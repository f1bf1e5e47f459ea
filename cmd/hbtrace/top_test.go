// top, asked of a real recording while it runs.

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/hbtrace/hbtrace/internal/testprog"
	"github.com/hbtrace/hbtrace/visualize/top"
)

// TestTop: who waits for what, since when, who has it, what that one does, and who burns; by the pid of the program, of the
// recorder, and by file; in text that fits.
func TestTop(t *testing.T) {
	dir := t.TempDir()
	recorder := exec.Command(hbtrace(t), "run", "-q", "-o", filepath.Join(dir, "r"), testprog.BuildFile(t, "testdata/top.c", "-fno-optimize-sibling-calls"))
	stdin, err := recorder.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	recorder.Stderr = os.Stderr
	if err := recorder.Start(); err != nil {
		t.Fatal(err)
	}
	ended := false
	end := func() {
		if !ended {
			ended = true
			stdin.Close()
			if err := recorder.Wait(); err != nil {
				t.Errorf("run: %v", err)
			}
		}
	}
	defer end()

	look := func(which string) (v top.View, err error) {
		cmd := exec.Command(hbtrace(t), "top", "--json", which)
		out, err := cmd.Output()
		if err == nil {
			err = json.Unmarshal(out, &v)
		}
		return v, err
	}
	row := func(v *top.View, name string) *top.Row {
		if i := slices.IndexFunc(v.Rows, func(r top.Row) bool { return r.Thread == name }); i >= 0 {
			return &v.Rows[i]
		}
		return &top.Row{}
	}
	recording := filepath.Join(dir, "r.hbt")
	var v top.View
	evil := "evil \ufffd[2J\ufffd"
	until(t, "the threads are where they stay", func() bool {
		v, err = look(recording)
		if err != nil {
			return false
		}
		h, w := row(&v, "holder"), row(&v, "waiter")
		return w.State == "lock" && h.State == "io" && len(v.Rows) == 4 &&
			v.Rows[0].Function == "burn" && v.Rows[0].CPU != nil && w.CPU != nil
	})
	h, w, b := row(&v, "holder"), row(&v, "waiter"), v.Rows[0]
	if w.Call != "pthread_mutex_lock" || w.Object != "mutex till" || w.Function != "pay" || !slices.Contains(w.Stack, "pay") {
		t.Errorf("waiter: %+v", w)
	}
	// Whether an entry is sampled depends on the tick that it falls into; what is known of one that was not is its caller.
	for _, r := range []*top.Row{w, h} {
		whole := slices.Contains(r.Stack, r.Thread)
		if r.StackKind != "entry" && r.StackKind != "caller" || whole != (r.StackKind == "entry") {
			t.Errorf("%s: stack by %s: %q", r.Thread, r.StackKind, r.Stack)
		}
	}
	if w.Owner == nil || w.Owner.Thread != "holder" || w.Owner.TID != h.TID {
		t.Errorf("the lock's owner: %+v", w.Owner)
	}
	if h.Call != "read" || !strings.HasPrefix(h.Object, "fd 0 pipe:[") || h.Function != "count_money" {
		t.Errorf("holder: %+v", h)
	}
	if b.State != "running" || b.CPU == nil || *b.CPU <= 0 || w.CPU == nil || *w.CPU != 0 {
		t.Errorf("burner %+v, the waiter's CPU %v", b, w.CPU)
	}
	if w.ForNs <= 0 || v.ElapsedNs <= w.ForNs {
		t.Errorf("waits for %d ns in a recording of %d", w.ForNs, v.ElapsedNs)
	}
	for _, which := range []string{fmt.Sprint(recorder.Process.Pid), fmt.Sprint(h.PID)} {
		if again, err := look(which); err != nil || again.Recorder != recorder.Process.Pid || !strings.HasSuffix(again.Output, "/r.hbt") {
			t.Errorf("top %s: %+v, %v", which, again, err)
		}
	}
	later, err := look(recording)
	if err != nil || row(&later, "waiter").ForNs <= w.ForNs {
		t.Errorf("it does not wait longer as time goes by: %v", err)
	}

	text, errs, status := run(t, dir, nil, "top", "-n", "2", "-d", "10ms", "--stacks", recording)
	if status != 0 || errs != "" {
		t.Errorf("status %d, %s", status, errs)
	}
	for _, want := range []string{"waiter", "pthread_mutex_lock: mutex till", "◂ holder: read in count_money", "    pay", evil} {
		if strings.Count(text, want) < 2 {
			t.Errorf("no %q, twice, in\n%s", want, text)
		}
	}
	for _, l := range strings.Split(text, "\n") {
		if utf8.RuneCountInString(l) > 80 || strings.Contains(l, "\x1b") || !utf8.ValidString(l) {
			t.Errorf("line %q", l)
		}
	}
	if _, errs, status := run(t, dir, nil, "top", "4194305"); status != ownFailure || !strings.Contains(errs, "4194305 is not being recorded") && !strings.Contains(errs, "nothing is being recorded") {
		t.Errorf("a process that nobody records: status %d, %s", status, errs)
	}
	end()
	if _, errs, status := run(t, dir, nil, "top", recording); status != ownFailure || !strings.Contains(errs, "being recorded") {
		t.Errorf("after the end: status %d, %s", status, errs)
	}
}
