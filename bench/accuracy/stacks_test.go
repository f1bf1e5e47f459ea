package main

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestReadStops(t *testing.T) {
	path := filepath.Join(t.TempDir(), "stops")
	text := "map 1000 3000 0 /nowhere/prog\nmap 7000 9000 1000 /nowhere/lib name.so (deleted)\nstop 5 10 20 1010 7010 2\nstop 6 11 21 1010\nmap 1000 3000 0 /nowhere/other\nstop 5 30 40 1010\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	stops, err := readStops(path)
	if err != nil || len(stops) != 3 {
		t.Fatalf("%d stops, %v", len(stops), err)
	}
	if got := stops[0].places(); !slices.Equal(got, []place{{"prog", 0x10}, {"lib name.so", 0x1010}}) {
		t.Errorf("%v: what lies in no file ends a stack", got)
	}
	if stops[0].next != 30 || stops[2].places()[0].file != "other" || stops[1].places()[0].file != "prog" {
		t.Errorf("%+v", stops)
	}
	for _, bad := range []string{"stop 5 10 20\n", "stop 5 ten 20 1010\n", "stop 5 10 20 xyz\n", "map q 3000 0 /p\n"} {
		if err := os.WriteFile(path, []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := readStops(path); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

func TestCompareStacks(t *testing.T) {
	leaf, caller, main := place{"p", 1}, place{"p", 9}, place{"p", 20}
	libc, start := []place{{"libc", 30}, {"libc", 31}}, place{"p", 40}
	truth := append([]place{leaf, caller, main}, append(libc, start)...)
	for _, c := range []struct {
		name string
		got  []place
		cut  bool
		want string
	}{
		{"the same", truth, false, ""},
		{"without the caller", slices.Delete(slices.Clone(truth), 1, 2), false, "the caller"},
		{"without main", slices.Delete(slices.Clone(truth), 2, 3), false, "a frame above"},
		{"short", truth[:3], false, "ends early"},
		{"cut", truth[:3], true, "cut"},
		{"long", append(slices.Clone(truth), leaf), false, "goes on"},
	} {
		if why := differ(truth, c.got, c.cut); why != c.want {
			t.Errorf("%s: %q, want %q", c.name, why, c.want)
		}
	}
	decremented := slices.Clone(truth)
	decremented[1].addr--
	if !samePerf(truth, decremented) || !samePerf(truth, truth[:3]) || samePerf(truth, truth[:2]) || samePerf(truth, truth[1:]) {
		t.Error("perf's stacks are compared wrongly")
	}
	agent := place{"agent-x86_64.so", 1}
	if got := withoutAgent([]place{leaf, agent, main, agent, libc[0], libc[1]}); !slices.Equal(got, []place{leaf, main}) {
		t.Errorf("%v: the agent's frames, and what called the one that started the thread, are left out", got)
	}
}

func TestScore(t *testing.T) {
	const ms = 1_000_000
	calls := []drawn{{0, 4 * ms, 0}, {5 * ms, 9 * ms, 0}, {10 * ms, 11 * ms, 0}, {12 * ms, 20 * ms, 0}, {30 * ms, 40 * ms, 5 * ms}} // the last was preempted: not counted
	for _, c := range []struct {
		name                   string
		spans                  []drawn
		seen                   []int64 // ms
		missing, shared, alone int
		sum                    int64
	}{
		{"each its own", []drawn{{from: 0, to: 5 * ms}, {from: 5 * ms, to: 9 * ms}, {from: 10 * ms, to: 11 * ms}, {from: 13 * ms, to: 20 * ms}}, []int64{1, 2, 6, 10, 13, 20}, 0, 0, 4, 0},
		{"one for two", []drawn{{from: 0, to: 9 * ms}}, []int64{2, 7}, 2, 2, 0, 0},
		{"over one that nobody saw", []drawn{{from: 0, to: 9 * ms}}, []int64{2, 3}, 3, 0, 1, 5 * ms},
		{"torn", []drawn{{from: 12 * ms, to: 14 * ms}, {from: 15 * ms, to: 20 * ms}}, []int64{12, 14, 15, 20}, 3, 0, 1, -1 * ms},
		{"seen between calls", []drawn{{from: 0, to: 5 * ms}}, []int64{3, 11}, 3, 0, 1, ms},
		{"none", nil, nil, 4, 0, 0, 0},
	} {
		var into [3]outcome
		for i := range c.seen {
			c.seen[i] *= ms
		}
		score(calls, c.spans, c.seen, &into, io.Discard)
		var missing, shared, alone int
		var sum int64
		for _, o := range into {
			missing, shared, alone = missing+o.missing, shared+o.shared, alone+len(o.errs)
			for _, e := range o.errs {
				sum += e
			}
		}
		if missing != c.missing || shared != c.shared || alone != c.alone || sum != c.sum {
			t.Errorf("%s: missing %d, shared %d, alone %d, errors %d", c.name, missing, shared, alone, sum)
		}
	}
}
