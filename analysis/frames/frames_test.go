package frames

import (
	"slices"
	"testing"
	"unicode/utf8"

	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/trace/tracetest"
)

func namesOf(t *Table, id trace.StackID) []string {
	var out []string
	for _, n := range t.Path(nil, id) {
		for _, at := range t.Of(n) {
			out = append(out, t.Frame(at.ID).Name)
		}
	}
	return out
}

func TestNames(t *testing.T) {
	b := tracetest.New()
	b.AddModule(trace.Module{Kind: trace.ModuleAnon, ID: 9})
	root := b.Stack("main", "f|g@3", "x.so!?", "…12", "bad\xffname")
	jit := b.Node(trace.Node{Parent: root, Addr: trace.Addr{Module: 9, Off: 0x7001}, How: trace.HowFP})
	nowhere := b.Node(trace.Node{Parent: jit, Addr: trace.Addr{Off: 0xdead}, How: trace.HowExact})
	nameless := b.Node(trace.Node{Parent: nowhere, Addr: trace.Addr{Module: 1, Off: 0x99}, How: trace.HowExact})
	b.SetSymbols(trace.Addr{Module: 1, Off: 0x99}, []trace.SymFrame{{Linkage: "_Zf"}})
	tab := New(b.Source())
	want := []string{"main", "f", "g", "x.so+0x100f", "[12 frames omitted]", "bad\ufffdname", "[anon]+0x7000", "0xdead", "_Zf"}
	got := namesOf(tab, nameless)
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	for _, n := range got {
		if !utf8.ValidString(n) {
			t.Errorf("%q is not UTF-8", n)
		}
	}
	if d := tab.Depth(nameless); d != 8 {
		t.Errorf("depth %d, want 8", d)
	}
	f := tab.Of(b.Stack("main", "f|g@3"))
	if f[0].Site != 0 || f[1].Site != 3 || !f[0].Same(tab.Of(b.Stack("main", "f|g@3"))[0]) || f[1].Same(tab.Of(tab.Path(nil, root)[0])[0]) {
		t.Errorf("inlined frames %+v", f)
	}
}

// TestHostileTables: parents that loop or lead nowhere, stacks that do not exist.
func TestHostileTables(t *testing.T) {
	b := tracetest.New()
	b.Node(trace.Node{Parent: 2, Addr: trace.Addr{Off: 1}})
	b.Node(trace.Node{Parent: 1, Addr: trace.Addr{Off: 2}})
	b.Node(trace.Node{Parent: 1 << 30, Addr: trace.Addr{Off: 3}})
	tab := New(b.Source())
	if d := tab.Depth(1); d != maxDepth || len(tab.Path(nil, 1)) != maxDepth {
		t.Errorf("a loop is %d deep, want it cut at %d", d, maxDepth)
	}
	if got := namesOf(tab, 3); !slices.Equal(got, []string{"0x2"}) && !slices.Equal(got, []string{"0x3"}) {
		t.Errorf("a parent that does not exist: %q", got)
	}
	if tab.Depth(99) != 0 || tab.Of(99) != nil || tab.Valid(0) || len(tab.Path(nil, 99)) != 0 {
		t.Error("a stack that does not exist has frames")
	}
}

func TestHookName(t *testing.T) {
	m := &trace.Meta{Hooks: map[trace.HookID]trace.HookInfo{1: {Name: "malloc"}, 2: {}}}
	for h, want := range map[trace.HookID]string{0: "", 1: "malloc", 2: "hook 2", 3: "hook 3"} {
		if got := HookName(m, h); got != want {
			t.Errorf("HookName(%d) = %q, want %q", h, got, want)
		}
	}
}

func TestObject(t *testing.T) {
	module := trace.Module{Kind: trace.ModuleELF, Path: "/opt/app", Lo: 0x7000, Hi: 0x9000, Bias: 0x7000, Variables: map[uint64]trace.Variable{
		0x100: {Name: "cache_lock"}, 0x208: {Name: "shards", Off: 8}, 0x300: {Name: "bad\xffname"},
	}}
	for _, c := range []struct {
		addr             uint64
		variable, object string
	}{
		{0x7100, "cache_lock", "cache_lock"},
		{0x7208, "shards+0x8", "shards+0x8"},
		{0x7300, "bad\ufffdname", "bad\ufffdname"},
		{0x7400, "", "app+0x400"},
		{0x9000, "", "0x9000"},
		{0x100, "", "0x100"},
	} {
		b := tracetest.New()
		b.AddProcess(trace.Process{PID: 1})
		b.AddModule(module)
		tab := New(b.Source())
		if v, o := tab.Variable(c.addr), tab.Object(c.addr); v != c.variable || o != c.object {
			t.Errorf("%#x: %q and %q, want %q and %q", c.addr, v, o, c.variable, c.object)
		}
	}
	// in another process something else may be there
	b := tracetest.New()
	b.AddProcess(trace.Process{PID: 1})
	b.AddProcess(trace.Process{PID: 2})
	b.AddModule(module)
	if o := New(b.Source()).Object(0x7100); o != "0x7100" {
		t.Errorf("in one of two processes: %q", o)
	}
}

// TestProgramAsStarted: a program that was started under another name than its file's is called that, unless its processes
// do not agree or gave themselves a title.
func TestProgramAsStarted(t *testing.T) {
	for want, started := range map[string][]string{
		"redis-server+0x40":    {"/usr/bin/redis-server", "redis-server"},
		"sh+0x40":              {"-sh"},
		"redis-check-rdb+0x40": {"redis-server", "redis-sentinel", "redis-server"},
		"redis-check-rdb+0x41": {"redis-server: child"},
		"redis-check-rdb+0x42": {""},
		"redis-check-rdb+0x43": {},
		"redis-sentinel+0x41":  {"redis-sentinel *:26379 [sentinel]"},
		"redis-sentinel+0x42":  {"redis-sentinel: child"},
		"redis-check-rdb+0x44": {"redis-sentinels *:26379"},
	} {
		b := tracetest.New()
		b.Meta().Command = []string{"/usr/bin/redis-sentinel", "--port"}
		for i, name := range started {
			b.AddProcess(trace.Process{PID: 1 + i, Exe: "/usr/bin/redis-check-rdb", Cmdline: []string{name, "--port"}})
		}
		b.AddModule(trace.Module{ID: 9, Path: "/usr/bin/redis-check-rdb"})
		if got := New(b.Source()).Address(9, 0x40); got[:len(got)-1] != want[:len(want)-1] {
			t.Errorf("started as %q: %s, want %s", started, got, want)
		}
	}
}

// TestThreadStart: code without symbols at the beginning of a thread's start routine is named as that, at all its addresses.
func TestThreadStart(t *testing.T) {
	b := tracetest.New()
	lib := b.AddModule(trace.Module{Path: "/usr/lib/libstdc++.so.6", Lo: 0x7f0000000000, Hi: 0x7f0000200000, Bias: 0x7f0000000000})
	other := b.AddModule(trace.Module{Path: "/usr/lib/libother.so", Lo: 0x7e0000000000, Hi: 0x7e0000200000, Bias: 0x7e0000000000})
	b.AddThread(trace.Thread{TID: 1, StartRoutine: trace.Addr{Module: lib, Off: 0xd4480}})
	tab := New(b.Source())
	for _, tt := range []struct {
		module trace.ModuleID
		off    uint64
		want   string
	}{
		{lib, 0xd4480, "thread start libstdc++.so.6+0xd4480"}, {lib, 0xd44a2, "thread start libstdc++.so.6+0xd4480"},
		{lib, 0xd447f, "libstdc++.so.6+0xd447f"}, {lib, 0xd44c0, "libstdc++.so.6+0xd44c0"}, {other, 0xd44a2, "libother.so+0xd44a2"},
	} {
		if got := tab.Address(tt.module, tt.off); got != tt.want {
			t.Errorf("%#x of module %d is %q, want %q", tt.off, tt.module, got, tt.want)
		}
	}
}

// TestProgramWithTitle: a program that was attached to may have replaced its command line by a title.
func TestProgramWithTitle(t *testing.T) {
	b := tracetest.New()
	b.Meta().Command = []string{"redis-server *:6379"}
	b.AddProcess(trace.Process{PID: 1, Exe: "/usr/bin/redis-check-rdb", Cmdline: []string{"redis-server *:6379"}})
	b.AddModule(trace.Module{ID: 9, Path: "/usr/bin/redis-check-rdb"})
	if got := New(b.Source()).Address(9, 0x40); got != "redis-server+0x40" {
		t.Errorf("%s, want redis-server+0x40", got)
	}
}

// TestEndOfThread: the end of a thread is recorded from the agent's own function, which is not the program's: the place is the call.
func TestEndOfThread(t *testing.T) {
	b := tracetest.New()
	b.AddModule(trace.Module{Path: "/run/hbtrace/hbtrace-0-92a78cfcfb7357b5/agent-x86_64.so", Lo: 0x7f0000000000, Hi: 0x7f0040000000})
	b.AddModule(trace.Module{Path: "/lib/libc.so.6", Lo: 0x7e0000000000, Hi: 0x7e0040000000})
	end := b.Stack("libc.so.6!start_thread", "libc.so.6!__nptl_deallocate_tsd", "agent-x86_64.so!hb_end_round")
	called := b.Stack("main", "agent-x86_64.so!hb_end_round", "work")
	tab := New(b.Source())
	if got := tab.Culprit(end, "pthread_exit"); got != "pthread_exit" {
		t.Errorf("a thread ends in %q, want pthread_exit", got)
	}
	if got := tab.Culprit(called, "read"); got != "work" {
		t.Errorf("the call is in %q, want work", got)
	}
}
