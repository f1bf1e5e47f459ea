package assemble

import (
	"math"
	"testing"
)

// TestMet: numbers are remembered as far back as there is room, and far above the room.
func TestMet(t *testing.T) {
	var m met
	for _, n := range []uint32{1, 5, 64, 65, 1000} {
		m.set(n)
	}
	for n, want := range map[uint32]bool{1: true, 2: false, 5: true, 63: false, 64: true, 65: true, 999: false, 1000: true, 1001: false} {
		if m.has(n) != want {
			t.Errorf("%d: %v", n, !want)
		}
	}
	at := func(n uint32, want bool) {
		t.Helper()
		if m.has(n) != want {
			t.Errorf("%d with %d on top: %v", n, m.top, !want)
		}
	}
	m.set(metKept + 3) // takes the places of 1 to 3
	at(1, true)        // too old to be told apart
	at(5, true)
	at(6, false)
	at(metKept+2, false)
	at(metKept+3, true)
	m.set(metKept + 5)
	at(metKept+5, true)
	at(metKept+4, false) // 4 was not met, and 5 made room
	for n := uint32(metKept + 6); n < metKept+400; n++ {
		m.set(n)
	}
	at(metKept+64, true) // again, in the place of 64
	at(1000, true)
	at(900, false)
	m.set(math.MaxUint32 - 5)
	at(math.MaxUint32-6, false)
	at(math.MaxUint32-5, true)
	at(1, true)
	if len(m.bits) > metKept/64 {
		t.Errorf("%d words for %d numbers", len(m.bits), metKept)
	}
}
