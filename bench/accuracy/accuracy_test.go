package main

import (
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
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

func TestSets(t *testing.T) {
	s := sets{of: 100}
	for _, share := range []float64{0.5, 0.7, 0.4, 0.4, 0.9} { // the last makes no set
		truth, got := newSplit(), newSplit()
		truth.in["f"], truth.all, truth.periods = 50, 100, 50
		got.in["f"], got.all = 100*share, 100
		s.add(truth, got)
	}
	if s.number() != 2 || math.Abs(s.worst()-10) > 1e-9 { // 60 and 40 where 50 is true
		t.Errorf("%d sets, %.2f", s.number(), s.worst())
	}
	if none := (&sets{of: 100}); !math.IsNaN(none.worst()) {
		t.Errorf("%.2f of no set", none.worst())
	}
}

func TestBias(t *testing.T) {
	r := rounds{of: map[string][]float64{"loud": {4, -6, 5}, "steady": {0.5, 0.6, 0.4}}}
	if pp, at, sure := r.bias(); at != "steady" || math.Abs(pp-0.5) > 1e-9 || math.Abs(sure-0.1/math.Sqrt(3)) > 1e-9 {
		t.Errorf("%.2f ± %.2f at %s: what chance explains least counts, not what is largest", pp, sure, at)
	}
}

func TestSwitches(t *testing.T) {
	kernel, err := offCPUOf(strings.NewReader(` [000] 1.000000000: prev_comm=a prev_pid=7 prev_prio=120 prev_state=S ==> next_comm=swapper/0 next_pid=0 next_prio=120
 [000]  1.001000000: prev_comm=swapper/0 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=a b next_pid=7 next_prio=120
 [000] 1.002000000: prev_comm=a prev_pid=7 prev_prio=120 prev_state=R+ ==> next_comm=b next_pid=8 next_prio=120
 [001] 1.002100000: prev_comm=x prev_pid=3 prev_prio=120 prev_state=S ==> next_comm=y next_pid=4 next_prio=120
 [001] 1.002200000: prev_comm=x prev_pid=3 prev_prio=120 prev_state=S ==> next_comm=y next_pid=4 next_prio=120
 [000] 1.002500000: prev_comm=b prev_pid=8 prev_prio=120 prev_state=D ==> next_comm=a next_pid=7 next_prio=120
`))
	if want := []off{{1e9, 1.001e9, true}, {1.002e9, 1.0025e9, false}}; err != nil || !slices.Equal(kernel.off[7], want) || len(kernel.off[8]) != 0 ||
		!slices.Equal(kernel.lost, []off{{from: 1.0021e9, to: 1.0022e9}}) {
		t.Fatalf("%+v, %v", kernel, err)
	}
	if _, err := offCPUOf(strings.NewReader("nonsense\n")); err == nil {
		t.Error("a line that is no switch is passed over")
	}
	const us = 1000
	wait := func(from, to int64, lock bool) recordedWait { return recordedWait{interval{from: from, to: to}, lock} }
	asleep := func(from, to int64) off { return off{from, to, true} }
	for _, c := range []struct {
		name         string
		seen         []recordedWait
		kernel       []off
		locks, calls slept
	}{
		{"the same", []recordedWait{wait(0, 50*us, true), wait(1000*us, 2000*us, false)}, []off{asleep(2*us, 49*us), asleep(1003*us, 1990*us)},
			slept{due: 1, seen: 1, difference: []int64{3 * us}}, slept{due: 1, seen: 1, difference: []int64{13 * us}}},
		{"not recorded, before and behind", []recordedWait{wait(1000*us, 2000*us, true)}, []off{asleep(0, 500*us), asleep(1001*us, 1999*us), asleep(3000*us, 4000*us)},
			slept{due: 1, seen: 1, difference: []int64{2 * us}}, slept{due: 2, missing: 2}},
		{"too short to be due", []recordedWait{wait(1000*us, 1200*us, false)}, []off{asleep(0, 50*us), asleep(1010*us, 1100*us)}, slept{}, slept{seen: 1, difference: []int64{110 * us}}},
		{"preempted is not asleep", []recordedWait{wait(1000*us, 2000*us, true)}, []off{{0, 500 * us, false}, asleep(1001*us, 1500*us), {1600 * us, 1990 * us, false}},
			slept{due: 1, seen: 1, difference: []int64{11 * us}}, slept{}},
		{"without a switch", []recordedWait{wait(0, 50*us, true)}, nil, slept{seen: 1, invented: 1, unknown: 1}, slept{}},
		{"and none was lost", []recordedWait{wait(50*us, 90*us, true)}, nil, slept{seen: 1, invented: 1}, slept{}},
	} {
		var locks, calls slept
		matchSwitches(c.seen, c.kernel, &account{lost: []off{{from: 49 * us, to: 49 * us}}}, &locks, &calls, io.Discard)
		for i, x := range [][2]slept{{locks, c.locks}, {calls, c.calls}} {
			if x[0].due != x[1].due || x[0].missing != x[1].missing || x[0].seen != x[1].seen || x[0].invented != x[1].invented || x[0].unknown != x[1].unknown || !slices.Equal(x[0].difference, x[1].difference) {
				t.Errorf("%s, %d: %+v, want %+v", c.name, i, x[0], x[1])
			}
		}
	}
}
