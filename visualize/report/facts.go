// Facts: what one or two passes over a recording's events yield for all views.

package report

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/hbtrace/hbtrace/analysis/blame"
	"github.com/hbtrace/hbtrace/analysis/detail"
	"github.com/hbtrace/hbtrace/analysis/edges"
	"github.com/hbtrace/hbtrace/analysis/feed"
	"github.com/hbtrace/hbtrace/analysis/frames"
	"github.com/hbtrace/hbtrace/analysis/spans"
	"github.com/hbtrace/hbtrace/analysis/timeline"
	"github.com/hbtrace/hbtrace/analysis/weigh"
	"github.com/hbtrace/hbtrace/trace"
)

// facts of one recording. Memory is bounded by what is distinct (stacks, threads, edges), not by the events.
type facts struct {
	src     trace.Source
	meta    *trace.Meta
	stats   *trace.Stats
	weights *weigh.Table
	frames  *frames.Table
	locking *weigh.Locking
	procs   map[trace.ProcID]*trace.Process
	threads trace.PerThread[threadFacts]
	order   []*threadFacts // by CPU, then time blocked
	blocks  []*block       // by total
	edges   []*edges.Edge  // by total
	folded  uint64         // waits that no edge is kept for
	foldedN int64          // ns of them
	knobs   detail.Knobs
	kinds   [trace.KindKnob + 1]uint64
	named   map[string]int // threads by name
	odd     uint64         // events of no known kind
	blame   *blame.Result  // nil: the view does not ask
	known   map[string]int // objects by name
	checked *selfCheck     // nil: the view does not ask
}

// threadFacts are one thread's sums.
type threadFacts struct {
	*trace.Thread
	cpu, tail int64                  // ns: accounted for by samples, and after the last of them
	states    [weigh.NumStates]int64 // ns in each, by package timeline
	unplaced  int64                  // ns of CPU time for which the thread's time has no room
	ready     int64                  // ns runnable without a CPU, as far as the kernel was asked
	samples   uint64
	cover     spans.Coverage
	lost      uint64 // as the stream says
}

func (t *threadFacts) locked() int64 { return t.states[weigh.Locked] }

func (t *threadFacts) waited() int64 { return t.states[weigh.Signaled] }

// called is the time in blocking calls.
func (t *threadFacts) called() int64 {
	return t.states[weigh.InOut] + t.states[weigh.Polling] + t.states[weigh.Other] + t.states[weigh.Sleeping]
}

// stateSums adds up what threads did.
type stateSums struct {
	timeline.Discard
	of trace.PerThread[stateSum]
}

type stateSum struct {
	states   [weigh.NumStates]int64
	unplaced int64
}

func (s *stateSums) thread(id trace.ThreadID) *stateSum {
	t := s.of.Get(id)
	if t == nil {
		t = &stateSum{}
		s.of.Put(id, t)
	}
	return t
}

// Segment implements [timeline.Sink].
func (s *stateSums) Segment(id trace.ThreadID, x *timeline.Segment) error {
	s.thread(id).states[x.State] += int64(x.To - x.From)
	return nil
}

// Unplaced implements [timeline.Sink].
func (s *stateSums) Unplaced(id trace.ThreadID, _ trace.Ns, _ trace.Site, _ uint32, cpu int64) error {
	s.thread(id).unplaced += cpu
	return nil
}

// block is all waits or calls at one place.
type block struct {
	at    trace.Site
	wait  bool
	lock  bool // a wait for a lock
	count uint64
	total int64 // ns
	max   int64 // ns
	open  uint64
	ended map[trace.ThreadID]*ending // by who wrote what was waited for; nil: not known
}

// ending is the waits at one place that one thread ended.
type ending struct {
	by             trace.ThreadID
	count, certain uint64
	total          int64 // ns
}

// endings are who ended the calls at a place, those of the most time first.
func (b *block) endings() []*ending {
	var list []*ending
	for _, x := range b.ended {
		list = append(list, x)
	}
	slices.SortFunc(list, func(x, y *ending) int { return cmp.Or(cmp.Compare(y.total, x.total), cmp.Compare(x.by, y.by)) })
	return list
}

// endedBy counts a call that a thread of the recording let go on.
func (b *block) endedBy(by trace.ThreadID, certain bool, ns int64) {
	if b.ended == nil {
		b.ended = map[trace.ThreadID]*ending{}
	}
	x := b.ended[by]
	if x == nil {
		x = &ending{by: by}
		b.ended[by] = x
	}
	x.count++
	x.total += ns
	if certain {
		x.certain++
	}
}

// collect reads src. With chains it also finds out what the waits were spent on, which holds them in memory; so
// does check, which compares them with the kernel's account. With weights, events are added to them, and what is stored is not taken.
func collect(src trace.Source, chains, check bool, weights *weigh.Collector) (*facts, error) {
	f := newFacts(src)
	if !check && weights == nil && f.stored(chains) {
		return f, nil
	}
	if weights == nil {
		weights = weigh.NewCollector(src, weigh.Options{})
	}
	did := &stateSums{}
	line := timeline.New(src, f.frames, did)
	consumers := []func([]trace.Event) error{weights.AddBatch}
	j := edges.New()
	var who *blame.Analyser
	if chains {
		who = blame.New(src, frames.New(src), blame.Options{Whole: true})
		consumers = append(consumers, func(events []trace.Event) error {
			for i := range events {
				who.Add(&events[i])
			}
			return nil
		})
	}
	var checking *checkInput
	if check {
		checking = &checkInput{own: map[trace.ThreadID][]ownInterval{}, offs: map[trace.ThreadID][]offTime{}}
	}
	blocks := map[uint64]*block{} // by stack and hook
	diff := spans.New(src, f.frames, spans.Discard{}, line.Step)
	add := func(e *trace.Event) error {
		if int(e.Kind) >= len(f.kinds) || e.Kind == 0 {
			f.odd++
			return nil
		}
		f.kinds[e.Kind]++
		if err := diff.Add(e); err != nil {
			return err
		}
		j.Add(e)
		if check {
			checking.add(e)
		}
		t := f.thread(e.Thread)
		switch e.Kind {
		case trace.KindCPU:
			t.cpu += max(0, e.CPU)
			t.samples += uint64(max(1, e.Count))
		case trace.KindThreadExit:
			t.tail += max(0, e.CPU)
		case trace.KindUsage:
			t.ready += max(0, e.Debt)
		case trace.KindKnob:
			f.knobs.Turn(e)
		case trace.KindOff:
			if could, ok := e.Runnable(); ok {
				t.ready += int64(e.Time - could)
			}
		case trace.KindLost:
			t.lost += uint64(e.Count)
		case trace.KindWait, trace.KindCall:
			ns := max(0, int64(e.Time-e.Start))
			at := trace.Site{Stack: e.Stack, Hook: e.Hook}
			key := uint64(e.Stack)<<16 | uint64(e.Hook)
			b := blocks[key]
			if b == nil {
				b = &block{at: at, wait: e.Kind == trace.KindWait}
				b.lock = b.wait && f.locking.Wait(e.Hook, e.Stack)
				blocks[key] = b
			}
			if !b.wait && e.Releaser != 0 {
				b.endedBy(e.Releaser, e.Flags&trace.FlagCertain != 0, ns)
			}
			b.count += uint64(max(1, e.Count))
			b.total += ns
			b.max = max(b.max, ns)
			if e.Flags&trace.FlagOpen != 0 {
				b.open++
			}
		}
		return nil
	}
	consumers = append(consumers, func(events []trace.Event) error {
		for i := range events {
			if err := add(&events[i]); err != nil {
				return err
			}
		}
		return nil
	})
	if err := feed.Batches(src, consumers...); err != nil {
		return nil, fmt.Errorf("reading the recording's events: %w", err)
	}
	var chain *blame.Result
	if who != nil { // first: nothing takes more memory than what it finds that out of, and what sharing out weights does
		chain, who = who.Finish(), nil
	}
	f.weights = weights.Coarser(0).Table()
	cover, err := diff.Close()
	if err != nil {
		return nil, fmt.Errorf("accounting for threads' time: %w", err)
	}
	for id, c := range cover {
		f.thread(id).cover = c
	}
	if err := line.Close(); err != nil {
		return nil, fmt.Errorf("accounting for threads' time: %w", err)
	}
	for id, s := range did.of.All() {
		t := f.thread(id)
		t.states, t.unplaced = s.states, s.unplaced
	}
	f.edges = j.Finish()
	if chain != nil {
		f.chain(chain)
	}
	f.folded, f.foldedN = j.Folded, j.FoldedNs
	for _, b := range blocks {
		f.blocks = append(f.blocks, b)
	}
	slices.SortFunc(f.blocks, func(a, b *block) int {
		return cmp.Or(cmp.Compare(b.total, a.total), cmp.Compare(a.at.Stack, b.at.Stack), cmp.Compare(a.at.Hook, b.at.Hook))
	})
	for _, t := range f.threads.All() {
		f.order = append(f.order, t)
	}
	slices.SortFunc(f.order, func(a, b *threadFacts) int {
		return cmp.Or(cmp.Compare(b.cpu+b.tail, a.cpu+a.tail), cmp.Compare(b.locked(), a.locked()),
			cmp.Compare(b.waited()+b.called(), a.waited()+a.called()), cmp.Compare(a.ID, b.ID))
	})
	if check {
		f.checked = f.check(checking)
	}
	return f, nil
}

// chain adds what the waits were spent on, and the names that it has for objects.
func (f *facts) chain(res *blame.Result) {
	f.blame, f.known = res, map[string]int{}
	for _, l := range f.locks() {
		f.known[res.Name(blame.Object{Proc: l.proc, Addr: l.object})]++
	}
}

// newFacts is what is known before any event is read.
func newFacts(src trace.Source) *facts {
	f := &facts{
		src: src, meta: src.Meta(), stats: src.Stats(),
		procs: map[trace.ProcID]*trace.Process{},
	}
	f.frames = frames.New(src) // of this goroutine's own: weights have another
	f.locking = weigh.NewLocking(f.meta, f.frames)
	procs := src.Processes()
	for i := range procs {
		f.procs[procs[i].ID] = &procs[i]
	}
	threads := src.Threads()
	f.named = map[string]int{}
	for i := range threads {
		f.thread(threads[i].ID).Thread = &threads[i]
		f.named[threads[i].Name]++
	}
	return f
}

// thread finds a thread's facts; events may name threads that the recording does not list.
func (f *facts) thread(id trace.ThreadID) *threadFacts {
	t := f.threads.Get(id)
	if t == nil {
		t = &threadFacts{Thread: &trace.Thread{ID: id, CPU: -1}}
		f.threads.Put(id, t)
	}
	return t
}

// hook is the name of a hooked function, "" for none.
func (f *facts) hook(h trace.HookID) string { return frames.HookName(f.meta, h) }

// kind of object that a hook waits for.
func (f *facts) kind(h trace.HookID) string { return weigh.ObjectKind(f.meta.Hooks[h]) }

// duration of the recording in ns.
func (f *facts) duration() int64 { return max(0, int64(f.meta.EndNs-f.meta.StartNs)) }

// threadName is how tables call a thread: its name, and its tid where another thread has the same.
func (f *facts) threadName(id trace.ThreadID) string {
	if id == 0 {
		return "?"
	}
	t := f.threads.Get(id)
	switch {
	case t == nil || t.TID == 0 && t.Name == "":
		return fmt.Sprintf("thread #%d", id)
	case t.Name == "":
		return fmt.Sprintf("thread %d", t.TID)
	}
	if f.named[t.Name] == 1 {
		return t.Name
	}
	return fmt.Sprintf("%s/%d", t.Name, t.TID)
}

// object names a lock, futex or other address with its kind, for tables.
func (f *facts) object(proc trace.ProcID, kind string, addr uint64) string {
	if name := f.frames.Variable(addr); name != "" || f.blame == nil {
		return kind + " " + f.frames.Object(addr)
	}
	name := f.blame.Name(blame.Object{Proc: proc, Addr: addr})
	if name == "" || f.known[name] != 1 {
		return kind + " " + f.frames.Object(addr)
	}
	return name
}

// objectName is what JSON calls an object: the same for the same lock in every recording, as far as that can be.
func (f *facts) objectName(o blame.Object) string {
	if f.blame != nil {
		return f.blame.ObjectName(f.frames, o)
	}
	return f.frames.Object(o.Addr)
}

// covered is what is known of all threads' time, in ns.
func (f *facts) covered() (exact, sampled, unknown int64) {
	for _, t := range f.order {
		exact += t.cover.Exact
		sampled += t.cover.Sampled
		unknown += t.cover.Unknown
	}
	return exact, sampled, unknown
}
