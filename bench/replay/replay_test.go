package main

import (
	"encoding/binary"
	"strings"
	"testing"
	"time"

	"github.com/hbtrace/hbtrace/bench/replay/tracer"
	"github.com/hbtrace/hbtrace/bench/replay/workload"
)

// short is a replay of a small buffer that goes round a few times.
func short(t *testing.T, name string) Replay {
	t.Helper()
	w, ok := workload.Find("Video-1")
	if !ok {
		t.Fatal("no workload")
	}
	w.Threads, w.Total = 4, 8
	const bytes = 1 << 20
	d := 200 * time.Millisecond
	return Replay{Workload: w, Tracer: name, Duration: d, Live: 3, Threads: 100, Config: tracer.Config{Bytes: bytes},
		Speed: 3 * bytes / workload.MeanEntry() / d.Seconds() / w.Sum()}
}

// TestReplay runs every tracer that writes from Go; the engine verifies each snapshot itself. How much is kept
// depends on the machine, that something is does not.
func TestReplay(t *testing.T) {
	watch := newStopwatch()
	for _, info := range tracer.All {
		t.Run(info.Name, func(t *testing.T) {
			r := short(t, info.Name)
			res, err := r.do(watch)
			if unavailable(err) {
				t.Skipf("%s cannot be had here: %v", info.Name, err)
			}
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%+v", res)
			if res.Written == 0 || res.Kept == 0 || res.LatestMB <= 0 || res.LatestShare > 1 || res.Threads != 48 || res.Identities != 96 {
				t.Errorf("%+v", res)
			}
		})
	}
}

// TestLTTng is a real session; what it reads back is verified as everything else is.
func TestLTTng(t *testing.T) {
	r := short(t, lttngInfo.Name)
	t.Cleanup(func() { dropTools([]Replay{r}) })
	r.Config.Bytes = workload.Cores * 64 << 10 // whole sub-buffers for each core
	res, err := r.do(stopwatch{})
	if unavailable(err) {
		t.Skipf("LTTng cannot be had here: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", res)
	if res.Written == 0 || res.Kept == 0 || res.LatestMB <= 0 || res.Counters["rings"] != workload.Cores {
		t.Errorf("%+v", res)
	}
}

func TestStuckAndShrunk(t *testing.T) {
	r := short(t, "blockbuf")
	r.Stuck, r.StuckFor, r.Shrink = 0.001, 100*time.Millisecond, true
	res, err := r.do(newStopwatch())
	if err != nil {
		t.Fatal(err)
	}
	if res.Late == 0 {
		t.Errorf("nobody was stuck: %+v", res)
	}
	// Writers that are stuck keep their blocks.
	if s := res.Shrunk; s == nil || s.HalfFilled <= 0 || s.HalfFilled > 1.5 {
		t.Errorf("%+v", s)
	}
}

// TestResizingLosesWhatNoLongerFits: while everybody writes the buffer is halved and restored; right after halving it is
// full, and at the end the newest records are there without a gap as far back as there has been room for them.
func TestResizingLosesWhatNoLongerFits(t *testing.T) {
	r := short(t, "blockbuf")
	r.Shrink = true
	res, err := r.do(newStopwatch())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v, latest fragment %.1f %% of the buffer", res.Shrunk, 100*res.LatestShare)
	// What is certain is 1 - A/N, 96 blocks of 256 being open; a gap where the halves meet would leave less than half.
	s := res.Shrunk
	if s == nil || s.WrittenSince < r.Config.Bytes || s.OfWhatFits < 0.6 || s.OfWhatFits > 1.01 {
		t.Errorf("%+v", s)
	}
	// A snapshot takes its time, and what is overwritten before it is read is not in it.
	if half := float64(r.Config.Bytes / 2); s != nil && s.HalfFilled*half+float64(s.WrittenHalving) < 0.6*half {
		t.Errorf("%+v", s)
	}
}

// TestCTF takes hand-made packets apart: a compact and an extended event header, padding at the packet's end.
func TestCTF(t *testing.T) {
	packet := func(events ...string) []byte {
		p := make([]byte, 256)
		binary.LittleEndian.PutUint32(p, ctfMagic)
		at := ctfPacketTop
		for i, e := range events {
			if i%2 == 1 {
				binary.LittleEndian.PutUint16(p[at:], 1<<16-1)
				at += 8
			}
			at += 6
			binary.LittleEndian.PutUint32(p[at:], uint32(len(e)))
			at += 4 + copy(p[at+4:], e)
		}
		binary.LittleEndian.PutUint64(p[48:], uint64(at)*8)
		binary.LittleEndian.PutUint64(p[56:], 256*8)
		return p
	}
	var got []string
	err := walkCTF(append(packet("one", "two", "three"), packet("four")...), func(p []byte) { got = append(got, string(p)) })
	if err != nil || strings.Join(got, " ") != "one two three four" {
		t.Errorf("%q, %v", got, err)
	}
	bad := packet("one")
	binary.LittleEndian.PutUint32(bad[ctfPacketTop+6:], 1000)
	for _, b := range [][]byte{bad, packet("one")[:100], make([]byte, 256)} {
		if walkCTF(b, func([]byte) {}) == nil {
			t.Error("no error")
		}
	}
}

func TestPlan(t *testing.T) {
	o := options{seconds: 1, workloads: "known", tracers: "blockbuf,bbq", level: "both", turns: 4, threads: 10, repeat: 2}
	all, err := plan(o)
	if err != nil || len(all) != 2*6*2*2 {
		t.Fatalf("%d replays, %v", len(all), err)
	}
	for _, r := range all {
		if got := r.Speed * r.Workload.Sum() * workload.MeanEntry() * o.seconds; got < 3.9*workload.BufferBytes || got > 4.1*workload.BufferBytes {
			t.Errorf("%s: %.0f bytes at speed %.1f", r.Workload.Name, got, r.Speed)
		}
	}
	for _, bad := range []func(*options){
		func(o *options) { o.workloads = "Nothing" },
		func(o *options) { o.tracers = "nothing" },
		func(o *options) { o.level = "floor" },
		func(o *options) { o.seconds = 0 },
	} {
		b := o
		bad(&b)
		if _, err := plan(b); err == nil {
			t.Errorf("no error for %+v", b)
		}
	}
}

func TestTables(t *testing.T) {
	var results []Result
	for i, w := range []string{"A", "A", "A", "B"} {
		results = append(results, Result{Workload: w, Tracer: "x", Level: "thread", LatestMB: []float64{1, 4, 2, 8}[i], LatestShare: 0.5, Fragments: 1, GeoNs: 10})
	}
	m := medians(results)
	if len(m) != 2 || m[0].LatestMB != 2 {
		t.Errorf("medians %+v", m)
	}
	if g := means(m); len(g) != 1 || g[0].LatestMB < 3.99 || g[0].LatestMB > 4.01 || g[0].Threads != 2 {
		t.Errorf("means %+v", g)
	}
	var b strings.Builder
	printTable(&b, results)
	printFigure10(&b, results)
	for _, want := range []string{"geometric mean", "BTrace", "active blocks"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is not in\n%s", want, b.String())
		}
	}
	prefix := t.TempDir() + "/raw"
	if err := save(prefix, results); err != nil {
		t.Fatal(err)
	}
}
