package collector

import (
	"math"
	"strconv"
	"testing"
	"time"

	"github.com/hbtrace/hbtrace/segment"
	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/tracefile"
)

// knobsOf is what agents and sampler read.
func knobsOf(h *segment.Header) [7]uint64 {
	return [...]uint64{
		uint64(h.KnobTicks.Load()), uint64(h.KnobFlags.Load()), uint64(h.KnobHolds.Load()), h.KnobAllocPeriod.Load(), h.KnobCPUPeriodNs.Load(),
		h.KnobWaitNs.Load(), h.KnobCallNs.Load(),
	}
}

func testGovernor(t *testing.T) *governor {
	t.Helper()
	seg, err := segment.Create(segment.Config{Threads: 4, Procs: 4, Rings: 1, RingBytes: 1 << 16, CPUPeriodNs: 2e6})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { seg.Close() })
	return newGovernor(&session{opt: &Options{Budget: 0.02}, seg: seg, firstThread: 1})
}

// Too much used: detail is given up, step by step, down to the last; little used: all of it comes back.
func TestGovernor(t *testing.T) {
	g := testGovernor(t)
	h, now := g.s.seg.Header(), time.Unix(1000, 0)
	top := len(g.ladder)
	for i := range 2 * top {
		before := knobsOf(h)
		now = now.Add(governEvery)
		g.judge(now, 1.5)
		if i < top && g.level != i+1 || i >= top && g.level != top {
			t.Fatalf("after %d looks that found too much: level %d of %d", i+1, g.level, top)
		}
		if i < top && knobsOf(h) == before {
			t.Errorf("step %d turned no knob", i)
		}
	}
	if h.KnobCPUPeriodNs.Load() != 1_000_000_000/99 || h.KnobWaitNs.Load() != 10e6 || h.KnobFlags.Load() != segment.KnobNoGaps|segment.KnobNoWriters {
		t.Errorf("at the top: %v", knobsOf(h))
	}
	if g.judge(now.Add(governEvery), 0.9); g.level != top {
		t.Error("detail came back although most of the budget was used")
	}
	for range top {
		now = now.Add(governEvery)
		g.judge(now, 0.01)
	}
	if g.level != 0 || knobsOf(h) != ([7]uint64{}) {
		t.Errorf("a quiet program: level %d, %v", g.level, knobsOf(h))
	}
}

// A step that turns out too dear when it comes back is tried again more and more rarely.
func TestGovernorIsPatient(t *testing.T) {
	g := testGovernor(t)
	now := time.Unix(1000, 0)
	turns := 0
	g.judge(now, 2)
	for range 240 { // a minute in which level 0 is too much and level 1 is little
		now = now.Add(governEvery)
		before := g.level
		if g.level == 0 {
			g.judge(now, 1.2)
		} else {
			g.judge(now, 0.4)
		}
		if g.level != before {
			turns++
		}
	}
	if turns > 16 {
		t.Errorf("%d turns in a minute", turns)
	}
}

// However often knobs are turned while a program runs: its counters are exact, its samples add up to what it used and allocated, and
// each turn is in the recording. That CPU time adds up is validate's to see.
func TestKnobsKeepSums(t *testing.T) {
	const objects = 12_000_000
	bin, turns, sum, squares := compile(t, "allocates"), 0, 0.0, 0.0
	var src *tracefile.Reader
	for try := 0; turns == 0; try++ {
		if try == 10 { // a recorder that gets no CPU while the program runs turns nothing
			t.Fatal("no knob was turned in ten recordings")
		}
		_, src, _ = recordIn(t, Options{Command: []string{bin, strconv.Itoa(objects)}, forceKnobs: 4 * time.Millisecond})
		sum, squares = 0, 0
		for _, e := range allEvents(t, src) {
			switch e.Kind {
			case trace.KindKnob:
				turns++
			case trace.KindAlloc:
				w := float64(e.Weight)
				sum += w
				squares += w * w
			}
		}
	}
	var exact uint64
	for _, th := range src.Threads() {
		exact += th.AllocBytes
		if th.Main && th.AllocObjects < objects {
			t.Errorf("%d allocations counted, there were %d", th.AllocObjects, objects)
		}
	}
	if off := math.Abs(sum - float64(exact)); off > 8*math.Sqrt(squares) {
		t.Errorf("samples stand for %.0f bytes, %d were allocated: off by %.1f deviations", sum, exact, off/math.Sqrt(squares))
	}
	t.Logf("%d turns, samples stand for %.4f of what was allocated", turns, sum/float64(exact))
}
