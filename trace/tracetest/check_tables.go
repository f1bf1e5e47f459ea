package tracetest

// tables.go checks metadata, processes, threads, modules and stack nodes: ids are dense, references known,
// parents before children, times in order.

import (
	"strings"

	"github.com/hbtrace/hbtrace/trace"
)

func (c *checker) checkMeta() {
	m := c.meta
	switch {
	case m.EndNs < m.StartNs:
		c.addf("meta: ends at %d, before its start %d", m.EndNs, m.StartNs)
	case m.CPUs < 1:
		c.addf("meta: %d CPUs", m.CPUs)
	case m.TickNs <= 0:
		c.addf("meta: a tick of %d ns", m.TickNs)
	case m.Freq < 0:
		c.addf("meta: frequency %d", m.Freq)
	case m.ExitStatus < -1 || m.ExitStatus > 255:
		c.addf("meta: exit status %d", m.ExitStatus)
	case m.ExitSignal < 0 || m.ExitSignal > 64:
		c.addf("meta: exit signal %d", m.ExitSignal)
	}
	if m.Version == "" || m.Arch == "" {
		c.addf("meta: version %q, architecture %q", m.Version, m.Arch)
	}
	for id, h := range m.Hooks {
		if id == 0 || h.Name == "" || h.Class == "" {
			c.addf("meta: hook %d is %+v", id, h)
		}
	}
}

func (c *checker) checkProcesses() {
	for i, p := range c.procs {
		if p.ID != trace.ProcID(i+1) {
			c.addf("process %d stands at place %d: ids must be dense from 1", p.ID, i+1)
		}
		if int(p.Parent) > len(c.procs) || p.Parent == p.ID && p.ID != 0 {
			c.addf("process %d has parent %d of %d", p.ID, p.Parent, len(c.procs))
		}
		if p.Forked && p.Parent == 0 {
			c.addf("process %d was forked by nobody", p.ID)
		}
		if p.PID <= 0 {
			c.addf("process %d has pid %d", p.ID, p.PID)
		}
		if p.End != 0 && p.End < p.Start {
			c.addf("process %d ends at %d, before its start %d", p.ID, p.End, p.Start)
		}
		c.within("process", uint64(p.ID), p.Start, p.End)
	}
}

func (c *checker) checkThreads() {
	mains := map[trace.ProcID]trace.ThreadID{}
	for i, t := range c.threads {
		if t.ID != trace.ThreadID(i+1) {
			c.addf("thread %d stands at place %d: ids must be dense from 1", t.ID, i+1)
		}
		if t.Proc == 0 || int(t.Proc) > len(c.procs) {
			c.addf("thread %d is of process %d of %d", t.ID, t.Proc, len(c.procs))
		}
		if int(t.Parent) > len(c.threads) || t.Parent == t.ID && t.ID != 0 {
			c.addf("thread %d has parent %d of %d", t.ID, t.Parent, len(c.threads))
		}
		if t.Main {
			if other := mains[t.Proc]; other != 0 {
				c.addf("threads %d and %d are both the main thread of process %d", other, t.ID, t.Proc)
			}
			mains[t.Proc] = t.ID
		}
		if t.TID <= 0 {
			c.addf("thread %d has tid %d", t.ID, t.TID)
		}
		if t.End != 0 && t.End < t.Start {
			c.addf("thread %d ends at %d, before its start %d", t.ID, t.End, t.Start)
		}
		c.within("thread", uint64(t.ID), t.Start, t.End)
		if int(t.StartRoutine.Module) > c.nmods {
			c.addf("thread %d begins in module %d of %d", t.ID, t.StartRoutine.Module, c.nmods)
		}
		if t.CallsSlow > t.Calls {
			c.addf("thread %d made %d slow calls of %d", t.ID, t.CallsSlow, t.Calls)
		}
		if t.WaitNs < 0 || t.WaitNs > 0 && t.Waits == 0 {
			c.addf("thread %d waited %d ns in %d waits", t.ID, t.WaitNs, t.Waits)
		}
		if t.AllocObjects == 0 && t.AllocBytes > 0 {
			c.addf("thread %d allocated %d bytes in no object", t.ID, t.AllocBytes)
		}
		if t.CPU < -1 {
			c.addf("thread %d used %d ns of CPU", t.ID, t.CPU)
		}
	}
}

// within checks that [start, end] lies in the recording; end 0 is "still there".
func (c *checker) within(what string, id uint64, start, end trace.Ns) {
	if start > c.meta.EndNs+clockSlackNs {
		c.addf("%s %d starts at %d, after the recording's end %d", what, id, start, c.meta.EndNs)
	}
	if end > c.meta.EndNs+clockSlackNs {
		c.addf("%s %d ends at %d, after the recording's end %d", what, id, end, c.meta.EndNs)
	}
}

func (c *checker) checkModules() {
	for i, m := range c.src.Modules() {
		if m.ID != trace.ModuleID(i+1) {
			c.addf("module %d stands at place %d: ids must be dense from 1", m.ID, i+1)
		}
		if m.Path == "" && m.Kind != trace.ModuleAnon {
			c.addf("module %d has no path", m.ID)
		}
		if m.Lo > m.Hi {
			c.addf("module %d covers [%#x, %#x)", m.ID, m.Lo, m.Hi)
		}
		if strings.Trim(m.BuildID, "0123456789abcdef") != "" {
			c.addf("module %d has build id %q: want lower-case hex", m.ID, m.BuildID)
		}
		if m.Kind > trace.ModulePython {
			c.addf("module %d is of kind %d", m.ID, m.Kind)
		}
		for at, v := range m.Variables {
			if v.Name == "" || v.Off > at || at+m.Bias < m.Lo || at+m.Bias >= m.Hi {
				c.addf("module %d has a variable %q at %#x, %d bytes into it", m.ID, v.Name, at, v.Off)
			}
		}
	}
}

func (c *checker) checkNodes() {
	c.depth = make([]uint32, c.nnodes+1)
	if n := c.src.Node(0); n != (trace.Node{}) {
		c.addf("node 0 is %+v: want the zero node", n)
	}
	for id := trace.StackID(1); int(id) <= c.nnodes; id++ {
		n := c.src.Node(id)
		if n.Parent >= id {
			c.addf("node %d has parent %d: parents come first", id, n.Parent)
			continue // no depth: nothing above it is safe to walk
		}
		c.depth[id] = c.depth[n.Parent] + 1
		if int(n.Addr.Module) > c.nmods {
			c.addf("node %d is in module %d of %d", id, n.Addr.Module, c.nmods)
		}
		if n.How < trace.HowExact || n.How > trace.HowMark {
			c.addf("node %d was found in way %d", id, n.How)
		}
		if n.How == trace.HowMark && (n.Addr.Module != 0 || n.Addr.Off == 0) {
			c.addf("node %d marks %+v: want a number of frames and no module", id, n.Addr)
		}
		c.checkSymbols(id)
	}
}

func (c *checker) checkSymbols(id trace.StackID) {
	frames := c.src.Symbols(id)
	for i, f := range frames {
		if f.Func == "" {
			c.addf("node %d: symbol %d of %d has no name", id, i, len(frames))
		}
		if last := i == len(frames)-1; f.Inlined == last {
			c.addf("node %d: %s is symbol %d of %d and inlined=%v", id, f.Func, i, len(frames), f.Inlined)
		}
		if f.Line < 0 || f.Line > 0 && f.File == "" {
			c.addf("node %d: %s is at %q line %d", id, f.Func, f.File, f.Line)
		}
	}
}
