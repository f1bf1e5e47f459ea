package page

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// Colour blindness as matrices on linear RGB, complete: Machado, Oliveira and Fernandes, "A Physiologically-based Model for Simulation
// of Color Vision Deficiency" (2009), table 1, severity 1.0.
var blindness = map[string][9]float64{
	"none":         {1, 0, 0, 0, 1, 0, 0, 0, 1},
	"deuteranopia": {0.367322, 0.860646, -0.227968, 0.280085, 0.672501, 0.047413, -0.011820, 0.042940, 0.968881},
	"protanopia":   {0.152286, 1.052583, -0.204868, 0.114503, 0.786281, 0.099216, -0.003882, -0.048116, 1.051998},
	"tritanopia":   {1.255528, -0.076749, -0.178779, -0.078411, 0.930809, 0.147602, 0.004733, 0.691367, 0.303900},
}

type rgb [3]float64 // linear, 0 to 1

func parseColour(t *testing.T, hex string) (c rgb) {
	t.Helper()
	for i := range c {
		n, err := strconv.ParseUint(hex[1+2*i:3+2*i], 16, 8)
		if err != nil {
			t.Fatalf("%q is no colour", hex)
		}
		v := float64(n) / 255
		if v <= 0.04045 {
			c[i] = v / 12.92
		} else {
			c[i] = math.Pow((v+0.055)/1.055, 2.4)
		}
	}
	return c
}

func (c rgb) seenBy(m [9]float64) (out rgb) {
	for i := range out {
		out[i] = max(0, min(1, m[3*i]*c[0]+m[3*i+1]*c[1]+m[3*i+2]*c[2]))
	}
	return out
}

// lab is CIE L*a*b* with D65.
func (c rgb) lab() [3]float64 {
	f := func(t float64) float64 {
		if t > 216.0/24389 {
			return math.Cbrt(t)
		}
		return (24389.0/27*t + 16) / 116
	}
	x := f((0.4124564*c[0] + 0.3575761*c[1] + 0.1804375*c[2]) / 0.95047)
	y := f(0.2126729*c[0] + 0.7151522*c[1] + 0.0721750*c[2])
	z := f((0.0193339*c[0] + 0.1191920*c[1] + 0.9503041*c[2]) / 1.08883)
	return [3]float64{116*y - 16, 500 * (x - y), 200 * (y - z)}
}

func distance(a, b rgb) float64 {
	p, q := a.lab(), b.lab()
	return math.Sqrt((p[0]-q[0])*(p[0]-q[0]) + (p[1]-q[1])*(p[1]-q[1]) + (p[2]-q[2])*(p[2]-q[2]))
}

// contrast is WCAG's ratio of luminances.
func contrast(a, b rgb) float64 {
	y := func(c rgb) float64 { return 0.2126*c[0] + 0.7152*c[1] + 0.0722*c[2] + 0.05 }
	return max(y(a), y(b)) / min(y(a), y(b))
}

// themes are the style sheet's colours by name.
func themes(t *testing.T) map[string]map[string]string {
	t.Helper()
	out := map[string]map[string]string{}
	for name, mark := range map[string]string{"light": ":root {", "dark": ":root[data-theme=\"dark\"] {", "dark by the system": ":root:not([data-theme=\"light\"]) {"} {
		_, rest, ok := strings.Cut(string(style), mark)
		if !ok {
			t.Fatalf("the style sheet has no %s", mark)
		}
		block, _, _ := strings.Cut(rest, "}")
		out[name] = map[string]string{}
		for _, m := range regexp.MustCompile(`--([a-z0-9-]+): (#[0-9a-f]{6});`).FindAllStringSubmatch(block, -1) {
			out[name][m[1]] = m[2]
		}
	}
	return out
}

// apart is how far, in CIE L*a*b* (ΔE*ab), any two states' colours are to lie from each other: several times what one just notices side by side.
const apart = 15

// TestColoursStayApart: states that may lie next to each other differ for everybody, and what is written can be read.
func TestColoursStayApart(t *testing.T) {
	all := themes(t)
	for k, v := range all["dark"] {
		if all["dark by the system"][k] != v {
			t.Errorf("--%s is %s where dark was chosen and %s where the system is dark", k, v, all["dark by the system"][k])
		}
	}
	for _, theme := range []string{"light", "dark"} {
		c := all[theme]
		least := map[string]float64{}
		for who, m := range blindness {
			least[who] = math.Inf(1)
			for i := 1; i < int(states); i++ {
				for j := i + 1; j < int(states); j++ {
					a, b := parseColour(t, c[fmt.Sprintf("s%d", i)]).seenBy(m), parseColour(t, c[fmt.Sprintf("s%d", j)]).seenBy(m)
					d := distance(a, b)
					if d < apart {
						t.Errorf("%s, seen with deficiency %s: %v and %v differ by %.1f, want %d", theme, who, state(i), state(j), d, apart)
					}
					least[who] = min(least[who], d)
				}
			}
		}
		t.Logf("%s: states differ by at least, for each deficiency: %v", theme, least)
		for i := range int(states) {
			on, text := c[fmt.Sprintf("s%d", i)], c[fmt.Sprintf("t%d", i)]
			if r := contrast(parseColour(t, on), parseColour(t, text)); r < 4.5 {
				t.Errorf("%s: text on %v has a contrast of %.1f, want 4.5", theme, state(i), r)
			}
		}
		for _, name := range []string{"text", "soft", "accent", "bad"} {
			for _, on := range []string{"bg", "panel"} {
				if r := contrast(parseColour(t, c[name]), parseColour(t, c[on])); r < 4.5 {
					t.Errorf("%s: --%s on --%s has a contrast of %.1f, want 4.5", theme, name, on, r)
				}
			}
		}
	}
}
