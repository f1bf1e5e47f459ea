// The validator: it holds a recording against the invariants that every recording satisfies, from any recorder
// and however it ended. Every trace that any test makes goes through it.
//
// check_tables.go checks what events refer to, check_events.go the events one by one, check_accounts.go their sums.

package tracetest

import (
	"errors"
	"fmt"

	"github.com/hbtrace/hbtrace/trace"
)

// Slack for what two clocks, or two reads of one clock, can disagree by.
const (
	clockSlackNs = 1_000_000  // between processors, and between a moment and the record of it
	cpuSlackNs   = 20_000_000 // CPU time is accounted by the kernel tick where nothing better is there: some ticks
	mostProblems = 20         // of them reported
)

// problems collects what is wrong. At most mostProblems are kept, all are counted.
type problems struct {
	list  []error
	total int
}

func (p *problems) addf(format string, args ...any) {
	p.total++
	if len(p.list) < mostProblems {
		p.list = append(p.list, fmt.Errorf(format, args...))
	}
}

func (p *problems) err() error {
	if p.total == 0 {
		return nil
	}
	if hidden := p.total - len(p.list); hidden > 0 {
		p.list = append(p.list, fmt.Errorf("and %d more", hidden))
	}
	return errors.Join(p.list...)
}

// checker is one pass over one recording.
type checker struct {
	problems
	src     trace.Source
	meta    *trace.Meta
	stats   *trace.Stats
	procs   []trace.Process
	threads []trace.Thread
	nmods   int
	nnodes  int
	depth   []uint32 // of each node, by id; depth[0] = 0
	state   []threadState
	live    map[site][]moment
	events  uint64
	knobs   [trace.KnobLast + 1]uint64
	longest int64 // sampling period by KindKnob, ns
}

// Validate returns nil when the recording keeps every invariant, else an error that names each that it breaks
// (up to a limit) with the ids concerned.
func Validate(src trace.Source) error {
	c := &checker{
		src: src, meta: src.Meta(), stats: src.Stats(), procs: src.Processes(), threads: src.Threads(),
		nmods: len(src.Modules()), nnodes: src.Nodes(), live: map[site][]moment{},
	}
	if c.meta == nil || c.stats == nil {
		return errors.New("validate: no metadata or no statistics")
	}
	c.state = make([]threadState, len(c.threads)+1)
	c.checkMeta()
	c.checkProcesses()
	c.checkThreads()
	c.checkModules()
	c.checkNodes()
	if err := trace.Events(src, func(e *trace.Event) error {
		c.event(e)
		return nil
	}); err != nil {
		c.addf("reading events: %w", err)
	}
	c.checkThreadEnds()
	c.checkAllocations()
	c.checkCPU()
	c.checkStats()
	if err := c.err(); err != nil {
		return fmt.Errorf("validate: %d problems:\n%w", c.total, err)
	}
	return nil
}
