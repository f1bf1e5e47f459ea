// Views: one table each.

package report

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/visualize/weigh"
)

// head is the first lines of every view: what ran, how long, how it ended and what it used.
func (f *facts) head(o Options) []string {
	command := strings.Join(f.meta.Command, " ")
	if command == "" {
		command = "(no command)"
	}
	first := []string{"ran " + inline(duration(f.duration()))}
	switch {
	case f.meta.ExitSignal != 0:
		first = append(first, fmt.Sprintf("killed by signal %d", f.meta.ExitSignal))
	case f.meta.ExitStatus >= 0:
		first = append(first, fmt.Sprintf("exit status %d", f.meta.ExitStatus))
	}
	first = append(first, plural(uint64(len(f.procs)), "process")+", "+plural(uint64(len(f.src.Threads())), "thread"))
	accounted := f.weights.Total[weigh.CPU]
	if used, known := f.cpuUsed(); known {
		c := fmt.Sprintf("CPU %s used, %s accounted for", inline(duration(used)), inline(duration(accounted)))
		if p := percent(float64(accounted), float64(used)); p != "" {
			c += " (" + p + ")"
		}
		first = append(first, c)
	} else if accounted > 0 {
		first = append(first, "CPU "+inline(duration(accounted))+" sampled")
	}
	if tail := f.weights.Doubt.TailCPU; tail > 0 {
		first = append(first, inline(duration(tail))+" of it after threads' last samples")
	}
	out := []string{paint(o.Color, bold, "hbtrace: "+middle(clean(command), o.Width-9))}
	return append(out, wrap("", first, o.Width)...)
}

// titled puts a heading and a blank line before a table.
func titled(o Options, heading string, lines []string) []string {
	return append([]string{"", paint(o.Color, bold, middle(heading, o.Width))}, lines...)
}

// missing is what a view says where nothing of its kind was recorded.
func (f *facts) missing(o Options, what, feature string) []string {
	hint := fmt.Sprintf("no %s in this recording", what)
	if !slices.Contains(f.meta.Features, feature) {
		hint += fmt.Sprintf(": record with -e %s to see them", strings.Join(append(slices.Clone(f.meta.Features), feature), ","))
	}
	return append([]string{""}, wrap("", []string{hint}, o.Width)...)
}

// more notes rows that were left out.
func (t *table) more(shown, all int) {
	if all > shown {
		t.add(fmt.Sprintf("… %s more", group(uint64(all-shown))))
	}
}

// end adds the doubts.
func (f *facts) end(lines []string, o Options) []string {
	return append(append(lines, ""), f.doubtText(o, true, 0)...)
}

func (f *facts) cpuView(o Options) []string {
	sums := f.byFunction(weigh.CPU)
	out := f.head(o)
	if len(sums) == 0 {
		return f.end(append(out, f.missing(o, "CPU samples", "cpu")...), o)
	}
	return f.end(append(out, titled(o, "CPU time by function", f.cpuTable(sums, o.Top, true).lines(o))...), o)
}

func (f *facts) cpuTable(sums []*sum, top int, module bool) *table {
	t := &table{columns: []column{
		{title: "self", right: true}, {right: true}, {title: "cumulative", right: true}, {right: true}, {title: "function", flex: 4},
	}, indent: 2}
	if module {
		t.columns = append(t.columns, column{title: "module", flex: 1, plain: true})
	}
	total := float64(f.weights.Total[weigh.CPU])
	n := min(top, len(sums))
	for _, s := range sums[:n] {
		row := []string{
			duration(s.self), percent(float64(s.self), total), duration(s.cum), percent(float64(s.cum), total), s.name,
		}
		if module {
			row = append(row, f.moduleName(s.module))
		}
		t.add(row...)
	}
	if module {
		t.more(n, len(sums))
	}
	return t
}

// moduleName is a module's file name, "" for none.
func (f *facts) moduleName(id trace.ModuleID) string {
	m := f.frames.Module(id)
	switch {
	case m == nil:
		return ""
	case m.Path == "":
		return "[anonymous]"
	}
	return filepath.Base(m.Path)
}

func (f *facts) blockedView(o Options) []string {
	places := f.places()
	out := f.head(o)
	if len(places) == 0 {
		return f.end(append(out, f.missing(o, "waits and blocking calls", "syscall")...), o)
	}
	out = append(out, titled(o, "Blocked, by function and call", f.blockedTable(places, o.Top, true).lines(o))...)
	out = append(out, wrap("", []string{fmt.Sprintf("Waits shorter than %s and calls shorter than %s are not in it.",
		inline(duration(f.meta.LockThresholdNs)), inline(duration(f.meta.CallThresholdNs)))}, o.Width)...)
	out = append(out, f.chainLines(o, "What other waits were spent on in the end", false)...)
	return f.end(out, o)
}

func (f *facts) blockedTable(places []*place, top int, all bool) *table {
	t := &table{columns: []column{
		{title: "total", right: true}, {title: "longest", right: true}, {title: "count", right: true},
		{title: "call", flex: 1, plain: true}, {title: "in function", flex: 1},
	}, indent: 2}
	n := min(top, len(places))
	for _, p := range places[:n] {
		call := p.call
		if p.open > 0 {
			call += " (unfinished)"
		}
		t.add(duration(p.total), duration(p.max), group(p.count), call, p.function)
	}
	if all {
		t.more(n, len(places))
	}
	return t
}

func (f *facts) allocView(o Options) []string {
	sites := f.allocSites()
	out := f.head(o)
	if len(sites) == 0 {
		return f.end(append(out, f.missing(o, "sampled allocations", "alloc")...), o)
	}
	out = append(out, titled(o, "Allocated, by function", f.allocTable(sites, o.Top, true).lines(o))...)
	var objects, size, freed uint64
	for _, t := range f.order {
		objects += t.AllocObjects
		size += t.AllocBytes
		freed += t.FreeObjects
	}
	out = append(out, wrap("", []string{
		fmt.Sprintf("Exact totals: %s objects, %s", group(objects), inline(byteSize(size))), group(freed) + " freed",
		"the table is estimated from one sample per " + inline(byteSize(f.meta.AllocPeriod)) + " on average",
	}, o.Width)...)
	return f.end(out, o)
}

func (f *facts) allocTable(sites []*allocSite, top int, all bool) *table {
	t := &table{columns: []column{
		{title: "bytes", right: true}, {right: true}, {title: "objects", right: true}, {title: "still in use", right: true},
		{title: "function", flex: 1},
	}, indent: 2}
	n := min(top, len(sites))
	total := float64(f.weights.Total[weigh.AllocSpace])
	for _, a := range sites[:n] {
		t.add(byteSize(uint64(max(0, a.space))), percent(float64(a.space), total), group(uint64(max(0, a.objects))),
			byteSize(uint64(max(0, a.inuse))), a.function)
	}
	if all {
		t.more(n, len(sites))
	}
	return t
}

func (f *facts) threadsView(o Options) []string {
	t := &table{columns: []column{
		{title: "CPU", right: true}, {title: "locks", right: true}, {title: "waits", right: true}, {title: "calls", right: true},
		{title: "exact", right: true}, {title: "sampled", right: true}, {title: "unknown", right: true},
		{title: "thread", flex: 3, plain: true},
	}, indent: 2}
	if o.Width >= 100 {
		t.columns = append(t.columns, column{title: "samples", right: true}, column{title: "allocated", right: true},
			column{title: "lost", right: true}, column{title: "process", flex: 2, plain: true})
	}
	threads := f.order[:min(o.Top, len(f.order))]
	for _, th := range threads {
		c := th.cover
		whole := float64(c.Exact + c.Sampled + c.Unknown)
		row := []string{
			duration(th.cpu + th.tail), duration(th.locked), duration(th.waited), duration(th.called),
			percent(float64(c.Exact), whole), percent(float64(c.Sampled), whole), percent(float64(c.Unknown), whole),
			f.threadName(th.ID),
		}
		if o.Width >= 100 {
			proc := ""
			if p := f.procs[th.Proc]; p != nil {
				proc = f.process(p)
			}
			row = append(row, group(th.samples), byteSize(th.AllocBytes), group(max(th.lost, th.Lost)), proc)
		}
		t.add(row...)
	}
	t.more(len(threads), len(f.order))
	out := append(f.head(o), titled(o, "Threads: time used, time blocked, how much of it is known", t.lines(o))...)
	return f.end(out, o)
}

var kindNames = [trace.KindOff + 1]string{
	"", "cpu", "gap", "sync", "enter", "wait", "call", "release", "alloc", "free", "thread_start", "thread_exit", "lost", "off_cpu",
}

func (f *facts) storageView(o Options) []string {
	s := f.stats
	t := &table{columns: []column{{flex: 1, plain: true}, {right: true}, {right: true}, {right: true}}, indent: 2}
	each := func(bytes, n uint64) string {
		if n == 0 {
			return ""
		}
		return fmt.Sprintf("%.1f B each", float64(bytes)/float64(n))
	}
	t.add("records drained from the ring", group(s.Records), byteSize(s.RecordBytes), each(s.RecordBytes, s.Records))
	t.add("events stored", group(s.Events), byteSize(s.EventBytes), each(s.EventBytes, s.Events))
	for k, n := range f.kinds {
		if n > 0 {
			t.add("  "+strings.ReplaceAll(kindNames[k], "_", " "), group(n), "", percent(float64(n), float64(max(s.Events, 1))))
		}
	}
	if s.Samples > 0 {
		t.add("samples taken", group(s.Samples), "", "")
		t.add("  kept, equal neighbours merged", group(s.SampleEvents), byteSize(s.SampleBytes),
			fmt.Sprintf("%.1f B a sample", float64(s.SampleBytes)/float64(s.Samples)))
	}
	t.add("stack nodes", group(s.Nodes), "", "")
	if s.NodesCap > 0 {
		t.add("  in a table for "+group(s.NodesCap), "", byteSize(s.NodeBytes), "")
		t.add("  taken out of it, unused", group(s.NodesCollected), "", "")
	}
	if s.HistoryBytes > 0 {
		t.add("history in the buffer", "", byteSize(s.HistoryBytes), duration(int64(s.HistoryNs)))
	}
	t.add("events overwritten", group(s.Overwritten), "", percent(float64(s.Overwritten), float64(s.Events+s.Overwritten)))
	t.add("records lost in agents", group(s.Lost), "", percent(float64(s.Lost), float64(s.Records+s.Lost)))
	t.add("sequence gaps", group(s.Gaps), "", "")
	t.add("broken records skipped", group(s.Broken), "", "")
	t.add("sub-buffers lost", group(s.SubbufsLost), "", "")
	if !f.meta.Started.IsZero() {
		t.add("recorded by "+f.meta.Version+" on "+f.meta.Host, f.meta.Started.UTC().Format(time.DateTime), "", "")
	}
	out := append(f.head(o), titled(o, "Storage", t.lines(o))...)
	return append(append(out, ""), f.doubtText(o, false, 0)...)
}
