// Triggers of a flight recorder: when one holds, a dump is made, by a process of its own.
package collector

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/hbtrace/hbtrace/flight"
	"github.com/hbtrace/hbtrace/hooks"
	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/trigger"
)

// Dumps say when a flight recorder makes a dump by itself, and how many it keeps. Zero fields take the default that is
// named.
type Dumps struct {
	On      []*trigger.Trigger
	Prefix  string        // of the files: PREFIX.001.slow-lock.hbt
	After   time.Duration // how long is recorded after what a trigger reports; 1 s; negative: nothing
	Most    int           // files; 20
	Bytes   int64         // of all of them; 1 GiB
	NoNames bool          // names of functions are looked up later
	exe     string        // that makes dumps; this process's own
}

func (d *Dumps) fill() {
	switch {
	case d.After == 0:
		d.After = time.Second
	case d.After < 0:
		d.After = 0
	}
	if d.Most == 0 {
		d.Most = 20
	}
	if d.Bytes == 0 {
		d.Bytes = 1 << 30
	}
	if d.exe == "" {
		d.exe = "/proc/self/exe"
	}
}

// firing is what triggers do. It belongs to the session's goroutine.
type firing struct {
	k       *keeping
	o       Dumps
	engine  *trigger.Engine
	pending []pendingDump
	made    []madeDump
	number  int
	results chan madeDump // of dumps in the making
	making  int
	refused int // dumps that the limits did not allow

	env       trigger.Interval
	lastState time.Time
	lastStall time.Time
	loops     map[uint32]*loop // by thread
	usedCPU   time.Duration    // of the program, at the last look
	idleSince time.Time
	debt      int64 // longest time of a thread without a CPU, since the last look
}

// pendingDump is one that waits for what comes after its event.
type pendingDump struct {
	t   *trigger.Trigger
	due time.Time
	why trace.Dump

	whole bool // of a stall: it is over
}

// madeDump is a file.
type madeDump struct {
	trigger string // its name
	path    string
	why     trace.Dump
	bytes   int64
	err     error
}

func newFiring(k *keeping, o Dumps) *firing {
	o.fill()
	return &firing{
		k: k, o: o, engine: trigger.NewEngine(o.On), results: make(chan madeDump, o.Most+1), loops: map[uint32]*loop{}, idleSince: time.Now(),
	}
}

// event looks at an event that was recorded.
func (f *firing) event(e *trace.Event) {
	if e.Kind == trace.KindUsage {
		f.debt = max(f.debt, e.Debt)
		return
	}
	if !f.engine.Wants(e) {
		return
	}
	h, _ := hooks.ByID(e.Hook)
	t := f.k.w.Thread(e.Thread)
	p := f.k.w.Process(t.Proc)
	ns := float64(e.Time - e.Start)
	f.env = trigger.Interval{
		Took: ns, Ms: ns / 1e6, Call: h.Name, Thread: t.Name, Process: filepath.Base(p.Exe), Pid: p.PID, Tid: t.TID, Result: int(e.Result),
		Owner: f.k.w.Thread(e.Owner).Name,
	}
	if h.Class.Waits() {
		f.env.Wait = ns
	}
	switch h.Class {
	case hooks.ClassLock:
		f.env.Lock = ns
	case hooks.ClassCond:
		f.env.Cond = ns
	case hooks.ClassSem:
		f.env.Sem = ns
	}
	if tr := f.engine.Interval(e, &f.env, time.Now()); tr != nil {
		what := "was in " + h.Name
		if h.Class.Waits() {
			what = "waited in " + h.Name
		}
		f.fire(tr, trace.Dump{
			Thread: e.Thread, Start: e.Start, End: e.Time,
			Event: fmt.Sprintf("thread %s (%d) %s for %s", nameOr(t.Name, "?"), t.TID, what, rounded(time.Duration(e.Time-e.Start))),
		})
	}
}

func nameOr(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

// rounded is a duration with three digits.
func rounded(d time.Duration) time.Duration {
	for unit := time.Duration(1); ; unit *= 10 {
		if d < 1000*unit {
			return d.Round(unit)
		}
	}
}

// fire has a dump made when what comes after its event is recorded.
func (f *firing) fire(t *trigger.Trigger, why trace.Dump) {
	why.Why, why.Trigger = trace.DumpedTrigger, t.Text
	f.pending = append(f.pending, pendingDump{t: t, due: time.Now().Add(f.o.After), why: why})
}

// tend makes the dumps that are due, takes up those that are finished, and polls what is polled.
func (f *firing) tend(now time.Time) {
	f.poll(now)
	due := false
	for _, p := range f.pending {
		due = due || !now.Before(p.due)
	}
	if due {
		f.k.complete()
		left := f.pending[:0]
		for _, p := range f.pending {
			if now.Before(p.due) {
				left = append(left, p)
				continue
			}
			f.begin(p)
		}
		f.pending = left
	}
	for {
		select {
		case m := <-f.results:
			f.finished(m)
			continue
		default:
		}
		return
	}
}

// begin starts the process that makes a dump.
func (f *firing) begin(p pendingDump) {
	if f.making >= 4 {
		f.refused++
		return
	}
	f.number++
	f.making++
	m := madeDump{trigger: p.t.Name, why: p.why, path: fmt.Sprintf("%s.%03d.%s.hbt", f.o.Prefix, f.number, p.t.Name)}
	dir, exe, noNames := f.k.w.Dir, f.o.exe, f.o.NoNames
	go func() {
		d, err := flight.Child(exe, dir, m.path, flight.Options{Why: m.why, NoNames: noNames})
		if m.err = err; err == nil {
			m.bytes = d.Bytes
		}
		f.results <- m
	}()
}

// finished takes up a dump, and removes others where there are too many.
func (f *firing) finished(m madeDump) {
	f.making--
	if m.err != nil {
		f.alert(fmt.Sprintf("no dump for --on %q: %v", m.why.Trigger, m.err))
		return
	}
	f.made = append(f.made, m)
	for f.over() {
		i := f.victim()
		if i < 0 {
			i = len(f.made) - 1 // the first of each trigger stays: there is no room for this one
		}
		if err := os.Remove(f.made[i].path); err != nil {
			f.alert(fmt.Sprintf("removing a dump: %v", err))
		}
		f.refused++
		newest := i == len(f.made)-1
		f.made = slices.Delete(f.made, i, i+1)
		if newest {
			return
		}
	}
	f.alert(fmt.Sprintf("dump %s: --on %q: %s", m.path, m.why.Trigger, m.why.Event))
}

// over reports whether there are more dumps than are to be kept. One is always kept.
func (f *firing) over() bool {
	var sum int64
	for _, m := range f.made {
		sum += m.bytes
	}
	return len(f.made) > 1 && (len(f.made) > f.o.Most || sum > f.o.Bytes)
}

// victim is the oldest but the first of the trigger that has most dumps; -1: each has only its first.
func (f *firing) victim() int {
	count := map[string]int{}
	for _, m := range f.made {
		count[m.why.Trigger]++
	}
	best, most := -1, 1
	for t, n := range count {
		if n <= most {
			continue
		}
		seen := 0
		for i, m := range f.made {
			if m.why.Trigger == t {
				if seen++; seen == 2 {
					best, most = i, n
					break
				}
			}
		}
	}
	return best
}

func (f *firing) alert(line string) {
	if f.k.s.opt.Alert != nil {
		f.k.s.opt.Alert(line)
	}
}

// deadlock takes up a deadlock; chain has a line for each thread.
func (f *firing) deadlock(chain []string) {
	if t := f.engine.Deadlock(time.Now()); t != nil {
		f.fire(t, trace.Dump{Event: fmt.Sprintf("%d threads wait for each other", len(chain)), Chain: chain})
	}
}

// ended makes the dumps that are still to be made, and that of the program's end, and waits for them. The window holds
// all that was recorded.
func (f *firing) ended(m *trace.Meta, known bool) {
	for _, p := range f.pending {
		f.begin(p)
	}
	f.pending = nil
	if known {
		if t := f.engine.End(trigger.End{Exit: m.ExitStatus, Signal: m.ExitSignal}); t != nil {
			event := fmt.Sprintf("the program ended with status %d", m.ExitStatus)
			if m.ExitSignal != 0 {
				event = fmt.Sprintf("the program was ended by signal %d", m.ExitSignal)
			}
			f.begin(pendingDump{t: t, why: trace.Dump{Why: trace.DumpedTrigger, Trigger: t.Text, Event: event}})
		}
	}
	for f.making > 0 {
		f.finished(<-f.results)
	}
}

// paths lists the dumps that are there.
func (f *firing) paths() (list []string) {
	for _, m := range f.made {
		list = append(list, m.path)
	}
	return list
}

// dumpPaths are the files that a session's triggers made.
func (s *session) dumpPaths() []string {
	if s.keep == nil {
		return nil
	}
	return s.keep.fire.paths()
}
