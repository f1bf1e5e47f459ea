// hooks_test.go keeps zhooks.go fresh and the table sound.
package hooks

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/hbtrace/hbtrace/trace"
)

func TestTableIsFresh(t *testing.T) {
	src, err := os.ReadFile("table.h")
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprintf("%x", sha256.Sum256(src)); got != tableSHA256 {
		t.Error("table.h changed since zhooks.go was made: run go generate ./hooks")
	}
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("needs the go command to run the generator")
	}
	out := filepath.Join(t.TempDir(), "zhooks.go")
	if msg, err := exec.Command("go", "run", "./gen", "-o", out).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, msg)
	}
	want, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile("zhooks.go"); err != nil || !bytes.Equal(got, want) {
		t.Errorf("zhooks.go is not what hooks/gen makes (%v): run go generate ./hooks", err)
	}
}

func TestTable(t *testing.T) {
	type name struct {
		name   string
		golang bool // goroutines sleep and select too
	}
	names := map[name]trace.HookID{}
	last := trace.HookID(0)
	for _, h := range Table {
		if h.ID <= last {
			t.Errorf("%s: id %d after %d: ids must ascend, each once", h.Name, h.ID, last)
		}
		last = h.ID
		if other, dup := names[name{h.Name, h.Go()}]; dup {
			t.Errorf("%s has ids %d and %d", h.Name, other, h.ID)
		}
		names[name{h.Name, h.Go()}] = h.ID
		if h.Class == ClassNone {
			t.Errorf("%s has no class", h.Name)
		}
		if h.Parks && !h.Class.Waits() && h.Class != ClassCall {
			t.Errorf("%s parks, yet its class %s does not sleep", h.Name, h.Class)
		}
		if got, ok := ByID(h.ID); !ok || got != h {
			t.Errorf("ByID(%d) = %+v, %v", h.ID, got, ok)
		}
		if got := Map()[h.ID]; got.Name != h.Name || string(got.Class) != h.Class.String() || string(got.Object) != h.Object.String() {
			t.Errorf("Map()[%d] = %+v", h.ID, got)
		}
	}
	if len(Map()) != len(Table) {
		t.Errorf("map of %d for a table of %d", len(Map()), len(Table))
	}
	for _, id := range []trace.HookID{0, 15, last + 1, 65535} {
		if got, ok := ByID(id); ok {
			t.Errorf("ByID(%d) = %+v: there is none", id, got)
		}
	}
}

// TestWire pins numbers that recordings carry.
func TestWire(t *testing.T) {
	for _, c := range []struct {
		id, want trace.HookID
		name     string
		class    Class
	}{
		{Malloc, 1, "malloc", ClassAlloc},
		{PthreadMutexLock, 20, "pthread_mutex_lock", ClassLock},
		{PthreadCondWait, 30, "pthread_cond_wait", ClassCond},
		{SemPost, 38, "sem_post", ClassWake},
		{PthreadJoin, 40, "pthread_join", ClassSync},
		{FutexWait, 43, "futex_wait", ClassSync},
		{EpollWait, 104, "epoll_wait", ClassCall},
		{Nanosleep, 120, "nanosleep", ClassCall},
	} {
		if h, ok := ByID(c.id); c.id != c.want || !ok || h.Name != c.name || h.Class != c.class {
			t.Errorf("hook %d: %+v, want id %d, %s, %s", c.id, h, c.want, c.name, c.class)
		}
	}
}

// TestReadersClasses: the classes that readers of recordings tell apart are the table's.
func TestReadersClasses(t *testing.T) {
	for got, want := range map[trace.HookClass]Class{
		trace.HookLock: ClassLock, trace.HookCond: ClassCond, trace.HookSem: ClassSem, trace.HookWake: ClassWake, trace.HookCall: ClassCall,
	} {
		if string(got) != want.String() {
			t.Errorf("class %s is %s in recordings", want, got)
		}
	}
	if string(trace.HookFD) != ObjectFD.String() {
		t.Errorf("object %s is %s in recordings", ObjectFD, trace.HookFD)
	}
}
