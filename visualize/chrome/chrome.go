// Package chrome writes a recording as a Chrome trace (the Trace Event Format's JSON), for the many tools that read it
// and not Perfetto's own form, which says more in a fraction of the size.
//
// Spans, waits and calls are pairs of B and E, or X where they lie behind what was written already; arrows from the releaser to the waiter are s and f, processes and
// threads are named by M. Times are microseconds since the recording's start, with three decimals.
package chrome

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/hbtrace/hbtrace/analysis/frames"
	"github.com/hbtrace/hbtrace/analysis/spans"
	"github.com/hbtrace/hbtrace/analysis/weigh"
	"github.com/hbtrace/hbtrace/trace"
)

// Write writes src to w, reading the events once and keeping none. Errors are those of src and w.
func Write(w io.Writer, src trace.Source) error {
	x := &writer{
		w: bufio.NewWriterSize(w, 1<<16), src: src, meta: src.Meta(), tab: frames.New(src),
		ids: map[trace.ThreadID]string{}, names: map[frames.ID]string{}, labels: map[trace.ThreadID]string{},
	}
	x.lock = weigh.NewLocking(x.meta, x.tab)
	x.w.WriteString(`{"otherData":{"recorder":`)
	x.w.WriteString(quote("hbtrace " + x.meta.Version))
	x.w.WriteString(`,"command":`)
	x.w.WriteString(quote(strings.Join(x.meta.Command, " ")))
	x.w.WriteString("},\n\"traceEvents\":[\n")
	x.describe()
	b := spans.New(src, x.tab, x)
	if err := trace.Events(src, b.Add); err != nil {
		return fmt.Errorf("chrome: %w", err)
	}
	if _, err := b.Close(); err != nil {
		return fmt.Errorf("chrome: %w", err)
	}
	x.w.WriteString("\n]}\n")
	if err := x.w.Flush(); err != nil {
		return fmt.Errorf("chrome: writing: %w", err)
	}
	return nil
}

type writer struct {
	w      *bufio.Writer
	src    trace.Source
	meta   *trace.Meta
	tab    *frames.Table
	lock   *weigh.Locking
	ids    map[trace.ThreadID]string // "pid":…,"tid":…
	names  map[frames.ID]string      // as JSON
	labels map[trace.ThreadID]string // for arguments
	any    bool
	flows  uint64
	buf    []byte
}

// quote is a JSON string. HTML's characters are escaped too: such files are shown in browsers.
func quote(s string) string {
	b, _ := json.Marshal(frames.Valid(s))
	return string(b)
}

// event begins an event; end ends it. Flush returns the error of a failing writer.
func (x *writer) event(ph byte, id trace.ThreadID, at trace.Ns) {
	if x.any {
		x.w.WriteString(",\n")
	}
	x.any = true
	x.w.WriteString(`{"ph":"`)
	x.w.WriteByte(ph)
	x.w.WriteString(`",`)
	x.w.WriteString(x.who(id))
	x.w.WriteString(`,"ts":`)
	x.time(at - x.meta.StartNs)
}

func (x *writer) time(ns trace.Ns) {
	b := x.buf[:0]
	if ns < 0 {
		b, ns = append(b, '-'), -ns
	}
	b = strconv.AppendInt(b, int64(ns/1000), 10)
	b = append(b, '.', byte('0'+ns/100%10), byte('0'+ns/10%10), byte('0'+ns%10))
	x.w.Write(b)
	x.buf = b
}

func (x *writer) end() { x.w.WriteByte('}') }

func (x *writer) field(name, value string) {
	x.w.WriteString(`,"`)
	x.w.WriteString(name)
	x.w.WriteString(`":`)
	x.w.WriteString(value)
}

func (x *writer) who(id trace.ThreadID) string {
	s, ok := x.ids[id]
	if !ok { // the recording does not list it
		s = fmt.Sprintf(`"pid":0,"tid":%d`, id)
		x.ids[id] = s
	}
	return s
}

// again is what is added to a thread's number each time that it is used again; Linux gives none as large.
const again = 10_000_000

// describe names processes and threads, and fixes their numbers.
func (x *writer) describe() {
	procs := map[trace.ProcID]int{}
	ps, ts := x.src.Processes(), x.src.Threads()
	for i := range ps {
		procs[ps[i].ID] = ps[i].PID
	}
	name := func(what string, id trace.ThreadID, args string) {
		x.event('M', id, x.meta.StartNs)
		x.field("name", `"`+what+`"`)
		x.field("args", args)
		x.end()
	}
	named := map[trace.ProcID]bool{}
	used := map[[2]int]bool{}
	for i := range ts {
		t := &ts[i]
		// Readers know threads by their numbers alone: one that is used again, or by a program that was exec-ed, is another.
		pid, tid := procs[t.Proc], t.ExportTID()
		for used[[2]int{pid, tid}] {
			tid += again
		}
		used[[2]int{pid, tid}] = true
		x.ids[t.ID] = fmt.Sprintf(`"pid":%d,"tid":%d`, pid, tid)
		x.labels[t.ID] = frames.Valid(t.Name) + " " + strconv.Itoa(t.TID)
		name("thread_name", t.ID, `{"name":`+quote(t.ExportName())+`}`)
		for j := range ps {
			if p := &ps[j]; p.ID == t.Proc && !named[p.ID] {
				named[p.ID] = true
				name("process_name", t.ID, `{"name":`+quote(label(p))+`}`)
			}
		}
	}
}

func (x *writer) frame(id frames.ID) string {
	s, ok := x.names[id]
	if !ok {
		s = quote(x.tab.Frame(id).Name)
		x.names[id] = s
	}
	return s
}

// Begin implements [spans.Sink].
func (x *writer) Begin(s *spans.Span) error {
	x.event('B', s.Thread, s.Start)
	x.field("name", x.frame(s.Frame))
	x.end()
	return nil
}

// End implements [spans.Sink].
func (x *writer) End(s *spans.Span) error {
	x.event('E', s.Thread, s.End)
	x.end()
	return nil
}

// whole begins an event that has its duration with it.
func (x *writer) whole(id trace.ThreadID, from, to trace.Ns, name, category string) {
	x.event('X', id, from)
	x.w.WriteString(`,"dur":`)
	x.time(max(to-from, 0))
	x.field("name", name)
	if category != "" {
		x.field("cat", `"`+category+`"`)
	}
}

// Interval implements [spans.Sink].
func (x *writer) Interval(i *spans.Interval) error {
	e := i.Event
	hook := x.meta.Hooks[e.Hook]
	lock := e.Kind == trace.KindWait && x.lock.Wait(e.Hook, e.Stack)
	name, category := quote(frames.HookName(x.meta, e.Hook)), weigh.StateOf(e.Kind, hook, lock).Label()
	// Readers put an X before a B of the same time, around which it should not be.
	x.event('B', e.Thread, i.Start)
	x.field("name", name)
	x.field("cat", `"`+category+`"`)
	args := map[string]any{"result": e.Result}
	switch {
	case e.Object == 0:
	case hook.Object == trace.HookFD:
		args["fd"] = int32(e.Object)
	default:
		args["object"] = x.tab.Object(e.Object)
	}
	for name, id := range map[string]trace.ThreadID{"owner": e.Owner, "releaser": e.Releaser} {
		if id != 0 {
			args[name] = x.labels[id]
		}
	}
	b, err := json.Marshal(args)
	if err != nil {
		return err
	}
	x.field("args", string(b))
	x.end()
	return nil
}

// Return implements [spans.Sink].
func (x *writer) Return(i *spans.Interval) error {
	e := i.Event
	x.event('E', e.Thread, i.End)
	x.end()
	if e.Releaser != 0 && e.Release > 0 && e.Release <= i.End {
		x.flow(e, i)
	}
	return nil
}

// flow writes the arrow from the releaser to the wait. An arrow begins and ends in a slice.
func (x *writer) flow(e *trace.Event, i *spans.Interval) {
	x.flows++
	id := strconv.FormatUint(x.flows, 10)
	// It ends at that moment: one that begins then would stick out of a span that ends there.
	x.whole(e.Releaser, e.Release-1, e.Release, `"lets go"`, "release")
	x.end()
	x.event('s', e.Releaser, e.Release-1)
	x.field("id", id)
	x.field("name", `"woken"`)
	x.field("cat", `"release"`)
	x.end()
	x.event('f', e.Thread, max(i.Start, e.Release))
	x.field("id", id)
	x.field("name", `"woken"`)
	x.field("cat", `"release"`)
	x.field("bp", `"e"`)
	x.end()
}

// Point implements [spans.Sink].
func (x *writer) Point(e *trace.Event, _ int, _ uint64) error {
	if e.Kind != trace.KindLost {
		return nil // releases are where their arrows begin
	}
	x.event('i', e.Thread, e.Time)
	x.field("s", `"t"`)
	x.field("name", `"records lost"`)
	x.field("args", fmt.Sprintf(`{"count":%d}`, e.Count))
	x.end()
	return nil
}

func label(p *trace.Process) string {
	if p.Exe == "" {
		return "process " + strconv.Itoa(p.PID)
	}
	return filepath.Base(p.Exe)
}
