// Views: one table each.

package report

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hbtrace/hbtrace/analysis/frames"
	"github.com/hbtrace/hbtrace/analysis/weigh"
	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/visualize/number"
	"github.com/hbtrace/hbtrace/visualize/terminal"
	"golang.org/x/sys/unix"
)

// killedBy says which signal ended the program.
func killedBy(signal int) string {
	text := fmt.Sprintf("killed by signal %d", signal)
	if name := unix.SignalName(unix.Signal(signal)); name != "" {
		text += " (" + name + ")"
	}
	return text
}

// head is the first lines of every view: what ran, how long, how it ended and what it used.
func (f *facts) head(o Options) []string {
	command := strings.Join(f.meta.Command, " ")
	if command == "" {
		command = "(no command)"
	}
	first := []string{"ran " + inline(duration(f.duration()))}
	switch {
	case f.meta.ExitSignal != 0:
		first = append(first, killedBy(f.meta.ExitSignal))
	case f.meta.ExitStatus >= 0:
		first = append(first, fmt.Sprintf("exit status %d", f.meta.ExitStatus))
	}
	first = append(first, number.Plural(uint64(len(f.procs)), "process")+", "+number.Plural(uint64(len(f.src.Threads())), "thread"))
	first = append(first, f.cpuAccount().lines(f)...)
	if tail := f.weights.Doubt.TailCPU; tail > 0 && o.Verbose {
		first = append(first, inline(duration(tail))+" of it after threads' last samples")
	}
	out := []string{terminal.Paint(o.Color, terminal.Bold, "hbtrace: "+terminal.Middle(terminal.Clean(command), o.Width-9))}
	out = append(out, f.incidentLines(o)...)
	out = append(out, f.attachedLines(o)...)
	out = append(out, terminal.Wrap("", first, o.Width)...)
	if biased := f.biased(); biased != "" {
		for _, line := range terminal.Wrap("", []string{biased}, o.Width) {
			out = append(out, terminal.Paint(o.Color, terminal.Red, line))
		}
	}
	if missing := f.notRecorded(); missing != nil {
		for _, line := range terminal.Wrap("", missing, o.Width) {
			out = append(out, terminal.Paint(o.Color, terminal.Red, line))
		}
	}
	return out
}

// titled puts a heading and a blank line before a table.
func titled(o Options, heading string, lines []string) []string {
	return append([]string{"", terminal.Paint(o.Color, terminal.Bold, terminal.Middle(heading, o.Width))}, lines...)
}

// missing is what a view says where nothing of its kind was recorded.
func (f *facts) missing(o Options, what, feature string) []string {
	hint := fmt.Sprintf("no %s in this recording", what)
	if !slices.Contains(f.meta.Features, feature) {
		hint += fmt.Sprintf(": record with -e %s to see them", strings.Join(append(slices.Clone(f.meta.Features), feature), ","))
	}
	return append([]string{""}, terminal.Wrap("", []string{hint}, o.Width)...)
}

// more notes rows that were left out.
func more(t *terminal.Table, shown, all int) {
	if all > shown {
		t.Add(fmt.Sprintf("… %s more", number.Count(uint64(all-shown))))
	}
}

// end adds the doubts.
func (f *facts) end(lines []string, o Options) []string {
	return append(append(lines, ""), f.doubtText(o, 0)...)
}

func (f *facts) cpuView(o Options) []string {
	sums := f.byFunction(weigh.CPU)
	out := f.head(o)
	if len(sums) == 0 {
		return f.end(append(out, f.missing(o, "CPU samples", "cpu")...), o)
	}
	heading := "CPU time by function"
	if o.Sort == SortCumulative {
		byCumulative(sums)
		heading = "CPU time by function and what it called"
	}
	n := min(o.Top, len(sums))
	t := f.cpuTable(sums, n, !o.Stacks, o)
	lines := t.Lines(o.Width, o.Color)
	if o.Stacks {
		stacks := f.heaviestStacks(sums[:n], weigh.CPU)
		lines = f.withStacks(t, o, func(i int) trace.Site { return stacks[i] })
	}
	rest := &terminal.Table{Indent: 2}
	more(rest, n, len(sums))
	return f.end(append(out, titled(o, heading, append(lines, rest.Lines(o.Width, o.Color)...))...), o)
}

// withStacks is a table with a whole stack below each of its rows.
func (f *facts) withStacks(t *terminal.Table, o Options, at func(row int) trace.Site) []string {
	t.Plain = true
	return t.Under(o.Width, o.Color, func(i, room int) []string {
		return f.framesOf(at(i), room)
	})
}

// heaviestStacks are, for each of the functions, the stack that it had most of v on top of.
func (f *facts) heaviestStacks(sums []*sum, v weigh.Value) []trace.Site {
	row := map[frames.ID]int{}
	for i, s := range sums {
		for _, id := range s.ids {
			row[id] = i
		}
	}
	out, most := make([]trace.Site, len(sums)), make([]int64, len(sums))
	own := make([]bool, len(sums)) // the function is the leaf
	for i := range f.weights.Rows {
		r := &f.weights.Rows[i]
		w := r.Values[v]
		if w == 0 {
			continue
		}
		for j, node := range f.frames.Path(nil, r.Stack) {
			for k, at := range f.frames.Of(node) {
				n, ok := row[at.ID]
				if !ok {
					continue
				}
				leaf := j == f.frames.Depth(r.Stack)-1 && k == len(f.frames.Of(node))-1
				if leaf && !own[n] || leaf == own[n] && w > most[n] {
					out[n], most[n], own[n] = trace.Site{Stack: r.Stack, Hook: r.Hook}, w, leaf
				}
			}
		}
	}
	return out
}

func (f *facts) cpuTable(sums []*sum, top int, module bool, o Options) *terminal.Table {
	t := &terminal.Table{Columns: []terminal.Column{
		{Title: "self", Right: true}, {Right: true}, {Title: "cumulative", Right: true}, {Right: true}, {Title: "function", Flex: 4},
	}, Indent: 2}
	if module {
		t.Columns = append(t.Columns, terminal.Column{Title: "module", Flex: 1, Plain: true})
	}
	total := float64(f.weights.Total[weigh.CPU])
	n := min(top, len(sums))
	f.locate(sums[:n], weigh.CPU)
	var places []string
	for _, s := range sums[:n] {
		row := []string{
			duration(s.self), number.Percent(float64(s.self), total), duration(s.cum), number.Percent(float64(s.cum), total), s.name,
		}
		if module {
			row = append(row, f.moduleName(s.module))
		}
		t.Add(row...)
		places = append(places, fileLine(s.file, s.line))
	}
	t.Annotate(4, o.Width, places)
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
	out = append(out, f.chainLines(o, "What waits led to, other than those for locks", false)...)
	n := min(o.Top, len(places))
	t := f.blockedTable(places, n, o)
	lines := t.Lines(o.Width, o.Color)
	if o.Stacks {
		lines = f.withStacks(t, o, func(i int) trace.Site { return places[i].heaviest.at })
	}
	rest := &terminal.Table{Indent: 2}
	more(rest, n, len(places))
	out = append(out, titled(o, "Blocked, by function and call", append(lines, rest.Lines(o.Width, o.Color)...))...)
	if lines := f.handoffLines(o); len(lines) > 0 {
		out = append(out, titled(o, "Waited for data that another thread wrote", lines)...)
	}
	out = append(out, terminal.Wrap("", []string{fmt.Sprintf("Waits shorter than %s and calls shorter than %s are only counted, and not in these tables.",
		inline(duration(f.meta.LockThresholdNs)), inline(duration(f.meta.CallThresholdNs)))}, o.Width)...)
	return f.end(out, o)
}

// handoffLines are the calls that waited for a pipe, an eventfd or a socket that another thread wrote to.
func (f *facts) handoffLines(o Options) []string {
	type row struct {
		b *block
		*ending
	}
	var rows []row
	for _, b := range f.blocks {
		for _, x := range b.endings() {
			rows = append(rows, row{b, x})
		}
	}
	slices.SortStableFunc(rows, func(x, y row) int { return cmp.Compare(y.total, x.total) })
	t := &terminal.Table{Columns: []terminal.Column{
		{Title: "total", Right: true}, {Title: "count", Right: true}, {Title: "certain", Right: true}, {Title: "call", Plain: true},
		{Title: "in function", Flex: 1}, {Title: "written by", Flex: 1},
	}, Indent: 2}
	n := min(o.Top, len(rows))
	for _, r := range rows[:n] {
		t.Add(duration(r.total), number.Count(r.count), number.Count(r.certain), f.hook(r.b.at.Hook), f.culprit(r.b.at), f.threadName(r.by))
	}
	if n == 0 {
		return nil
	}
	more(t, n, len(rows))
	return t.Lines(o.Width, o.Color)
}

func (f *facts) blockedTable(places []*place, top int, o Options) *terminal.Table {
	t := &terminal.Table{Columns: []terminal.Column{
		{Title: "total", Right: true}, {Title: "longest", Right: true}, {Title: "count", Right: true},
		{Title: "call", Flex: 1, Plain: true}, {Title: "in function", Flex: 1},
	}, Indent: 2}
	var notes []string
	for _, p := range places[:min(top, len(places))] {
		call := p.call
		if p.open > 0 {
			call += " (unfinished)"
		}
		at := f.culpritAt(p.heaviest.at)
		t.Add(duration(p.total), duration(p.max), number.Count(p.count), call, p.function)
		notes = append(notes, fileLine(at.File, at.Line))
	}
	t.Annotate(4, o.Width, notes)
	return t
}

func (f *facts) allocView(o Options) []string {
	sites := f.allocSites()
	out := f.head(o)
	if len(sites) == 0 {
		return f.end(append(out, f.missing(o, "sampled allocations", "alloc")...), o)
	}
	if line := f.allocCost(); line != "" {
		out = append(out, terminal.Wrap("", []string{line}, o.Width)...)
	}
	n := min(o.Top, len(sites))
	t := f.allocTable(sites, n, o)
	lines := t.Lines(o.Width, o.Color)
	if o.Stacks {
		lines = f.withStacks(t, o, func(i int) trace.Site {
			return trace.Site{Stack: sites[i].heaviest.Stack, Hook: sites[i].heaviest.Hook}
		})
	}
	rest := &terminal.Table{Indent: 2}
	more(rest, n, len(sites))
	out = append(out, titled(o, "Allocated, by function", append(lines, rest.Lines(o.Width, o.Color)...))...)
	var objects, size, freed uint64
	for _, t := range f.order {
		objects += t.AllocObjects
		size += t.AllocBytes
		freed += t.FreeObjects
	}
	out = append(out, terminal.Wrap("", []string{
		fmt.Sprintf("Exact totals: %s objects, %s", number.Count(objects), inline(byteSize(size))), number.Count(freed) + " freed",
		"the table is estimated from one sample per " + inline(byteSize(f.meta.AllocPeriod)) + " on average",
	}, o.Width)...)
	return f.end(out, o)
}

func (f *facts) allocTable(sites []*allocSite, top int, o Options) *terminal.Table {
	t := &terminal.Table{Columns: []terminal.Column{
		{Title: "bytes", Right: true}, {Right: true}, {Title: "objects", Right: true}, {Title: "still in use", Right: true},
		{Title: "function", Flex: 1},
	}, Indent: 2}
	total := float64(f.weights.Total[weigh.AllocSpace])
	var notes []string
	for _, a := range sites[:min(top, len(sites))] {
		at := f.culpritAt(trace.Site{Stack: a.heaviest.Stack, Hook: a.heaviest.Hook})
		t.Add(byteSize(uint64(max(0, a.space))), number.Percent(float64(a.space), total), number.Count(uint64(max(0, a.objects))),
			byteSize(uint64(max(0, a.inuse))), a.function)
		notes = append(notes, fileLine(at.File, at.Line))
	}
	t.Annotate(4, o.Width, notes)
	return t
}

func (f *facts) threadsView(o Options) []string {
	t := &terminal.Table{Columns: []terminal.Column{
		{Title: "CPU", Right: true}, {Title: "runnable", Right: true}, {Title: "locks", Right: true}, {Title: "waits", Right: true}, {Title: "calls", Right: true},
		{Title: "exact", Right: true}, {Title: "unknown", Right: true},
		{Title: "thread", Flex: 3, Plain: true},
	}, Indent: 2}
	if o.Width >= 100 {
		t.Columns = append(t.Columns, terminal.Column{Title: "sampled", Right: true}, terminal.Column{Title: "samples", Right: true}, terminal.Column{Title: "allocated", Right: true},
			terminal.Column{Title: "lost", Right: true}, terminal.Column{Title: "process", Flex: 2, Plain: true})
	}
	threads := f.order[:min(o.Top, len(f.order))]
	for _, th := range threads {
		c := th.cover
		whole := float64(c.Exact + c.Sampled + c.Unknown)
		row := []string{
			duration(th.cpu + th.tail), duration(th.ready), duration(th.locked()), duration(th.waited()), duration(th.called()),
			number.Percent(float64(c.Exact), whole), number.Percent(float64(c.Unknown), whole),
			f.threadName(th.ID),
		}
		if p := f.procs[th.Proc]; p != nil && th.Main {
			// What it is says more than the name that all of them share.
			if title := frames.Title(p); title != "" {
				if _, role, ok := strings.Cut(title, ": "); ok {
					title = role
				}
				row[len(row)-1] = fmt.Sprintf("%d %s", th.TID, title)
			}
		}
		if o.Width >= 100 {
			proc := ""
			if p := f.procs[th.Proc]; p != nil {
				proc = f.process(p)
			}
			row = append(row, number.Percent(float64(c.Sampled), whole), number.Count(th.samples), byteSize(th.AllocBytes), number.Count(max(th.lost, th.Lost)), proc)
		}
		t.Add(row...)
	}
	more(t, len(threads), len(f.order))
	out := append(f.head(o), titled(o, "Threads: time used, time blocked, how much of it is known", t.Lines(o.Width, o.Color))...)
	out = append(out, f.asleepBefore(o)...)
	return f.end(out, o)
}

var kindNames = [trace.KindKnob + 1]string{
	"", "cpu", "gap", "sync", "enter", "wait", "call", "release", "alloc", "free", "thread_start", "thread_exit", "lost", "off_cpu", "hold", "usage", "knob",
}

func (f *facts) storageView(o Options) []string {
	s := f.stats
	t := &terminal.Table{Columns: []terminal.Column{{Flex: 1, Plain: true}, {Right: true}, {Right: true}, {Right: true}}, Indent: 2}
	each := func(bytes, n uint64) string {
		if n == 0 {
			return ""
		}
		return fmt.Sprintf("%.1f B each", float64(bytes)/float64(n))
	}
	t.Add("records drained from the ring", number.Count(s.Records), byteSize(s.RecordBytes), each(s.RecordBytes, s.Records))
	t.Add("events stored", number.Count(s.Events), byteSize(s.EventBytes), each(s.EventBytes, s.Events))
	for k, n := range f.kinds {
		if n > 0 {
			t.Add("  "+strings.ReplaceAll(kindNames[k], "_", " "), number.Count(n), "", number.Percent(float64(n), float64(max(s.Events, 1))))
		}
	}
	if s.Samples > 0 {
		t.Add("samples taken", number.Count(s.Samples), "", "")
		t.Add("  kept, equal neighbours merged", number.Count(s.SampleEvents), byteSize(s.SampleBytes),
			fmt.Sprintf("%.1f B a sample", float64(s.SampleBytes)/float64(s.Samples)))
	}
	t.Add("stack nodes", number.Count(s.Nodes), "", "")
	if s.NodesCap > 0 {
		t.Add("  in a table for "+number.Count(s.NodesCap), "", byteSize(s.NodeBytes), "")
		t.Add("  taken out of it, unused", number.Count(s.NodesCollected), "", "")
	}
	if s.HistoryBytes > 0 {
		t.Add("history in the buffer", "", byteSize(s.HistoryBytes), duration(int64(s.HistoryNs)))
	}
	t.Add("events overwritten", number.Count(s.Overwritten), "", number.Percent(float64(s.Overwritten), float64(s.Events+s.Overwritten)))
	t.Add("records lost in agents", number.Count(s.Lost), "", number.Percent(float64(s.Lost), float64(s.Records+s.Lost)))
	t.Add("sequence gaps", number.Count(s.Gaps), "", "")
	t.Add("broken records skipped", number.Count(s.Broken), "", "")
	t.Add("sub-buffers lost", number.Count(s.SubbufsLost), "", "")
	if !f.meta.Started.IsZero() {
		t.Add("recorded by "+f.meta.Version+" on "+f.meta.Host, f.meta.Started.UTC().Format(time.DateTime), "", "")
	}
	out := append(f.head(o), titled(o, "Storage", t.Lines(o.Width, o.Color))...)
	o.Verbose = true
	return append(append(out, ""), f.doubtText(o, 0)...)
}
