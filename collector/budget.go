// budget.go bounds what a recording uses: the agent's CPU time in the program, this process's and the sampler's together, as
// a share of the program's CPU time. A governor looks a few times a second, and goes one step up or down a ladder; each step sets
// one knob in the segment's header (segment/layout.h). Every change is an event, KindKnob. The data stay right whatever the
// knobs: a sample carries its weight or its period, and counters count what is not recorded.
package collector

import (
	"time"

	"github.com/hbtrace/hbtrace/segment"
	"github.com/hbtrace/hbtrace/trace"
	"golang.org/x/sys/unix"
)

const (
	governEvery = 250 * time.Millisecond
	governFloor = 0.005 // of one CPU: what may be used however little the program does
	// Below this share of the budget detail comes back; below the second two steps at once.
	governEase, governQuiet = 0.6, 0.15
	// A step that had to be taken again is not given back before so long, which doubles up to the second.
	governPatience, governMostPatience = time.Second, 16 * time.Second
)

// step of the ladder: from it on, a knob has this value. They stand in the order in which detail is given up.
type step struct {
	knob trace.Knob
	to   uint64
}

// ladder is made for a session, from what it would record without a budget.
func ladder(o *Options, c segment.Config) []step {
	freq := func(hz uint64) step { return step{trace.KnobCPUPeriod, max(c.CPUPeriodNs, 1e9/hz)} }
	alloc := func(times uint64) step { return step{trace.KnobAllocPeriod, max(c.AllocPeriod, 1) * times} }
	waits := func(d time.Duration) step { return step{trace.KnobWaits, max(uint64(d), uint64(o.LockThreshold))} }
	calls := func(d time.Duration) step { return step{trace.KnobCalls, max(uint64(d), uint64(o.CallThreshold))} }
	return []step{
		{trace.KnobTicks, 2}, {trace.KnobGaps, 1}, {trace.KnobTicks, 4}, {trace.KnobHolds, 64}, alloc(4), freq(249), {trace.KnobTicks, 8},
		alloc(16), freq(99), waits(30 * time.Microsecond), calls(300 * time.Microsecond), waits(100 * time.Microsecond), {trace.KnobWriters, 1},
		alloc(64), calls(time.Millisecond), waits(300 * time.Microsecond), {trace.KnobHolds, 8}, {trace.KnobTicks, 16}, waits(time.Millisecond),
		calls(3 * time.Millisecond), waits(10 * time.Millisecond), calls(10 * time.Millisecond),
	}
}

// governor holds a session to its budget. It belongs to the session's goroutine.
type governor struct {
	s       *session
	share   float64 // of the program's CPU time
	ladder  []step
	level   int                   // steps of the ladder that are in force
	values  map[trace.Knob]uint64 // in force; 0: as configured
	seen    map[int]int64         // CPU time of processes at the last look, by pid
	program int64                 // CPU time of the program so far, ns
	last    spent
	looked  time.Time
	eased   time.Time     // when the level last went down
	rose    time.Time     // and up
	wait    time.Duration // that has to pass since then before it goes down
	forced  time.Duration // tests: go up and down the ladder all the time, a step each so long
	down    bool          // forced: on the way down
}

type spent struct {
	at            time.Time
	program, used int64 // ns so far
}

func newGovernor(s *session) *governor {
	if s.opt.Budget <= 0 && s.opt.forceKnobs == 0 {
		return nil
	}
	return &governor{
		s: s, share: s.opt.Budget, ladder: ladder(s.opt, s.seg.Config()), values: map[trace.Knob]uint64{}, seen: map[int]int64{},
		wait: governPatience, forced: s.opt.forceKnobs,
	}
}

// look judges what was used since the last look, and turns knobs.
func (g *governor) look(now time.Time) {
	if g == nil || g.s.firstThread == 0 {
		return
	}
	if g.forced > 0 {
		if now.Sub(g.looked) >= g.forced {
			g.looked = now
			g.force()
		}
		return
	}
	if now.Sub(g.looked) < governEvery {
		return
	}
	first := g.looked.IsZero()
	g.looked = now
	x := spent{now, g.programCPU(first && g.s.targets != nil), int64(g.s.agentCPU() + g.s.collectorCPU() + g.s.sampler.CPU())}
	before := g.last
	g.last = x
	if first {
		return // starting costs what it costs
	}
	used := float64(x.used - before.used)
	allowed := max(g.share*float64(x.program-before.program), governFloor*float64(x.at.Sub(before.at)))
	g.judge(now, used/allowed)
}

// judge goes up or down by what was used, as a share of what was allowed.
func (g *governor) judge(now time.Time, over float64) {
	switch {
	case over > 1:
		if !g.eased.IsZero() && now.Sub(g.eased) < 2*g.wait { // what came back was too much
			g.wait = min(2*g.wait, governMostPatience)
		}
		g.rose = now
		g.set(g.level + 1)
		if over > 3 {
			g.set(g.level + 1)
		}
	case over < governQuiet && g.level > 0:
		g.wait = governPatience
		g.eased = now
		g.set(g.level - 2)
	case over < governEase && g.level > 0 && now.Sub(g.rose) >= g.wait && now.Sub(g.eased) >= governPatience/2:
		g.eased = now
		g.set(g.level - 1)
	}
}

func (g *governor) force() {
	if g.level == len(g.ladder) {
		g.down = true
	} else if g.level == 0 {
		g.down = false
	}
	if g.down {
		g.set(g.level - 1)
	} else {
		g.set(g.level + 1)
	}
}

// set puts the first `level` steps in force, and makes an event of each knob that changed.
func (g *governor) set(level int) {
	level = min(max(level, 0), len(g.ladder))
	want := map[trace.Knob]uint64{}
	for _, s := range g.ladder[:level] {
		want[s.knob] = s.to
	}
	g.level = level
	now := trace.Ns(segment.Now())
	for k := trace.KnobTicks; k <= trace.KnobLast; k++ {
		if from, to := g.values[k], want[k]; from != to {
			g.values[k] = to
			g.turn(k, to)
			g.s.event(&trace.Event{
				Kind: trace.KindKnob, Flags: trace.FlagNoStack, Thread: g.s.firstThread, Time: now, Start: now, Count: 1,
				Object: uint64(k), Object2: from, Size: to,
			})
		}
	}
}

// turn stores a knob where agents and sampler read it.
func (g *governor) turn(k trace.Knob, to uint64) {
	h := g.s.seg.Header()
	flag := func(bit uint32) {
		if to != 0 {
			h.KnobFlags.Or(bit)
		} else {
			h.KnobFlags.And(^bit)
		}
	}
	switch k {
	case trace.KnobTicks:
		h.KnobTicks.Store(uint32(to))
	case trace.KnobGaps:
		flag(segment.KnobNoGaps)
	case trace.KnobHolds:
		h.KnobHolds.Store(uint32(to))
	case trace.KnobAllocPeriod:
		h.KnobAllocPeriod.Store(to)
	case trace.KnobCPUPeriod:
		h.KnobCPUPeriodNs.Store(to)
	case trace.KnobWaits:
		h.KnobWaitNs.Store(to)
	case trace.KnobCalls:
		h.KnobCallNs.Store(to)
	case trace.KnobWriters:
		flag(segment.KnobNoWriters)
	}
}

// programCPU is the CPU time of the session's processes so far. What one used after its last look is missing. began: what was used
// before counts for nothing.
func (g *governor) programCPU(began bool) int64 {
	s := g.s
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.procs {
		if !p.verified || p.gone {
			continue
		}
		pid := p.id.pid
		now, ok := processClock(pid)
		if !ok {
			continue
		}
		before := g.seen[pid]
		if now < before { // another process with this number
			before = 0
		}
		if !began {
			g.program += now - before
		}
		g.seen[pid] = now
	}
	if len(g.seen) > 1<<14 { // of processes long gone: what lives is counted once more, at most
		clear(g.seen)
	}
	return g.program
}

// processClock reads another process's CPU clock (linux/posix-timers_types.h: MAKE_PROCESS_CPUCLOCK with CPUCLOCK_SCHED).
func processClock(pid int) (ns int64, ok bool) {
	var ts unix.Timespec
	if unix.ClockGettime(int32(^pid<<3|2), &ts) != nil {
		return 0, false
	}
	return ts.Nano(), true
}
