// Programs that ran already when they were recorded: since when they were, and what is known of their threads.

package report

import (
	"fmt"

	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/visualize/number"
	"github.com/hbtrace/hbtrace/visualize/terminal"
)

// attachedLines says when each program was attached to and left, and how many of the threads that it had are in the recording.
func (f *facts) attachedLines(o Options) []string {
	var out []string
	for i := range f.meta.Attached {
		out = append(out, terminal.Wrap("attached  ", f.attachedText(&f.meta.Attached[i]), o.Width)...)
	}
	return out
}

func (f *facts) attachedText(a *trace.Attached) []string {
	since := func(at trace.Ns) string { return "+" + inline(duration(int64(at-f.meta.StartNs))) }
	parts := []string{fmt.Sprintf("process %d from %s", a.PID, since(a.At))}
	if a.Left != 0 {
		parts[0] += " to " + since(a.Left)
	}
	recorded, slept, missing := 0, 0, 0
	for _, b := range a.Threads {
		switch {
		case b.Slept:
			slept++
		case b.Thread != 0:
			recorded++
		default:
			missing++
		}
	}
	parts = append(parts, number.Plural(uint64(len(a.Threads)), "thread")+" before that: "+fmt.Sprintf("%d with recorded calls", recorded))
	if slept > 0 {
		parts = append(parts, fmt.Sprintf("%d asleep in one call all the time", slept))
	}
	if missing > 0 {
		parts = append(parts, fmt.Sprintf("%d not recorded: they made no call", missing))
	}
	return parts
}

// asleepBefore lists the threads that slept when hbtrace attached, and for how long they had by then.
func (f *facts) asleepBefore(o Options) []string {
	t := &terminal.Table{Columns: []terminal.Column{
		{Title: "asleep for", Right: true}, {Title: "in", Plain: true}, {Title: "thread", Flex: 3, Plain: true}, {Title: "then", Plain: true},
	}, Indent: 2}
	shown, all := 0, 0
	for i := range f.meta.Attached {
		for _, b := range f.meta.Attached[i].Threads {
			if b.State != "S" || b.ForNs == 0 {
				continue
			}
			if all++; shown == o.Top {
				continue
			}
			shown++
			then := "recorded from its first call on"
			switch {
			case b.Slept:
				then = "slept on"
			case b.Thread == 0:
				then = "not recorded: it made no call"
			}
			t.Add(duration(b.ForNs), b.Call, fmt.Sprintf("%s (%d)", terminal.Clean(b.Name), b.TID), then)
		}
	}
	if all == 0 {
		return nil
	}
	more(t, shown, all)
	return titled(o, "Threads that slept when hbtrace attached, and how long they had", t.Lines(o.Width, o.Color))
}

// jsonAttached is a program that ran already.
type jsonAttached struct {
	PID     int          `json:"pid"`
	AtNs    int64        `json:"at_ns"`   // since the recording's start
	LeftNs  int64        `json:"left_ns"` // likewise; -1: it had ended, or the recorder was killed
	Threads []jsonBefore `json:"threads"`
}

// jsonBefore is a thread as it was when hbtrace attached.
type jsonBefore struct {
	TID      int    `json:"tid"`
	Name     string `json:"name"`
	State    string `json:"state"`
	Call     string `json:"call,omitempty"`
	AsleepNs int64  `json:"asleep_ns"` // how long it had not run by then; 0 not known
	Recorded bool   `json:"recorded"`
	Slept    bool   `json:"asleep_throughout"`
}

func (f *facts) jsonAttached() []jsonAttached {
	var out []jsonAttached
	for _, a := range f.meta.Attached {
		j := jsonAttached{PID: a.PID, AtNs: int64(a.At - f.meta.StartNs), LeftNs: -1, Threads: []jsonBefore{}}
		if a.Left != 0 {
			j.LeftNs = int64(a.Left - f.meta.StartNs)
		}
		for _, b := range a.Threads {
			j.Threads = append(j.Threads, jsonBefore{b.TID, b.Name, b.State, b.Call, b.ForNs, b.Thread != 0, b.Slept})
		}
		out = append(out, j)
	}
	return out
}
