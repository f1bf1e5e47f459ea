package detail

import (
	"reflect"
	"testing"

	"github.com/hbtrace/hbtrace/trace"
)

func TestSpells(t *testing.T) {
	var k Knobs
	for _, e := range []trace.Event{
		{Time: 100, Object: uint64(trace.KnobHolds), Size: 64},
		{Time: 150, Object: uint64(trace.KnobWaits), Size: 30000},
		{Time: 200, Object: uint64(trace.KnobHolds), Object2: 64, Size: 8},
		{Time: 300, Object: uint64(trace.KnobWaits), Object2: 30000, Size: 100000},
		{Time: 400, Object: uint64(trace.KnobWaits), Object2: 100000},
		{Time: 900, Object: 99, Size: 1}, // another version's
	} {
		k.Turn(&e)
	}
	want := []Spell{{"8 acquisitions of hot locks a tick", 900}, {"waits from 100µs", 250}}
	if got := k.Spells(1000); !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	for knob := trace.Knob(0); knob <= trace.KnobLast+1; knob++ {
		if Text(knob, 0) == "" || Text(knob, 1<<20) == "" || Text(knob, 0) == Text(knob, 1<<20) {
			t.Errorf("knob %d: %q, %q", knob, Text(knob, 0), Text(knob, 1<<20))
		}
	}
}
