package unwind

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

// subject is a program to single-step: it must burn CPU for a few hundred milliseconds at least.
type subject struct {
	name   string
	argv   []string
	steps  int // by default
	longer int // with HBTRACE_STRESS
	late   bool
}

const sql = `with recursive n(i, x) as (select 1, 7 union all select i+1, (x*1103515245+12345) & 2147483647 from n where i < 1500000)
select count(*), max(y), group_concat(distinct z) from (select x % 1000 as y, substr(printf('%08x', x), 1, 1) as z from n order by x % 7919, x);`

const script = `
import json, re, random, ctypes
ctypes.CDLL(None).hbtest_begin()
random.seed(3)
def fib(n): return n if n < 2 else fib(n-1) + fib(n-2)
for i in range(1500):
    d = [{'k': random.random(), 'v': str(j)} for j in range(300)]
    d.sort(key=lambda e: e['k'])
    json.loads(json.dumps(d))
    re.findall(r'(\d+)[^"]*"v"', json.dumps(d))
    fib(16)
    try: [][1]
    except IndexError: pass
`

func subjects(t testing.TB) []subject {
	mixed := build(t, "g++", "testdata/mixed.cc", "mixed", "-std=c++17", "-fomit-frame-pointer")
	return []subject{
		{"cxx", []string{mixed, "40000"}, 600_000, 20_000_000, false},
		{"sqlite3", []string{"sqlite3", ":memory:", sql}, 400_000, 10_000_000, false},
		{"python3", []string{"/usr/bin/python3", "-c", script}, 500_000, 10_000_000, true},
	}
}

// leaves are programs that stop where the stack is hard to read; the last one's addresses begin at none that is usual.
func leaves(t testing.TB) []subject {
	leaf := func(name string, flags ...string) string {
		return build(t, "gcc", "testdata/leaves.c", name, append([]string{"-fomit-frame-pointer", "-fno-builtin"}, append(flags, "-lm")...)...)
	}
	return []subject{
		{"leaves, lazy PLT", []string{leaf("lazy", "-Wl,-z,lazy"), "200000"}, 20_000, 200_000, false},
		{"leaves, no PLT", []string{leaf("noplt", "-fno-plt"), "200000"}, 20_000, 200_000, false},
		{"leaves, far away", []string{leaf("far", "-fPIE", "-pie", "-Wl,-Ttext-segment=0x12345670000"), "200000"}, 20_000, 200_000, false},
	}
}

// TestEveryInstruction single-steps real programs and walks the stack at each instruction: the whole stack must be
// what calls and returns say it is, and the verified walk must agree.
func TestEveryInstruction(t *testing.T) {
	lib := build(t, "gcc", "testdata/step.c", "step.so", "-std=gnu11", "-shared", "-fPIC", "-Wconversion", "-Wshadow")
	for _, s := range append(leaves(t), subjects(t)...) {
		t.Run(s.name, func(t *testing.T) {
			if _, err := exec.LookPath(s.argv[0]); err != nil {
				t.Skipf("needs %s", s.argv[0])
			}
			steps := s.steps
			if os.Getenv("HBTRACE_STRESS") != "" {
				steps = s.longer
			} else if testing.Short() {
				steps /= 10
			}
			env := []string{"LD_PRELOAD=" + lib, "HBTEST_STEPS=" + strconv.Itoa(steps), "HBTEST_EVERY=3000"}
			if s.late {
				env = append(env, "HBTEST_LATE=1")
			}
			p := startInside(t, env, s.argv...)
			n, notes := p.result(t)
			t.Logf("%s", show(n))
			for _, note := range notes {
				t.Log(note)
			}
			if n["steps"] < steps/4 {
				t.Errorf("%d of %d steps: the program ended too early to say anything", n["steps"], steps)
			}
			t.Logf("true: %.4f %% of all stacks, %d of %d while libgcc throws, %d of %d elsewhere",
				100*float64(n["equal"])/float64(max(1, n["steps"])), n["throwing_equal"], n["throwing"],
				n["equal"]-n["throwing_equal"], n["steps"]-n["throwing"])
			if n["equal"]-n["throwing_equal"] != n["steps"]-n["throwing"] {
				t.Errorf("%d of %d stacks outside libgcc are not the true ones", n["differ"]-n["throwing"]+n["throwing_equal"], n["steps"]-n["throwing"])
			}
			if 100*n["throwing_equal"] < 99*n["throwing"] {
				t.Errorf("%d of %d stacks inside libgcc are the true ones", n["throwing_equal"], n["throwing"])
			}
			if n["starts_differ"] > 0 {
				t.Errorf("%d of %d first stacks are not libgcc's", n["starts_differ"], n["starts"])
			}
			if n["verify_differ"] > 0 || n["joined"] < n["steps"]/2 {
				t.Errorf("verified walks: %d of %d wrong, %d joined", n["verify_differ"], n["steps"], n["joined"])
			}
			if strings.Contains(p.output.String(), "rror") {
				t.Errorf("the program complains: %s", tail(p.output.String()))
			}
		})
	}
}

// TestAgainstLibunwind compares whole stacks at asynchronous stops. libunwind is no oracle (it guesses more than we
// do), so the test asks for agreement in nearly all, and says where not.
func TestAgainstLibunwind(t *testing.T) {
	probe := exec.Command("gcc", "-x", "c", "-fsyntax-only", "-")
	probe.Stdin = strings.NewReader("#include <libunwind.h>\n")
	if err := probe.Run(); err != nil {
		t.Skip("needs gcc and libunwind's header (libunwind-dev)")
	}
	lib := build(t, "gcc", "testdata/async.c", "async.so", "-std=gnu11", "-shared", "-fPIC", "-lunwind")
	for _, s := range subjects(t) {
		t.Run(s.name, func(t *testing.T) {
			if _, err := exec.LookPath(s.argv[0]); err != nil {
				t.Skipf("needs %s", s.argv[0])
			}
			env := []string{"LD_PRELOAD=" + lib, "HBTEST_EVERY=1000", "HBTEST_STOPS=5000"}
			if s.late {
				env = append(env, "HBTEST_LATE=1")
			}
			n, notes := startInside(t, env, s.argv...).result(t)
			t.Logf("%s", show(n))
			for _, note := range notes {
				t.Log(note)
			}
			if n["stops"] < 50 {
				t.Skipf("%d stops say nothing", n["stops"])
			}
			if 1000*n["same"] < 985*n["stops"] {
				t.Errorf("%d of %d stacks are the same", n["same"], n["stops"])
			}
		})
	}
}
