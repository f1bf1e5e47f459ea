// Dumps: a session's content as an ordinary recording.

package flight

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/hbtrace/hbtrace/hooks"
	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/tracefile"
)

// Options say how a dump is made.
type Options struct {
	Why     trace.Dump      // Session, Keep and Bound are filled in; Thread is the session's number
	NoNames bool            // leave the names of addresses for later: hbtrace symbolize
	Stop    <-chan struct{} // being closed ends the search for names
}

// Dumped is what a dump holds.
type Dumped struct {
	Path        string
	Meta        trace.Meta
	Stats       trace.Stats
	Bytes       int64
	Events      uint64
	Open        int // intervals that had not ended
	Overwritten uint64
}

// Dump writes the content to path as an ordinary recording. The file appears when it is whole: when anything goes wrong
// there is none.
func (c *Content) Dump(path string, o Options) (_ *Dumped, err error) {
	p := newPick(c)
	if err := p.events(); err != nil {
		return nil, err
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return nil, fmt.Errorf("making the dump: %w", err)
	}
	tmp.Close()
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(tmp.Name()))
		}
	}()
	if err = os.Chmod(tmp.Name(), 0o644&^umask()); err != nil {
		return nil, fmt.Errorf("making the dump: %w", err)
	}
	p.meta.Dump = o.Why
	p.meta.Dump.Session, p.meta.Dump.Keep, p.meta.Dump.Bound = c.Name, c.Keep, p.bound
	p.meta.Dump.Thread = p.threads[o.Why.Thread]
	w, err := tracefile.Create(tmp.Name(), &p.meta)
	if err != nil {
		return nil, fmt.Errorf("making the dump: %w", err)
	}
	stats := trace.Stats{}
	written := p.write(w)
	if written == nil && !o.NoNames {
		stats.Notes = p.names(w, o.Stop)
	}
	p.account(&stats)
	res := &Dumped{Path: path, Meta: p.meta, Events: p.count, Open: len(p.open), Overwritten: p.overwritten}
	if err = cmpErr(written, w.Err(), w.Close(&stats), w.Err()); err != nil {
		return nil, fmt.Errorf("making the dump: %w", err)
	}
	res.Bytes, res.Stats = w.Size(), stats
	if err = os.Rename(tmp.Name(), path); err != nil {
		return nil, fmt.Errorf("making the dump: %w", err)
	}
	return res, nil
}

// cmpErr is the first error.
func cmpErr(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// pick chooses what of a content goes into a recording, and gives it the recording's numbers.
type pick struct {
	c      *Content
	meta   trace.Meta
	base   *keyframe // the beginning; nil: everything that is there
	cut    trace.Ns  // its time: what ended until then is left out
	end    trace.Ns
	bound  string
	spans  []span
	key    *keyframe // what was open at the end; nil none
	behind int       // of spans: those in front of key

	count, overwritten, samples, lost uint64
	open                              []trace.Event // with the recording's numbers

	waited      map[uint64]struct{}      // addresses of what threads waited for, maxWaited at most
	sampled     map[trace.ThreadID]int64 // ns of CPU time that events account for
	usedThreads map[trace.ThreadID]bool
	usedNodes   []bool
	usedModules map[trace.ModuleID]bool
	threads     map[trace.ThreadID]trace.ThreadID // session's to recording's
	procs       map[trace.ProcID]trace.ProcID
	modules     map[trace.ModuleID]trace.ModuleID
	nodes       []trace.StackID
	nodeOrder   []trace.StackID // session's, in the order of the recording's
	moduleList  []trace.Module
}

func newPick(c *Content) *pick {
	p := &pick{
		c: c, meta: c.dict.meta, waited: map[uint64]struct{}{}, sampled: map[trace.ThreadID]int64{}, usedThreads: map[trace.ThreadID]bool{}, usedModules: map[trace.ModuleID]bool{},
		usedNodes: make([]bool, len(c.dict.nodes)), nodes: make([]trace.StackID, len(c.dict.nodes)),
		threads: map[trace.ThreadID]trace.ThreadID{}, procs: map[trace.ProcID]trace.ProcID{}, modules: map[trace.ModuleID]trace.ModuleID{},
	}
	batches := c.batches
	if n := len(c.keys); n > 0 {
		p.key = &c.keys[n-1]
		p.end = p.key.time
		if c.alive { // what is behind it goes on: its threads are not in the dictionary as they were then
			batches = batches[:p.key.behind]
		}
	}
	for _, s := range batches {
		p.end = max(p.end, s.end)
	}
	p.end = max(p.end, p.meta.StartNs)
	p.begin()
	for i, s := range batches {
		if p.base != nil && i < p.base.behind {
			continue
		}
		if p.key != nil && i < p.key.behind {
			p.behind++
		}
		p.spans = append(p.spans, s)
	}
	switch {
	case p.base != nil:
		p.overwritten = p.base.first
	case len(p.spans) > 0:
		p.overwritten = p.spans[0].first
	case p.key != nil:
		p.overwritten = p.key.first
	}
	return p
}

// begin chooses the moment that the recording begins at: the latest keyframe that is as old as the window's time, else
// the oldest one where events have been overwritten, and else the session's beginning.
func (p *pick) begin() {
	c := p.c
	keep, err := ParseKeep(c.Keep)
	cut := trace.Ns(0)
	if err == nil {
		cut = cutoff(p.end, keep)
	}
	overwritten := len(c.batches) > 0 && c.batches[0].first > 0 || len(c.batches) == 0 && p.key != nil && p.key.first > 0
	for i := range c.keys {
		k := &c.keys[i]
		if k.time <= cut {
			p.base, p.bound = k, "time"
		} else if p.base == nil && overwritten && k != p.key {
			p.base, p.bound = k, "size"
		}
	}
	if p.base != nil {
		p.cut = p.base.time
	} else if overwritten {
		p.bound = "size"
	}
}

// each calls f for every event that is kept, in stored order, with the number of its span.
func (p *pick) each(f func(span int, e *trace.Event) error) error {
	var d tracefile.BatchDecoder
	for i, s := range p.spans {
		err := d.Decode(s.batch, func(e *trace.Event) error {
			if p.base != nil && e.Time <= p.cut {
				return nil
			}
			return f(i, e)
		})
		if err != nil {
			return fmt.Errorf("reading session %s: %w", p.c.Name, err)
		}
	}
	return nil
}

// events finds out what the events need, and numbers it.
func (p *pick) events() error {
	begin := p.end
	active := map[trace.ThreadID]bool{} // recorded something after the keyframe
	for id, t := range p.c.dict.threads {
		if t.Start <= p.end && (t.End == 0 || t.End > p.cut) {
			p.usedThreads[id] = true
		}
	}
	var before uint64 // events older than the window, in spans that are in it
	var first uint64
	if len(p.spans) > 0 {
		first = p.spans[0].first
	}
	err := p.each(func(span int, e *trace.Event) error {
		p.count++
		p.uses(e)
		if e.Kind != trace.KindWait && e.Kind != trace.KindCall && !e.Kind.Beside() {
			begin = min(begin, e.Start)
		} else {
			begin = min(begin, e.Time)
		}
		if span >= p.behind && !e.Kind.Beside() {
			active[e.Thread] = true
		}
		if e.Kind == trace.KindCPU || e.Kind == trace.KindThreadExit {
			p.sampled[e.Thread] += e.CPU
		}
		switch e.Kind {
		case trace.KindCPU, trace.KindGap, trace.KindSync, trace.KindEnter:
			p.samples += uint64(e.Count)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if n := len(p.spans); n > 0 {
		last := p.spans[n-1]
		total := last.first + uint64(last.batch[0]) + uint64(last.batch[1])<<8 - first
		before = total - min(total, p.count)
	}
	p.overwritten += before
	if p.overwritten > 0 {
		if p.base != nil {
			begin = p.cut
		}
		p.meta.Started = p.meta.Started.Add(time.Duration(begin - p.meta.StartNs))
		p.meta.StartNs = begin
	}
	p.meta.EndNs = max(p.end, p.meta.StartNs)
	if p.key != nil {
		for _, e := range p.key.open {
			if !active[e.Thread] {
				p.uses(&e)
				p.open = append(p.open, e)
			}
		}
	}
	p.number()
	return nil
}

// maxWaited is how many locks and conditions are looked for among a program's variables.
const maxWaited = 4096

// uses marks what an event refers to.
func (p *pick) uses(e *trace.Event) {
	if e.Kind == trace.KindWait && len(p.waited) < maxWaited && e.Hook != hooks.PythonGIL { // which has a name of its own
		p.waited[e.Object] = struct{}{}
	}
	for _, t := range [...]trace.ThreadID{e.Thread, e.Owner, e.Releaser} {
		if t != 0 && !p.usedThreads[t] {
			p.usedThreads[t] = true
		}
	}
	for id := e.Stack; id != 0 && int(id) < len(p.usedNodes) && !p.usedNodes[id]; id = p.c.dict.nodes[id].Parent {
		p.usedNodes[id] = true
		p.usedModules[p.c.dict.nodes[id].Addr.Module] = true
	}
}

// number gives everything that is used the numbers of the recording: dense, from 1, in the session's order.
func (p *pick) number() {
	d := p.c.dict
	procs := map[trace.ProcID]bool{}
	for id := range p.usedThreads {
		t, ok := d.threads[id]
		if !ok {
			delete(p.usedThreads, id)
			continue
		}
		for pid := t.Proc; pid != 0 && !procs[pid]; pid = d.procs[pid].Parent {
			if _, ok := d.procs[pid]; !ok {
				break
			}
			procs[pid] = true
		}
		p.usedModules[t.StartRoutine.Module] = true
	}
	for id := range p.usedThreads {
		if !procs[d.threads[id].Proc] {
			delete(p.usedThreads, id)
		}
	}
	for i, id := range sorted(procs) {
		p.procs[id] = trace.ProcID(i + 1)
	}
	for i, id := range sorted(p.usedThreads) {
		p.threads[id] = trace.ThreadID(i + 1)
	}
	// Modules that threads waited for something in have its name: all of them are kept.
	all := map[trace.ModuleID]bool{}
	for id := range d.modules {
		all[id] = true
	}
	for i, id := range sorted(all) {
		p.modules[id] = trace.ModuleID(i + 1)
	}
	p.nodeOrder = p.nodeOrder[:0]
	var number func(id trace.StackID) trace.StackID
	number = func(id trace.StackID) trace.StackID {
		if id == 0 || int(id) >= len(p.nodes) || d.nodes[id] == (trace.Node{}) {
			return 0
		}
		if p.nodes[id] == 0 {
			number(d.nodes[id].Parent) // callers come first
			p.nodeOrder = append(p.nodeOrder, id)
			p.nodes[id] = trace.StackID(len(p.nodeOrder))
		}
		return p.nodes[id]
	}
	for id, used := range p.usedNodes {
		if used {
			number(trace.StackID(id))
		}
	}
}

func sorted[K ~uint32](m map[K]bool) []K {
	var list []K
	for k := range m {
		list = append(list, k)
	}
	slices.Sort(list)
	return list
}

// node is a node with the recording's numbers.
func (p *pick) node(id trace.StackID) trace.Node {
	n := p.c.dict.nodes[id]
	n.Parent = p.stack(n.Parent)
	n.Addr.Module = p.modules[n.Addr.Module]
	return n
}

func (p *pick) stack(id trace.StackID) trace.StackID {
	if int(id) >= len(p.nodes) {
		return 0
	}
	return p.nodes[id]
}

// translate gives an event the recording's numbers. It reports false for an event whose thread is not known.
func (p *pick) translate(e *trace.Event) bool {
	e.Thread = p.threads[e.Thread]
	if e.Thread == 0 {
		return false
	}
	e.Owner = p.threads[e.Owner]
	if e.Releaser != 0 {
		if e.Releaser = p.threads[e.Releaser]; e.Releaser == 0 {
			e.Flags &^= trace.FlagCertain
			if e.Kind != trace.KindOff {
				e.Release = 0
			}
		}
	}
	if e.Stack != 0 {
		if e.Stack = p.stack(e.Stack); e.Stack == 0 {
			e.Same = 0
			e.Flags = e.Flags&^trace.FlagSameCall | trace.FlagNoStack
		}
	}
	return true
}

// write stores what was picked.
func (p *pick) write(w *tracefile.Writer) error {
	d := p.c.dict
	for _, id := range sortedKeys(p.procs) {
		x := d.procs[id]
		x.ID, x.Parent = p.procs[id], p.procs[x.Parent]
		x.Forked = x.Forked && x.Parent != 0
		x.Start, x.End = p.bounds(x.Start, x.End)
		if err := w.PutProcess(&x); err != nil {
			return err
		}
	}
	for _, id := range sortedKeys(p.modules) {
		x := d.modules[id]
		x.ID, x.Proc = p.modules[id], p.procs[x.Proc]
		p.moduleList = append(p.moduleList, x)
		if err := w.PutModule(&x); err != nil {
			return err
		}
	}
	for _, id := range sortedKeys(p.threads) {
		x := d.threads[id]
		x.ID, x.Proc, x.Parent = p.threads[id], p.procs[x.Proc], p.threads[x.Parent]
		x.StartRoutine.Module = p.modules[x.StartRoutine.Module]
		x.Start, x.End = p.bounds(x.Start, x.End)
		p.within(&x, id)
		if err := w.PutThread(&x); err != nil {
			return err
		}
	}
	for i, id := range p.nodeOrder {
		if err := w.PutNode(trace.StackID(i+1), p.node(id)); err != nil {
			return err
		}
	}
	p.count = 0
	seen := make([]bool, len(p.threads)+1) // threads that had an event with a stack
	err := p.each(func(_ int, e *trace.Event) error {
		if !p.translate(e) {
			p.overwritten++
			return nil
		}
		p.settle(e, seen)
		p.count++
		return w.PutEvent(e)
	})
	if err != nil {
		return err
	}
	kept := p.open[:0]
	for _, e := range p.open {
		if !p.translate(&e) {
			continue
		}
		p.settle(&e, seen)
		e.Time = p.meta.EndNs
		p.count++
		if err := w.PutEvent(&e); err != nil {
			return err
		}
		kept = append(kept, e)
	}
	p.open = kept
	return w.Flush()
}

// bounds is when something that the dictionary knows of began and ended, as of the recording's end. The dictionary was
// read later than the events.
func (p *pick) bounds(start, end trace.Ns) (trace.Ns, trace.Ns) {
	if end > p.meta.EndNs {
		end = 0
	}
	return min(start, p.meta.EndNs), end
}

// within leaves of a thread's counters what it used in the recording's time.
func (p *pick) within(x *trace.Thread, id trace.ThreadID) {
	if p.key != nil && p.c.alive && x.End == 0 {
		if u, ok := p.key.used[id]; ok { // the dictionary's are of another moment
			u.set(x)
		}
	}
	switch {
	case p.overwritten == 0:
	case p.base == nil:
		x.CPU = -1 // nothing says what it had used before
	case x.End != 0 && x.End <= p.cut:
		used{}.set(x)
	default:
		usedBy(x).since(p.base.used[id]).set(x)
	}
	if !p.c.alive && x.CPU >= 0 {
		x.CPU = max(x.CPU, p.sampled[id]) // it was counted before the newest samples
	}
	p.lost += x.Lost
}

// settle mends an event whose thread's events in front of it are not in the recording: Same refers to a stack that is
// there.
func (p *pick) settle(e *trace.Event, seen []bool) {
	if e.Stack == 0 || e.Kind.Beside() {
		return
	}
	if !seen[e.Thread] && p.overwritten > 0 {
		e.Same = 0
		e.Flags &^= trace.FlagSameCall
	}
	seen[e.Thread] = true
}

func sortedKeys[K ~uint32, V any](m map[K]V) []K {
	var list []K
	for k := range m {
		list = append(list, k)
	}
	slices.Sort(list)
	return list
}

// addresses lists the addresses of the recording's stacks, by module.
func (p *pick) addresses() map[trace.ModuleID][]uint64 {
	by := map[trace.ModuleID][]uint64{}
	for _, id := range p.nodeOrder {
		if n := p.node(id); n.How != trace.HowMark && n.Addr.Module != 0 {
			by[n.Addr.Module] = append(by[n.Addr.Module], n.Lookup())
		}
	}
	for m := range by {
		slices.Sort(by[m])
		by[m] = slices.Compact(by[m])
	}
	return by
}

// account fills in the recording's statistics.
func (p *pick) account(s *trace.Stats) {
	s.Events, s.Nodes, s.Samples, s.Overwritten = p.count, uint64(len(p.nodeOrder)), p.samples, p.overwritten
	s.Lost = p.lost
	s.Complete = true
	if !p.c.alive {
		s.Notes = append(s.Notes, "the recorder was killed: threads' counters are those of up to a second before")
	}
	if p.c.broken > 0 {
		s.Notes = append(s.Notes, fmt.Sprintf("%d records of the window made no sense: they are left out", p.c.broken))
	}
}
