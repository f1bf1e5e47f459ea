package exectrace

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime/trace"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hbtrace/hbtrace/internal/validate"
	hb "github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/tracefile"
)

const pause = 5 * time.Millisecond

func wants(mu *sync.Mutex, asked chan<- struct{}) {
	close(asked)
	mu.Lock()
	mu.Unlock()
}

func receives(c <-chan int) int { return <-c }

func sendsLate(c chan<- int) {
	time.Sleep(pause)
	c <- 1
}

func leaks(c <-chan int) { <-c }

var traced = sync.OnceValue(makeTrace)

// makeTrace is an execution trace of known waits in this process. Each of them is begun before it is ended: who ends it sleeps first.
func makeTrace() []byte {
	var b bytes.Buffer
	if err := trace.Start(&b); err != nil {
		panic(err)
	}
	never := make(chan int)
	go leaks(never)
	time.Sleep(1500 * time.Millisecond) // longer than a part of a trace: each repeats what every goroutine is in
	c := make(chan int)
	go sendsLate(c)
	receives(c)
	var mu sync.Mutex
	for range 20 { // until it waited before the unlock: a goroutine that is not scheduled for so long takes it without a wait
		mu.Lock()
		asked, done := make(chan struct{}), make(chan struct{})
		go func() {
			wants(&mu, asked)
			close(done)
		}()
		<-asked
		time.Sleep(pause)
		mu.Unlock()
		<-done
	}
	trace.Stop()
	close(never)
	return b.Bytes()
}

func open(t *testing.T, path string) *tracefile.Reader {
	t.Helper()
	if err := validate.File(path); err != nil {
		t.Error(err)
	}
	r, err := tracefile.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

func in(r *tracefile.Reader, stack hb.StackID, function string) bool {
	for ; stack != 0; stack = r.Node(stack).Parent {
		for _, f := range r.Symbols(stack) {
			if strings.HasSuffix(f.Func, "."+function) {
				return true
			}
		}
	}
	return false
}

func TestImport(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out.hbt")
	stats, err := Import(bytes.NewReader(traced()), path, Options{Version: "test", Name: "trace.out", CallThreshold: time.Millisecond, LockThreshold: time.Millisecond})
	if err != nil || len(stats.Notes) != 0 {
		t.Fatal(err, stats.Notes)
	}
	r := open(t, path)
	type at struct {
		thread hb.ThreadID
		time   hb.Ns
	}
	releases, seen := map[at]hb.StackID{}, map[string]bool{}
	if err := hb.Events(r, func(e *hb.Event) error {
		name := r.Meta().Hooks[e.Hook].Name
		switch {
		case e.Kind == hb.KindRelease:
			releases[at{e.Thread, e.Time}] = e.Stack
		case e.Kind == hb.KindWait && e.Flags&hb.FlagOpen != 0 && name == "chan receive" && in(r, e.Stack, "leaks"):
			seen["open"] = true
		case e.Kind == hb.KindWait && name == "chan receive" && in(r, e.Stack, "receives"):
			seen["receive"] = seen["receive"] || e.Flags&hb.FlagCertain != 0 && in(r, releases[at{e.Releaser, e.Release}], "sendsLate")
		case e.Kind == hb.KindWait && name == "mutex lock" && in(r, e.Stack, "wants"):
			seen["lock"] = seen["lock"] || in(r, releases[at{e.Releaser, e.Release}], "makeTrace")
		case e.Kind == hb.KindCall && name == "sleep" && in(r, e.Stack, "sendsLate"):
			seen["sleep"] = seen["sleep"] || e.Releaser == 0
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"open", "receive", "lock", "sleep"} {
		if !seen[want] {
			t.Errorf("%s: not found, or not ended by the right goroutine", want)
		}
	}
	named := false
	for _, th := range r.Threads() {
		named = named || strings.HasSuffix(th.Name, "exectrace.leaks") && th.Goroutine && th.End == 0
	}
	if !named {
		t.Errorf("no goroutine is named after leaks: %v", r.Threads())
	}
}

// A trace that ends anywhere is a recording up to there, or is refused: the program may have been killed.
func TestCut(t *testing.T) {
	whole := traced()
	for i := range 16 {
		path := filepath.Join(t.TempDir(), "out.hbt")
		stats, err := Import(bytes.NewReader(whole[:len(whole)*i/16]), path, Options{Version: "test", Name: "trace.out"})
		if err == nil && len(stats.Notes) == 0 {
			t.Errorf("%d/16 of a trace: not a word", i)
		}
		if err == nil {
			open(t, path)
		}
	}
}

func TestIs(t *testing.T) {
	dir := t.TempDir()
	for name, c := range map[string]struct {
		content string
		is      bool
	}{"trace": {string(traced()), true}, "text": {"go 1.26 is a language", false}, "empty": {"", false}} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(c.content), 0o644); err != nil {
			t.Fatal(err)
		}
		if Is(path) != c.is {
			t.Errorf("%s: %v", name, !c.is)
		}
	}
}
