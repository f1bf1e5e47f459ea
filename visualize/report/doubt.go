// Doubt: what a recording lost, guessed or cost, as lines to read.

package report

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hbtrace/hbtrace/analysis/edges"
	"github.com/hbtrace/hbtrace/analysis/weigh"
	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/visualize/number"
	"github.com/hbtrace/hbtrace/visualize/terminal"
)

// doubtLine is a lead and the clauses behind it; bad ones are loss.
type doubtLine struct {
	lead    string
	clauses []string
	bad     bool
}

// lost is the number of records lost: the larger of what agents counted and what the stream shows.
func (f *facts) lost() uint64 { return max(f.stats.Lost, f.weights.Doubt.Lost) }

// cpuUsed is the CPU time of the recorded program in ns, and whether it is known. The kernel adds up processes that somebody waited
// for, which not all programs do (chromium's zygote): what their threads said themselves may be more. What samples account for was
// used: where the program ran on when recording ended, some threads were asked before their last samples were taken.
func (f *facts) cpuUsed() (int64, bool) {
	used := f.weights.Doubt.ThreadCPU
	if used >= 0 && f.stats.TargetCPU == 0 {
		used = 0
		for _, t := range f.order {
			used += max(t.Thread.CPU, t.cpu+t.tail)
		}
	}
	used = max(int64(f.stats.TargetCPU), used)
	return used, used > 0
}

// brief is one line of how the recording was made, and what was lost or is in doubt.
func (f *facts) brief() []doubtLine {
	s, d := f.stats, &f.weights.Doubt
	var c []string
	if d.Stacks > 0 {
		c = append(c, number.Plural(uint64(f.weights.Total[weigh.Samples]), "sample"))
	}
	exact, sampled, unknown := f.covered()
	whole := float64(exact + sampled + unknown)
	if whole > 0 {
		c = append(c, number.Percent(float64(unknown), whole)+" of threads' time unknown")
	}
	if own := int64(s.CollectorCPU + s.SamplerCPU); own > 0 && f.duration() > 0 {
		c = append(c, fmt.Sprintf("recorder used %s of one CPU", number.Percent(own, f.duration())))
	}
	if used, known := f.cpuUsed(); known && used > 0 && s.AgentCPU > 0 {
		c = append(c, fmt.Sprintf("agent %s of the program's CPU time", number.Percent(int64(s.AgentCPU), used)))
	}
	if d := f.givenUp(); len(d) > 0 {
		c = append(c, "detail: "+strings.Join(d, ", "))
	}
	ready := int64(0)
	for _, t := range f.order {
		ready += t.ready
	}
	if float64(ready) > someReady*whole {
		c = append(c, inline(duration(ready))+" runnable without a CPU")
	}
	for _, x := range []struct {
		n    uint64
		what string
	}{
		{d.Cut, "of stacks cut"}, {d.Guessed, "of stacks with estimated frames"}, {d.Omitted, "of stacks with frames omitted"},
		{d.NoStack, "of samples without a stack"},
	} {
		if float64(x.n) > someDoubt*float64(d.Stacks) {
			c = append(c, number.Percent(float64(x.n), float64(d.Stacks))+" "+x.what)
		}
	}
	if cpu, unnamed := f.weights.Total[weigh.CPU], f.unnamedCPU(); float64(unnamed) > someDoubt*float64(cpu) {
		c = append(c, number.Percent(float64(unnamed), float64(cpu))+" of CPU time in functions without a symbol")
	}
	if cpu := f.weights.Total[weigh.CPU]; float64(d.LateCPU) > someLate*float64(cpu) {
		c = append(c, number.Percent(float64(d.LateCPU), float64(cpu))+" of CPU time "+lateText)
	}
	var out []doubtLine
	if len(c) > 0 {
		out = append(out, doubtLine{"recorded", c, false})
	}
	for _, l := range f.doubts() {
		if l.bad {
			out = append(out, l)
		}
	}
	return out
}

// unnamedCPU is the CPU time of functions that have no name.
func (f *facts) unnamedCPU() (ns int64) {
	for _, s := range f.byFunction(weigh.CPU) {
		if !s.symbolised {
			ns += s.self
		}
	}
	return ns
}

// lateText says what became of CPU time that no sample fell into.
const lateText = "attributed to the next call (no sample inside this work)"

// doubts are all that is known of how the recording was made.
func (f *facts) doubts() []doubtLine {
	var out []doubtLine
	s, d := f.stats, &f.weights.Doubt
	line := func(lead string, bad bool, clauses []string) {
		if len(clauses) > 0 {
			out = append(out, doubtLine{lead, clauses, bad})
		}
	}

	var c []string
	if d.Stacks > 0 {
		c = append(c, number.Plural(uint64(f.weights.Total[weigh.Samples]), "CPU sample"))
		share := func(n uint64, what string) {
			c = append(c, number.Percent(float64(n), float64(d.Stacks))+" "+what)
		}
		share(d.Cut, "of stacks cut")
		share(d.Guessed, "with estimated frames")
		share(d.Omitted, "with frames omitted")
		share(d.Unsymbolised, "without a symbol")
		share(d.NoStack, "without a stack")
		if cpu, unnamed := f.weights.Total[weigh.CPU], f.unnamedCPU(); unnamed > 0 {
			c = append(c, number.Percent(float64(unnamed), float64(cpu))+" of CPU time in functions without a symbol")
		}
		if cpu := f.weights.Total[weigh.CPU]; d.LateCPU > 0 && cpu > 0 {
			c = append(c, number.Percent(float64(d.LateCPU), float64(cpu))+" of CPU time "+lateText)
		}
		if cpu := f.weights.Total[weigh.CPU]; d.SharedCPU > 0 && cpu > 0 {
			c = append(c, number.Percent(float64(d.SharedCPU), float64(cpu))+" of CPU time measured at the next call, and divided among functions by the samples inside such work")
		}
	}
	line("samples", false, c)

	if exact, sampled, unknown := f.covered(); exact+sampled+unknown > 0 {
		whole := float64(exact + sampled + unknown)
		c := []string{
			inline(duration(exact+sampled+unknown)) + " of threads", number.Percent(float64(exact), whole) + " exact intervals",
			number.Percent(float64(sampled), whole) + " sampled", number.Percent(float64(unknown), whole) + " unknown",
		}
		ready := int64(0)
		for _, t := range f.order {
			ready += t.ready
		}
		if float64(ready) > someReady*whole {
			c = append(c, inline(duration(ready))+" runnable without a CPU")
		}
		if how := f.knowMore(); how != "" && float64(unknown-ready) > muchUnknown*whole {
			c = append(c, how)
		}
		line("time", false, c)
	}

	c = nil
	count := func(n uint64, what string) {
		if n > 0 {
			c = append(c, number.Plural(n, what))
		}
	}
	count(f.lost(), "record")
	if n := len(c); n > 0 {
		c[n-1] += fmt.Sprintf(" (%s)", number.Percent(float64(f.lost()), float64(f.lost()+s.Records)))
	}
	count(s.Overwritten, "event")
	if s.Overwritten > 0 {
		c[len(c)-1] += " overwritten before they were stored"
	}
	count(s.Broken, "broken record")
	count(s.SubbufsLost, "sub-buffer")
	count(s.ThreadsUnslotted, "thread")
	if s.ThreadsUnslotted > 0 {
		c[len(c)-1] += " beyond the thread table"
	}
	if f.folded > 0 {
		c = append(c, fmt.Sprintf("%s waits (%s) beyond the %s edges kept", number.Count(f.folded), inline(duration(f.foldedN)), number.Count(edges.MaxEdges)))
	}
	if n := f.unfollowed(); n > 0 {
		c = append(c, number.Count(n)+" waits, releases or ends of chains beyond what is followed, in part or whole")
	}
	if f.odd > 0 {
		c = append(c, number.Plural(f.odd, "event")+" of an unknown kind")
	}
	if !s.Complete {
		c = append(c, "the recording was not closed: its end is missing")
	}
	if len(c) > 0 {
		line("lost", true, c)
	} else {
		line("lost", false, []string{"nothing"})
	}
	c = nil
	c = append(c, number.Plural(s.SignalsSent, "signal")+" sent")
	if s.SignalsFailed > 0 {
		c = append(c, number.Count(s.SignalsFailed)+" failed")
	}
	if s.SignalsStuck > 0 {
		c = append(c, number.Count(s.SignalsStuck)+" never answered")
	}
	if s.Ticks > 0 {
		c = append(c, fmt.Sprintf("%s of %s ticks missed", number.Count(s.TicksMissed), number.Count(s.Ticks+s.TicksMissed)))
	}
	line("sampler", false, c)

	c = nil
	if s.CollectorCPU > 0 || s.SamplerCPU > 0 {
		used, known := f.cpuUsed()
		cost := func(t time.Duration, what string) {
			x := what + " " + inline(duration(int64(t)))
			if over := f.duration(); over > 0 {
				x += fmt.Sprintf(" (%s of one CPU)", number.Percent(int64(t), over))
			}
			c = append(c, x)
		}
		cost(s.CollectorCPU, "collector")
		cost(s.SamplerCPU, "sampler")
		if known {
			c = append(c, "the program "+inline(duration(used)))
		}
		if known && used > 0 && s.AgentCPU > 0 {
			c = append(c, fmt.Sprintf("of it the agent %s (%s)", inline(duration(int64(s.AgentCPU))), number.Percent(int64(s.AgentCPU), used)))
		}
	}
	line("overhead", false, c)
	line("not seen", true, f.unseen()) // last: it may be long
	return out
}

// unseen says which processes and images were recorded in part or not at all, and why.
func (f *facts) unseen() []string {
	var c []string
	s := f.stats
	if s.ProcsUnslotted > 0 {
		c = append(c, number.Plural(s.ProcsUnslotted, "process")+" beyond the process table")
	}
	if s.ProcsRefused > 0 {
		c = append(c, number.Plural(s.ProcsRefused, "process")+" refused to attach")
	}
	var sum trace.ProcDoubt
	syncOnly, opaque, asked := 0, 0, 0
	why := map[string][]string{}
	for _, p := range f.src.Processes() {
		d := &p.Doubt
		if d.Disabled != "" {
			why[d.Disabled] = append(why[d.Disabled], f.process(&p))
		}
		if d.SyncOnly {
			syncOnly++
		}
		if d.HandlerChained {
			asked++
		}
		if d.MutexOpaque {
			opaque++
		}
		sum.WalksRefused += d.WalksRefused
		sum.AllocTableFull += d.AllocTableFull
		sum.ModulesLost += d.ModulesLost
		sum.HooksUnresolved += d.HooksUnresolved
		sum.SmallStacks += d.SmallStacks
		sum.CodesUnnamed += d.CodesUnnamed
		sum.PythonCut += d.PythonCut
	}
	var reasons []string
	for r := range why {
		reasons = append(reasons, r)
	}
	slices.Sort(reasons)
	for _, r := range reasons {
		who := why[r][0]
		if n := len(why[r]); n > 1 {
			who = fmt.Sprintf("%s and %d more", who, n-1)
		}
		c = append(c, who+" stopped recording: "+r)
	}
	if syncOnly > 0 {
		c = append(c, number.Plural(uint64(syncOnly), "process")+" could not be sampled (it keeps the signal for itself)")
	}
	if asked > 0 {
		c = append(c, number.Plural(uint64(asked), "process")+" with a handler of its own for the sampling signal: sampled at hooked calls instead, so its CPU samples are biased towards them")
	}
	if sum.SmallStacks > 0 {
		c = append(c, number.Plural(sum.SmallStacks, "alternate signal stack")+" too small for the sampling signal: their threads are sampled at their calls only")
	}
	if sum.CodesUnnamed > 0 {
		c = append(c, number.Plural(sum.CodesUnnamed, "frame")+" of Python whose function could not be named")
	}
	if sum.PythonCut > 0 {
		c = append(c, number.Plural(sum.PythonCut, "stack")+" of Python cut where the interpreter's memory made no sense")
	}
	if opaque > 0 {
		c = append(c, number.Plural(uint64(opaque), "process")+" whose mutexes have an unknown layout")
	}
	for _, x := range []struct {
		n    uint64
		what string
	}{
		{sum.ModulesLost, "module"}, {sum.HooksUnresolved, "unresolved hook"}, {sum.WalksRefused, "refused stack walk"},
		{sum.AllocTableFull, "allocation"},
	} {
		if x.n > 0 {
			c = append(c, number.Plural(x.n, x.what))
		}
	}
	if sum.AllocTableFull > 0 {
		c[len(c)-1] += " beyond the table of live ones"
	}
	return append(c, together(s.Notes)...)
}

// together makes one note of those that say the same of several modules.
func together(notes []string) []string {
	type module struct{ path, why string }
	parse := func(note string) (module, bool) {
		rest, ok := strings.CutPrefix(note, "module ")
		path, why, cut := strings.Cut(rest, ": ")
		return module{path, why}, ok && cut
	}
	by := map[string][]string{}
	for _, n := range notes {
		if m, ok := parse(n); ok {
			by[m.why] = append(by[m.why], filepath.Base(m.path))
		}
	}
	const most = 4
	several := strings.NewReplacer(" it ", " them ", " its ", " their ", "package", "packages")
	var out []string
	for _, n := range notes {
		m, ok := parse(n)
		names := by[m.why]
		switch {
		case !ok || len(names) == 1:
			out = append(out, n)
		case len(names) > most:
			out = append(out, fmt.Sprintf("modules %s and %d more: %s", strings.Join(names[:most], ", "), len(names)-most, several.Replace(m.why)))
		case len(names) > 1:
			out = append(out, fmt.Sprintf("modules %s: %s", strings.Join(names, ", "), several.Replace(m.why)))
		}
		if ok && len(names) > 1 {
			by[m.why] = nil // said
		}
	}
	return out
}

// process names a process for a sentence.
func (f *facts) process(p *trace.Process) string {
	name := filepath.Base(p.Exe)
	if p.Exe == "" {
		name = "process"
	}
	return fmt.Sprintf("%s[%d]", name, p.PID)
}

// doubtText lays the doubts out; loss is terminal.Red.
func (f *facts) doubtText(o Options, budget int) []string {
	var out []string
	list := f.doubts()
	if !o.Verbose {
		list = f.brief()
	}
	for _, d := range list {
		color := terminal.Dim
		if d.bad {
			color = terminal.Red
		}
		lead := fmt.Sprintf("%-10s", d.lead)
		lines := terminal.Wrap(lead, d.clauses, o.Width)
		for i, l := range lines {
			if i == 0 {
				l = terminal.Paint(o.Color, color, lead) + l[len(lead):]
			}
			out = append(out, l)
		}
	}
	if budget > 0 && len(out) > budget {
		out = append(out[:budget-1], terminal.Paint(o.Color, terminal.Dim, fmt.Sprintf("%-10s%d more lines: hbtrace report --storage", "", len(out)-budget+1)))
	}
	return out
}

// muchUnknown is the share of threads' time above which it is worth saying how to know more.
const muchUnknown = 0.25

// Shares of stacks and of CPU time from which on a doubt is worth a place in the first lines.
const (
	someDoubt = 0.01
	someLate  = 0.05
)

// someReady is the share of threads' time from which on it is worth saying that they were runnable without a CPU.
const someReady = 0.01

// knowMore says what would make less of threads' time unknown.
func (f *facts) knowMore() string {
	m := f.src.Meta()
	var how []string
	if f.lost() > f.src.Stats().Records/100 {
		how = append(how, "-m 64M drops fewer records")
	}
	switch {
	case !slices.Contains(m.Features, "lock") || !slices.Contains(m.Features, "syscall"):
		how = append(how, "-e cpu,lock,syscall records waits and calls")
	case m.LockThresholdNs > 0 || m.CallThresholdNs > 0:
		how = append(how, "--threshold 0 records short waits and calls too")
	}
	if m.Freq > 0 && m.Freq < 999 {
		how = append(how, "-F 999 samples more often")
	}
	if len(how) == 0 {
		return ""
	}
	return "to see more: " + strings.Join(how, "; ")
}
