// Package page shows a recording in a browser: [Serve] answers a page on loopback, [Export] writes the same page and
// the recording's data into one file.
//
// A recording is read once into a [Model]: of each thread a list of pieces of time, which are the segments of package
// timeline (piece.go), and the spans of its calls (spans.go). Everything that the page
// shows is a sum over pieces within a selection of time and threads, so all views agree with each other. A query
// (query.go) gives pieces or sums at the resolution of the screen: what is thinner than a pixel is summed here, and a
// recording is never shipped whole. The exported file holds the same pieces, coarsened until they fit
// (coarse.go); the page then does the queries itself.
//
// Names are untrusted all the way: here they are data in JSON, there they are set as text.
package page

import (
	"context"
	"errors"
	"sync"

	"github.com/hbtrace/hbtrace/analysis/detail"
	"github.com/hbtrace/hbtrace/analysis/frames"
	"github.com/hbtrace/hbtrace/analysis/spans"
	"github.com/hbtrace/hbtrace/analysis/timeline"
	"github.com/hbtrace/hbtrace/analysis/weigh"
	"github.com/hbtrace/hbtrace/trace"
)

// Model is what the page asks about a recording. It can be asked while it is still being read: it then answers from
// what was read so far.
type Model struct {
	src trace.Source

	mu      sync.RWMutex // everything below; written by Read alone
	from    trace.Ns     // CLOCK_MONOTONIC of the page's time 0
	to      trace.Ns     // end of the recording, as far as it is known
	knobs   []aboutMark  // changes of how much detail is recorded
	grows   bool         // the recording does not say when it ended: to follows the events
	threads []*thread
	index   map[trace.ThreadID]int32 // of threads
	sites   sites
	objects objects
	load    *load
	doubt   doubt
	read    uint64
	// Runnable time as the kernel counted it (looks.go).
	lookCount int
	anyReady  bool // some of it
	kernel    bool // every switch
	done      bool
	failed    error
	chains    *chains   // of the whole recording; nil: not found yet
	spending  *spending // likewise, what selections are cut from

	// What is kept at most, and what was done for that (coarse.go): resolutions in ns, 0 where nothing was coarsened.
	most          most
	res, allocRes int64
	share         float64
	spanFloor     int64 // ns; shorter calls are not kept
	spanCount     int

	// naming serialises what gives names to sites: frames.Table is not safe for concurrent use, and spans.Builder
	// shares it with queries.
	naming sync.Mutex
	tab    *frames.Table
	tree   tree

	hideSource bool
	reading    sync.Mutex // source files
	files      map[string]*sourceFile
}

// doubt is what the samples of a recording lack.
type doubt struct {
	Samples   uint64 `json:"samples"`   // periodic
	Stacks    uint64 `json:"stacks"`    // samples and intervals that ought to have a stack
	NoStack   uint64 `json:"noStack"`   // of them: without one
	Cut       uint64 `json:"cut"`       // callers missing
	Guessed   uint64 `json:"guessed"`   // a frame guessed
	Omitted   uint64 `json:"omitted"`   // frames missing in the middle
	LateNs    int64  `json:"lateNs"`    // CPU time of samples taken after the work that they were due in, and left there
	SharedNs  int64  `json:"sharedNs"`  // likewise, and placed by other samples of the same work
	Unplaced  int64  `json:"unplaced"`  // ns of CPU time that found no place in its thread's time
	Clipped   uint64 `json:"clipped"`   // intervals that overlap what was seen before
	Lost      uint64 `json:"lost"`      // records, as the stream says
	ThinSpans uint64 `json:"thinSpans"` // calls too short to be kept
	Displaced int64  `json:"displaced"` // ns of pieces whose place was not kept, of many in a long recording
}

// New makes a model of src, to be filled by [Model.Read].
func New(src trace.Source) *Model {
	m := &Model{most: mostKept, src: src, index: map[trace.ThreadID]int32{}, files: map[string]*sourceFile{}, tab: frames.New(src)}
	m.sites.ids = map[trace.Site]uint32{}
	m.sites.keys = make([]trace.Site, 1) // 0: no place
	m.objects.ids = map[objectKey]uint32{}
	m.objects.keys = make([]objectKey, 1)
	m.tree.init()
	m.from, m.to, m.grows = timeline.Window(src.Meta())
	if m.grows {
		m.to = m.from + 1
	}
	m.load = newLoad(int64(m.to - m.from))
	if m.grows {
		m.load = newLoad(0)
	}
	list := src.Threads()
	for i := range list {
		m.addThread(&list[i])
	}
	return m
}

const farNs = trace.Ns(1) << 61 // times beyond are nonsense, and would overflow

func clamp(at trace.Ns) trace.Ns { return max(-farNs, min(farNs, at)) }

// rel is a time as the page counts it: ns since the recording's start, within the recording.
func (m *Model) rel(at trace.Ns) int64 {
	at = clamp(at)
	if m.grows && at > m.to {
		m.to = min(at, m.from+maxNs)
	}
	return int64(max(m.from, min(at, m.to)) - m.from)
}

// maxNs is the longest time that a page's numbers (IEEE doubles) count exactly, in ns: 104 days.
const maxNs = timeline.MaxNs

func (m *Model) addThread(th *trace.Thread) *thread {
	t := &thread{info: th, start: m.rel(th.Start), end: -1}
	if th.Start == 0 {
		t.start = 0
	}
	if th.End != 0 {
		t.end = m.rel(th.End)
	}
	m.index[th.ID] = int32(len(m.threads))
	m.threads = append(m.threads, t)
	return t
}

func (m *Model) thread(id trace.ThreadID) (int32, *thread) {
	i, ok := m.index[id]
	if !ok {
		m.addThread(&trace.Thread{ID: id, CPU: -1})
		i = m.index[id]
	}
	return i, m.threads[i]
}

// batch is how many events are read between two moments at which queries are answered.
const batch = 16 << 10

// Read reads the whole recording, and then looks for chains of waits in it. It ends early with ctx, and gives that to nobody as an answer: a Model whose reading
// failed says so in its [Model.About].
func (m *Model) Read(ctx context.Context) error {
	r := newReader(m)
	m.mu.Lock()
	m.naming.Lock()
	n := 0
	err := trace.Events(m.src, func(e *trace.Event) error {
		if n++; n%batch == 0 {
			m.bound()
			m.naming.Unlock()
			m.mu.Unlock()
			if err := ctx.Err(); err != nil {
				m.mu.Lock()
				m.naming.Lock()
				return err
			}
			m.mu.Lock()
			m.naming.Lock()
		}
		m.read++
		return r.event(e)
	})
	m.bound()
	cover, cerr := r.spans.Close()
	cerr = errors.Join(cerr, r.line.Close())
	m.doubt.Clipped = r.line.Clipped
	m.naming.Unlock()
	for id, c := range cover {
		_, t := m.thread(id)
		t.cover = c
	}
	for _, t := range m.threads {
		t.spans.finish()
	}
	m.naming.Lock()
	m.doubt.SharedNs = r.late.share(m)
	m.naming.Unlock()
	m.doubt.LateNs = max(0, m.doubt.LateNs-m.doubt.SharedNs)
	m.done, m.failed = true, errors.Join(err, cerr)
	m.mu.Unlock()
	if err := m.findChains(ctx); err != nil {
		return err
	}
	return m.failed
}

// reader is the state of Read.
type reader struct {
	m     *Model
	spans *spans.Builder
	line  *timeline.Builder
	late  late
	lives *weigh.Lives
	alive []living // by number
	ended []int32  // numbers that can be used again
	// the latest thread: events come in runs
	id   trace.ThreadID
	at   int32
	last *thread
}

// living is an allocation whose free was not seen yet.
type living struct {
	alloc
	thread int32
}

func newReader(m *Model) *reader {
	r := &reader{m: m, late: newLate(), lives: weigh.NewLives()}
	r.line = timeline.New(m.src, m.tab, r)
	r.spans = spans.New(m.src, m.tab, &spanSink{m: m}, r.line.Step)
	return r
}

func (r *reader) thread(id trace.ThreadID) (int32, *thread) {
	if r.last == nil || r.id != id {
		r.at, r.last = r.m.thread(id)
		r.id = id
	}
	return r.at, r.last
}

func (r *reader) event(e *trace.Event) error {
	m := r.m
	_, t := r.thread(e.Thread)
	ev := *e
	ev.Time = m.from + trace.Ns(m.rel(e.Time))
	if e.Start != 0 {
		ev.Start = m.from + trace.Ns(m.rel(min(clamp(e.Start), clamp(e.Time))))
	}
	at := int64(ev.Time - m.from)
	r.count(e)
	if err := r.spans.Add(&ev); err != nil {
		return err
	}
	switch e.Kind {
	case trace.KindThreadExit:
		t.end = at
		if n := len(t.pieces); n > 0 {
			t.end = max(t.end, t.pieces[n-1].end)
		}
	case trace.KindOff:
		if could, waited := e.Runnable(); waited {
			t.ready += max(0, at-m.rel(could))
		}
		m.kernel = true
	case trace.KindKnob:
		if len(m.knobs) < maxKnobs {
			m.knobs = append(m.knobs, aboutMark{at, "budget: " + detail.Text(trace.Knob(e.Object), e.Size)})
		}
	case trace.KindUsage:
		m.looked(t, look{int64(ev.Start - m.from), at, e.Debt})
	case trace.KindAlloc:
		a := alloc{at, m.sites.id(r.valid(e.Stack), e.Hook), float64(e.Weight), float64(e.Weight) / float64(max(e.Size, 1))}
		t.allocs = append(t.allocs, a)
		m.load.add(loadAlloc, at, at, a.bytes)
		r.allocated(t, e, a)
	case trace.KindFree:
		if n, ok := r.lives.Free(t.info.Proc, e.Object, e.Time); ok {
			r.freed(n, e.Time)
		}
	case trace.KindRelease:
		t.releases = append(t.releases, release{at, m.sites.id(r.valid(e.Stack), e.Hook), r.object(t, e)})
	case trace.KindLost:
		t.lost += uint64(e.Count)
	}
	return nil
}

// allocated follows an allocation until it is freed.
func (r *reader) allocated(t *thread, e *trace.Event, a alloc) {
	n := int32(len(r.alive))
	if k := len(r.ended); k > 0 {
		n = r.ended[k-1]
		r.ended = r.ended[:k-1]
	} else {
		r.alive = append(r.alive, living{})
	}
	r.alive[n] = living{a, r.at}
	if f, ok := r.lives.Alloc(t.info.Proc, e.Object, e.Time, n); ok {
		r.freed(f.Number, f.At)
	}
}

func (r *reader) freed(n int32, at trace.Ns) {
	x := &r.alive[n]
	t := r.m.threads[x.thread]
	t.ends = append(t.ends, end{x.alloc, max(x.at, r.m.rel(at))})
	r.ended = append(r.ended, n)
}

// object is the number of what an event speaks of; 0 where that is nothing.
func (r *reader) object(t *thread, e *trace.Event) uint32 {
	fd := r.m.src.Meta().Hooks[e.Hook].Object == trace.HookFD
	if e.Object == 0 && !fd {
		return 0
	}
	return r.m.objects.id(objectKey{t.info.Proc, e.Object, fd}, e.Hook)
}

func (r *reader) valid(id trace.StackID) trace.StackID {
	if r.m.tab.Valid(id) {
		return id
	}
	return 0
}

// count notes what the stacks lack.
func (r *reader) count(e *trace.Event) {
	d, n := &r.m.doubt, uint64(max(e.Count, 1))
	switch e.Kind {
	case trace.KindCPU:
		d.Samples += n
		if e.Flags&trace.FlagLate != 0 {
			d.LateNs += max(0, e.CPU)
		}
	case trace.KindWait, trace.KindCall, trace.KindAlloc:
	case trace.KindLost:
		d.Lost += uint64(e.Count)
		return
	default:
		return
	}
	d.Stacks += n
	if r.valid(e.Stack) == 0 && !frames.Begins(r.m.src.Meta(), e.Hook) {
		d.NoStack += n
	}
	if e.Flags&trace.FlagStackCut != 0 {
		d.Cut += n
	}
	if e.Flags&trace.FlagStackGuessed != 0 {
		d.Guessed += n
	}
	if e.Flags&trace.FlagStackOmitted != 0 {
		d.Omitted += n
	}
}

// Wait implements [timeline.Sink].
func (r *reader) Wait(e *trace.Event, _, to trace.Ns, _ state) uint32 {
	m := r.m
	_, t := r.thread(e.Thread)
	w := wait{flags: e.Flags, release: -1}
	if e.Owner != 0 {
		o, _ := m.thread(e.Owner)
		w.owner = uint32(o) + 1
	}
	if e.Releaser != 0 {
		o, _ := m.thread(e.Releaser)
		w.releaser = uint32(o) + 1
		if e.Release != 0 {
			w.release = m.rel(e.Release)
		}
	}
	w.object = r.object(t, e)
	t.begun++
	t.coming = append(t.coming, comingWait{wait: w, number: t.begun, end: to})
	return t.begun
}

// Work implements [timeline.Sink].
func (r *reader) Work(e *trace.Event, site trace.Site) uint32 {
	_, t := r.thread(e.Thread)
	return r.late.sample(e, t.info.Proc, r.m.sites.id(site.Stack, site.Hook), max(0, min(e.CPU, maxNs)))
}

// Segment implements [timeline.Sink].
func (r *reader) Segment(id trace.ThreadID, s *timeline.Segment) error {
	m := r.m
	_, t := r.thread(id)
	p := piece{start: int64(s.From - m.from), end: int64(s.To - m.from), site: m.sites.id(s.Site.Stack, s.Site.Hook), state: s.State, late: s.Work}
	if s.Wait != 0 {
		w, again := t.arrived(s)
		t.waits = append(t.waits, w)
		p.wait, p.again = uint32(len(t.waits)), again
	}
	m.load.add(loadOf[p.state], p.start, p.end, 1)
	t.emit(p)
	return nil
}

// Unplaced implements [timeline.Sink].
func (r *reader) Unplaced(id trace.ThreadID, at trace.Ns, site trace.Site, work uint32, cpu int64) error {
	m := r.m
	_, t := r.thread(id)
	m.doubt.Unplaced += cpu
	t.unplace(unplaced{max(0, int64(at-m.from)-1), m.sites.id(site.Stack, site.Hook), work, cpu}, m.finest())
	return nil
}
