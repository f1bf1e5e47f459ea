package weigh

import (
	"strings"
	"testing"

	"github.com/hbtrace/hbtrace/analysis/frames"
	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/trace/tracetest"
)

func TestLocking(t *testing.T) {
	futex := trace.HookInfo{Name: "futex_wait", Class: "SYNC"}
	for _, tt := range []struct {
		hook  trace.HookInfo
		stack []string
		want  bool
	}{
		{trace.HookInfo{Name: "pthread_mutex_lock", Class: "LOCK"}, nil, true},
		{trace.HookInfo{Name: "pthread_rwlock_timedwrlock", Class: "LOCK"}, nil, true},
		{trace.HookInfo{Name: "pthread_cond_wait", Class: "COND"}, nil, false},
		{trace.HookInfo{Name: "pthread_join", Class: "SYNC"}, nil, false},
		{futex, nil, false},
		{futex, []string{"main", "std::sys::sync::mutex::futex::Mutex::lock_contended", "std::sys::pal::unix::futex::futex_wait"}, true},
		{futex, []string{"main", "std::sync::mutex::Mutex<T>::lock", "std::sys::sync::condvar::futex::Condvar::wait_optional_timeout", "std::sys::pal::unix::futex::futex_wait"}, false},
		{futex, []string{"main", "std::thread::park", "std::sys::sync::thread_parking::futex::Parker::park"}, false},
		{futex, []string{"main", "spinlock_slow"}, true},
		{futex, []string{"main", "next_clock"}, false},
		{futex, []string{"main", "unblock"}, false},
		{futex, []string{"lock_all", "a", "b", "c", "d", "e", "f"}, false},
		{futex, []string{"main", "void wait<std::mutex>(std::mutex&)"}, true},
		{futex, []string{"main", "wait_for(std::mutex&)"}, false},
		{futex, []string{"main", strings.Repeat("<(", 1<<20)}, false}, // decided in bounded time
	} {
		b := tracetest.New()
		id := b.Stack(tt.stack...)
		meta := &trace.Meta{Hooks: map[trace.HookID]trace.HookInfo{1: tt.hook}}
		l := NewLocking(meta, frames.New(b.Source()))
		for range 2 { // found, and remembered
			if got := l.Wait(1, id); got != tt.want {
				t.Errorf("%s at %q: a lock: %v", tt.hook.Name, tt.stack, got)
			}
		}
	}
}

// TestRustContends: a recording of a Rust program has futexes where one of a C program has mutexes; its contention
// counts all the same, its idling workers' does not.
func TestRustContends(t *testing.T) {
	b, t1, t2 := build()
	const futex = 43
	b.Meta().Hooks[futex] = trace.HookInfo{Name: "futex_wait", Class: "SYNC", Object: "ADDR"}
	lock := []string{"main", "work::count", "std::sys::sync::mutex::futex::Mutex::lock_contended", "std::sys::pal::unix::futex::futex_wait"}
	b.Wait(t1, 10, 30, futex, 0x70, t2, lock...)
	b.Wait(t1, 40, 45, futex, 0x70, t2, lock...)
	b.Wait(t2, 10, 110, futex, 0x90, t1, "main", "std::sys::sync::condvar::futex::Condvar::wait", "std::sys::pal::unix::futex::futex_wait")
	b.Wait(t2, 120, 130, futex, 0xa0, t1, "main", "std::thread::park", "std::sys::pal::unix::futex::futex_wait")
	tab, err := Collect(b.Source(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if n, ns := tab.Total[Contentions], tab.Total[Delay]; n != 2 || ns != 25 {
		t.Errorf("%d contentions of %d ns, want 2 of 25", n, ns)
	}
	if tab.Total[Blocked] != 135 {
		t.Errorf("%d ns blocked, want all 135", tab.Total[Blocked])
	}
	for _, r := range tab.Rows {
		var leaf string
		for _, f := range tab.Stack(b.Source(), nil, &r.Key) {
			leaf += ";" + f.Name
		}
		if got := r.Values[Contentions] > 0; got != strings.Contains(leaf, "lock_contended") {
			t.Errorf("%s: contends: %v", leaf, got)
		}
	}
}
