// Colours: what a thread does, and which module code is from. The state colours are Okabe and Ito's, which stay
// apart under the common colour blindnesses; the idle ones are paler, so that what costs stands out.

package picture

import (
	"fmt"
	"hash/fnv"
	"path/filepath"

	"github.com/hbtrace/hbtrace/analysis/weigh"
	"github.com/hbtrace/hbtrace/trace"
)

type state = weigh.State

const (
	running  = weigh.Running
	off      = weigh.Off
	ready    = weigh.Ready
	locked   = weigh.Locked
	signaled = weigh.Signaled
	inout    = weigh.InOut
	polling  = weigh.Polling
	other    = weigh.Other
	sleeping = weigh.Sleeping
	states   = weigh.NumStates
)

// stacked are the states in the order in which they are stacked in a lane, from the bottom, and stand in the legend.
var stacked = [...]state{running, locked, signaled, inout, polling, other, sleeping, ready, off}

// look of a state: its colour, that of text on it, and its entry in the legend.
var look = [states]struct{ fill, text, name string }{
	running:  {"#009e73", "#ffffff", "running"},
	locked:   {"#d55e00", "#ffffff", "waiting for a lock"},
	signaled: {"#e69f00", "#1f2933", "waiting for a signal or thread"},
	inout:    {"#0072b2", "#ffffff", "reading or writing"},
	polling:  {"#8ecbf0", "#1f2933", "waiting for I/O to be ready"},
	other:    {"#f0e442", "#1f2933", "waiting for a process"},
	sleeping: {"#cfc3dd", "#1f2933", "sleeping"},
	ready:    {"#9aa5b1", "#1f2933", "runnable without a CPU"},
	off:      {"#e4e7eb", "#1f2933", "off the CPU"},
}

// modulePalette are the colours of the heaviest modules, in this order: pale, so that they carry dark text and
// are not taken for a state.
var modulePalette = []hsl{
	{42, 62, 80}, {208, 48, 80}, {150, 30, 76}, {275, 38, 84}, {345, 48, 84}, {180, 32, 74}, {78, 42, 76},
}

// otherModule is the colour of the rest, and of what is in no module.
var otherModule = hsl{215, 10, 82}

// hsl is a colour: degrees, percent, percent.
type hsl struct{ h, s, l float64 }

// hex is the colour as #rrggbb, l percent lighter.
func (c hsl) hex(lighter float64) string {
	s, l := c.s/100, min(1, (c.l+lighter)/100)
	chroma := (1 - abs(2*l-1)) * s
	at := func(n float64) int {
		k := n + (c.h+360)/30
		for k >= 12 { // degrees beyond a turn
			k -= 12
		}
		v := l - chroma/2*max(-1, min(k-3, 9-k, 1))
		return int(v*255 + 0.5)
	}
	return fmt.Sprintf("#%02x%02x%02x", at(0), at(8), at(4))
}

func abs(f float64) float64 { return max(f, -f) }

// shadeOf varies a module's colour a little by function, so that neighbours can be told apart and a function
// looks the same wherever it is.
func (c hsl) shadeOf(function string) string {
	h := fnv.New32a()
	h.Write([]byte(function))
	v := h.Sum32()
	c.h += float64(v%7)*3 - 9
	return c.hex(float64(v/7%5)*2 - 4)
}

// moduleName is how legends and tooltips call a module.
func moduleName(m *trace.Module) string {
	switch {
	case m == nil:
		return "no module"
	case m.Path == "":
		return "[anonymous]"
	}
	return oneLine(filepath.Base(m.Path))
}
