// Package firefox writes a recording in the Firefox Profiler's processed format, for https://profiler.firefox.com ("load a
// profile from file"): samples of each thread in the order of time, weighed by CPU time, and waits and calls as markers.
//
// The form is that of version 62 of the format: columns instead of records, indices into tables that all threads share, times
// in milliseconds as differences. firefox.go gathers and tables.go holds the tables, json.go writes them. Memory is some 20
// bytes for each sample and some 60 for each wait.
package firefox

import (
	"fmt"
	"io"
	"path/filepath"

	"github.com/hbtrace/hbtrace/analysis/frames"
	"github.com/hbtrace/hbtrace/analysis/weigh"
	"github.com/hbtrace/hbtrace/trace"
)

// Write writes src to w. Errors are those of src and w.
func Write(w io.Writer, src trace.Source) error {
	x := &writer{src: src, meta: src.Meta(), threads: map[trace.ThreadID]*thread{}}
	x.tables = newTables(src)
	x.lock = weigh.NewLocking(x.meta, x.tab)
	ts := src.Threads()
	for i := range ts {
		x.threads[ts[i].ID] = &thread{id: ts[i].ID, info: &ts[i]}
	}
	for i := range ts {
		x.order = append(x.order, x.threads[ts[i].ID])
	}
	if err := trace.Events(src, x.add); err != nil {
		return fmt.Errorf("firefox: %w", err)
	}
	if err := x.write(w); err != nil {
		return fmt.Errorf("firefox: writing: %w", err)
	}
	return nil
}

type writer struct {
	src  trace.Source
	meta *trace.Meta
	*tables
	lock    *weigh.Locking
	threads map[trace.ThreadID]*thread
	order   []*thread
}

// thread is one's samples and markers.
type thread struct {
	id      trace.ThreadID
	info    *trace.Thread // nil: the recording does not list it
	samples []sample
	markers []marker
	at      int64 // ns since the recording's start, of the last sample
}

type sample struct {
	at    int64 // ns since the recording's start, ascending
	cpu   int64 // ns that it stands for
	stack int32 // -1: none
}

type marker struct {
	start, end      int64 // ns since the recording's start
	name            int32 // in the string table
	object          int32 // likewise; -1: none
	state           weigh.State
	owner, releaser trace.ThreadID
}

func (x *writer) thread(id trace.ThreadID) *thread {
	t := x.threads[id]
	if t == nil {
		t = &thread{id: id}
		x.threads[id] = t
		x.order = append(x.order, t)
	}
	return t
}

// since is a time of the recording as the file has it; what lies outside is cut.
func (x *writer) since(at trace.Ns) int64 {
	return int64(min(max(at, x.meta.StartNs), max(x.meta.EndNs, x.meta.StartNs)) - x.meta.StartNs)
}

func (t *thread) sample(at, cpu int64, stack int32) {
	t.at = max(t.at, at)
	t.samples = append(t.samples, sample{t.at, cpu, stack})
}

func (x *writer) add(e *trace.Event) error {
	t := x.thread(e.Thread)
	switch e.Kind {
	case trace.KindCPU, trace.KindGap, trace.KindSync, trace.KindEnter:
		stack := x.stack(e.Stack, e.Hook)
		if e.Start < e.Time {
			t.sample(x.since(e.Start), 0, stack)
		}
		cpu := int64(0)
		if e.Kind == trace.KindCPU {
			cpu = max(e.CPU, 0)
		}
		t.sample(x.since(e.Time), cpu, stack)
	case trace.KindWait, trace.KindCall:
		stack := x.stack(e.Stack, e.Hook)
		start, end := x.since(e.Start), max(x.since(e.Start), x.since(e.Time))
		t.sample(start, 0, stack)
		t.sample(end, 0, stack)
		lock := e.Kind == trace.KindWait && x.lock.Wait(e.Hook, e.Stack)
		m := marker{start: start, end: end, object: -1, owner: e.Owner, releaser: e.Releaser}
		hook := x.meta.Hooks[e.Hook]
		m.state = weigh.StateOf(e.Kind, hook, lock)
		m.name = x.string(frames.HookName(x.meta, e.Hook))
		switch {
		case e.Object == 0:
		case hook.Object == trace.HookFD:
			m.object = x.string(fmt.Sprintf("fd %d", int32(e.Object)))
		case e.Kind == trace.KindWait:
			m.object = x.string(x.tab.Object(e.Object))
		}
		t.markers = append(t.markers, m)
	case trace.KindThreadExit:
		if e.CPU > 0 { // used since the last sample: where, nobody knows
			t.sample(x.since(e.Time), e.CPU, x.stack(e.Stack, 0))
		} else {
			t.sample(x.since(e.Time), 0, -1)
		}
	}
	return nil
}

// who names a thread.
func (x *writer) who(id trace.ThreadID) string {
	if t := x.threads[id]; t != nil && t.info != nil {
		return fmt.Sprintf("%s %d", frames.Valid(t.info.Name), t.info.TID)
	}
	return fmt.Sprintf("thread #%d", id)
}

func processName(p *trace.Process) string {
	if p.Exe == "" {
		return fmt.Sprintf("process %d", p.PID)
	}
	return frames.Valid(filepath.Base(p.Exe))
}
