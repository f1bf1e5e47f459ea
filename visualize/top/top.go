// Package top shows what the threads of a recording that runs are doing now: top.go makes rows of two snapshots, text.go
// and json.go write them, source.go finds names.
package top

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/hbtrace/hbtrace/analysis/frames"
	"github.com/hbtrace/hbtrace/analysis/weigh"
	"github.com/hbtrace/hbtrace/live"
	"github.com/hbtrace/hbtrace/trace"
)

// Row is one thread.
type Row struct {
	PID     int    `json:"pid"`
	TID     int    `json:"tid"`
	Thread  string `json:"thread"`
	Process string `json:"process"`
	// Of the time since the snapshot before, in percent; null where the kernel does not tell, or there was none before.
	CPU   *float64 `json:"cpu_percent"`
	Ready *float64 `json:"ready_percent"` // could have run, and had no CPU

	// State is one of running, ready, lock, signal, io, poll, sleep, process, and unknown: asleep in no call that is
	// wrapped.
	State  string `json:"state"`
	Call   string `json:"call,omitempty"`   // the wrapped function that it sleeps in
	Object string `json:"object,omitempty"` // what it waits for
	ForNs  int64  `json:"for_ns"`           // since when, in a call; else how old the stack is
	Owner  *Owner `json:"owner,omitempty"`  // who had the lock when the wait began

	// Function is the one of the stack that a reader can do something about.
	Function string   `json:"function"`
	Stack    []string `json:"stack"` // the leaf first
	// StackKind is entry (taken on the way into this call), caller (only who called is known), or sample (the newest one of a
	// thread in no call).
	StackKind string `json:"stack_kind"`

	id, owner trace.ThreadID
	blocked   bool
}

// Owner is who had what a thread waits for.
type Owner struct {
	TID    int    `json:"tid"`
	Thread string `json:"thread"`
}

// View is one moment, ready to be shown.
type View struct {
	Recorder  int      `json:"recorder"`
	Output    string   `json:"output"`
	Command   []string `json:"command"`
	ElapsedNs int64    `json:"elapsed_ns"`
	Lost      uint64   `json:"lost_records"`
	CPU       *float64 `json:"cpu_percent"`
	Rows      []Row    `json:"threads"`
	rows      map[trace.ThreadID]*Row
}

// New makes a view of s. before is an earlier snapshot of the same session; nil: there is none.
func New(s, before *live.Snapshot, names *Names) *View {
	names.lookUp(s)
	src := &source{Snapshot: s, names: names}
	src.meta = trace.Meta{Command: s.Command, Hooks: map[trace.HookID]trace.HookInfo{}}
	ids := map[trace.HookInfo]trace.HookID{{}: 0}
	for i := range s.Threads {
		if h := s.Threads[i].Hook; ids[h] == 0 && h.Name != "" {
			ids[h] = trace.HookID(len(ids)) // the recorder may be of another version: its own numbers mean nothing here
			src.meta.Hooks[ids[h]] = h
		}
	}
	tab := frames.New(src)
	locking := weigh.NewLocking(&src.meta, tab)
	v := &View{
		Recorder: s.Recorder, Output: s.Output, Command: s.Command, ElapsedNs: int64(s.Now - s.Start), Lost: s.Lost,
		rows: map[trace.ThreadID]*Row{},
	}
	earlier := map[trace.ThreadID]*live.Thread{}
	if before != nil {
		for i := range before.Threads {
			earlier[before.Threads[i].ID] = &before.Threads[i]
		}
	}
	for i := range s.Threads {
		t := &s.Threads[i]
		r := row(s, t, tab, names, locking.Wait(ids[t.Hook], t.Stack))
		if old := earlier[t.ID]; old != nil && s.Now > before.Now {
			r.CPU = share(old.CPUNs, t.CPUNs, s.Now-before.Now)
			r.Ready = share(old.ReadyNs, t.ReadyNs, s.Now-before.Now)
		}
		if r.CPU != nil {
			sum := *r.CPU
			if v.CPU != nil {
				sum += *v.CPU
			}
			v.CPU = &sum
		}
		v.Rows = append(v.Rows, r)
	}
	// Who works comes first, then who waits for somebody, longest first.
	slices.SortStableFunc(v.Rows, func(a, b Row) int {
		return cmp.Or(-cmp.Compare(deref(a.CPU), deref(b.CPU)), cmp.Compare(rank[a.State], rank[b.State]), -cmp.Compare(a.ForNs, b.ForNs), cmp.Compare(a.TID, b.TID))
	})
	for i := range v.Rows {
		v.rows[v.Rows[i].id] = &v.Rows[i]
	}
	for i := range v.Rows {
		if o := v.rows[v.Rows[i].owner]; o != nil {
			v.Rows[i].Owner = &Owner{o.TID, o.Thread}
		}
	}
	return v
}

var rank = map[string]int{"running": 0, "ready": 1, "lock": 2, "unknown": 3, "io": 4, "signal": 5, "process": 6, "sleep": 7, "poll": 8}

func deref(f *float64) float64 {
	if f == nil {
		return 0
	}
	return *f
}

// share is the part of an interval that two readings are apart, in percent.
func share(before, now int64, of trace.Ns) *float64 {
	if before < 0 || now < before {
		return nil
	}
	p := 100 * float64(now-before) / float64(of)
	return &p
}

func row(s *live.Snapshot, t *live.Thread, tab *frames.Table, names *Names, lock bool) Row {
	r := Row{
		TID: t.TID, Thread: frames.Valid(t.Name), id: t.ID, owner: t.Owner, blocked: t.Hook.Name != "",
		Call: t.Hook.Name, StackKind: "sample",
	}
	for i := range s.Processes {
		if p := &s.Processes[i]; p.ID == t.Proc {
			r.PID, r.Process = p.PID, frames.Valid(strings.Join(p.Cmdline, " "))
			break
		}
	}
	if t.Stack != 0 && tab.Valid(t.Stack) {
		r.Function = tab.Culprit(t.Stack, t.Hook.Name)
		for _, id := range tab.Path(nil, t.Stack) {
			for _, at := range tab.Of(id) {
				r.Stack = append(r.Stack, tab.Frame(at.ID).Name)
			}
		}
		slices.Reverse(r.Stack)
	} else {
		r.Function = frames.NoStack
	}
	if !r.blocked {
		r.ForNs = max(0, int64(s.Now-t.StackTime))
		switch t.Kernel {
		case "R", "":
			r.State = "running"
		default:
			r.State = "unknown"
		}
		return r
	}
	r.StackKind = "caller"
	if t.Exact {
		r.StackKind = "entry"
	}
	r.ForNs = max(0, int64(s.Now-t.Since))
	kind := trace.KindCall
	if t.Waits {
		kind = trace.KindWait
	}
	r.State = weigh.StateOf(kind, t.Hook, t.Waits && lock).Label()
	r.Object = object(&r, t, tab, names)
	if t.Kernel == "R" { // released already
		r.State = "ready"
	}
	return r
}

// object is what a thread waits for, as text; "" where that is nothing.
func object(r *Row, t *live.Thread, tab *frames.Table, names *Names) string {
	switch t.Hook.Object {
	case "FD":
		text := fmt.Sprintf("fd %d", int32(t.Object))
		// A user who may read the process may know what the descriptor is.
		if to, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", r.PID, int32(t.Object))); err == nil {
			text += " " + frames.Valid(to)
		}
		return text
	case "PID":
		return fmt.Sprintf("process %d", int32(t.Object))
	case "ADDR":
		if !t.Waits || t.Object == 0 {
			return ""
		}
		kind := weigh.ObjectKind(t.Hook)
		if v := names.vars[t.Place]; v != nil {
			name := kind + " " + frames.Valid(v.Name)
			if v.Off != 0 {
				name += fmt.Sprintf("+%#x", v.Off)
			}
			return name
		}
		if t.Place.Module != 0 {
			return kind + " " + tab.Address(t.Place.Module, t.Place.Off)
		}
		return fmt.Sprintf("%s %#x", kind, t.Object)
	}
	return ""
}
