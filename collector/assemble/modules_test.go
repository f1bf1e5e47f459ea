// modules_test.go: which module an address lies in.
package assemble

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/hbtrace/hbtrace/segment"
	"github.com/hbtrace/hbtrace/trace"
)

// leaf sends a sample whose only frame is at addr and returns where that was found.
func (k *kit) leaf(g *agent, at trace.Ns, addr uint64) (trace.Module, uint64) {
	k.t.Helper()
	n := len(k.of(trace.KindGap))
	g.full = true
	k.put(g.sample(segment.SampleGap, 0, at, 0, []uint64{addr | segment.PCExact<<60}))
	k.Flush()
	es := k.of(trace.KindGap)
	if len(es) != n+1 {
		k.t.Fatalf("%d samples, want %d", len(es), n+1)
	}
	a := k.stack(es[n].Stack)[0]
	return k.modules[a.Module], a.Off
}

func TestModules(t *testing.T) {
	k := newKit(t, Config{File: func(_ uint32, path string) File { return File{BuildID: "id of " + path} }})
	a, b, c := newAgent(1, 1), newAgent(2, 2), newAgent(3, 3)
	k.put(a.thread(1), b.thread(1), c.thread(1))
	k.put(a.module(10, "/lib/x.so", 0x10000, 0x20000, 0xf000), b.module(10, "/lib/x.so", 0x50000, 0x60000, 0x4f000))
	k.put(a.module(10, "linux-vdso.so.1", 0x7000, 0x8000, 0x7000))
	for _, c := range []struct {
		g    *agent
		addr uint64
		path string
		off  uint64
	}{
		{a, 0x10000, "/lib/x.so", 0x1000},
		{a, 0x1ffff, "/lib/x.so", 0x10fff},
		{b, 0x50004, "/lib/x.so", 0x1004},
		{a, 0x7010, "[vdso]", 0x10},
		{a, 0x20000, "", 0x20000},
		{a, 0xffff, "", 0xffff},
		{b, 0x10000, "", 0x10000},
		{c, 0x10000, "", 0x10000},
	} {
		m, off := k.leaf(c.g, 100, c.addr)
		if m.Path != c.path || off != c.off {
			t.Errorf("process %d, %#x: %s+%#x, want %s+%#x", c.g.proc, c.addr, m.Path, off, c.path, c.off)
		}
	}
	if len(k.modules) != 2 {
		t.Errorf("two processes' x.so and the vDSO are %d modules: %+v", len(k.modules), k.modules)
	}
	for _, m := range k.modules {
		switch m.Path {
		case "/lib/x.so":
			if m.BuildID != "id of /lib/x.so" || m.Kind != trace.ModuleELF || m.Lo != 0x10000 || m.Hi != 0x20000 || m.Bias != 0xf000 {
				t.Errorf("%+v", m)
			}
		case "[vdso]":
			if m.Kind != trace.ModuleVDSO || m.BuildID != "" {
				t.Errorf("%+v", m)
			}
		}
	}
}

// TestReturnAddressAtTheEnd: the call is the module's last instruction.
func TestReturnAddressAtTheEnd(t *testing.T) {
	k := newKit(t, Config{})
	g := newAgent(1, 1)
	k.put(g.thread(1), g.module(1, "/a", 0x1000, 0x2000, 0x1000), g.module(1, "/b", 0x2000, 0x3000, 0x2000))
	k.put(g.sample(segment.SampleGap, 0, 10, 0, pcs(0x2000)))
	k.Flush()
	a := k.stack(k.one(trace.KindGap).Stack)[0]
	if k.modules[a.Module].Path != "/a" || a.Off != 0x1000 {
		t.Errorf("%+v in %+v", a, k.modules[a.Module])
	}
}

// TestOverlaps paints random mappings, announced in any order of arrival, and compares with a map of pages.
func TestOverlaps(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 2))
		var s space
		var page [64]mapping
		for i := range 40 {
			lo := rng.Uint64N(63)
			m := mapping{lo: lo, hi: lo + 1 + rng.Uint64N(63-lo), id: trace.ModuleID(i + 1), time: trace.Ns(rng.IntN(20))}
			s.add(m)
			for p := m.lo; p < m.hi; p++ {
				if page[p].id == 0 || page[p].time <= m.time {
					page[p] = m
				}
			}
			for p := range page {
				got := trace.ModuleID(0)
				if m := s.lookup(uint64(p)); m != nil {
					got = m.id
				}
				if got != page[p].id {
					t.Fatalf("seed %d, after %d: page %d is in %d, want %d", seed, i+1, p, got, page[p].id)
				}
			}
		}
	}
}

func TestSpaceIsBounded(t *testing.T) {
	var s space
	for i := range uint64(3 * maxMappings) {
		s.add(mapping{lo: i * 10, hi: i*10 + 5, id: 1, time: trace.Ns(i)})
	}
	if len(s.all) > maxMappings {
		t.Errorf("%d mappings", len(s.all))
	}
	if s.lookup(3*maxMappings*10-10) == nil {
		t.Error("the newest is gone")
	}
}

func TestForkInheritsModules(t *testing.T) {
	k := newKit(t, Config{})
	parent, child, grandchild := newAgent(1, 1), newAgent(2, 2), newAgent(3, 3)
	// The children's records come in before the parent's, from a sub-buffer that is read first.
	k.put(grandchild.thread(30), grandchild.procRec(30, 2, segment.ProcFlagForked))
	k.put(child.thread(20), child.procRec(20, 1, segment.ProcFlagForked))
	k.put(child.module(25, "/of-child", 0x2000, 0x3000, 0x2000))
	k.put(parent.thread(1), parent.procRec(1, 0, 0), parent.module(2, "/before", 0x1000, 0x2000, 0x1000))
	k.put(parent.module(22, "/after", 0x4000, 0x5000, 0x4000))
	for _, c := range []struct {
		g    *agent
		addr uint64
		path string
	}{
		{grandchild, 0x1000, "/before"}, {grandchild, 0x2000, "/of-child"}, {grandchild, 0x4000, ""},
		{child, 0x1000, "/before"}, {child, 0x2000, "/of-child"}, {child, 0x4000, ""},
		{parent, 0x1000, "/before"}, {parent, 0x2000, ""}, {parent, 0x4000, "/after"},
	} {
		if m, _ := k.leaf(c.g, 100, c.addr); m.Path != c.path {
			t.Errorf("process %d, %#x: in %q, want %q", c.g.proc, c.addr, m.Path, c.path)
		}
	}
	if p := k.procs[2]; p.Parent != 1 || !p.Forked {
		t.Errorf("%+v", p)
	}
}

func TestForkLoopEnds(t *testing.T) {
	k := newKit(t, Config{})
	a, b := newAgent(1, 1), newAgent(2, 2)
	k.put(a.thread(1), a.procRec(1, 2, segment.ProcFlagForked), b.thread(1), b.procRec(1, 1, segment.ProcFlagForked))
	if m, _ := k.leaf(a, 10, 0x1000); m.ID != 0 {
		t.Errorf("%+v", m)
	}
}

func TestMapsFallback(t *testing.T) {
	asked := 0
	maps := []MapsEntry{
		{Lo: 0x400000, Hi: 0x401000, Offset: 0x2000, Exec: true, Path: "/bin/app"},
		{Lo: 0x500000, Hi: 0x501000, Exec: true, Path: "/no/headers"},
		{Lo: 0x600000, Hi: 0x601000, Exec: true},
		{Lo: 0x700000, Hi: 0x701000, Path: "/data"},
	}
	k := newKit(t, Config{
		Maps: func(uid uint32) []MapsEntry { asked++; return maps },
		File: func(uid uint32, path string) File {
			if path == "/bin/app" {
				return File{BuildID: "ab", Loads: []Load{{0, 0x10000, 0x1000}, {0x2340, 0x13340, 0x900}}}
			}
			return File{}
		},
	})
	g, h := newAgent(1, 1), newAgent(2, 2)
	k.put(g.thread(1), h.thread(1))
	for _, c := range []struct {
		g    *agent
		addr uint64
		path string
		kind trace.ModuleKind
		off  uint64
	}{
		{g, 0x400345, "/bin/app", trace.ModuleELF, 0x13345},
		{g, 0x500010, "/no/headers", trace.ModuleELF, 0x10},
		{g, 0x600010, "[anon]", trace.ModuleAnon, 0x600010},
		{h, 0x600010, "[anon]", trace.ModuleAnon, 0x600010},
	} {
		m, off := k.leaf(c.g, 100, c.addr)
		if m.Path != c.path || m.Kind != c.kind || off != c.off {
			t.Errorf("%#x: %q kind %d + %#x, want %q %d %#x", c.addr, m.Path, m.Kind, off, c.path, c.kind, c.off)
		}
	}
	if len(k.modules) != 4 {
		t.Errorf("anonymous memory of two processes is no one's module in common: %+v", k.modules)
	}
	if m, off := k.leaf(g, 150e6, 0x700000); m.ID != 0 || off != 0x700000 {
		t.Errorf("an address in data: %+v + %#x", m, off)
	}
	// Unknown addresses do not make us read the maps over and over.
	before := asked
	for i := range trace.Ns(1000) {
		k.leaf(g, 200+i*1e6, 0x900000) // one second
	}
	if n := asked - before; n < 1 || n > 10 {
		t.Errorf("read %d times in a second", n)
	}
	// An address that maps were not read for is taken to be code that the process made since, as it has made some.
	if m, off := k.leaf(g, 1201e6, 0x910000); m.Kind != trace.ModuleAnon || m.Proc != 1 || off != 0x910000 {
		t.Errorf("an address that maps were not read for: %+v + %#x", m, off)
	}
	// What is mapped later is found.
	maps = append(maps, MapsEntry{Lo: 0x800000, Hi: 0x801000, Exec: true, Path: "/late"})
	if m, _ := k.leaf(g, 100e9, 0x800000); m.Path != "/late" {
		t.Errorf("%+v", m)
	}
	if k.Stats().MapsReads != uint64(asked) {
		t.Errorf("%d reads counted of %d", k.Stats().MapsReads, asked)
	}
}

func TestModuleRecordChecks(t *testing.T) {
	for name, edit := range map[string]func(*segment.RecModule){
		"ends before it begins": func(r *segment.RecModule) { r.Hi = r.Lo },
		"above all addresses":   func(r *segment.RecModule) { r.Hi = 1 << 63 },
		"path past the record":  func(r *segment.RecModule) { r.PathBytes = 1000 },
		"of no process":         func(r *segment.RecModule) { r.ProcUID = 0 },
	} {
		for _, uid := range []uint32{0, segment.UIDClaiming, 1} {
			k := newKit(t, Config{})
			g := newAgent(1, 1)
			r := segment.RecModule{Rec: g.rec(segment.RecTypeModule, 0, 5), ProcUID: 1, PathBytes: 2, Lo: 0x1000, Hi: 0x2000}
			r.Rec.Thread = uid
			edit(&r)
			k.put(record(&r, segment.RecModuleBytes, []byte("/x")))
			k.Flush()
			if k.Stats().Broken != 1 || len(k.modules) != 0 {
				t.Errorf("%s, thread %d: %+v, %+v", name, uid, k.Stats(), k.modules)
			}
		}
	}
}

func TestReadMapsOfOurselves(t *testing.T) {
	maps, err := ReadMaps(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var c FileCache
	f := c.Look(os.Getpid(), exe)
	// The address of one of our functions must come out as the linker gave it.
	k := newKit(t, Config{Maps: func(uint32) []MapsEntry { return maps }, File: func(_ uint32, path string) File { return c.Look(os.Getpid(), path) }})
	g := newAgent(1, 1)
	k.put(g.thread(1))
	pc, _, _, _ := runtime.Caller(0)
	m, off := k.leaf(g, 10, uint64(pc))
	if m.Path != exe || len(f.Loads) == 0 {
		t.Fatalf("%#x is in %+v, want %s (%+v)", pc, m, exe, f)
	}
	if off != uint64(pc) { // a Go test binary is not position-independent
		t.Logf("position-independent: %#x is %#x", pc, off)
		if off >= 1<<32 {
			t.Errorf("%#x is no address of the file", off)
		}
	}
	if _, err := ReadMaps(1 << 30); err == nil {
		t.Error("maps of a process that cannot be")
	}
}

func TestParseMaps(t *testing.T) {
	in := strings.Join([]string{
		"55d0-55e0 r--p 00000000 08:01 1 /bin/no-exec",
		"7f00-7f80 r-xp 00028000 08:01 1835        /usr/lib/lib c.so.6 (deleted)",
		"7f80-7f90 rwxp 00000000 00:00 0 ",
		"7fff-8000 r-xp 00000000 00:00 0                          [vdso]",
		"garbage",
		"zz-7f90 r-xp 0 0 0 /x",
		`a000-b000 r-xp 00000000 08:01 7 /a\012b`,
		"",
	}, "\n")
	want := []MapsEntry{
		{0x7f00, 0x7f80, 0x28000, true, "/usr/lib/lib c.so.6 (deleted)"},
		{0x7f80, 0x7f90, 0, true, ""},
		{0x7fff, 0x8000, 0, true, "[vdso]"},
		{0xa000, 0xb000, 0, true, "/a\nb"},
	}
	got := parseMaps([]byte(in))
	if len(got) != len(want) {
		t.Fatalf("%+v", got)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("%+v, want %+v", got[i], want[i])
		}
	}
}

func TestFileCacheRefusesWhatIsNoFile(t *testing.T) {
	dir := t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	text := filepath.Join(dir, "text")
	if err := os.WriteFile(text, []byte("no ELF"), 0o600); err != nil {
		t.Fatal(err)
	}
	var c FileCache
	for _, path := range []string{fifo, text, dir, "relative", "/no/such/file", ""} {
		if f := c.Look(os.Getpid(), path); f.BuildID != "" || f.Loads != nil {
			t.Errorf("%s: %+v", path, f)
		}
	}
}

// TestBuildID reads the C library's, if there is one: GNU toolchains write it.
func TestBuildID(t *testing.T) {
	paths, _ := filepath.Glob("/usr/lib/*-linux-gnu/libc.so.6")
	if len(paths) == 0 {
		t.Skip("needs a C library in /usr/lib/*-linux-gnu")
	}
	var c FileCache
	f := c.Look(os.Getpid(), paths[0])
	if len(f.BuildID) != 40 || len(f.Loads) < 2 {
		t.Errorf("%s: %+v", paths[0], f)
	}
	if again := c.Look(0, paths[0]); again.BuildID != f.BuildID || len(c.known) != 1 {
		t.Errorf("looked into twice: %+v", c.known)
	}
}
