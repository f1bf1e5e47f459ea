package report

// knobs.go: which detail --budget gave up, and for how long.

import (
	"fmt"
	"time"

	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/visualize/number"
)

// knobs adds up for how long each knob stood elsewhere than configured.
type knobs [trace.KnobLast + 1]struct {
	value, most uint64 // now, and the farthest from what is configured
	since       trace.Ns
	out         int64 // ns
}

func (k *knobs) turn(e *trace.Event) {
	if e.Object > uint64(trace.KnobLast) {
		return // another version's
	}
	x := &k[e.Object]
	if x.value != 0 {
		x.out += int64(e.Time - x.since)
	}
	x.value, x.since = e.Size, e.Time
	if fewer := trace.Knob(e.Object) == trace.KnobHolds && e.Size != 0; x.most == 0 || fewer && e.Size < x.most || !fewer && e.Size > x.most {
		x.most = e.Size
	}
}

// lines says for each knob that was turned what it cost, and in how much of the time.
func (k *knobs) lines(end trace.Ns, whole int64) (out []string) {
	for i := range k {
		x := k[i]
		if x.value != 0 {
			x.out += max(0, int64(end-x.since))
		}
		if x.most == 0 || whole <= 0 {
			continue
		}
		what := ""
		switch trace.Knob(i) {
		case trace.KnobTicks:
			what = fmt.Sprintf("1 tick in %d", x.most)
		case trace.KnobGaps:
			what = "no samples between hooks"
		case trace.KnobHolds:
			what = fmt.Sprintf("%d acquisitions a tick", x.most)
		case trace.KnobAllocPeriod:
			what = "allocations each " + byteSize(x.most)
		case trace.KnobCPUPeriod:
			what = fmt.Sprintf("%.0f samples/s", 1e9/float64(x.most))
		case trace.KnobWaits:
			what = "waits from " + time.Duration(x.most).String()
		case trace.KnobCalls:
			what = "calls from " + time.Duration(x.most).String()
		case trace.KnobWriters:
			what = "no writers looked up"
		}
		out = append(out, fmt.Sprintf("%s in %s of the time", what, number.Percent(min(x.out, whole), whole)))
	}
	return out
}
