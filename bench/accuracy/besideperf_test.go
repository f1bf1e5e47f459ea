package main

import (
	"math"
	"strings"
	"testing"
)

func TestReadCPU(t *testing.T) {
	// Two rounds of different length: 60 of 100 ms and 150 of 300 are 210 of 400 in f.
	all, err := readCPU(strings.NewReader(`long 0 f truth 60.00 hbtrace 61.00 perf 0.00
long 0 g truth 40.00 hbtrace 39.00 perf 0.00
long 0 total truth 100.0 ms hbtrace 100.0 perf 50.0 samples 100 50
long 1 f truth 50.00 hbtrace 51.00 perf 100.00
long 1 g truth 50.00 hbtrace 49.00 perf 0.00
long 1 total truth 300.0 ms hbtrace 300.0 perf 150.0 samples 300 150
mix 0 f truth 10.00 hbtrace 20.00 perf 10.00
mix 0 total truth 100.0 ms hbtrace 100.0 perf 100.0 samples 100 100
`))
	if err != nil || len(all) != 2 || all[0].scenario != "long" || all[1].scenario != "mix" {
		t.Fatalf("%+v, %v", all, err)
	}
	l := all[0]
	if math.Abs(l.truth.share("f")-52.5) > 1e-9 || math.Abs(l.ours.share("f")-53.5) > 1e-9 || math.Abs(l.perfs.share("f")-75) > 1e-9 || l.ours.samples != 400 || l.perfs.samples != 200 {
		t.Errorf("%+v %+v %+v", l.truth, l.ours, l.perfs)
	}
	if pp, at := worst(all[1].truth, all[1].ours); math.Abs(pp-10) > 1e-9 || at != "f" {
		t.Errorf("%.2f at %s", pp, at)
	}
	for _, bad := range []string{"nonsense\n", "long 0 f truth 60.00 hbtrace 61.00 perf 0.00\n"} {
		if _, err := readCPU(strings.NewReader(bad)); err == nil {
			t.Errorf("%q makes sense to it", bad)
		}
	}
}
