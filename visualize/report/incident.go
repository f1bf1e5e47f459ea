// Why a flight recorder's dump was made: on top of every view.

package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/hbtrace/hbtrace/analysis/incident"
	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/visualize/terminal"
)

// incidentLines says what made the dump, and what the threads did that it is about; nothing where the recording is no dump.
func (f *facts) incidentLines(o Options) []string {
	d := &f.meta.Dump
	var out []string
	add := func(lead, text string) {
		out = append(out, terminal.Wrap(lead, []string{terminal.Clean(text)}, o.Width)...)
	}
	switch d.Why {
	case "":
		return nil
	case trace.DumpedAsked:
		add("dump      ", "of session "+d.Session+", made by hbtrace dump"+bound(d))
		return out
	case trace.DumpedRecovered:
		add("dump      ", "of session "+d.Session+", whose recorder was killed"+bound(d))
		return out
	}
	add("dump      ", fmt.Sprintf("because of --on '%s': %s%s", d.Trigger, d.Event, bound(d)))
	for _, line := range d.Chain {
		add("          ", line)
	}
	steps, err := incident.Follow(f.src)
	if err != nil {
		return append(out, terminal.Wrap("          ", []string{"what its threads did cannot be read: " + err.Error()}, o.Width)...)
	}
	lead := "because   "
	for i, s := range steps {
		verb := " "
		if i > 0 {
			verb = ", which had it, "
		}
		add(lead, f.threadName(s.Thread)+verb+f.didWhat(&s, d))
		lead = "          "
	}
	return out
}

func bound(d *trace.Dump) string {
	if d.Bound == "" {
		return ""
	}
	return fmt.Sprintf(" (--keep %s, bounded by its %s)", d.Keep, d.Bound)
}

// didWhat is what a thread did in the event's time.
func (f *facts) didWhat(s *incident.Step, d *trace.Dump) string {
	if len(s.Doing) == 0 {
		return "did nothing that was recorded"
	}
	type told struct {
		text string
		ns   int64
	}
	var parts []told
	for _, x := range s.Doing {
		text := f.incidentDoing(s.Thread, &x)
		i := slices.IndexFunc(parts, func(p told) bool { return p.text == text })
		if i < 0 {
			parts = append(parts, told{text: text})
			i = len(parts) - 1
		}
		parts[i].ns += x.Ns
	}
	slices.SortStableFunc(parts, func(a, b told) int { return cmp.Compare(b.ns, a.ns) })
	var out []string
	for i, p := range parts {
		if i > 0 && (i == maxDoings || p.ns < int64(d.End-d.Start)/100) { // a hundredth of the time explains nothing
			break
		}
		out = append(out, strings.Replace(p.text, "$", inline(duration(p.ns)), 1))
	}
	return strings.Join(out, "; ")
}

// maxDoings is how much is told of a thread.
const maxDoings = 3

// incidentDoing is one thing that a thread did; $ stands for its time.
func (f *facts) incidentDoing(thread trace.ThreadID, x *incident.Doing) string {
	where := ""
	if x.At.Stack != 0 {
		if names := f.stack(x.At); x.Kind == trace.KindCPU && len(names) > 0 {
			where = " in " + strings.Join(names[:min(len(names), 3)], " ◂ ")
		} else if name := f.culprit(x.At); name != "" {
			where = " in " + name
		}
	}
	switch x.Kind {
	case trace.KindCPU:
		return "ran for $" + where
	case trace.KindUsage:
		return "could run and had no CPU for $"
	case trace.KindWait:
		text := "waited $"
		if t := f.thread(thread); t != nil && x.Object != 0 {
			text += " for " + f.object(t.Proc, f.kind(x.At.Hook), x.Object)
		}
		text += where
		if x.Owner != 0 {
			text += ", held by " + f.threadName(x.Owner)
		}
		return text
	}
	return "was in " + f.hook(x.At.Hook) + " for $" + where
}
