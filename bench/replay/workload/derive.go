package workload

// derive.go: rates for all twenty workloads from what the paper prints.
//
// Six workloads have their rates in figure 4: they are taken as they are. For the other fourteen the paper's
// own measurements say enough, because some of the tracers measured are simple:
//
//   - ftrace keeps 1/12 of the buffer for each core. With steady rates its latest fragment begins when the
//     busiest core's share wraps, so latest ÷ share = Σ rates ÷ highest rate. On the six known workloads Σ ÷
//     highest is 0.88 to 1.37 times what the table implies (the rest is burstiness); skewOf uses their mean.
//   - BBQ is one global queue: its latency is contention, so it grows with the total rate. On the six known
//     workloads it does so without exception; totalOf interpolates (log-linear) between them.
//   - ftrace's loss says how much longer the slowest core's history is than what was kept: for shares that all
//     wrapped, 1 - loss = 12 × lowest rate ÷ Σ rates. A loss above 0.75 belongs, among the known workloads, to
//     those whose big cores were idle. bigOf uses it.
//   - How the rest divides between little and middle cores follows the known workloads: the more skewed, the
//     more on the little ones (littleOverMiddle interpolates over the skew).
//
// Deriving each known workload from the other five gives its skew within 0.75 to 1.3 times and its total within
// 0.4 to 1.8 times (TestDeriveKnown). The total matters less: a replay may run faster than real time anyway.
// That is a reconstruction of shape, not of the traces: the paper publishes none. Which of the two a workload is
// says Workload.Known. Bursts, and how a core's entries divide between its threads, are not in the paper at
// all; package replay's engine says what it assumes.

import (
	"cmp"
	"math"
	"slices"
)

// Workload is what is replayed.
type Workload struct {
	Name    string
	Known   bool           // rates from the paper's figure 4; otherwise derived
	Rates   [Cores]float64 // entries a second of each core
	Threads int            // threads that write to one core's buffer within a second (figure 6, median)
	Total   int            // … within 30 seconds

	// What the paper's table 2 says that BTrace and ftrace reach on it.
	PaperMB, PaperFragments, PaperFtraceMB float64
}

// Sum is the rate of all cores together, entries a second.
func (w Workload) Sum() float64 {
	s := 0.0
	for _, r := range w.Rates {
		s += r
	}
	return s
}

// Skew is Σ rates ÷ highest rate: Cores when all are alike, 1 when one core does everything. It is the number
// of shares that a buffer cut up by core can use.
func (w Workload) Skew() float64 { return w.Sum() / slices.Max(w.Rates[:]) }

// All are the workloads in the order of the paper's table 2.
func All() []Workload {
	var all []Workload
	for _, c := range columns {
		w := Workload{Name: c.name, Known: c.rates != nil, Threads: int(c.threadsPerSecond), Total: int(c.threadsTotal),
			PaperMB: c.btraceMB, PaperFragments: c.btraceFragments, PaperFtraceMB: c.ftraceMB}
		if w.Known {
			for i, r := range c.rates {
				w.Rates[i] = r * 1000
			}
		} else {
			w.Rates = derive(c, known(""))
		}
		all = append(all, w)
	}
	return all
}

// Find returns the workload of that name.
func Find(name string) (Workload, bool) {
	for _, w := range All() {
		if w.Name == name {
			return w, true
		}
	}
	return Workload{}, false
}

// known are the columns with rates, except one: what derive may learn from.
func known(except string) (k []paper) {
	for _, c := range columns {
		if c.rates != nil && c.name != except {
			k = append(k, c)
		}
	}
	return k
}

// derive makes rates for a column from those of the known ones.
func derive(c paper, from []paper) (rates [Cores]float64) {
	total, skew := totalOf(c, from), skewOf(c, from)
	top := total / skew
	big := min(bigOf(c, total), top)
	ratio := math.Exp(interpolate(skew, from, func(p paper) (x, y float64) {
		return sumOf(p) / slices.Max(p.rates), math.Log(littleOverMiddle(p))
	}))
	// top + 3 little + 6 middle + 2 big = total, little = ratio × middle; nobody is above top.
	middle := max(0, total-top-2*big) / (3*ratio + 6)
	little := ratio * middle
	if little > top { // what does not fit on the little cores goes to the middle ones
		middle += (little - top) * 3 / 6
		little = top
	}
	for i := range rates {
		switch {
		case i == 0:
			rates[i] = top
		case i < 4:
			rates[i] = little
		case i < 10:
			rates[i] = min(middle, top)
		default:
			rates[i] = big
		}
	}
	return rates
}

func sumOf(p paper) (s float64) {
	for _, r := range p.rates {
		s += r * 1000
	}
	return s / 1000
}

func littleOverMiddle(p paper) float64 {
	little, middle := 0.0, 0.0
	for i, r := range p.rates {
		switch {
		case i > 0 && i < 4:
			little += r / 3
		case i >= 4 && i < 10:
			middle += r / 6
		}
	}
	return little / middle
}

// skewOf is Σ rates ÷ highest, from ftrace's latest fragment.
func skewOf(c paper, from []paper) float64 {
	f := 0.0
	for _, p := range from {
		f += sumOf(p) / slices.Max(p.rates) / p.ftraceMB / float64(len(from))
	}
	return min(c.ftraceMB*f, Cores)
}

// totalOf is Σ rates in entries a second, from BBQ's latency.
func totalOf(c paper, from []paper) float64 {
	return 1000 * math.Exp(interpolate(math.Log(c.bbqNs), from, func(p paper) (x, y float64) {
		return math.Log(p.bbqNs), math.Log(sumOf(p))
	}))
}

// bigOf is a big core's rate, from ftrace's loss.
func bigOf(c paper, total float64) float64 {
	if c.ftraceLoss > 0.75 {
		return total * 0.002 // idle: as in Desktop, Video-1 and LockScr
	}
	return total * (1 - c.ftraceLoss) / Cores
}

// interpolate is piecewise linear through the points of the known columns, flat beyond the outermost.
func interpolate(x float64, from []paper, point func(paper) (x, y float64)) float64 {
	type xy struct{ x, y float64 }
	var pts []xy
	for _, p := range from {
		px, py := point(p)
		pts = append(pts, xy{px, py})
	}
	slices.SortFunc(pts, func(a, b xy) int { return cmp.Compare(a.x, b.x) })
	if x <= pts[0].x {
		return pts[0].y
	}
	for i := 1; i < len(pts); i++ {
		if x <= pts[i].x {
			a, b := pts[i-1], pts[i]
			return a.y + (b.y-a.y)*(x-a.x)/(b.x-a.x)
		}
	}
	return pts[len(pts)-1].y
}
