package trigger

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/hbtrace/hbtrace/hooks"
	"github.com/hbtrace/hbtrace/trace"
)

func mustParse(t testing.TB, text string) *Trigger {
	t.Helper()
	tr, err := Parse(text)
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return tr
}

// interval is an event and what an expression sees of it.
func interval(hook trace.HookID, took time.Duration, thread string) (*trace.Event, *Interval) {
	h, _ := hooks.ByID(hook)
	e := &trace.Event{Kind: trace.KindCall, Hook: hook, Start: 1000, Time: 1000 + trace.Ns(took)}
	ns := float64(took)
	env := &Interval{Took: ns, Ms: ns / 1e6, Call: h.Name, Thread: thread}
	if h.Class.Waits() {
		e.Kind, env.Wait = trace.KindWait, ns
	}
	switch h.Class {
	case hooks.ClassLock:
		env.Lock = ns
	case hooks.ClassCond:
		env.Cond = ns
	case hooks.ClassSem:
		env.Sem = ns
	}
	return e, env
}

func fires(t *Trigger, hook trace.HookID, took time.Duration, thread string) bool {
	e := NewEngine([]*Trigger{t})
	ev, env := interval(hook, took, thread)
	return e.Wants(ev) && e.Interval(ev, env, time.Now()) != nil
}

func TestIntervals(t *testing.T) {
	var sync trace.HookID
	for _, h := range hooks.Table {
		if h.Name == "fsync" {
			sync = h.ID
		}
	}
	for _, c := range []struct {
		text   string
		hook   trace.HookID
		took   time.Duration
		thread string
		want   bool
	}{
		{"lock > 50ms", hooks.PthreadMutexLock, 51 * time.Millisecond, "a", true},
		{"lock > 50ms", hooks.PthreadMutexLock, 50 * time.Millisecond, "a", false},
		{"lock >= 50ms", hooks.PthreadMutexLock, 50 * time.Millisecond, "a", true},
		{"lock > 50ms", hooks.EpollWait, time.Second, "a", false},
		{"lock > 50ms || sem > 1s", hooks.PthreadMutexLock, 60 * time.Millisecond, "a", true},
		{`call == "fsync" && ms > 200`, sync, 201 * time.Millisecond, "a", true},
		{`call == "fsync" && ms > 200`, sync, 199 * time.Millisecond, "a", false},
		{`call == "fsync" && ms > 200`, hooks.EpollWait, time.Second, "a", false},
		{`thread =~ "waiter.*" && wait > 1ms`, hooks.PthreadMutexLock, time.Second, "waiter-3", true},
		{`thread =~ "waiter.*" && wait > 1ms`, hooks.PthreadMutexLock, time.Second, "chef", false},
		{`thread matches "^w" and took > 1.5s`, hooks.EpollWait, 1600 * time.Millisecond, "w", true},
		{"slow-lock", hooks.PthreadMutexLock, 51 * time.Millisecond, "a", true},
		{"slow-lock=1s", hooks.PthreadMutexLock, 51 * time.Millisecond, "a", false},
		{"slow-call", sync, 300 * time.Millisecond, "a", true},
		{"slow-call", hooks.EpollWait, time.Hour, "a", false},
		{"slow-call", hooks.PthreadMutexLock, time.Hour, "a", false},
		{`thread == "50ms" && lock > 1us`, hooks.PthreadMutexLock, time.Second, "50ms", true},
	} {
		if got := fires(mustParse(t, c.text), c.hook, c.took, c.thread); got != c.want {
			t.Errorf("%q of hook %d, %v, thread %s: %v, want %v", c.text, c.hook, c.took, c.thread, got, c.want)
		}
	}
}

// TestFilter: the filter never keeps an expression from an interval that it holds of.
func TestFilter(t *testing.T) {
	parts := []string{
		"lock > 1ms", "cond >= 2ms", "sem > 1ms", "wait > 3ms", "took > 2ms", "ms > 1", `call == "epoll_wait"`, `thread == "a"`,
		"not (lock > 1ms)", "took < 4ms", "2ms < took", "lock == 0",
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		text := parts[r.IntN(len(parts))]
		for range r.IntN(3) {
			text = "(" + text + ") " + []string{"&&", "||"}[r.IntN(2)] + " (" + parts[r.IntN(len(parts))] + ")"
		}
		tr := mustParse(t, text)
		hook := hooks.Table[r.IntN(len(hooks.Table))].ID
		ev, env := interval(hook, time.Duration(r.IntN(6e6)), []string{"a", "b"}[r.IntN(2)])
		if tr.holds(*env) && !tr.filter.wants(ev) {
			t.Fatalf("%q holds of %+v, and its filter keeps that from it", text, *env)
		}
	}
}

func TestErrors(t *testing.T) {
	for _, c := range []struct{ text, why, mark string }{
		{"lokc > 50ms", "there is no lokc", "lokc"},
		{"wait > 20ms && lokc > 50ms", "there is no lokc", "lokc"},
		{"lock > 50ms && runnable > 1s", "use two triggers", "runnable"},
		{"lock > ", "unexpected", ""},
		{"lock + 1", "", ""},
		{"slow-lok=1s", "no such preset", "slow-lok"},
		{"slow-lock=x", "use a time", "x"},
		{"stall > soon", "use a time", "soon"},
		{"1 > 2", "nothing that is recorded", "1"},
		{"lock > 1ms for 3s", "polled", ""},
	} {
		_, err := Parse(c.text)
		var e *Error
		if !errors.As(err, &e) {
			t.Errorf("%q: %v", c.text, err)
			continue
		}
		if !strings.Contains(e.Why, c.why) || strings.Contains(e.Error(), "\n") {
			t.Errorf("%q: %q, want %q", c.text, e.Error(), c.why)
		}
		if c.mark != "" && (e.Column < 0 || !strings.HasPrefix(c.text[e.Column:], c.mark)) {
			t.Errorf("%q: the mark is at %d:\n%s", c.text, e.Column, e.Caret())
		}
	}
}

func TestStates(t *testing.T) {
	at := time.Unix(1000, 0)
	step := func(e *Engine, s State, after time.Duration) int { return len(e.States(s, at.Add(after))) }
	e := NewEngine([]*Trigger{mustParse(t, "cpu > 95% for 10s")})
	if step(e, State{CPU: 99}, 0)+step(e, State{CPU: 99}, 9*time.Second) != 0 {
		t.Error("it held too early")
	}
	if step(e, State{CPU: 99}, 10*time.Second) != 1 {
		t.Error("it did not hold after 10 s")
	}
	if step(e, State{CPU: 99}, 11*time.Second) != 0 {
		t.Error("it held within its cooldown")
	}
	e = NewEngine([]*Trigger{mustParse(t, "cpu > 95% for 10s")})
	step(e, State{CPU: 99}, 0)
	step(e, State{CPU: 10}, 5*time.Second)
	if step(e, State{CPU: 99}, 10*time.Second) != 0 {
		t.Error("it held although the program had been idle")
	}
	e = NewEngine([]*Trigger{mustParse(t, "rss +100M in 10s"), mustParse(t, "threads > 100"), mustParse(t, "runnable > 200ms")})
	step(e, State{RSS: 1 << 30}, 0)
	if step(e, State{RSS: 1<<30 + 99<<20}, 5*time.Second) != 0 || step(e, State{RSS: 1<<30 + 100<<20}, 9*time.Second) != 1 {
		t.Error("growth of RSS")
	}
	if step(e, State{Threads: 101, Runnable: 201e6}, 20*time.Second) != 2 {
		t.Error("threads and runnable")
	}
	if tr := mustParse(t, "idle"); tr.Kind != KindState || !tr.holds(State{Idle: 11e9}) || tr.holds(State{Idle: 9e9}) {
		t.Error("idle")
	}
}

func TestStallAndEnd(t *testing.T) {
	now := time.Now()
	e := NewEngine([]*Trigger{mustParse(t, `stall("main.*") > 500ms`)})
	if e.Stall("worker", time.Hour, now) != nil || e.Stall("main", 499*time.Millisecond, now) != nil || e.Stall("main", time.Second, now) == nil {
		t.Error("stall")
	}
	e = NewEngine([]*Trigger{mustParse(t, "crash"), mustParse(t, "exit != 0")})
	for _, c := range []struct {
		end  End
		want string
	}{
		{End{Exit: 0}, ""}, {End{Exit: 3}, "exit != 0"}, {End{Exit: -1, Signal: 11}, "crash"}, {End{Exit: -1, Signal: 9}, "crash"},
		{End{Exit: -1, Signal: 15}, "exit != 0"},
	} {
		got := ""
		if tr := e.End(c.end); tr != nil {
			got = tr.Text
		}
		if got != c.want {
			t.Errorf("%+v: %q, want %q", c.end, got, c.want)
		}
	}
	if NewEngine([]*Trigger{mustParse(t, "crash")}).End(End{Exit: -1, Signal: 15}) != nil {
		t.Error("SIGTERM is no crash")
	}
	if e := NewEngine([]*Trigger{mustParse(t, "deadlock")}); e.Deadlock(now) == nil || e.Deadlock(now) != nil || e.Passed != 1 {
		t.Error("deadlock")
	}
}

// BenchmarkUnwanted is an event that no trigger wants.
func BenchmarkUnwanted(b *testing.B) {
	var list []*Trigger
	for _, p := range []string{"slow-lock", "slow-call", "stall", "crash", `call == "fsync" && ms > 20`} {
		list = append(list, mustParse(b, p))
	}
	e := NewEngine(list)
	ev, _ := interval(hooks.PthreadMutexLock, time.Millisecond, "a")
	for b.Loop() {
		if e.Wants(ev) {
			b.Fatal("wanted")
		}
	}
}
