package main

import (
	"io"
	"math"
	"os"
	"path/filepath"
	"testing"
)

func TestMatch(t *testing.T) {
	const ms = 1_000_000
	fact := func(what string, from, to int64) interval {
		return interval{what: what, from: from, to: to, slept: true}
	}
	for _, c := range []struct {
		name                   string
		facts, seen            []interval
		due, missing, invented int
		errs                   []int64
	}{
		{"the same", []interval{fact("mutex", 10*ms, 12*ms)}, []interval{{from: 10*ms + 100, to: 12*ms - 200}}, 1, 0, 0, []int64{-300}},
		{"missing", []interval{fact("mutex", 10*ms, 12*ms)}, nil, 1, 1, 0, nil},
		{"too short to be due", []interval{fact("read", 10*ms, 10*ms+50_000)}, nil, 0, 0, 0, nil},
		{"of a lock it would be", []interval{fact("mutex", 10*ms, 10*ms+50_000)}, nil, 1, 1, 0, nil},
		{"did not sleep: no wait", []interval{{what: "mutex", from: 10 * ms, to: 12 * ms}}, nil, 0, 0, 0, nil},
		{"preempted: there, but not timed", []interval{{what: "mutex", from: 10 * ms, to: 12 * ms, slept: true, preempted: true}}, []interval{{from: 10 * ms, to: 11 * ms}}, 1, 0, 0, nil},
		{"one for two", []interval{fact("sem", 10*ms, 12*ms), fact("sem", 13*ms, 14*ms)}, []interval{{from: 10 * ms, to: 12 * ms}}, 2, 1, 0, []int64{0}},
		{"invented between", []interval{fact("sem", 10*ms, 12*ms), fact("sem", 16*ms, 17*ms)}, []interval{{from: 10 * ms, to: 12 * ms}, {from: 13 * ms, to: 14 * ms}, {from: 16 * ms, to: 17 * ms}}, 2, 0, 1, []int64{0, 0}},
		{"before and after is not looked at", []interval{fact("sem", 10*ms, 12*ms)}, []interval{{from: 1 * ms, to: 2 * ms}, {from: 10 * ms, to: 12 * ms}, {from: 30 * ms, to: 40 * ms}}, 1, 0, 0, []int64{0}},
	} {
		t.Run(c.name, func(t *testing.T) {
			due, missing, invented, errs := match(c.facts, c.seen, io.Discard)
			if due != c.due || missing != c.missing || invented != c.invented || len(errs) != len(c.errs) {
				t.Fatalf("due %d, missing %d, invented %d, errors %v", due, missing, invented, errs)
			}
			for i := range errs {
				if errs[i] != c.errs[i] {
					t.Errorf("errors %v, want %v", errs, c.errs)
				}
			}
		})
	}
}

func TestSplit(t *testing.T) {
	truth, got := newSplit(), newSplit()
	truth.in = map[string]float64{"f": 60, "g": 40}
	truth.all = 100
	got.book(300, []string{"leaf", "f", "f", "main"}) // recursion counts once
	got.book(100, []string{"g", "main"})
	if pp, at := worst(truth, got); math.Abs(pp-15) > 1e-9 || got.share("main") != 100 || got.samples != 2 {
		t.Errorf("%.2f at %s, %+v", pp, at, got)
	}
}

func TestReadFacts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "truth")
	for _, c := range []struct {
		text string
		ok   bool
	}{{"cpu f 12\ntotal 30\n", true}, {"", false}, {"12\n", false}, {"cpu f\n", false}} {
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := readFacts(path, func([]string, []int64) error { return nil }); (err == nil) != c.ok {
			t.Errorf("%q: %v", c.text, err)
		}
	}
}
