package flight

import (
	"bufio"
	"fmt"
	mathrand "math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hbtrace/hbtrace/internal/validate"
	"github.com/hbtrace/hbtrace/trace"
)

// recordForever is the recorder that the test kills. It says how many events had been flushed, each time.
func recordForever() {
	seed, _ := strconv.ParseUint(os.Args[2], 10, 64)
	p := newProducer(nil, Keep{Bytes: testWindow}, seed)
	fmt.Println(p.w.Dir)
	out := bufio.NewWriter(os.Stdout)
	for n := 0; ; n++ {
		p.step()
		if n%500 == 499 {
			p.w.Flush()
			fmt.Fprintln(out, p.w.number)
			out.Flush()
		}
		if n%1500 == 1499 {
			p.keyframe()
		}
		if n%7000 == 6999 { // more often than the recorder does
			if err := p.w.rewrite(); err != nil {
				panic(err)
			}
		}
	}
}

// TestKilledRecorder: a recorder that is killed at any moment leaves what it had flushed, in a recording that keeps every
// invariant, with the events of the recorder and no others. HBTRACE_STRESS=1 kills 1,000.
func TestKilledRecorder(t *testing.T) {
	kills := 6
	if os.Getenv("HBTRACE_STRESS") != "" {
		kills = 1000
	}
	for i := range kills {
		killed(t, uint64(i))
		if t.Failed() {
			return
		}
	}
}

func killed(t *testing.T, seed uint64) {
	t.Helper()
	root := t.TempDir()
	t.Setenv("XDG_RUNTIME_DIR", root)
	cmd := exec.Command("/proc/self/exe", "record-forever", fmt.Sprint(seed))
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(stdout)
	dir, err := in.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	dir = strings.TrimSpace(dir)
	// Some flushes, and then a moment that nothing foresees.
	flushed := uint64(0)
	read := func() bool {
		line, err := in.ReadString('\n')
		if n, e := strconv.ParseUint(strings.TrimSpace(line), 10, 64); err == nil && e == nil {
			flushed = n
		}
		return err == nil
	}
	for range 1 + mathrand.IntN(40) {
		read()
	}
	time.Sleep(time.Duration(mathrand.IntN(2000)) * time.Microsecond)
	cmd.Process.Kill()
	for read() { // what it said before it died
	}
	cmd.Wait()
	if Alive(dir) {
		t.Fatal("the session looks alive")
	}
	c, err := Read(dir)
	if err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
	path := filepath.Join(root, "recovered.hbt")
	d, err := c.Dump(path, Options{NoNames: true, Why: trace.Dump{Why: trace.DumpedRecovered}})
	if err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
	if err := validate.File(path); err != nil {
		t.Errorf("seed %d: %v", seed, err)
	}
	r := openFile(t, path)
	last := d.Overwritten + d.Events - uint64(d.Open)
	if last < flushed {
		t.Errorf("seed %d: events up to %d are there, %d had been flushed", seed, last, flushed)
	}
	// The same events as a recorder that is not killed makes.
	twinRoot := filepath.Join(root, "twin")
	if err := os.Mkdir(twinRoot, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("XDG_RUNTIME_DIR", twinRoot)
	p := newProducer(nil, Keep{Bytes: testWindow}, seed)
	defer p.w.Close()
	var all []told
	p.sent = func(e *trace.Event, frames []trace.Addr) {
		all = append(all, tell(e, frames, func(id trace.ThreadID) int { return 1000 + int(id) }))
	}
	for n := 0; uint64(len(all)) < last; n++ {
		p.step()
		if n%1500 == 1499 {
			p.keyframe()
		}
	}
	threads, i := r.Threads(), d.Overwritten
	if err := trace.Events(r, func(e *trace.Event) error {
		if e.Flags&trace.FlagOpen != 0 {
			return nil
		}
		got, want := tell(e, stackOf(r, e.Stack), func(id trace.ThreadID) int { return threads[id-1].TID }), all[i]
		got.e.Same, want.e.Same = 0, 0
		if got.String() != want.String() {
			return fmt.Errorf("event %d: %v, want %v", i, got, want)
		}
		i++
		return nil
	}); err != nil {
		t.Errorf("seed %d: %v", seed, err)
	}
	if err := Remove(dir); err != nil {
		t.Error(err)
	}
}
