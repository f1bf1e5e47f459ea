// Package detail says in words which detail a recording gave up to stay within its budget (trace.KindKnob).
package detail

import (
	"fmt"
	"time"

	"github.com/hbtrace/hbtrace/trace"
)

// Text is what a knob's value means; value 0 is what was configured.
func Text(k trace.Knob, value uint64) string {
	names := [...]string{
		trace.KnobTicks: "all ticks", trace.KnobGaps: "samples between hooks", trace.KnobHolds: "all acquisitions of hot locks",
		trace.KnobAllocPeriod: "allocations as configured", trace.KnobCPUPeriod: "samples as configured", trace.KnobWaits: "waits as configured",
		trace.KnobCalls: "calls as configured", trace.KnobWriters: "writers looked up",
	}
	if k == 0 || k > trace.KnobLast {
		return fmt.Sprintf("knob %d at %d", k, value) // another version's
	}
	if value == 0 {
		return names[k]
	}
	switch k {
	case trace.KnobTicks:
		return fmt.Sprintf("1 tick in %d", value)
	case trace.KnobGaps:
		return "no samples between hooks"
	case trace.KnobHolds:
		return fmt.Sprintf("%d acquisitions of hot locks a tick", value)
	case trace.KnobAllocPeriod:
		return fmt.Sprintf("allocations each %d KiB", value>>10)
	case trace.KnobCPUPeriod:
		return fmt.Sprintf("%.0f samples/s", 1e9/float64(value))
	case trace.KnobWaits:
		return "waits from " + time.Duration(value).String()
	case trace.KnobCalls:
		return "calls from " + time.Duration(value).String()
	}
	return "no writers looked up"
}

// Knobs adds up for how long each knob stood elsewhere than configured. The zero value is that of a recording's beginning.
type Knobs [trace.KnobLast + 1]struct {
	value, far uint64 // now, and the farthest from what is configured
	since      trace.Ns
	out        int64 // ns
}

// Turn takes up a KindKnob event.
func (k *Knobs) Turn(e *trace.Event) {
	if e.Object > uint64(trace.KnobLast) {
		return
	}
	x := &k[e.Object]
	if x.value != 0 {
		x.out += int64(e.Time - x.since)
	}
	x.value, x.since = e.Size, e.Time
	if fewer := trace.Knob(e.Object) == trace.KnobHolds; x.far == 0 || fewer && e.Size != 0 && e.Size < x.far || !fewer && e.Size > x.far {
		x.far = e.Size
	}
}

// Spell is how far a knob was turned, in words, and for how long it was turned at all.
type Spell struct {
	Text string
	Ns   int64
}

// Spells are of the knobs that were turned, in a recording that ended at `end`.
func (k *Knobs) Spells(end trace.Ns) (out []Spell) {
	for i := range k {
		x := k[i]
		if x.value != 0 {
			x.out += max(0, int64(end-x.since))
		}
		if x.far != 0 {
			out = append(out, Spell{Text(trace.Knob(i), x.far), x.out})
		}
	}
	return out
}
