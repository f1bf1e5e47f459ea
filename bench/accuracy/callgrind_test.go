package main

import (
	"maps"
	"strings"
	"testing"
)

// callgrindFile is of a program that calls a library which calls it back, a clone, a function that calls itself, and two that call each other.
const callgrindFile = `# callgrind format
version: 1
positions: line
events: Ir D1mr Bcm
ob=(1) /tmp/prog
fl=(1) prog.c
fn=(1) main
10 100
cob=(2) /lib/libc.so.6
cfi=(2) qsort.c
cfn=(2) qsort
calls=1 5
11 60
cfn=(3) work
calls=2 20
12 1000 3 1
fn=(3)
20 200 1
* 100
fi=(3) inlined.h
+3 100
fe=(1)
cfn=(4) work.part.0
calls=7 30
-2 600 2 1
fn=(4)
30 500 2
cfn=(3)
calls=1 20
31 90
cob=(2)
cfn=(5) free
calls=1 7
32 100 0 1
fn=(6) compare
40 20

fn=(7) ping
50 1
cfn=(8) pong
calls=1 60
51 5
fn=(8)
60 2
cfn=(7)
calls=1 50
61 3

ob=(2)
fl=(2)
fn=(2)
5 40
cob=(1)
cfn=(6)
calls=4 40
6 20
fn=(5)
7 100 0 1
`

func TestReadCallgrind(t *testing.T) {
	instructions, cycles, err := readCallgrind(strings.NewReader(callgrindFile), "/tmp/prog")
	if err != nil {
		t.Fatal(err)
	}
	if want := map[string]float64{"main": 100, "work": 900, "compare": 20, "ping": 1, "pong": 2, "[libc.so.6]": 140}; !maps.Equal(instructions.self, want) || instructions.all != 1163 {
		t.Errorf("functions themselves: %v of %v, want %v", instructions.self, instructions.all, want)
	}
	// work and its clone are one function, which calls itself; ping and pong have no sum.
	if want := map[string]float64{"main": 1160, "work": 1000, "compare": 20}; !maps.Equal(instructions.with, want) {
		t.Errorf("with what they call: %v, want %v", instructions.with, want)
	}
	if want := map[string]float64{"main": 100, "work": 900 + 3*costL1Miss, "compare": 20, "ping": 1, "pong": 2, "[libc.so.6]": 140 + costBranch}; !maps.Equal(cycles.self, want) {
		t.Errorf("cycles: %v, want %v", cycles.self, want)
	}
	for _, bad := range []string{"", "events: Ir\nfn=(1) f\n1 2 3\n", "events: Ir\nfn=(1) f\n1 x\n", "positions: instr line\nevents: Ir\n"} {
		if _, _, err := readCallgrind(strings.NewReader(bad), "/tmp/prog"); err == nil {
			t.Errorf("%q makes sense to it", bad)
		}
	}
}

func TestUsage(t *testing.T) {
	u := newUsage()
	u.book(3, []string{"leaf", "f", "f", "main"}) // recursion counts once
	u.book(1, []string{"f", "main"})
	u.book(1, nil) // a stack that was not had
	if u.all != 5 || u.samples != 3 || u.self["leaf"] != 3 || u.self["f"] != 1 || u.with["f"] != 4 || u.with["main"] != 4 {
		t.Errorf("%+v", u)
	}
	for _, c := range []struct{ object, function, want string }{
		{"/tmp/prog", "f.part.0", "f"}, {"/tmp/prog", "f.constprop.0.isra.1", "f"}, {"/lib/libc.so.6", "qsort", "[libc.so.6]"}, {"[vdso]", "x", "[vdso]"},
	} {
		if got := functionOf("/tmp/prog", c.object, c.function); got != c.want {
			t.Errorf("%s of %s: %s, want %s", c.function, c.object, got, c.want)
		}
	}
}
